//! The choice of an upstream's server for a request.

use super::rendezvous::{Candidate, choose};
use crate::{
    config::{Balance, Members, Server, Upstream},
    flow::Instant,
};
use core::sync::atomic::Ordering::Relaxed;
use smallvec::{SmallVec, smallvec};
use std::sync::Arc;

/// Servers that were asked in vain for the request at hand, as bits of their
/// places. An upstream's first 64 servers can be distinguished; further ones may be
/// asked twice.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tried(u64);

impl Tried {
    pub(crate) fn add(&mut self, place: usize) {
        self.0 |= bit(place);
    }

    /// Returns whether one of `servers` is left beside those and the one at `place`.
    pub(crate) fn leave_other(mut self, place: usize, servers: usize) -> bool {
        self.add(place);
        (self.0.count_ones() as usize) < servers
    }

    fn has(self, place: usize) -> bool {
        self.0 & bit(place) != 0
    }
}

fn bit(place: usize) -> u64 {
    u32::try_from(place).ok().and_then(|place| 1_u64.checked_shl(place)).unwrap_or(0)
}

/// Servers that do not get the requests of a key at the moment, as bits of their places. Further places
/// than 256 need an allocation.
#[derive(Debug, Default)]
struct PassedOver(SmallVec<[u64; 4]>);

impl PassedOver {
    fn of(tried: Tried) -> Self {
        Self(smallvec![tried.0])
    }

    fn add(&mut self, place: usize) {
        let word = place / 64;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= bit(place % 64);
    }

    fn has(&self, place: usize) -> bool {
        self.0.get(place / 64).is_some_and(|word| word & bit(place % 64) != 0)
    }
}

/// The number of picks before the servers are gone through one by one. Another pick, in place of
/// a server that gets no requests now, spreads the requests of that server.
const PICKS: usize = 4;

/// A server for a request.
#[derive(Debug)]
pub(crate) struct Picked {
    pub(crate) place: usize,
    pub(crate) server: Arc<Server>,
    /// True if another one is left that was not tried.
    pub(crate) is_other_left: bool,
}

/// Picks a server that was not tried before; `None` if there is none left. A server that gets no requests
/// at `now` is picked only if no other is left.
///
/// `key` decides if the upstream assigns keys to servers. `random` returns a number below its
/// argument.
pub(crate) fn pick(
    upstream: &Upstream,
    tried: Tried,
    now: Instant,
    key: Option<u64>,
    random: impl FnMut(usize) -> usize,
) -> Option<Picked> {
    let members = upstream.members();
    let choice = Choice { upstream, members: &members, tried, now };
    let place = choice.place(key, random)?;
    let server = Arc::clone(members.servers.get(place)?);
    let is_other_left = tried.leave_other(place, members.servers.len());
    Some(Picked { place, server, is_other_left })
}

/// The servers among which one is chosen for an attempt at `now`.
#[derive(Clone, Copy)]
struct Choice<'a> {
    upstream: &'a Upstream,
    members: &'a Members,
    tried: Tried,
    now: Instant,
}

impl Choice<'_> {
    fn place(self, key: Option<u64>, mut random: impl FnMut(usize) -> usize) -> Option<usize> {
        let Self { members, tried, .. } = self;
        if members.servers.len() == 1 && !tried.has(0) {
            return Some(0);
        }

        let start = match self.of_group(Group::Usual, key, &mut random) {
            Ok(place) => return Some(place),
            Err(start) => start,
        };
        if !members.backup_schedule.is_empty()
            && let Ok(place) = self.of_group(Group::Backup, key, &mut random)
        {
            return Some(place);
        }

        // None gets requests now: the first that was not tried, backups last.
        let untried = self.untried_from(start);
        untried
            .clone()
            .find(|place| self.is_in(Group::Usual, *place))
            .or_else(|| untried.clone().next())
    }

    /// Returns the place of a server of a group that gets requests.
    ///
    /// # Errors
    /// None does. The place is that of the last one that was looked at.
    fn of_group(
        self,
        group: Group,
        key: Option<u64>,
        mut random: impl FnMut(usize) -> usize,
    ) -> Result<usize, usize> {
        let Self { upstream, members, tried, .. } = self;
        let mut place = 0;
        if let Some(key) = key {
            let mut passed_over = PassedOver::of(tried);
            while let Some(picked) = by_key(&members.servers, group, &passed_over, key) {
                if self.admits(picked, &mut random) {
                    return Ok(picked);
                }
                passed_over.add(picked);
                place = picked;
            }
            return Err(place);
        }

        for pick in 0..PICKS {
            let picked = match pick {
                0 => in_turn(upstream, members, group, &mut random),
                _ => by_chance(group.schedule(members), &mut random),
            };
            let Some(picked) = picked else { break };
            if !tried.has(picked) && self.admits(picked, &mut random) {
                return Ok(picked);
            }
            place = picked;
        }

        let is_meant = |at: &usize| self.is_in(group, *at) && self.admits(*at, |_| 0);
        self.untried_from(place).find(is_meant).ok_or(place)
    }

    fn admits(self, place: usize, random: impl FnMut(usize) -> usize) -> bool {
        let slow_start = self.upstream.options.slow_start;
        let server = self.members.servers.get(place);
        server.is_some_and(|server| server.health.admits(self.now, slow_start, random))
    }

    fn is_in(self, group: Group, place: usize) -> bool {
        self.members.servers.get(place).is_some_and(|server| group.has(server))
    }

    /// Returns the places that were not tried, from `start` on.
    fn untried_from(self, start: usize) -> impl Iterator<Item = usize> + Clone {
        let count = self.members.servers.len();
        let places = (0..count).map(move |step| (start + step) % count);
        places.filter(move |&place| !self.tried.has(place))
    }
}

