//! When a name is resolved again.

use core::time::Duration;

/// The bounds of a time to live: some records have 0, and some have days by mistake.
const TTL_MIN: Duration = Duration::from_secs(1);
const TTL_MAX: Duration = Duration::from_mins(5);

/// The time to live of addresses from the system's resolver, which knows none.
const SYSTEM_TTL: Duration = Duration::from_secs(30);

/// What the upstreams with a name say about when it is resolved again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Schedule {
    pub(super) is_by_ttl: bool,
    /// The shortest interval of those that have one.
    pub(super) every: Option<Duration>,
}

impl Schedule {
    /// Returns how long addresses with this time to live are used.
    pub(super) fn interval(self, ttl: Option<Duration>) -> Duration {
        let ttl = ttl.unwrap_or(SYSTEM_TTL).clamp(TTL_MIN, TTL_MAX);
        match self.every {
            Some(every) if self.is_by_ttl => every.min(ttl),
            Some(every) => every,
            None => ttl,
        }
    }

    /// Returns when both would resolve a name again.
    pub(super) fn and(self, other: Self) -> Self {
        let every = self.every.into_iter().chain(other.every).min();
        Self { is_by_ttl: self.is_by_ttl || other.is_by_ttl, every }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
