//! Resolves the names of servers again and again, once for the process, so that requests follow
//! a name to its new addresses.
//!
//! The resolver is the system's: it knows `/etc/hosts` and the search domains, and costs no crate. It
//! does not say how long an address is good for, so that names are resolved at an interval.

use crate::{
    clock::Clock,
    config::{Live, Snapshot},
    flow::Instant,
};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};
use std::{collections::HashMap, io, net::UdpSocket, sync::Arc};
use tokio::task::JoinSet;

/// How often the configuration in force is looked at.
const TICK: Duration = Duration::from_secs(1);

/// How long the resolver may take.
const LOOKUP: Duration = Duration::from_secs(10);

/// After how long a name is resolved again that could not be.
const AGAIN: Duration = Duration::from_secs(5);

/// The most addresses of a name that are used.
const ADDRESSES_MAX: usize = 100;

#[cfg(test)]
type Fake = Arc<dyn Fn(&str) -> io::Result<Vec<IpAddr>> + Send + Sync>;

/// How names are resolved.
pub enum Resolver {
    /// By the system.
    System,
    /// By a test.
    #[cfg(test)]
    Fake(Fake),
}

/// What is known of a name.
struct Name {
    interval: Duration,
    /// When it is to be resolved; `None` while it is.
    next: Option<Instant>,
    addresses: Option<Arc<[IpAddr]>>,
    is_failing: bool,
}

/// Resolves the names of the configuration in force, until it is dropped.
pub struct NameWatch {
    clock: Clock,
    live: Arc<Live>,
    resolver: Arc<Resolver>,
}

impl NameWatch {
    /// Returns a watch that is to be [run](Self::run).
    pub fn new(clock: Clock, live: Arc<Live>, resolver: Resolver) -> Self {
        Self { clock, live, resolver: Arc::new(resolver) }
    }

    /// Runs for ever.
    pub async fn run(self) {
        let mut names = HashMap::new();
        let mut under_way = JoinSet::new();
        loop {
            let now = self.clock.now();
            follow(&mut names, &self.live.load(), now);
            for (host, name) in &mut names {
                if name.next.take_if(|next| *next <= now).is_some() {
                    let clock = self.clock.clone();
                    let resolver = Arc::clone(&self.resolver);
                    let host = Arc::clone(host);
                    under_way.spawn(async move {
                        let found = clock.timeout(LOOKUP, resolver.resolve(&host)).await;
                        let late = |_| Err(io::ErrorKind::TimedOut.into());
                        (host, found.unwrap_or_else(late))
                    });
                }
                // Also after a reload, which may have begun before the last change.
                if let Some(addresses) = &name.addresses {
                    self.live.resolve(host, addresses);
                }
            }
            let due = names.values().filter_map(|name| name.next).min();
            let wake = due.unwrap_or(Instant::FAR_FUTURE).min(now + TICK);
            tokio::select! {
                () = self.clock.sleep_until(wake) => {}
                Some(Ok((host, found))) = under_way.join_next() => {
                    if let Some(name) = names.get_mut(&host) {
                        name.note(&host, found, self.clock.now());
                    }
                }
            }
        }
    }
}

impl fmt::Debug for NameWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameWatch").finish_non_exhaustive()
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        match self {
            Self::System => {
                let found = tokio::net::lookup_host((host, 0)).await?;
                Ok(usable(found.map(|address| address.ip()).collect(), has_route))
            }
            #[cfg(test)]
            Self::Fake(resolve) => resolve(host).map(|found| usable(found, |_| true)),
        }
    }
}

impl Name {
    /// Notes what the resolver found. If that is nothing, the last addresses stay.
    fn note(&mut self, host: &str, found: io::Result<Vec<IpAddr>>, now: Instant) {
        match found {
            Ok(addresses) => {
                self.next = Some(now + self.interval);
                let addresses: Arc<[IpAddr]> = addresses.into();
                if core::mem::take(&mut self.is_failing) {
                    tracing::info!(name = host, "name can be resolved again");
                }
                let is_other = self.addresses.as_ref().is_some_and(|known| *known != addresses);
                if is_other {
                    tracing::info!(name = host, ?addresses, "the addresses of a name have changed");
                }
                self.addresses = Some(addresses);
            }
            Err(error) => {
                self.next = Some(now + self.interval.min(AGAIN));
                if !core::mem::replace(&mut self.is_failing, true) {
                    let kept = self.addresses.as_ref().map_or(0, |addresses| addresses.len());
                    tracing::warn!(name = host, %error, kept, "name cannot be resolved; its last addresses stay");
                }
            }
        }
    }
}

