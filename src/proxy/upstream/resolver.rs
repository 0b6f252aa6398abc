//! The addresses of a name, and how long they are valid.
//!
//! DNS servers report a time to live, which the system's resolver does not pass on. Therefore
//! flowgate asks them itself, by `/etc/resolv.conf`, for names that are not in `/etc/hosts`. For names
//! that DNS does not have it asks the system's resolver, because `nsswitch.conf` may name other
//! sources.

use crate::clock::Clock;
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::pin,
    time::Duration,
};
use hickory_resolver::{
    Hosts, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts},
    lookup::Lookup,
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::{
        op::Query,
        rr::{Name, RecordType},
    },
    system_conf::read_system_conf,
};
use rustix::io::Errno;
use std::{
    fs::{self, File},
    io,
    net::UdpSocket,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The most addresses of a name that are used.
const ADDRESSES_MAX: usize = 100;

/// The most time that DNS may take. It leaves as much to the system's resolver.
const DNS_LIMIT: Duration = Duration::from_secs(5);

/// The time that the addresses of one family wait for those of the other (RFC 8305, 3).
const RESOLUTION_DELAY: Duration = Duration::from_millis(50);

/// The files that the system's resolver reads, and flowgate too.
const FILES: [&str; 2] = ["/etc/resolv.conf", "/etc/hosts"];

/// The addresses of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// In ascending order. Empty if each connection has to look up the name itself.
    pub(crate) addresses: Vec<IpAddr>,
    /// Their time to live. `None`: the system's resolver does not report it.
    pub(crate) ttl: Option<Duration>,
    /// The family whose addresses are not known, because DNS failed or has not answered yet.
    pub(crate) missing: Option<Family>,
}

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// True if an address is of this family.
    pub(crate) fn has(self, address: &IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    /// Returns the type of its records in DNS.
    const fn record_type(self) -> RecordType {
        match self {
            Self::V4 => RecordType::A,
            Self::V6 => RecordType::AAAA,
        }
    }
}

/// Looks up names, by the files and DNS servers that the last `follow` found.
pub struct Resolver {
    source: Source,
    servers: Vec<SocketAddr>,
    /// [`FILES`], unless a test watches others.
    paths: [PathBuf; 2],
    /// The number of each, and the time of its last change; `None`: there is no such file.
    files: [Option<(u64, i64, i64)>; 2],
}

#[cfg(test)]
type Fake = Arc<dyn Fn(&str, Option<Family>, Early<'_>) -> Answer + Send + Sync>;

/// The addresses that a test finds, once it does.
#[cfg(test)]
pub(crate) type Answer = core::pin::Pin<Box<dyn Future<Output = io::Result<Found>> + Send>>;

/// A source of addresses.
#[derive(Clone)]
pub(crate) enum Source {
    /// Files and DNS servers.
    Dns(Arc<Dns>),
    /// A test.
    #[cfg(test)]
    Fake(Fake),
}

/// Takes the addresses of one family, while DNS is asked for the other one.
pub(crate) type Early<'e> = &'e (dyn Fn(Found) + Send + Sync);

/// The sources for a name, in the order in which they are asked.
#[derive(Debug)]
pub(crate) struct Dns {
    hosts: Hosts,
    /// `None`: there is no usable configuration of DNS.
    resolver: Option<TokioResolver>,
    fallback: Fallback,
}

/// The source for names that DNS does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fallback {
    /// The system's resolver.
    System,
    /// None: the configuration names the DNS servers.
    Nothing,
}

