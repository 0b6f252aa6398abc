//! Room for a limited number, which threads that share no lock take one by one.
//!
//! To look first and add then would let as many too many in as threads look at once.

use super::atomics::{AtomicU64, Relaxed};

/// Counts one more in `taken` if fewer than `limit` are. Returns whether it did.
pub(super) fn take(taken: &AtomicU64, limit: u64) -> bool {
    let one_more = |taken| (taken < limit).then_some(taken + 1);
    taken.fetch_update(Relaxed, Relaxed, one_more).is_ok()
}
