//! Looks up the addresses of a name, and how long they are valid.
//!
//! DNS servers report a time to live, which the system's resolver does not pass on. Therefore
//! flowgate asks them itself, by `/etc/hosts` and `/etc/resolv.conf`. The system's resolver is asked
//! for names that DNS does not have, because `nsswitch.conf` may name other sources.

use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};
use hickory_resolver::{
    TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolverConfig, ResolverOpts},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::Name,
    system_conf::read_system_conf,
};
use std::{fs, io, net::UdpSocket, os::unix::fs::MetadataExt, path::PathBuf, sync::Arc};

/// The most addresses of a name that are used.
const ADDRESSES_MAX: usize = 100;

/// What the system's resolver reads, and flowgate too.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// In ascending order. None if each connection has to look up the name itself.
    pub addresses: Vec<IpAddr>,
    /// How long they are valid, as DNS says. `None`: by the system's resolver, which does not say.
    pub ttl: Option<Duration>,
}

/// Looks up names by the files and servers of its last [`follow`](Self::follow).
pub struct Resolver {
    source: Source,
    servers: Vec<SocketAddr>,
    /// [`FILES`], unless a test watches others.
    paths: [PathBuf; 2],
    /// Each one's number and when it was changed; `None` if there is none.
    files: [Option<(u64, i64, i64)>; 2],
}

#[cfg(test)]
type Fake = Arc<dyn Fn(&str) -> io::Result<Found> + Send + Sync>;

/// Where addresses come from.
#[derive(Clone)]
pub enum Source {
    /// DNS servers. `None`: neither the configuration nor the system names any.
    Dns(Option<Arc<TokioResolver>>, Fallback),
    /// A test.
    #[cfg(test)]
    Fake(Fake),
}

/// Who is asked for names that DNS does not have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fallback {
    /// The system's resolver.
    System,
    /// The configuration names the DNS servers: no other.
    Nothing,
}

impl Resolver {
    /// Returns a resolver that asks a test.
    #[cfg(test)]
    pub fn fake(found: impl Fn(&str) -> io::Result<Found> + Send + Sync + 'static) -> Self {
        Self { source: Source::Fake(Arc::new(found)), ..Self::default() }
    }

    /// Asks these DNS servers from now on, or the system's if there are none. Reads the system's
    /// files again if they have changed. Returns whether names may have other addresses now.
    pub fn follow(&mut self, servers: &[SocketAddr]) -> bool {
        #[cfg(test)]
        if matches!(self.source, Source::Fake(_)) {
            return false;
        }
        let files = self.paths.each_ref().map(|path| {
            let file = fs::metadata(path).ok()?;
            Some((file.ino(), file.ctime(), file.ctime_nsec()))
        });
        if self.files == files && self.servers == servers {
            return false;
        }
        let fallback = if servers.is_empty() { Fallback::System } else { Fallback::Nothing };
        let dns = dns(servers).inspect_err(|error| {
            tracing::warn!(%error, "cannot read {}; the system resolves names", FILES[0]);
        });
        self.source = Source::Dns(dns.ok().map(Arc::new), fallback);
        self.files = files;
        self.servers = servers.to_vec();
        true
    }

    /// Returns what can be asked while this follows other servers.
    pub fn source(&self) -> Source {
        self.source.clone()
    }
}

/// A resolver that has read no file: it asks the system.
impl Default for Resolver {
    fn default() -> Self {
        let source = Source::Dns(None, Fallback::System);
        Self { source, servers: Vec::new(), paths: FILES.map(PathBuf::from), files: [None; 2] }
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("servers", &self.servers).finish_non_exhaustive()
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Source")
    }
}

impl Source {
    /// Looks up a name.
    ///
    /// # Errors
    ///
    /// Nothing knows the name, or it could not be asked. There is no deadline.
    pub async fn lookup(&self, host: &str) -> io::Result<Found> {
        let (dns, fallback) = match self {
            Self::Dns(dns, fallback) => (dns, *fallback),
            #[cfg(test)]
            Self::Fake(found) => return found(host),
        };
        let mut error = None;
        if let Some(dns) = dns {
            match ask(dns, host).await {
                Ok(found) => return Ok(found),
                Err(failed) => error = Some(failed),
            }
        }
        match (fallback, error) {
            (Fallback::Nothing, Some(error)) => Err(error),
            _ => {
                let found = tokio::net::lookup_host((host, 0)).await?;
                let addresses = usable(found.map(|address| address.ip()).collect(), has_route);
                Ok(Found { addresses, ttl: None })
            }
        }
    }
}

