//! Resolves the names of servers again, once for the process, so that requests follow a name to its
//! new addresses: when its addresses expire, when connections to them fail, when an operator asks for
//! a reload, and when an upstream with the name is edited.

use super::{
    resolver::{Found, Resolver},
    watched_name::{Failures, Schedule, WatchedName},
};
use crate::{
    clock::Clock,
    config::{Live, Resolve, Snapshot, Upstream},
    flow::Instant,
};
use core::{fmt, sync::atomic::Ordering::Relaxed, time::Duration};
use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};
use tokio::{sync::mpsc, task::JoinSet};

/// The interval in which the configuration in force, the files of the system and failed connections
/// are looked at.
const TICK: Duration = Duration::from_secs(1);

/// The most time that a lookup may take.
const LOOKUP: Duration = Duration::from_secs(10);

/// Bounds on the lookups that have found no address yet: of all, and of names whose last lookup failed.
/// Each asks DNS for IPv4 and for IPv6.
const AT_ONCE: usize = 16;
const FAILING_AT_ONCE: usize = 8;

/// Resolves the names of the configuration in force, until it is dropped.
pub struct NameWatch {
    clock: Clock,
    live: Arc<Live>,
    resolver: Resolver,
    names: HashMap<Arc<str>, WatchedName>,
    /// The upstreams of the configuration last looked at, with its version.
    upstreams: (u64, Vec<Arc<Upstream>>),
    /// The number of reloads that had been requested by then.
    reloads: u64,
    in_progress: JoinSet<(Lookup, io::Result<Found>)>,
    /// The lookups that have found no address yet, and those of them of names that had failed.
    empty: HashSet<u64>,
    failing: HashSet<u64>,
    /// The number of the last lookup.
    last: u64,
    /// The channel for the family that came first, to which a lookup sends at most once.
    early: mpsc::UnboundedSender<(Lookup, Found)>,
    arrived: mpsc::UnboundedReceiver<(Lookup, Found)>,
}

/// One lookup of a name.
#[derive(Clone)]
struct Lookup {
    host: Arc<str>,
    number: u64,
}

impl NameWatch {
    /// Returns a watch that is to be [run](Self::run).
    pub fn new(clock: Clock, live: Arc<Live>, resolver: Resolver) -> Self {
        let (early, arrived) = mpsc::unbounded_channel();
        Self {
            clock,
            resolver,
            names: HashMap::new(),
            upstreams: (live.load().version, live.load().upstreams.clone()),
            reloads: live.requested_reloads(),
            live,
            in_progress: JoinSet::new(),
            empty: HashSet::new(),
            failing: HashSet::new(),
            last: 0,
            early,
            arrived,
        }
    }

    /// Runs for ever.
    pub async fn run(mut self) {
        loop {
            let now = self.clock.now();
            self.follow(now);
            self.begin_lookups(now);
            self.put_in_force();

            // Names that are due already wait for the end of another lookup.
            let due = self.names.values().filter_map(WatchedName::next);
            let next = due.filter(|next| *next > now).min();
            let wake = next.unwrap_or(Instant::FAR_FUTURE).min(now + TICK);
            tokio::select! {
                () = self.clock.sleep_until(wake) => {}
                Some((Lookup { host, number }, found)) = self.arrived.recv() => {
                    self.make_room(number);
                    if let Some(name) = self.names.get_mut(&host) {
                        name.note_early(&host, number, found, self.clock.now());
                    }
                }
                Some(Ok((Lookup { host, number }, result))) = self.in_progress.join_next() => {
                    self.make_room(number);
                    if let Some(name) = self.names.get_mut(&host) {
                        name.note(&host, number, result, self.clock.now());
                    }
                }
            }
        }
    }

