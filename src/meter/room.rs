//! A limit that threads share without a lock. Checking before adding would admit too many.

use super::atomics::{AtomicU64, Relaxed};

/// Increments `taken` if it is below `limit`. Returns whether it did.
pub(super) fn take(taken: &AtomicU64, limit: u64) -> bool {
    let one_more = |taken| (taken < limit).then_some(taken + 1);
    taken.fetch_update(Relaxed, Relaxed, one_more).is_ok()
}
