//! What an upstream and its servers mean, without state.

use super::UpstreamTls;
use crate::{
    config::{
        spec::{Balance, Resolve, SendProxyProtocol, UpstreamProtocol, values::Endpoint},
        vocabulary::ShownKey,
    },
    health::{Check, Ejection},
    route::KeySpec,
};
use std::{sync::Arc, time::Duration};

/// An upstream without its servers' state.
#[derive(Debug, PartialEq, Eq)]
pub struct UpstreamPlan {
    /// The name by which routes use it.
    pub name: Arc<str>,
    pub(in crate::config) servers: Vec<ServerPlan>,
    /// The other keys of the file, beside its servers.
    pub options: UpstreamOptions,
    /// The keys of one value, for reports.
    pub(in crate::config) keys: Vec<ShownKey>,
}

/// A server without its state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct ServerPlan {
    pub endpoint: Endpoint,
    pub weight: u32,
    /// True if it gets requests only while no other server can.
    pub is_backup: bool,
}

/// The keys of an upstream in the file, beside its servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// The way in which a server is picked.
    pub balance: Balance,
    /// The key that decides about a request's server, if `balance` is hash.
    pub hash_key: Option<KeySpec>,
    /// The cookie that keeps a client at one server, if there is one.
    pub sticky: Option<Box<str>>,
    /// The versions of HTTP that servers get.
    pub protocol: UpstreamProtocol,
    /// The version of the PROXY protocol that connections begin with, if they do.
    pub send_proxy_protocol: Option<SendProxyProtocol>,
    /// The longest time that a connection may take to open.
    pub connect_timeout: Duration,
    /// The time that an idle connection is kept.
    pub idle_timeout: Duration,
    /// Idle connections kept for each server by each worker.
    pub max_idle: usize,
    /// The bounds of a response's header.
    pub limits: AnswerLimits,
    /// The health checks of its servers, if there are any.
    pub health: Option<Check>,
    /// The failures after which a server is ejected.
    pub ejection: Ejection,
    /// The time at which the names of its servers are resolved again.
    pub resolve: Resolve,
    /// The time in which a server's share grows after its return.
    pub slow_start: Duration,
    /// The TLS of connections to the servers that speak it.
    pub tls: Option<Arc<UpstreamTls>>,
}

/// Sizes and counts beyond which an upstream's answer is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerLimits {
    /// The whole header of an answer, in bytes.
    pub header_bytes: usize,
    /// The most header fields.
    pub headers: usize,
}

/// The longest cycle of turns: what a schedule may hold.
const MAX_CYCLE: u64 = 1000;

/// Returns the indexes of the servers in the order of their turns, or `None` if a cycle would be
/// longer than [`MAX_CYCLE`].
///
/// Smooth weighted round robin: at each turn every server gains its weight, the richest one is
/// picked and pays the sum. Over a cycle each gets its share, spread as evenly as can be.
/// Source: nginx, `ngx_http_upstream_round_robin.c`.
pub(in crate::config) fn schedule(weights: &[u64]) -> Option<Vec<u16>> {
    let shared = weights.iter().copied().fold(0, gcd).max(1);
    let weights: Vec<i64> =
        weights.iter().map(|w| i64::try_from(w / shared).ok()).collect::<Option<_>>()?;
    let sum: i64 = weights.iter().sum();
    if u64::try_from(sum).ok()? > MAX_CYCLE {
        return None;
    }
    let mut credit = vec![0i64; weights.len()];
    let mut turns = Vec::new();
    for _ in 0..sum {
        for (credit, weight) in credit.iter_mut().zip(&weights) {
            *credit += weight;
        }
        // The first of equals, so that the file's order decides.
        let mut richest = 0;
        for index in 1..credit.len() {
            if credit[index] > credit[richest] {
                richest = index;
            }
        }
        credit[richest] -= sum;
        turns.push(u16::try_from(richest).ok()?);
    }
    Some(turns)
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::schedule;

    #[test]
    fn turns_are_spread_by_weight() {
        assert_eq!(schedule(&[1, 1, 1]), Some(vec![0, 1, 2]));
        assert_eq!(schedule(&[5, 1, 1]), Some(vec![0, 0, 1, 0, 2, 0, 0]));
        assert_eq!(schedule(&[100, 200]), Some(vec![1, 0, 1]));
        assert_eq!(schedule(&[]), Some(vec![]));
        assert_eq!(schedule(&[1000, 999]), None);
    }

    #[test]
    fn a_cycle_gives_everyone_its_share() {
        let turns = schedule(&[7, 5, 1]).unwrap();
        let share = |server| turns.iter().filter(|turn| **turn == server).count();
        assert_eq!([share(0), share(1), share(2)], [7, 5, 1]);
    }
}