    /// Finds the names of the configuration in force, and those that are to be resolved now.
    fn follow(&mut self, now: Instant) {
        let snapshot = self.live.load_full();
        let reloads = self.live.requested_reloads();
        let is_requested = core::mem::replace(&mut self.reloads, reloads) != reloads;
        if self.resolver.follow(&snapshot.settings.dns_servers) || is_requested {
            for name in self.names.values_mut() {
                name.ask_now(now);
            }
        }

        follow(&mut self.names, &snapshot, now);
        if self.upstreams.0 != snapshot.version {
            for host in edited(&self.upstreams.1, &snapshot.upstreams) {
                if let Some(name) = self.names.get_mut(&host) {
                    name.ask_now(now);
                }
            }
            self.upstreams = (snapshot.version, snapshot.upstreams.clone());
        }
        for (host, state) in failures(&snapshot) {
            if let Some(name) = self.names.get_mut(host) {
                name.note_failures(state);
            }
        }
    }

    /// Lets another lookup begin: the one of this number has found addresses, or has ended.
    fn make_room(&mut self, lookup: u64) {
        self.empty.remove(&lookup);
        self.failing.remove(&lookup);
    }

    /// Begins to resolve names that are due, as many as may be resolved at once.
    fn begin_lookups(&mut self, now: Instant) {
        let mut due: Vec<_> = self.names.iter_mut().filter(|(_, name)| name.is_due(now)).collect();
        due.sort_by_key(|(_, name)| name.next());
        for (host, name) in due {
            let was_failing = name.is_failing();
            let is_bounded = was_failing && self.failing.len() >= FAILING_AT_ONCE;
            if self.empty.len() >= AT_ONCE || is_bounded {
                continue;
            }

            self.last += 1;
            let number = self.last;
            name.begin(number, now);
            self.empty.insert(number);
            if was_failing {
                self.failing.insert(number);
            }

            let clock = self.clock.clone();
            let source = self.resolver.source();
            let awaited = name.awaited();
            let lookup = Lookup { host: Arc::clone(host), number };
            let early = self.early.clone();
            self.in_progress.spawn(async move {
                // The receiver lives as long as this task.
                let first = |found| drop(early.send((lookup.clone(), found)));
                let looking_up = source.lookup(&lookup.host, awaited, &clock, &first);
                let result = clock.timeout(LOOKUP, looking_up).await;
                let late = |_| Err(io::ErrorKind::TimedOut.into());
                (lookup, result.unwrap_or_else(late))
            });
        }
    }

    /// Makes requests go to the addresses of the names.
    fn put_in_force(&mut self) {
        for (host, name) in &mut self.names {
            // Even if they have not changed: a reload may have begun before their last change.
            let Some(addresses) = name.addresses() else { continue };
            self.live.resolve(host, addresses);
            // Requests go there from here on.
            name.note_in_force(host);
        }
    }
}

impl fmt::Debug for NameWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameWatch").finish_non_exhaustive()
    }
}

/// Returns the failures of the servers of each name.
fn failures(snapshot: &Snapshot) -> HashMap<&str, Failures> {
    let mut failures: HashMap<&str, Failures> = HashMap::new();
    for upstream in &snapshot.upstreams {
        for host in upstream.names() {
            failures.entry(host).or_default();
        }
        for server in &upstream.members().servers {
            if let Some(of_name) = failures.get_mut(&*server.host) {
                let connects = server.meter.connect_failures.load(Relaxed);
                of_name.connects = of_name.connects.wrapping_add(connects);
                of_name.is_one_out |= !server.health.is_healthy();
            }
        }
    }
    failures
}

/// Returns the names of the upstreams that are new or have changed.
fn edited(old: &[Arc<Upstream>], new: &[Arc<Upstream>]) -> Vec<Arc<str>> {
    let before: HashMap<&str, &Arc<Upstream>> =
        old.iter().map(|upstream| (&*upstream.name, upstream)).collect();
    let is_same = |upstream: &&Arc<Upstream>| {
        before.get(&*upstream.name).is_some_and(|old| old.is_planned_like(upstream))
    };
    let changed = new.iter().filter(|upstream| !is_same(upstream));
    changed.flat_map(|upstream| upstream.names().cloned()).collect()
}

