//! Resolves the names of servers again when their addresses expire, once for the process, so that
//! requests follow a name to its new addresses.

use super::resolver::{Found, Resolver};
use crate::{
    clock::Clock,
    config::{Live, Resolve, Snapshot},
    flow::Instant,
};
use core::{fmt, net::IpAddr, time::Duration};
use std::{collections::HashMap, io, sync::Arc};
use tokio::task::JoinSet;

/// How often the configuration in force and the files of the system are looked at.
const TICK: Duration = Duration::from_secs(1);

/// How long a lookup may take.
const LOOKUP: Duration = Duration::from_secs(10);

/// After how long a name is resolved again that could not be.
const AGAIN: Duration = Duration::from_secs(5);

/// The bounds of a time to live: some records have 0, and some have days by mistake.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_mins(5);

/// The time to live of addresses from the system's resolver, which knows none.
const SYSTEM_TTL: Duration = Duration::from_secs(30);

/// How many names are resolved at once, and how many of them may have failed before. Each asks DNS for
/// IPv4 and for IPv6.
const AT_ONCE: usize = 16;
const FAILING_AT_ONCE: usize = 8;

/// What the upstreams with a name say about when it is resolved again.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Schedule {
    is_by_ttl: bool,
    /// The shortest interval of those that have one.
    every: Option<Duration>,
}

/// What is known of a name.
struct Name {
    schedule: Schedule,
    /// When it is to be resolved; `None` while it is.
    next: Option<Instant>,
    /// Whether it is resolved again as soon as it was: files or servers have changed meanwhile.
    again: bool,
    addresses: Option<Arc<[IpAddr]>>,
    /// Whether the log is still to say that they are others.
    has_changed: bool,
    is_failing: bool,
}

/// Resolves the names of the configuration in force, until it is dropped.
pub struct NameWatch {
    clock: Clock,
    live: Arc<Live>,
    resolver: Resolver,
}

