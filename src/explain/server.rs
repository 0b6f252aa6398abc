//! Which server would be picked.

use super::answer::{ServerView, UpstreamView};
use crate::{
    config::{Balance, Members, Upstream},
    proxy::owner,
    route::{Seed, Target, low_bits},
};
use core::{net::IpAddr, sync::atomic::Ordering::Relaxed};

/// The most servers that are listed.
const LISTED: usize = 16;

/// Returns where a request would be sent. No turn is taken, and no server is tried.
pub(super) fn next(upstream: &Upstream, target: &Target<'_>, client: IpAddr) -> UpstreamView {
    let members = upstream.members();
    let (place, because) = pick(upstream, &members, target, client);
    let address = |place: usize| members.servers.get(place).map(|server| server.address());
    let servers = members.servers.iter().take(LISTED).map(|server| ServerView {
        address: server.address(),
        health: server.health_word().to_owned(),
        in_flight: server.in_flight.load(Relaxed),
    });
    let healthy = members.servers.iter().filter(|server| server.health.is_healthy());
    UpstreamView {
        name: upstream.name.to_string(),
        server: place.and_then(address),
        because: because.to_owned(),
        healthy: Some(healthy.count()),
        servers: servers.collect(),
    }
}

fn pick(
    upstream: &Upstream,
    members: &Members,
    target: &Target<'_>,
    client: IpAddr,
) -> (Option<usize>, &'static str) {
    let servers = &members.servers;
    if servers.len() == 1 {
        return (Some(0), "the only server");
    }
    if servers.is_empty() {
        return (None, "no address of one is known");
    }
    if servers.iter().all(|server| server.health.is_out()) {
        return (None, "none gets requests now, so one is tried");
    }
    match upstream.options.balance {
        Balance::RoundRobin => {
            let turn = upstream.turn.load(Relaxed) % members.schedule.len().max(1);
            let place = members.schedule.get(turn).map(|place| usize::from(*place));
            match place.filter(|place| !servers[*place].health.is_out()) {
                Some(place) => (Some(place), "its turn, if no other request comes before"),
                None => (None, "one of the healthy servers, in place of the one whose turn it is"),
            }
        }
        Balance::LeastRequest => (None, "the less busy of two that chance picks"),
        Balance::Random => (None, "by chance"),
        Balance::Hash => {
            let key = upstream.options.hash_key.as_ref();
            // The same in all gateways.
            let key = key.and_then(|key| key.fingerprint(&Seed::new([0, 0]), target, client).ok());
            match key.and_then(|key| owner(servers, low_bits(key))) {
                Some(place) => (Some(place), "by its hash_key"),
                None => (None, "by chance, as the request lacks the hash_key"),
            }
        }
    }
}
