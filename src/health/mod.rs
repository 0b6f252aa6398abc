//! The health of servers. A server that fails gets no requests for a while.
//!
//! Two observers decide about a server. Passive ejection watches the requests that are sent to it:
//! see [`Ejection`]. Active checks ask it for a path now and then: see [`Check`]. One
//! [`ServerHealth`] has the result, shared by all workers and kept over reloads.
//!
//! Source of the rules: Envoy's outlier detection (consecutive failures, failure ratio, periods
//! that grow, a largest part of the servers) and nginx's `max_fails` (a server that cannot be
//! reached is passed over at once).

mod budget;
mod server;

pub use budget::RetryBudget;
use core::{
    ops::RangeInclusive,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};
pub use server::{HealthChange, RequestTotals, ServerFailure, ServerHealth};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The conditions and the length of the ejection of a server that fails requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ejection {
    /// Failed requests in a row that eject a server; a connection that cannot be opened does so
    /// at once.
    pub failures: u32,
    /// Failed requests, in percent of at least 20 within 10 s, that eject a server.
    pub failure_percent: u32,
    /// The length of the first ejection; each further one lasts twice as long.
    pub period: Duration,
    /// The longest ejection.
    pub longest: Duration,
    /// The largest part of an upstream's servers that may be ejected at once, in percent; 0: none
    /// is ever.
    pub most_percent: u32,
}

impl Ejection {
    /// Returns whether one more of `servers` may be ejected, of which `out` get no requests now.
    pub(super) fn allows(&self, out: usize, servers: usize) -> bool {
        let most = servers.saturating_mul(self.most_percent as usize) / 100;
        out < most
    }

    /// Returns whether servers that cannot be reached are passed over: one of several, unless no
    /// server is ever ejected.
    pub(super) fn passes_over(&self, servers: usize) -> bool {
        servers > 1 && self.most_percent > 0
    }

    /// Returns how long the ejection lasts that is the `count`th in a row, counted from 0.
    pub(super) fn period(&self, count: u32) -> Duration {
        let factor = 1_u32.checked_shl(count).unwrap_or(u32::MAX);
        self.period.saturating_mul(factor).min(self.longest.max(self.period))
    }
}

/// The checks of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The path that is asked for, with a query if it has one.
    pub path: Box<str>,
    /// The host that is asked for, with a port if it has one; `None`: the server's address.
    pub host: Option<Box<str>>,
    /// From the end of one check to the next.
    pub interval: Duration,
    /// The most time that one may take, the connection included.
    pub timeout: Duration,
    /// Passed checks in a row after which a failing server is asked again.
    pub healthy_after: u32,
    /// Failed checks in a row after which a server is asked no more.
    pub unhealthy_after: u32,
    /// The statuses of a passed check.
    pub expect: Vec<RangeInclusive<u16>>,
}

impl Check {
    /// Returns whether a response with this status passes.
    pub fn expects(&self, status: u16) -> bool {
        self.expect.iter().any(|range| range.contains(&status))
    }
}

/// Shared by all workers.
#[derive(Debug, Default)]
pub struct EjectionState {
    turn: Mutex<()>,
    is_none_healthy: AtomicBool,
}

impl EjectionState {
    /// Waits for the turn to eject a server, which ends when the result is dropped: two workers could
    /// otherwise eject one each, and both count the other one in.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether no server is healthy, and returns whether that has changed.
    pub fn note(&self, is_none_healthy: bool) -> bool {
        self.is_none_healthy.swap(is_none_healthy, Relaxed) != is_none_healthy
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EJECTION: Ejection = Ejection {
        failures: 5,
        failure_percent: 50,
        period: Duration::from_secs(10),
        longest: Duration::from_mins(1),
        most_percent: 50,
    };

    #[test]
    fn periods_double_up_to_the_longest() {
        let periods = [0, 1, 2, 3, 31, 32, u32::MAX].map(|count| EJECTION.period(count).as_secs());
        assert_eq!(periods, [10, 20, 40, 60, 60, 60, 60]);
        let longest = Duration::from_secs(1);
        assert_eq!(Ejection { longest, ..EJECTION }.period(3).as_secs(), 10);
    }

    #[test]
    fn half_of_the_servers_at_most_are_ejected() {
        let most = |servers| (0..=servers).find(|&out| !EJECTION.allows(out, servers));
        assert_eq!([1, 2, 3, 4, 5].map(most), [Some(0), Some(1), Some(1), Some(2), Some(2)]);
        let none = Ejection { most_percent: 0, ..EJECTION };
        assert!(!none.allows(0, 1000));
        let all = Ejection { most_percent: 100, ..EJECTION };
        assert!(all.allows(0, 1) && all.allows(1, 2) && !all.allows(2, 2));
    }

    #[test]
    fn a_check_passes_by_any_of_its_ranges() {
        let check = Check {
            path: "/".into(),
            host: None,
            interval: Duration::ZERO,
            timeout: Duration::ZERO,
            healthy_after: 1,
            unhealthy_after: 1,
            expect: vec![200..=299, 404..=404],
        };
        assert_eq!(
            [199, 200, 299, 300, 404, 405].map(|status| check.expects(status)),
            [false, true, true, false, true, false]
        );
    }
}