impl Resolver {
    /// Returns a resolver that asks a test. Its arguments are those of [`Source::lookup`].
    #[cfg(test)]
    pub(crate) fn fake(
        found: impl Fn(&str, Option<Family>, Early<'_>) -> Answer + Send + Sync + 'static,
    ) -> Self {
        Self { source: Source::Fake(Arc::new(found)), ..Self::default() }
    }

    /// Asks these DNS servers from now on, or those of the system if `servers` is empty. Reads the
    /// system's files again if they have changed. Returns true if names may have other addresses now.
    pub(crate) fn follow(&mut self, servers: &[SocketAddr]) -> bool {
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
        let resolver = resolver(servers);
        let hosts = hosts(&self.paths[1]);
        self.source = Source::Dns(Arc::new(Dns { hosts, resolver, fallback }));
        self.files = files;
        self.servers = servers.to_vec();
        true
    }

    /// Returns the present source. It stays usable after this resolver follows other servers.
    pub(crate) fn source(&self) -> Source {
        self.source.clone()
    }
}

/// A resolver that has read no file: it asks the system.
impl Default for Resolver {
    fn default() -> Self {
        let hosts = Hosts::default();
        let dns = Dns { hosts, resolver: None, fallback: Fallback::System };
        let source = Source::Dns(Arc::new(dns));
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
    /// Looks up a name. If DNS takes long for one family of addresses, `early` gets the other one.
    /// DNS is not asked for the `awaited` family: an earlier lookup still waits for it.
    ///
    /// # Errors
    ///
    /// No source knows the name, or none could be asked. The system's resolver has no deadline.
    pub(crate) async fn lookup(
        &self,
        host: &str,
        awaited: Option<Family>,
        clock: &Clock,
        early: Early<'_>,
    ) -> io::Result<Found> {
        let dns = match self {
            Self::Dns(dns) => dns,
            #[cfg(test)]
            Self::Fake(found) => return found(host, awaited, early).await,
        };
        if is_this_machine(host) {
            return Ok(Found { addresses: Vec::new(), ttl: Some(Duration::MAX), missing: None });
        }

        let Dns { hosts, resolver, fallback } = &**dns;
        let name = Name::from_ascii(host).map_err(io::Error::other);
        let listed = name.as_ref().map(|name| listed(hosts, name)).unwrap_or_default();
        if !listed.is_empty() {
            // They are valid until the file changes.
            let ttl = Some(Duration::MAX);
            return Ok(Found { addresses: usable(listed, has_route), ttl, missing: None });
        }

        let found = match (resolver, name) {
            (Some(resolver), Ok(name)) => match awaited {
                None => ask_for_both(resolver, &name, clock, early).await,
                Some(awaited) => ask_for_other(resolver, &name, awaited, clock).await,
            },
            (Some(_), Err(error)) => Err(error),
            (None, _) => Err(io::Error::other("no DNS server can be asked")),
        };
        if found.is_ok() || *fallback == Fallback::Nothing {
            return found;
        }

        let found = tokio::net::lookup_host((host, 0)).await?;
        let addresses = usable(found.map(|address| address.ip()).collect(), has_route);
        Ok(Found { addresses, ttl: None, missing: None })
    }
}

/// True if a name always stands for this machine (RFC 6761, 6.3). It is left to its connections: they
/// find out which address the server listens on.
fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Reads the addresses that names have on this machine.
fn hosts(path: &Path) -> Hosts {
    let mut hosts = Hosts::default();
    if let Err(error) = File::open(path).and_then(|file| hosts.read_hosts_conf(file))
        && error.kind() != io::ErrorKind::NotFound
    {
        tracing::warn!(%error, "cannot read {}", path.display());
    }
    hosts
}

/// Returns the addresses that a name has on this machine.
fn listed(hosts: &Hosts, name: &Name) -> Vec<IpAddr> {
    let kinds = [RecordType::A, RecordType::AAAA].into_iter();
    let found =
        kinds.filter_map(|kind| hosts.lookup_static_host(&Query::query(name.clone(), kind)));
    found.flat_map(|lookup| addresses(&lookup)).collect()
}

fn addresses(lookup: &Lookup) -> Vec<IpAddr> {
    lookup.answers().iter().filter_map(|record| record.data.ip_addr()).collect()
}

/// Prepares questions to DNS servers, or logs why that is impossible. The search list and the options
/// are the system's.
fn resolver(servers: &[SocketAddr]) -> Option<TokioResolver> {
    let (mut config, mut options) = match read_system_conf() {
        Ok(read) => read,
        Err(error) if servers.is_empty() => {
            tracing::warn!(%error, "cannot read {}; the system resolves names", FILES[0]);
            return None;
        }
        Err(_) => (ResolverConfig::from_name_servers(Vec::new()), ResolverOpts::default()),
    };

    let (domain, search, mut asked) = config.into_parts();
    if !servers.is_empty() {
        asked = servers.iter().map(server).collect();
    }
    // The domain of the machine's name is only searched without `search`, as resolv.conf(5) says.
    let domain = domain.filter(|_| search.is_empty());
    config = ResolverConfig::from_parts(domain, search, asked);

    // `NameWatch` asks when an answer has expired, and not before.
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    let provider = TokioRuntimeProvider::default();
    let built = TokioResolver::builder_with_config(config, provider).with_options(options).build();
    built.inspect_err(|error| log_unbuilt(error, servers)).ok()
}

fn log_unbuilt(error: &NetError, servers: &[SocketAddr]) {
    if servers.is_empty() {
        let file = FILES[0];
        tracing::warn!(%error, "cannot ask the DNS servers in {file}; the system resolves names");
    } else {
        tracing::warn!(%error, "cannot ask `dns_servers`; names are not resolved");
    }
}

fn server(address: &SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

/// The answer of DNS about one family: `None` if it has no address.
type Asked = io::Result<Option<Lookup>>;

/// Asks DNS for the addresses of one family.
async fn ask(resolver: &TokioResolver, name: &Name, family: Family, clock: &Clock) -> Asked {
    let asking = resolver.lookup(name.clone(), family.record_type());
    match clock.timeout(DNS_LIMIT, asking).await {
        Ok(Ok(lookup)) => Ok(Some(lookup)),
        Ok(Err(error)) if error.is_no_records_found() => Ok(None),
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Asks DNS for the addresses of both families, and returns those of one if DNS fails for the other.
/// If DNS takes long for one, `early` gets those of the other.
async fn ask_for_both(
    resolver: &TokioResolver,
    name: &Name,
    clock: &Clock,
    early: Early<'_>,
) -> io::Result<Found> {
    let mut asking_four = pin!(ask(resolver, name, Family::V4, clock));
    let mut asking_six = pin!(ask(resolver, name, Family::V6, clock));

    tokio::select! {
        four = &mut asking_four => {
            let six = second(asking_six, &four, Family::V6, clock, early).await;
            found(four, six)
        }
        six = &mut asking_six => {
            let four = second(asking_four, &six, Family::V4, clock, early).await;
            found(four, six)
        }
    }
}

/// Asks DNS for the addresses of the family that is not `awaited`.
async fn ask_for_other(
    resolver: &TokioResolver,
    name: &Name,
    awaited: Family,
    clock: &Clock,
) -> io::Result<Found> {
    let lookup = ask(resolver, name, awaited.other(), clock).await?;
    found_in(&lookup.iter().collect::<Vec<_>>(), Some(awaited))
}

/// Waits for the second answer, about the family that is `missing` in the `first` one.
async fn second(
    mut answer: impl Future<Output = Asked> + Unpin,
    first: &Asked,
    missing: Family,
    clock: &Clock,
    early: Early<'_>,
) -> Asked {
    let Ok(Some(first)) = first else { return answer.await };
    if let Ok(answer) = clock.timeout(RESOLUTION_DELAY, &mut answer).await {
        return answer;
    }

    if let Ok(found) = found_in(&[first], Some(missing)) {
        early(found);
    }
    answer.await
}

/// Returns the addresses of both families, or of one if DNS failed for the other.
fn found(four: Asked, six: Asked) -> io::Result<Found> {
    match (four, six) {
        (Ok(four), Ok(six)) => found_in(&four.iter().chain(&six).collect::<Vec<_>>(), None),
        (Ok(Some(four)), Err(_)) => found_in(&[&four], Some(Family::V6)),
        (Err(_), Ok(Some(six))) => found_in(&[&six], Some(Family::V4)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

fn found_in(lookups: &[&Lookup], missing: Option<Family>) -> io::Result<Found> {
    let all: Vec<_> = lookups.iter().flat_map(|lookup| addresses(lookup)).collect();
    if all.is_empty() {
        let why = "DNS has no address for this name";
        return Err(io::Error::new(io::ErrorKind::NotFound, why));
    }

    // The shortest counts, also that of an alias (CNAME) on the way.
    let records = lookups.iter().flat_map(|lookup| lookup.answers());
    let ttl = records.map(|record| record.ttl).min();
    let ttl = ttl.map(|seconds| Duration::from_secs(seconds.into()));
    Ok(Found { addresses: usable(all, has_route), ttl, missing })
}

/// Returns the addresses that requests use, in ascending order. Addresses without a route from here
/// are left out, unless none has a route. A name with the addresses of this machine in both families is
/// left to its connections, and has none.
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

/// True if there is a route to an address. No packet is sent.
fn has_route(address: &IpAddr) -> bool {
    const NO_ROUTE: [Errno; 4] =
        [Errno::NETUNREACH, Errno::HOSTUNREACH, Errno::AFNOSUPPORT, Errno::ADDRNOTAVAIL];
    let any: SocketAddr = match address {
        IpAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        IpAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let connected = UdpSocket::bind(any).and_then(|socket| socket.connect((*address, 9)));
    // Other errors, such as a lack of descriptors, say nothing about the route.
    let code = connected.err().and_then(|error| error.raw_os_error());
    !code.is_some_and(|code| NO_ROUTE.iter().any(|errno| errno.raw_os_error() == code))
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

    #[tokio::test]
    async fn a_name_in_the_hosts_file_is_not_asked_of_dns() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let paths = ["resolv.conf", "hosts"].map(|name| folder.path().join(name));
        let text = "127.0.0.1 localhost\n10.0.0.2 shop shop.example\n10.0.0.1 shop\n";
        fs::write(&paths[1], text).expect("written");
        // It never answers.
        let silent = UdpSocket::bind("127.0.0.1:0").expect("bound");
        silent.set_nonblocking(true).expect("set");
        let mut resolver = Resolver { paths, ..Resolver::default() };
        assert!(resolver.follow(&[silent.local_addr().expect("an address")]));
        for (host, addresses) in [
            ("shop", vec![ip(1), ip(2)]),
            ("shop.example", vec![ip(2)]),
            ("localhost", Vec::new()),
            ("a.localhost", Vec::new()),
        ] {
            let found =
                resolver.source().lookup(host, None, &Clock::start(), &drop).await.expect("listed");
            let ttl = Some(Duration::MAX);
            assert_eq!(found, Found { addresses, ttl, missing: None });
        }
        assert!(silent.recv(&mut [0; 512]).is_err(), "it is not asked");
    }

    #[tokio::test]
    async fn the_system_is_not_asked_in_place_of_configured_servers() {
        for (fallback, is_found) in [(Fallback::System, true), (Fallback::Nothing, false)] {
            let dns = Dns { hosts: Hosts::default(), resolver: None, fallback };
            let source = Source::Dns(Arc::new(dns));
            // The system knows it without DNS.
            let found = source.lookup("127.0.0.1", None, &Clock::start(), &drop).await;
            assert_eq!(found.is_ok(), is_found, "{found:?}");
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