/// The servers that get requests at all times, and those that stand in for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Usual,
    Backup,
}

impl Group {
    const fn has(self, server: &Server) -> bool {
        server.is_backup == matches!(self, Self::Backup)
    }

    /// Returns the order of the turns of its servers.
    fn schedule(self, members: &Members) -> &[u16] {
        match self {
            Self::Usual => &members.schedule,
            Self::Backup => &members.backup_schedule,
        }
    }
}

/// Returns the place of the server that gets the requests with a key, unless all are out.
pub(crate) fn owner(servers: &[Arc<Server>], key: u64) -> Option<usize> {
    let mut out = PassedOver::default();
    for group in [Group::Usual, Group::Backup] {
        while let Some(place) = by_key(servers, group, &out, key) {
            if !servers.get(place)?.health.is_out() {
                return Some(place);
            }
            out.add(place);
        }
    }
    None
}

/// Returns the place of the server of a group that a key belongs to, among those that were not passed
/// over.
fn by_key(
    servers: &[Arc<Server>],
    group: Group,
    passed_over: &PassedOver,
    key: u64,
) -> Option<usize> {
    let left = servers
        .iter()
        .enumerate()
        .filter(|(place, server)| group.has(server) && !passed_over.has(*place));
    let candidates = left.map(|(place, server)| Candidate {
        place,
        id: server.hash,
        weight: server.weight,
        in_flight: server.in_flight.load(Relaxed),
    });
    choose(key, candidates)
}

/// Returns the place of the server of a group whose turn it is.
fn in_turn(
    upstream: &Upstream,
    members: &Members,
    group: Group,
    mut random: impl FnMut(usize) -> usize,
) -> Option<usize> {
    let schedule = group.schedule(members);
    match upstream.options.balance {
        Balance::RoundRobin if group == Group::Usual => Some(next_in_turn(upstream, schedule)),
        // A request for a backup has taken a turn of the others already, so that those turns would
        // always be the same backup's. A request without a key goes to any.
        Balance::RoundRobin | Balance::Random | Balance::Hash => by_chance(schedule, random),
        Balance::LeastRequest => {
            let one = by_chance(schedule, &mut random)?;
            // Another one: the same twice would say nothing.
            let start = random(schedule.len());
            let mut others = schedule.iter().cycle().skip(start).take(schedule.len());
            let two = others.find(|two| usize::from(**two) != one).map_or(one, |two| (*two).into());
            Some(if load(members, two) < load(members, one) { two } else { one })
        }
    }
}

fn by_chance(schedule: &[u16], mut random: impl FnMut(usize) -> usize) -> Option<usize> {
    schedule.get(random(schedule.len())).map(|place| usize::from(*place))
}

fn next_in_turn(upstream: &Upstream, schedule: &[u16]) -> usize {
    let turn = upstream.turn.fetch_add(1, Relaxed);
    schedule.get(turn % schedule.len().max(1)).copied().unwrap_or(0).into()
}

