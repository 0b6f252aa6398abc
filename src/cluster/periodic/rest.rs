//! How long a gateway leaves the store alone between two calls, so that many that have much to tell
//! do not queue up before it: a request's call would wait behind all of theirs.
//!
//! Who had to wait for others rests twice as long as it has waited. Of `K` gateways that do so after
//! each call, `(K + 2)/3` have one at the store at a time instead of all `K`, while that is as busy as
//! before; a gateway alone never rests. That a call had to wait shows in its taking longer than the
//! quickest one lately. As the network or a busy machine may be why, nobody rests for longer than a
//! call of each gateway takes of the store.

use core::time::Duration;

/// How often the time waited for others is rested.
const TIMES: u32 = 2;

/// How the quickest call is forgotten, as the way to the store may have become longer: by a
/// thousandth with each call.
const FORGOTTEN: f64 = 1.001;

/// Knows the quickest call lately.
#[derive(Debug)]
pub(super) struct Rest {
    /// How long it took beyond what it was to take of the store.
    least: Duration,
}

impl Default for Rest {
    fn default() -> Self {
        Self { least: Duration::MAX }
    }
}

impl Rest {
    /// Returns how long to rest after a round trip that `took` so long, of which `cost` was to be the
    /// store's own time, where so many gateways share that.
    pub(super) fn after(&mut self, took: Duration, cost: Duration, gateways: u32) -> Duration {
        let beyond = took.saturating_sub(cost);
        let least = Duration::try_from_secs_f64(self.least.as_secs_f64() * FORGOTTEN);
        self.least = beyond.min(least.unwrap_or(Duration::MAX));
        let waited = beyond.saturating_sub(self.least);
        waited.saturating_mul(TIMES).min(cost.saturating_mul(gateways))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAY: Duration = Duration::from_micros(100);
    const CALL: Duration = Duration::from_micros(500);

    /// Has so many gateways call a store one call after the other, for so long, which thinks that
    /// each takes `cost`. Returns how busy it was, and how long a call waited in the second half.
    fn called(gateways: u32, seconds: u64, cost: Duration) -> (f64, Duration) {
        let mut them: Vec<(Duration, Rest)> = Vec::new();
        them.resize_with(gateways as usize, Default::default);
        let end = Duration::from_secs(seconds);
        let (mut free, mut calls) = (Duration::ZERO, 0);
        let (mut waited, mut late) = (Duration::ZERO, 0);
        while let Some((next, rest)) = them.iter_mut().min_by_key(|it| it.0) {
            let came = *next + WAY / 2;
            let begun = came.max(free);
            free = begun + CALL;
            if free > end {
                break;
            }
            calls += 1;
            if came > end / 2 {
                waited += begun.saturating_sub(came);
                late += 1;
            }
            let answered = free + WAY / 2;
            *next = answered + rest.after(answered.saturating_sub(*next), cost, gateways);
        }
        ((calls * CALL).as_secs_f64() / end.as_secs_f64(), waited / late)
    }

    #[test]
    fn many_gateways_keep_a_call_waiting_for_few_others_and_the_store_as_busy() {
        for (gateways, most) in [(8, 4), (100, 40)] {
            let (busy, waited) = called(gateways, 20, CALL);
            assert!(busy > 0.9, "{gateways}: {busy}");
            assert!(waited < most * CALL, "{gateways}: {waited:?}");
        }
    }

    #[test]
    fn a_gateway_alone_does_not_rest_however_slow_the_store_is() {
        for cost in [CALL, CALL / 5] {
            let (busy, waited) = called(1, 2, cost);
            assert!(busy > 0.83, "{busy}");
            assert_eq!(waited, Duration::ZERO);
        }
    }

    #[test]
    fn a_way_that_has_become_longer_is_no_reason_to_rest_for_ever() {
        let mut rest = Rest::default();
        let [near, far] = [1, 2].map(Duration::from_millis);
        let mut after = |took, gateways| rest.after(took, CALL, gateways);
        assert_eq!(after(near, 8), Duration::ZERO);
        assert!(after(far, 8) > near);
        assert_eq!(after(far, 2), 2 * CALL, "a call of each");
        let longer = (0..2_000).find(|_| after(far, 8).is_zero());
        assert!(longer.is_some_and(|calls| calls > 100), "{longer:?}");
    }
}
