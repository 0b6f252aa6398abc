//! The random part of `Retry-After`, so that clients that were rejected at once do not come back at
//! once.
//!
//! It is a hash of the request's arrival and key: the same request at the same time gets the same.

use crate::flow::{Instant, Key, Rejection};
use core::{
    hash::{Hash, Hasher},
    time::Duration,
};
use std::hash::DefaultHasher;

/// Returns a time from zero up to `most`, each as probable as any other.
pub(super) fn jitter(most: Duration, arrival: Instant, key: Option<Key>) -> Duration {
    let fingerprint = match key {
        Some(Key::Of(fingerprint)) => fingerprint,
        Some(Key::Shared | Key::Missing | Key::Duplicate) | None => 0,
    };
    let mut hasher = DefaultHasher::new();
    (arrival.as_nanos(), fingerprint).hash(&mut hasher);

    let most = u128::from(u64::try_from(most.as_nanos()).unwrap_or(u64::MAX));
    let nanos = (u128::from(hasher.finish()) * (most + 1)) >> u64::BITS;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns the rejection with this much more until the request would be admitted, if that is known.
pub(super) fn later(rejection: &Rejection, jitter: Duration) -> Rejection {
    let exact = rejection.reason.retry_after();
    let later = exact.map(|wait| rejection.reason.with_retry_after(wait.saturating_add(jitter)));
    Rejection { reason: later.unwrap_or(rejection.reason), ..rejection.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_spread_from_nothing_to_all_and_the_same_for_the_same_request() {
        let most = Duration::from_secs(5);
        let at = |nanos| jitter(most, Instant::from_nanos(nanos), Some(Key::Of(7)));
        let times: Vec<Duration> = (0..10_000).map(at).collect();
        assert!(times.iter().all(|time| *time <= most));
        for tenth in 0..10 {
            let part = most / 10 * tenth..most / 10 * (tenth + 1);
            let count = times.iter().filter(|time| part.contains(*time)).count();
            assert!((850..1_150).contains(&count), "{tenth}: {count}");
        }
        assert_eq!(at(3), at(3));
        let other = jitter(most, Instant::from_nanos(3), Some(Key::Of(8)));
        assert_ne!(at(3), other, "clients that came at once are spread, too");
        assert_eq!(jitter(Duration::ZERO, Instant::from_nanos(3), None), Duration::ZERO);
    }
}
