//! How long a gateway pauses between two calls, so that the calls of many gateways do not queue up
//! before the store: a request's call would wait behind all of them.
//!
//! A gateway whose call waited for others pauses twice as long as it waited. If `K` gateways do so,
//! few calls are at the store at a time instead of `K`, and the store is nearly as busy as before.
//! A gateway alone never pauses. A call waited if it took longer than the fastest one lately. The
//! network or a busy machine may be the reason, so no pause is longer than a call of each gateway
//! takes.

use core::time::Duration;

/// How often the time waited for others is rested.
const TIMES: u32 = 2;

/// After how many calls the quickest one is forgotten, as the way to the store may have become
/// longer.
const FORGOTTEN: u32 = 1000;

/// Knows the quickest call lately.
#[derive(Debug)]
pub(super) struct CallSpacing {
    /// How long it took beyond what it was to take of the store.
    least: Duration,
}

impl Default for CallSpacing {
    fn default() -> Self {
        Self { least: Duration::MAX }
    }
}

impl CallSpacing {
    /// Returns how long the quickest one took beyond what it was to take; nothing before the first.
    pub(super) fn way(&self) -> Duration {
        if self.least == Duration::MAX { Duration::ZERO } else { self.least }
    }

    /// Returns how long a round trip has waited for others that `took` so long, of which `cost` was
    /// to be the store's own time; and how long to rest after it, where so many gateways share
    /// that.
    pub(super) fn after(
        &mut self,
        took: Duration,
        cost: Duration,
        gateways: u32,
    ) -> (Duration, Duration) {
        let beyond = took.saturating_sub(cost);
        self.least = beyond.min(self.least.saturating_add(beyond / FORGOTTEN));
        let waited = beyond.saturating_sub(self.least);
        (waited, waited.saturating_mul(TIMES).min(cost.saturating_mul(gateways)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: Duration = Duration::from_micros(500);

    #[test]
    fn a_way_that_has_become_longer_is_no_reason_to_rest_for_ever() {
        // The one is quicker than it was to be.
        for near in [CALL / 2, 2 * CALL] {
            let mut spacing = CallSpacing::default();
            let far = 4 * CALL;
            let mut after = |took, gateways| spacing.after(took, CALL, gateways).1;
            assert_eq!(after(near, 8), Duration::ZERO);
            assert!(after(far, 8) > near);
            assert_eq!(after(far, 2), 2 * CALL, "a call of each");
            let longer = (0..2_000).find(|_| after(far, 8).is_zero());
            assert!(longer.is_some_and(|calls| calls > 100), "{near:?}: {longer:?}");
        }
    }
}