/// Adds names that are to be resolved, and forgets all others.
fn follow(names: &mut HashMap<Arc<str>, WatchedName>, snapshot: &Snapshot, now: Instant) {
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
        let known =
            names.entry(Arc::clone(host)).or_insert_with(|| WatchedName::new(schedule, now));
        known.follow(schedule, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::{tests::live, upstream::resolver::Family};
    use core::net::IpAddr;
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

    fn file(keys: &str) -> String {
        format!(
            "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
             upstreams: [{{ name: up, servers: [{{ url: 'http://shop:80' }}]{keys} }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
        )
    }

    /// Starts a watch of the name `shop`, which nothing knows yet.
    fn start(keys: &str) -> (Clock, Arc<Live>, Answers) {
        let (clock, live) = live(&file(keys));
        let answers = Answers(Arc::new(Mutex::new((Err(io::ErrorKind::NotFound), 0))));
        let asked = answers.clone();
        let resolver = Resolver::fake(move |host, _, _| {
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
    async fn a_family_that_dns_is_slow_for_keeps_the_other_one_from_no_request() {
        let (clock, live) = live(&file(""));
        let four = IpAddr::from([10, 0, 0, 1]);
        let six: IpAddr = "2001:db8::1".parse().expect("an address");
        let ttl = Some(Duration::from_mins(5));
        let resolver = Resolver::fake({
            let clock = clock.clone();
            move |_, _, early| {
                early(Found { addresses: vec![four], ttl, missing: Some(Family::V6) });
                let clock = clock.clone();
                Box::pin(async move {
                    clock.sleep_until(clock.now() + Duration::from_secs(4)).await;
                    Ok(Found { addresses: vec![four, six], ttl, missing: None })
                })
            }
        });
        tokio::spawn(NameWatch::new(clock.clone(), Arc::clone(&live), resolver).run());
        pass(&clock, 1).await;
        assert_eq!(servers(&live), ["10.0.0.1:80"]);
        pass(&clock, 4).await;
        assert_eq!(servers(&live), ["10.0.0.1:80", "[2001:db8::1]:80"]);
    }

    /// Returns a resolver that finds IPv4 at once, as `four` says with a time to live of 1 s, and IPv6
    /// after `delay`, or not in time.
    fn slow_for_ipv6(
        clock: &Clock,
        four: &Arc<Mutex<u8>>,
        six: Option<IpAddr>,
        delay: Duration,
    ) -> Resolver {
        let clock = clock.clone();
        let four = Arc::clone(four);
        let ttl = Some(Duration::from_secs(1));
        Resolver::fake(move |_, awaited, early| {
            let four = IpAddr::from([10, 0, 0, *four.lock().expect("no panic")]);
            let partial = Found { addresses: vec![four], ttl, missing: Some(Family::V6) };
            if awaited == Some(Family::V6) {
                return Box::pin(async move { Ok(partial) });
            }
            early(partial.clone());
            let clock = clock.clone();
            Box::pin(async move {
                clock.sleep_until(clock.now() + delay).await;
                let both = |six| Found { addresses: vec![four, six], ttl, missing: None };
                Ok(six.map_or(partial, both))
            })
        })
    }

    #[tokio::test(start_paused = true)]
    async fn a_family_that_dns_does_not_answer_for_delays_no_change_of_the_other_one() {
        let (clock, live) = live(&file(""));
        let four = Arc::new(Mutex::new(1));
        let resolver = slow_for_ipv6(&clock, &four, None, Duration::from_secs(5));
        tokio::spawn(NameWatch::new(clock.clone(), Arc::clone(&live), resolver).run());
        for last in 1..30 {
            *four.lock().expect("no panic") = last;
            clock.sleep_until(clock.now() + Duration::from_millis(1_100)).await;
            assert_eq!(servers(&live), [format!("10.0.0.{last}:80")], "its time to live is 1 s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_family_is_found_while_the_other_one_changes() {
        let (clock, live) = live(&file(""));
        let four = Arc::new(Mutex::new(1));
        let six: IpAddr = "2001:db8::1".parse().expect("an address");
        let resolver = slow_for_ipv6(&clock, &four, Some(six), Duration::from_secs(4));
        tokio::spawn(NameWatch::new(clock.clone(), Arc::clone(&live), resolver).run());
        pass(&clock, 3).await;
        assert_eq!(servers(&live), ["10.0.0.1:80"]);
        *four.lock().expect("no panic") = 2;
        pass(&clock, 2).await;
        assert_eq!(servers(&live), ["10.0.0.2:80", "[2001:db8::1]:80"]);
    }

    #[tokio::test(start_paused = true)]
    async fn names_of_which_dns_answers_for_one_family_keep_no_others_waiting() {
        const NAMES: usize = 40;
        let servers: Vec<_> =
            (0..NAMES).map(|n| format!("{{ url: 'http://shop{n}:80' }}")).collect();
        let (clock, live) = live(&format!(
            "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
             upstreams: [{{ name: up, servers: [{}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
            servers.join(", ")
        ));
        let resolver =
            slow_for_ipv6(&clock, &Arc::new(Mutex::new(1)), None, Duration::from_secs(5));
        tokio::spawn(NameWatch::new(clock.clone(), Arc::clone(&live), resolver).run());
        pass(&clock, 1).await;
        let all = self::servers(&live);
        assert!(all.iter().all(|server| server == "10.0.0.1:80"), "{all:?}");
    }

    /// Has connections to the servers of the name fail.
    fn fail(live: &Live, times: u64) {
        let snapshot = live.load_full();
        let members = snapshot.upstreams[0].members();
        members.servers[0].meter.connect_failures.fetch_add(times, Relaxed);
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_is_resolved_again_when_connections_fail() {
        let (clock, live, answers) = start("");
        answers.set(Ok((&[1], Some(600))));
        pass(&clock, 100).await;
        assert_eq!((servers(&live), answers.asked()), (vec!["10.0.0.1:80".to_owned()], 1));

        answers.set(Ok((&[2], Some(600))));
        pass(&clock, 1).await;
        fail(&live, 1);
        pass(&clock, 2).await;
        assert_eq!((servers(&live), answers.asked()), (vec!["10.0.0.2:80".to_owned()], 2));

        // While they fail, DNS is asked once a second at most.
        for _ in 0..300 {
            fail(&live, 10);
            clock.sleep_until(clock.now() + Duration::from_millis(100)).await;
        }
        assert!((25..=35).contains(&answers.asked()), "{}", answers.asked());
        let asked = answers.asked();
        pass(&clock, 60).await;
        assert!(answers.asked() <= asked + 1, "no more fail: {}", answers.asked());
    }

    #[tokio::test(start_paused = true)]
    async fn a_requested_reload_and_an_edit_of_the_upstream_resolve_names_again() {
        let (clock, live, answers) = start("");
        answers.set(Ok((&[1], Some(600))));
        pass(&clock, 10).await;
        assert_eq!((servers(&live), answers.asked()), (vec!["10.0.0.1:80".to_owned()], 1));

        answers.set(Ok((&[2], Some(600))));
        live.request_reload();
        pass(&clock, 2).await;
        assert_eq!((servers(&live), answers.asked()), (vec!["10.0.0.2:80".to_owned()], 2));

        answers.set(Ok((&[3], Some(600))));
        let folder = tempfile::tempdir().expect("a temporary directory");
        let edit = |keys: &str| {
            let path = folder.path().join("gateway.yaml");
            std::fs::write(&path, file(keys)).expect("written");
            let plan = crate::config::read(&path).expect("a configuration");
            live.apply(plan, clock.now(), &mut crate::config::Retired::default());
        };
        edit(", max_idle: 7");
        pass(&clock, 2).await;
        assert_eq!((servers(&live), answers.asked()), (vec!["10.0.0.3:80".to_owned()], 3));

        edit(", max_idle: 7");
        pass(&clock, 10).await;
        assert_eq!(answers.asked(), 3, "the upstream is as before");
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
        let resolver = Resolver::fake(move |host, _, _| {
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
}
