//! The latest example of a bucket, which threads share without a lock.
//!
//! A writer takes the cell by a compare-and-swap of its version, which is odd meanwhile; another
//! writer gives up. A reader takes what it read only if the version was even and stayed. Each word is
//! stored with release and loaded with acquire, so that a reader of a later word sees that version.
//!
//! `tests/models.rs` checks this file with loom.

use super::atomics::{
    AtomicU64,
    Ordering::{Acquire, Release},
    Relaxed,
};
use core::time::Duration;

/// The least time between two examples of a bucket: what a scrape shows is no older by more, and
/// most requests only read when the last one was.
const INTERVAL: Duration = Duration::from_secs(1);

/// A request by which a histogram's bucket can be explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// By which other programs know the request.
    pub id: ExemplarId,
    /// Its duration in nanoseconds.
    pub nanos: u64,
    /// The time of its end, since the Unix epoch.
    pub at: Duration,
}

/// The id of an [`Exemplar`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExemplarId {
    /// A trace that was recorded.
    Trace(u128),
    /// The request's id, if it is 32 hexadecimal digits.
    Request(u128),
}

/// Keeps an [`Exemplar`].
#[derive(Debug, Default)]
pub(super) struct ExemplarCell {
    version: AtomicU64,
    /// In nanoseconds since the Unix epoch; zero if there is none yet.
    at: AtomicU64,
    nanos: AtomicU64,
    is_trace: AtomicU64,
    high: AtomicU64,
    low: AtomicU64,
}

impl ExemplarCell {
    /// Keeps the exemplar of a request that ended at `at`, unless the last one is recent.
    #[expect(clippy::cast_possible_truncation, reason = "the halves of a number")]
    pub(super) fn offer(&self, nanos: u64, at: Duration, id: impl FnOnce() -> Option<ExemplarId>) {
        let at_nanos = u64::try_from(at.as_nanos()).unwrap_or(u64::MAX);
        let last = Duration::from_nanos(self.at.load(Relaxed));
        // A clock that was set back is no reason to keep an old one.
        let is_recent = last <= at && at.saturating_sub(last) < INTERVAL;
        if is_recent {
            return;
        }

        let Some(id) = id() else { return };

        let version = self.version.load(Relaxed);
        let is_taken = version % 2 == 1
            || self.version.compare_exchange(version, version + 1, Acquire, Relaxed).is_err();
        if is_taken {
            return;
        }

        let (is_trace, bits) = match id {
            ExemplarId::Trace(bits) => (1, bits),
            ExemplarId::Request(bits) => (0, bits),
        };

        self.at.store(at_nanos, Release);
        self.nanos.store(nanos, Release);
        self.is_trace.store(is_trace, Release);
        self.high.store((bits >> 64) as u64, Release);
        self.low.store(bits as u64, Release);
        self.version.store(version + 2, Release);
    }

    /// Returns the exemplar, unless there is none or it is being written.
    pub(super) fn read(&self) -> Option<Exemplar> {
        let version = self.version.load(Acquire);
        if version == 0 || version % 2 == 1 {
            return None;
        }
        let at = Duration::from_nanos(self.at.load(Acquire));
        let nanos = self.nanos.load(Acquire);
        let is_trace = self.is_trace.load(Acquire) == 1;
        let high = u128::from(self.high.load(Acquire));
        let bits = high << 64 | u128::from(self.low.load(Acquire));
        let id = if is_trace { ExemplarId::Trace(bits) } else { ExemplarId::Request(bits) };
        (self.version.load(Relaxed) == version).then_some(Exemplar { id, nanos, at })
    }
}
