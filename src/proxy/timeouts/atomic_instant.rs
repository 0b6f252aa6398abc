//! An instant that may be absent, shared by parts of one connection.

use crate::{clock::Clock, flow::Instant};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// An instant that may be absent.
#[derive(Debug, Default)]
pub(crate) struct AtomicInstant(AtomicU64);

impl AtomicInstant {
    pub(crate) fn get(&self) -> Option<Instant> {
        match self.0.load(Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub(crate) fn set(&self, now: Instant) {
        self.0.store(now.as_nanos().max(1), Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Sets it at the beginning of a wait, and clears it at the end.
    pub(crate) fn note(&self, waiting: bool, clock: &Clock) {
        if waiting != self.is_set() {
            if waiting { self.set(clock.now()) } else { self.clear() }
        }
    }
}