/// Prepares questions to DNS servers. The search list and the options are the system's.
fn dns(servers: &[SocketAddr]) -> Result<TokioResolver, NetError> {
    let (mut config, mut options) = match read_system_conf() {
        Err(error) if servers.is_empty() => return Err(error),
        read => read.unwrap_or_else(|_| {
            (ResolverConfig::from_name_servers(Vec::new()), ResolverOpts::default())
        }),
    };
    if !servers.is_empty() {
        let (domain, search, _) = config.into_parts();
        let servers = servers.iter().map(server).collect();
        config = ResolverConfig::from_parts(domain, search, servers);
    }
    // `NameWatch` asks when an answer has expired, and not before.
    options.cache_size = 0;
    let provider = TokioRuntimeProvider::default();
    TokioResolver::builder_with_config(config, provider).with_options(options).build()
}

fn server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

async fn ask(dns: &TokioResolver, host: &str) -> io::Result<Found> {
    let name = Name::from_ascii(host).map_err(io::Error::other)?;
    let found = dns.lookup_ip(name).await.map_err(|error| {
        if error.is_no_records_found() {
            io::Error::new(io::ErrorKind::NotFound, "DNS has no address for this name")
        } else {
            io::Error::other(error)
        }
    })?;
    // The shortest also counts the aliases (CNAME) on the way.
    let ttl = found.as_lookup().answers().iter().map(|record| record.ttl).min();
    Ok(Found {
        addresses: usable(found.iter().collect(), has_route),
        ttl: ttl.map(|seconds| Duration::from_secs(seconds.into())),
    })
}

/// Returns the addresses of a name that are servers, in one order. Those without a route from here
/// are none, unless none has one. A name such as `localhost`, with the addresses of this machine in
/// both families, is left to its connections: they find out which address the server listens on.
fn usable(mut found: Vec<IpAddr>, has_route: impl Fn(&IpAddr) -> bool) -> Vec<IpAddr> {
    found.sort_unstable();
    found.dedup();
    let is_local = found.iter().all(IpAddr::is_loopback);
    if is_local && found.iter().any(IpAddr::is_ipv4) && found.iter().any(IpAddr::is_ipv6) {
        return Vec::new();
    }
    if found.iter().any(&has_route) {
        found.retain(has_route);
    }
    found.truncate(ADDRESSES_MAX);
    found
}

/// Whether there is a route to an address. Nothing is sent.
fn has_route(address: &IpAddr) -> bool {
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    UdpSocket::bind(any).and_then(|socket| socket.connect((*address, 9))).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn a_change_of_the_servers_or_of_a_file_of_the_system_is_noticed_once() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let paths = ["resolv.conf", "hosts"].map(|name| folder.path().join(name));
        let mut resolver = Resolver { paths: paths.clone(), ..Resolver::default() };
        let [first, second] = [53, 54].map(|port| SocketAddr::from((ip(1), port)));
        let mut changes = |servers: &[SocketAddr]| {
            let changes = resolver.follow(servers);
            assert!(!resolver.follow(servers), "once");
            changes
        };
        assert!(changes(&[first]) && changes(&[second]) && !changes(&[second]));
        for path in &paths {
            fs::write(path, "one").expect("written");
            assert!(changes(&[second]), "a new file");
            let aside = path.with_extension("new");
            fs::write(&aside, "two").expect("written");
            fs::rename(&aside, path).expect("renamed");
            assert!(changes(&[second]), "another file of the name");
            fs::remove_file(path).expect("removed");
            assert!(changes(&[second]), "no file");
        }
    }

    #[test]
    fn what_can_be_a_server_is_used() {
        let six = "2001:db8::1".parse().expect("an address");
        let four_only = |address: &IpAddr| address.is_ipv4();
        assert_eq!(usable(vec![six, ip(2), ip(1), ip(2)], four_only), [ip(1), ip(2)]);
        assert_eq!(usable(vec![six, ip(1)], |_| true), [ip(1), six]);
        assert_eq!(usable(vec![six, ip(1)], |_| false), [ip(1), six], "then all are tried");
        assert_eq!(usable((0..=255).map(ip).collect(), |_| true).len(), ADDRESSES_MAX);
    }

    #[test]
    fn a_name_of_this_machine_in_both_families_is_left_to_connections() {
        let local = |last| IpAddr::from([127, 0, 0, last]);
        let six = IpAddr::V6(Ipv6Addr::LOCALHOST);
        assert!(usable(vec![local(1), six], |_| true).is_empty());
        assert_eq!(usable(vec![local(2), local(1)], |_| true), [local(1), local(2)]);
        assert_eq!(usable(vec![six], |_| true), [six]);
        assert!(usable(Vec::new(), |_| true).is_empty());
    }
}
