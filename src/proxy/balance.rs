//! Which of an upstream's servers is asked next.

use crate::{
    config::{Balance, Server, Upstream},
    flow::Instant,
};
use core::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;

/// Servers that were asked in vain for the request at hand, as bits of their
/// places. An upstream's first 64 servers can be distinguished; further ones may be
/// asked twice.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried(u64);

impl Tried {
    pub(super) fn add(&mut self, place: usize) {
        self.0 |= bit(place);
    }

    /// Returns whether one of `servers` is left beside those and the one at `place`.
    pub(super) fn leave_other(mut self, place: usize, servers: usize) -> bool {
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

/// How often another server is picked in place of one that gets no requests now, before the
/// servers are gone through one by one. Another pick spreads the requests of the one that is
/// passed over.
const PICKS: usize = 4;

/// Picks a server that was not tried before, and returns its place as well;
/// `None` if there is none left. One that gets no requests at `now` is picked only if no other is
/// left.
///
/// `random` returns a number below its argument.
pub(super) fn pick(
    upstream: &Upstream,
    tried: Tried,
    now: Instant,
    mut random: impl FnMut(usize) -> usize,
) -> Option<(usize, &Arc<Server>)> {
    let servers = &upstream.servers;
    if servers.len() == 1 && !tried.has(0) {
        return Some((0, servers.first()?));
    }
    let slow_start = upstream.options.slow_start;
    let mut place = in_turn(upstream, &mut random)?;
    for _ in 0..PICKS {
        let server = servers.get(place)?;
        if !tried.has(place) && server.health.admits(now, slow_start, &mut random) {
            return Some((place, server));
        }
        place = usize::from(*upstream.schedule.get(random(upstream.schedule.len()))?);
    }
    // From there on, the first that gets requests; if none does, the first that was not tried.
    let untried = (0..servers.len())
        .map(|step| (place + step) % servers.len())
        .filter(|&place| !tried.has(place));
    let untried = untried.filter_map(|place| Some((place, servers.get(place)?)));
    let is_admitted =
        |(_, server): &(usize, &Arc<Server>)| server.health.admits(now, slow_start, |_| 0);
    untried.clone().find(is_admitted).or_else(|| untried.clone().next())
}

/// Returns the place of the server whose turn it is.
fn in_turn(upstream: &Upstream, mut random: impl FnMut(usize) -> usize) -> Option<usize> {
    let place = match upstream.options.balance {
        Balance::RoundRobin => next_in_turn(upstream),
        Balance::Random => *upstream.schedule.get(random(upstream.schedule.len()))?,
        Balance::LeastRequest => {
            let mut choice = || upstream.schedule.get(random(upstream.schedule.len()));
            let (one, two) = (*choice()?, *choice()?);
            if load(upstream, two) < load(upstream, one) { two } else { one }
        }
    };
    Some(usize::from(place))
}

fn next_in_turn(upstream: &Upstream) -> u16 {
    let turn = upstream.turn.fetch_add(1, Relaxed);
    upstream.schedule.get(turn % upstream.schedule.len().max(1)).copied().unwrap_or(0)
}

/// Requests in flight per unit of weight, in thousandths. The schedule already
/// offers heavy servers more often; dividing keeps them from looking busy.
fn load(upstream: &Upstream, place: u16) -> u64 {
    upstream.servers.get(usize::from(place)).map_or(u64::MAX, |server| {
        u64::from(server.in_flight.load(Relaxed)) * 1000 / u64::from(server.weight.max(1))
    })
}