impl NameWatch {
    /// Returns a watch that is to be [run](Self::run).
    pub fn new(clock: Clock, live: Arc<Live>, resolver: Resolver) -> Self {
        Self { clock, live, resolver }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        let mut names: HashMap<Arc<str>, Name> = HashMap::new();
        let mut under_way = JoinSet::new();
        let mut failing = 0;
        loop {
            let now = self.clock.now();
            let snapshot = self.live.load();
            if self.resolver.follow(&snapshot.settings.dns_servers) {
                for name in names.values_mut() {
                    name.again = name.next.is_none();
                    name.next = name.next.map(|_| now);
                }
            }
            follow(&mut names, &snapshot, now);
            drop(snapshot);
            let is_due = |name: &Name| name.next.is_some_and(|next| next <= now);
            let mut due: Vec<_> = names.iter_mut().filter(|(_, name)| is_due(name)).collect();
            due.sort_by_key(|(_, name)| name.next);
            for (host, name) in due {
                let is_failing = name.is_failing;
                if under_way.len() < AT_ONCE && !(is_failing && failing >= FAILING_AT_ONCE) {
                    name.next = None;
                    failing += usize::from(is_failing);
                    let clock = self.clock.clone();
                    let source = self.resolver.source();
                    let host = Arc::clone(host);
                    under_way.spawn(async move {
                        let found = clock.timeout(LOOKUP, source.lookup(&host, &clock)).await;
                        let late = |_| Err(io::ErrorKind::TimedOut.into());
                        (host, found.unwrap_or_else(late), is_failing)
                    });
                }
            }
            for (host, name) in &mut names {
                // Also after a reload, which may have begun before the last change.
                if let Some(addresses) = &name.addresses {
                    self.live.resolve(host, addresses);
                    // Only now do requests go there.
                    if core::mem::take(&mut name.has_changed) {
                        tracing::info!(
                            name = &**host,
                            ?addresses,
                            "the addresses of a name have changed"
                        );
                    }
                }
            }
            // Those that are due wait for the end of another one.
            let next = names.values().filter_map(|name| name.next).filter(|next| *next > now).min();
            let wake = next.unwrap_or(Instant::FAR_FUTURE).min(now + TICK);
            tokio::select! {
                () = self.clock.sleep_until(wake) => {}
                Some(Ok((host, found, was_failing))) = under_way.join_next() => {
                    failing -= usize::from(was_failing);
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

impl Name {
    /// Notes what the resolver found. If that is nothing, the last addresses stay.
    fn note(&mut self, host: &str, found: io::Result<Found>, now: Instant) {
        match found {
            Ok(Found { mut addresses, ttl, missing }) => {
                let mut interval = self.schedule.interval(ttl);
                if let Some(family) = missing {
                    interval = interval.min(AGAIN);
                    let known = self.addresses.iter().flat_map(|known| &**known);
                    addresses.extend(known.filter(|address| family.has(address)));
                    addresses.sort_unstable();
                }
                self.next = Some(now + interval);
                let addresses: Arc<[IpAddr]> = addresses.into();
                if core::mem::take(&mut self.is_failing) {
                    tracing::info!(name = host, "name can be resolved again");
                }
                self.has_changed |=
                    self.addresses.as_ref().is_some_and(|known| *known != addresses);
                self.addresses = Some(addresses);
            }
            Err(error) => {
                self.next = Some(now + self.schedule.interval(None).min(AGAIN));
                if !core::mem::replace(&mut self.is_failing, true) {
                    let kept = self.addresses.as_ref().map_or(0, |addresses| addresses.len());
                    tracing::warn!(name = host, %error, kept, "name cannot be resolved; its last addresses stay");
                }
            }
        }
        if core::mem::take(&mut self.again) {
            self.next = Some(now);
        }
    }
}

impl Schedule {
    /// Returns how long addresses with this time to live are used.
    fn interval(self, ttl: Option<Duration>) -> Duration {
        let ttl = ttl.unwrap_or(SYSTEM_TTL).clamp(TTL_MIN, TTL_MAX);
        match self.every {
            Some(every) if self.is_by_ttl => every.min(ttl),
            Some(every) => every,
            None => ttl,
        }
    }

    /// Returns when both would resolve a name again.
    fn and(self, other: Self) -> Self {
        let every = self.every.into_iter().chain(other.every).min();
        Self { is_by_ttl: self.is_by_ttl || other.is_by_ttl, every }
    }
}

/// Adds names that are to be resolved, and forgets those that are not.
fn follow(names: &mut HashMap<Arc<str>, Name>, snapshot: &Snapshot, now: Instant) {
    let mut schedules: HashMap<&Arc<str>, Schedule> = HashMap::new();
    for upstream in &snapshot.upstreams {
        let schedule = match upstream.options.resolve {
            Resolve::OnConnect => continue,
            Resolve::ByTtl => Schedule { is_by_ttl: true, every: None },
            Resolve::Every(interval) => Schedule { is_by_ttl: false, every: Some(interval) },
        };
        for host in upstream.names() {
            let all = schedules.entry(host).or_insert(schedule);
            *all = all.and(schedule);
        }
    }
    names.retain(|host, _| schedules.contains_key(host));
    for (host, schedule) in schedules {
        let known = names.entry(Arc::clone(host)).or_insert_with(|| Name {
            schedule,
            next: Some(now),
            again: false,
            addresses: None,
            has_changed: false,
            is_failing: false,
        });
        if core::mem::replace(&mut known.schedule, schedule) != schedule {
            known.next = known.next.map(|_| now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{tests::live, upstream::resolver::Family};
    use std::sync::Mutex;

    /// What a resolver that a test sets answers, and how often it was asked.
    #[derive(Clone)]
    struct Answers(Arc<Mutex<(Result<Found, io::ErrorKind>, usize)>>);

    impl Answers {
        fn set(&self, answer: Result<(&[u8], Option<u64>), io::ErrorKind>) {
            self.0.lock().expect("no panic").0 = answer.map(|(last, ttl)| Found {
                addresses: last.iter().map(|last| IpAddr::from([10, 0, 0, *last])).collect(),
                ttl: ttl.map(Duration::from_secs),
                missing: None,
            });
        }

        fn asked(&self) -> usize {
            self.0.lock().expect("no panic").1
        }
    }

    /// Starts a watch of the name `shop`, which nothing knows yet.
    fn start(keys: &str) -> (Clock, Arc<Live>, Answers) {
        let (clock, live) = live(&format!(
            "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
             upstreams: [{{ name: up, servers: [{{ url: 'http://shop:80' }}]{keys} }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
        ));
        let answers = Answers(Arc::new(Mutex::new((Err(io::ErrorKind::NotFound), 0))));
        let asked = answers.clone();
        let resolver = Resolver::fake(move |host| {
            assert_eq!(host, "shop");
            let mut state = asked.0.lock().expect("no panic");
            state.1 += 1;
            let found = state.0.clone().map_err(io::Error::from);
            Box::pin(async move { found })
        });
        tokio::spawn(NameWatch::new(clock.clone(), Arc::clone(&live), resolver).run());
        (clock, live, answers)
    }

    fn servers(live: &Live) -> Vec<String> {
        let snapshot = live.load_full();
        let members = snapshot.upstreams[0].members();
        members.servers.iter().map(|server| server.address()).collect()
    }

    async fn pass(clock: &Clock, secs: u64) {
        clock.sleep_until(clock.now() + Duration::from_secs(secs)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn requests_follow_a_name_and_a_failing_resolver_changes_nothing() {
        let (clock, live, answers) = start(", resolve: 30s");
        pass(&clock, 4).await;
        assert_eq!((servers(&live), answers.asked()), (vec!["shop:80".to_owned()], 1), "it starts");
        answers.set(Ok((&[1, 2], Some(1))));
        pass(&clock, 4).await;
        let both = vec!["10.0.0.1:80".to_owned(), "10.0.0.2:80".to_owned()];
        assert_eq!((servers(&live), answers.asked()), (both, 2));
        answers.set(Ok((&[3], Some(1))));
        pass(&clock, 20).await;
        assert_eq!(
            (servers(&live).len(), answers.asked()),
            (2, 2),
            "an interval, whatever the TTL"
        );
        pass(&clock, 15).await;
        assert_eq!((servers(&live), answers.asked()), (vec!["10.0.0.3:80".to_owned()], 3));
        answers.set(Err(io::ErrorKind::TimedOut));
        pass(&clock, 300).await;
        assert_eq!(servers(&live), ["10.0.0.3:80"]);
        assert!((50..70).contains(&answers.asked()), "{}", answers.asked());
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_resolved_again_when_its_addresses_expire() {
        // The time to live, and how often a name is resolved in an hour by it.
        let cases =
            [(Some(0), 3600), (Some(1), 3600), (Some(20), 180), (Some(86_400), 12), (None, 120)];
        for (ttl, times) in cases {
            let (clock, live, answers) = start("");
            answers.set(Ok((&[1], ttl)));
            pass(&clock, 3600).await;
            assert_eq!(servers(&live), ["10.0.0.1:80"]);
            // Each comes a moment late.
            assert!(
                (times - times / 50 - 1..=times + 1).contains(&answers.asked()),
                "{ttl:?}: {}",
                answers.asked()
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_family_that_dns_fails_for_keeps_its_addresses() {
        let (clock, live, answers) = start("");
        let six: IpAddr = "2001:db8::1".parse().expect("an address");
        let found = |addresses: &[IpAddr], missing| {
            let ttl = Some(Duration::from_mins(5));
            answers.0.lock().expect("no panic").0 =
                Ok(Found { addresses: addresses.to_vec(), ttl, missing });
        };
        let four = IpAddr::from([10, 0, 0, 1]);
        found(&[four, six], None);
        pass(&clock, 290).await;
        let both = ["10.0.0.1:80", "[2001:db8::1]:80"];
        assert_eq!(servers(&live), both);
        found(&[six], Some(Family::V4));
        pass(&clock, 60).await;
        assert_eq!(servers(&live), both, "IPv4 has failed");
        assert!((9..13).contains(&answers.asked()), "asked again soon: {}", answers.asked());
        found(&[six], None);
        pass(&clock, 60).await;
        assert_eq!(servers(&live), both[1..], "there are none of IPv4 any more");
    }

    #[tokio::test(start_paused = true)]
    async fn names_that_nothing_answers_for_keep_no_others_waiting() {
        const DEAD: usize = 40;
        const GOOD: usize = 8;
        let names =
            (0..DEAD).map(|n| format!("dead{n}")).chain((0..GOOD).map(|n| format!("good{n}")));
        let servers: Vec<_> = names.map(|name| format!("{{ url: 'http://{name}:80' }}")).collect();
        let (clock, live) = live(&format!(
            "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
             upstreams: [{{ name: up, servers: [{}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
            servers.join(", ")
        ));
        let asked: Arc<Mutex<HashMap<String, usize>>> = Arc::default();
        let counts = Arc::clone(&asked);
        let resolver = Resolver::fake(move |host| {
            *counts.lock().expect("no panic").entry(host.to_owned()).or_default() += 1;
            if host.starts_with("dead") {
                return Box::pin(core::future::pending());
            }
            let addresses = vec![[10, 0, 0, 1].into()];
            let ttl = Some(Duration::from_secs(1));
            Box::pin(async move { Ok(Found { addresses, ttl, missing: None }) })
        });
        tokio::spawn(NameWatch::new(clock.clone(), live, resolver).run());
        // By then each was asked for once.
        pass(&clock, 40).await;
        asked.lock().expect("no panic").clear();
        pass(&clock, 60).await;
        let asked = asked.lock().expect("no panic").clone();
        for n in 0..GOOD {
            let count = asked.get(&format!("good{n}")).copied().unwrap_or_default();
            assert!((50..=61).contains(&count), "good{n}: {count}");
        }
        let dead = asked.keys().filter(|name| name.starts_with("dead")).count();
        assert_eq!(dead, DEAD, "they have their turns too");
    }

    #[test]
    fn the_upstreams_with_a_name_agree_on_the_soonest() {
        let secs = Duration::from_secs;
        let by_ttl = Schedule { is_by_ttl: true, every: None };
        let [ten, twenty] = [10, 20].map(|n| Schedule { is_by_ttl: false, every: Some(secs(n)) });
        assert_eq!(ten.and(twenty).interval(Some(secs(2))), secs(10));
        for both in [by_ttl.and(ten), ten.and(by_ttl), by_ttl.and(twenty).and(ten)] {
            assert_eq!(both.interval(Some(secs(2))), secs(2));
            assert_eq!(both.interval(Some(secs(60))), secs(10));
        }
        assert_eq!(by_ttl.interval(None), SYSTEM_TTL);
    }
}
