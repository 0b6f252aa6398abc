//! Whether the gateway should be sent requests, and what became of the last edit.

use crate::{
    config::{Diagnostics, Summary},
    flow::Instant,
};
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// What `/readyz` answers: unready at first, and again while the gateway drains.
#[derive(Debug, Default)]
pub struct Readiness {
    ready: AtomicBool,
    /// Locked by the control thread alone: it notes reloads and serves the page.
    last: Mutex<Option<Reload>>,
}

/// What became of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// When it was taken or refused.
    pub at: Instant,
    /// What changed, or all that is wrong with it.
    pub outcome: Result<String, String>,
}

impl Readiness {
    /// Says whether requests should come.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }

    /// Tells whether requests should come.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Notes what became of an edit, for `/readyz?verbose`.
    pub fn reloaded(&self, at: Instant, outcome: Result<String, String>) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Reload { at, outcome });
    }

    /// Returns what became of the last edit, if there was one.
    pub fn last_reload(&self) -> Option<Reload> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
