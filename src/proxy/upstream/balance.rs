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
        let Self { upstream, members, tried, now } = self;
        let servers = &members.servers;
        if servers.len() == 1 && !tried.has(0) {
            return Some(0);
        }

        let slow_start = upstream.options.slow_start;
        let mut place = 0;
        if let Some(key) = key {
            let mut passed_over = PassedOver::of(tried);
            while let Some(picked) = by_key(servers, &passed_over, key) {
                if servers.get(picked)?.health.admits(now, slow_start, &mut random) {
                    return Some(picked);
                }
                passed_over.add(picked);
                place = picked;
            }
        } else {
            for pick in 0..PICKS {
                let picked = match pick {
                    0 => in_turn(upstream, members, &mut random),
                    _ => by_chance(members, &mut random),
                };
                let Some(picked) = picked else { break };
                let server = servers.get(picked)?;
                if !tried.has(picked) && server.health.admits(now, slow_start, &mut random) {
                    return Some(picked);
                }
                place = picked;
            }
        }

        self.first_from(place)
    }

    /// Returns the first place from `start` on whose server gets requests. If none does, the first
    /// that was not tried.
    fn first_from(self, start: usize) -> Option<usize> {
        let servers = &self.members.servers;
        let slow_start = self.upstream.options.slow_start;
        let untried = (0..servers.len())
            .map(|step| (start + step) % servers.len())
            .filter(|&place| !self.tried.has(place));

        let admits = |place: &usize| {
            servers
                .get(*place)
                .is_some_and(|server| server.health.admits(self.now, slow_start, |_| 0))
        };
        untried.clone().find(admits).or_else(|| untried.clone().next())
    }
}

/// Returns the place of the server that gets the requests with a key, unless all are out.
pub(crate) fn owner(servers: &[Arc<Server>], key: u64) -> Option<usize> {
    let mut out = PassedOver::default();
    loop {
        let place = by_key(servers, &out, key)?;
        if !servers.get(place)?.health.is_out() {
            return Some(place);
        }
        out.add(place);
    }
}

/// Returns the place of the server that a key belongs to, among those that were not passed over.
fn by_key(servers: &[Arc<Server>], passed_over: &PassedOver, key: u64) -> Option<usize> {
    let left = servers.iter().enumerate().filter(|(place, _)| !passed_over.has(*place));
    let candidates = left.map(|(place, server)| Candidate {
        place,
        id: server.hash,
        weight: server.weight,
        in_flight: server.in_flight.load(Relaxed),
    });
    choose(key, candidates)
}

/// Returns the place of the server whose turn it is.
fn in_turn(
    upstream: &Upstream,
    members: &Members,
    mut random: impl FnMut(usize) -> usize,
) -> Option<usize> {
    match upstream.options.balance {
        Balance::RoundRobin => Some(next_in_turn(upstream, members)),
        // A request without a key goes to any.
        Balance::Random | Balance::Hash => by_chance(members, random),
        Balance::LeastRequest => {
            let one = by_chance(members, &mut random)?;
            // Another one: the same twice would say nothing.
            let schedule = &members.schedule;
            let start = random(schedule.len());
            let mut others = schedule.iter().cycle().skip(start).take(schedule.len());
            let two = others.find(|two| usize::from(**two) != one).map_or(one, |two| (*two).into());
            Some(if load(members, two) < load(members, one) { two } else { one })
        }
    }
}

fn by_chance(members: &Members, mut random: impl FnMut(usize) -> usize) -> Option<usize> {
    members.schedule.get(random(members.schedule.len())).map(|place| usize::from(*place))
}

fn next_in_turn(upstream: &Upstream, members: &Members) -> usize {
    let turn = upstream.turn.fetch_add(1, Relaxed);
    members.schedule.get(turn % members.schedule.len().max(1)).copied().unwrap_or(0).into()
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