/// Requests in flight per unit of weight, in thousandths. The schedule already
/// offers heavy servers more often; dividing keeps them from looking busy.
fn load(members: &Members, place: usize) -> u64 {
    members.servers.get(place).map_or(u64::MAX, |server| {
        u64::from(server.in_flight.load(Relaxed)) * 1000 / u64::from(server.weight.max(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::Snapshot, health::ServerFailure, proxy::tests::live};
    use std::collections::BTreeSet;

    const SERVERS: usize = 300;

    fn keyed() -> Arc<Snapshot> {
        let urls: Vec<_> =
            (1..=SERVERS).map(|port| format!("{{ url: 'http://127.0.0.1:{port}' }}")).collect();
        let (_, live) = live(&format!(
            "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
             upstreams: [{{ name: up, balance: hash, hash_key: 'header:x-a', servers: [{}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
            urls.join(", ")
        ));
        live.load_full()
    }

    /// Takes a server out of service.
    fn eject(upstream: &Upstream, place: usize) {
        let ejection = &upstream.options.ejection;
        let health = &upstream.servers()[place].health;
        health.failed(Instant::from_nanos(0), ServerFailure::Connect, ejection, || (0, SERVERS));
        assert!(health.is_out());
    }

    fn picked(upstream: &Upstream, key: u64) -> usize {
        let random = |_| unreachable!("the key decides");
        let picked = pick(upstream, Tried::default(), Instant::from_nanos(0), Some(key), random);
        picked.expect("a server").place
    }

    #[test]
    fn the_owner_of_a_key_is_found_among_more_than_64_servers() {
        let snapshot = keyed();
        let upstream = &snapshot.upstreams[0];
        for least in [64, 128, 256] {
            let owner = |key| owner(&upstream.servers(), key).expect("a server");
            let key = (0..=u64::MAX).find(|key| owner(*key) >= least).expect("a key");
            let first = owner(key);
            eject(upstream, first);
            let second = owner(key);
            assert_ne!(first, second);
            assert_eq!(second, picked(upstream, key), "requests go there");
        }
    }

    /// An upstream with two servers and, behind them in the file, two backups.
    fn with_backups(balance: &str) -> Arc<Snapshot> {
        let (_, live) = live(&format!(
            "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
             upstreams: [{{ name: up, balance: {balance}, ejection: {{ most_percent: 100 }}, servers: [\
             {{ url: 'http://127.0.0.1:1' }}, {{ url: 'http://127.0.0.1:2', weight: 3 }}, \
             {{ url: 'http://127.0.0.1:3', backup: true }}, {{ url: 'http://127.0.0.1:4', backup: true }}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
        ));
        live.load_full()
    }

    /// The places that 400 requests get.
    fn places(
        upstream: &Upstream,
        tried: Tried,
        key: impl Fn(u64) -> Option<u64>,
    ) -> BTreeSet<usize> {
        let mut random = fastrand::Rng::with_seed(7);
        let mut pick_one = |number| {
            let random = |below: usize| random.usize(..below.max(1));
            pick(upstream, tried, Instant::from_nanos(0), key(number), random)
        };
        (0..400).map(|number| pick_one(number).expect("a server").place).collect()
    }

    #[test]
    fn backups_get_requests_only_while_no_other_server_can() {
        for balance in ["round_robin", "least_request", "random", "hash, hash_key: 'header:x-a'"] {
            let snapshot = with_backups(balance);
            let upstream = &snapshot.upstreams[0];
            let key = |number| balance.starts_with("hash").then_some(number);
            let of = |tried| places(upstream, tried, key);
            assert_eq!(of(Tried::default()), BTreeSet::from([0, 1]), "{balance}");

            eject(upstream, 0);
            assert_eq!(of(Tried::default()), BTreeSet::from([1]), "{balance}");
            let mut tried = Tried::default();
            tried.add(1);
            assert_eq!(of(tried), BTreeSet::from([2, 3]), "a second attempt, {balance}");

            eject(upstream, 1);
            assert_eq!(of(Tried::default()), BTreeSet::from([2, 3]), "{balance}");
            eject(upstream, 3);
            assert_eq!(of(Tried::default()), BTreeSet::from([2]), "{balance}");

            // None gets requests now, so one that is no backup is tried.
            eject(upstream, 2);
            assert!(of(Tried::default()).is_subset(&BTreeSet::from([0, 1])), "{balance}");
            tried.add(0);
            assert!(of(tried).is_subset(&BTreeSet::from([2, 3])), "{balance}");
        }
    }

    #[test]
    fn the_keys_of_a_dead_server_spread_over_the_others() {
        let snapshot = keyed();
        let upstream = &snapshot.upstreams[0];
        let dead = 200;
        let keys: Vec<_> = (0..20_000).filter(|key| picked(upstream, *key) == dead).collect();
        eject(upstream, dead);
        let others: BTreeSet<_> = keys.iter().map(|key| picked(upstream, *key)).collect();
        assert!(!others.contains(&dead));
        assert!(others.len() > keys.len() / 2, "{} keys to {} servers", keys.len(), others.len());
    }
}