/// Adds names that are to be resolved, and forgets those that are not.
fn follow(names: &mut HashMap<Arc<str>, Name>, snapshot: &Snapshot, now: Instant) {
    let mut before = core::mem::take(names);
    for upstream in &snapshot.upstreams {
        let Some(interval) = upstream.options.resolve else { continue };
        for host in upstream.names() {
            let new = || Name { interval, next: Some(now), addresses: None, is_failing: false };
            let known = names.remove(host).or_else(|| before.remove(host)).unwrap_or_else(new);
            let interval = interval.min(known.interval);
            names.insert(Arc::clone(host), Name { interval, ..known });
        }
    }
}

/// Returns the addresses of a name that are servers, in one order. Those without a route from here
/// are none, unless none has one. A name of this machine alone is left to its connections: they find
/// out which address the server listens on.
fn usable(mut found: Vec<IpAddr>, has_route: impl Fn(&IpAddr) -> bool) -> Vec<IpAddr> {
    if found.iter().all(IpAddr::is_loopback) {
        return Vec::new();
    }
    found.sort_unstable();
    found.dedup();
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
    use crate::proxy::tests::live;
    use std::sync::Mutex;

    fn ip(last: u8) -> IpAddr {
        [10, 0, 0, last].into()
    }

    #[test]
    fn what_can_be_a_server_is_used() {
        let six = "2001:db8::1".parse().expect("an address");
        let four_only = |address: &IpAddr| address.is_ipv4();
        assert_eq!(usable(vec![six, ip(2), ip(1), ip(2)], four_only), [ip(1), ip(2)]);
        assert_eq!(usable(vec![six, ip(1)], |_| true), [ip(1), six]);
        assert_eq!(usable(vec![six, ip(1)], |_| false), [ip(1), six], "then all are tried");
        let local = [IpAddr::from([127, 0, 0, 1]), IpAddr::V6(Ipv6Addr::LOCALHOST)];
        assert!(usable(local.to_vec(), |_| true).is_empty(), "left to connections");
        assert_eq!(usable((0..=255).map(ip).collect(), |_| true).len(), ADDRESSES_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_follow_a_name_and_a_failing_resolver_changes_nothing() {
        const FILE: &str = "\
listeners: [{ name: web, listen: '127.0.0.1:0' }]
upstreams: [{ name: up, servers: [{ url: 'http://shop:80' }], resolve: 30s }]
routes: [{ name: all, match: { path_prefix: / }, upstream: up }]
";
        let (clock, live) = live(FILE);
        let answer = Arc::new(Mutex::new(Err(io::ErrorKind::NotFound)));
        let asked = Arc::new(Mutex::new(0));
        let resolver = {
            let answer = Arc::clone(&answer);
            let asked = Arc::clone(&asked);
            Resolver::Fake(Arc::new(move |host| {
                assert_eq!(host, "shop");
                *asked.lock().expect("no panic") += 1;
                answer.lock().expect("no panic").clone().map_err(io::Error::from)
            }))
        };
        let answers =
            |found: Result<Vec<IpAddr>, io::ErrorKind>| *answer.lock().expect("no panic") = found;
        let servers = || -> Vec<String> {
            let snapshot = live.load_full();
            let members = snapshot.upstreams[0].members();
            members.servers.iter().map(|server| server.address()).collect()
        };
        let pass = |secs| clock.sleep_until(clock.now() + Duration::from_secs(secs));
        let asked = || *asked.lock().expect("no panic");
        tokio::spawn(NameWatch::new(clock.clone(), Arc::clone(&live), resolver).run());
        pass(4).await;
        assert_eq!((servers(), asked()), (vec!["shop:80".to_owned()], 1), "it starts anyway");
        answers(Ok(vec![ip(2), ip(1)]));
        pass(4).await;
        assert_eq!(
            (servers(), asked()),
            (vec!["10.0.0.1:80".to_owned(), "10.0.0.2:80".to_owned()], 2)
        );
        answers(Ok(vec![ip(3)]));
        pass(20).await;
        assert_eq!((servers().len(), asked()), (2, 2), "not yet");
        pass(15).await;
        assert_eq!((servers(), asked()), (vec!["10.0.0.3:80".to_owned()], 3));
        answers(Err(io::ErrorKind::TimedOut));
        pass(300).await;
        assert_eq!(servers(), ["10.0.0.3:80"]);
        assert!((50..70).contains(&asked()), "{}", asked());
    }
}
