//! Whether the gateway should be sent requests, and what became of the last edit.

use crate::flow::Instant;
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

    /// Says whether requests should come.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Notes that an edit was taken, and what it changed.
    pub fn reloaded(&self, at: Instant, changes: &str) {
        self.note(Reload { at, outcome: Ok(changes.to_owned()) });
    }

    /// Notes that an edit was refused, and all that is wrong with it.
    pub fn refused(&self, at: Instant, problems: &str) {
        self.note(Reload { at, outcome: Err(problems.to_owned()) });
    }

    /// Returns what became of the last edit, if there was one.
    pub fn last_reload(&self) -> Option<Reload> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, reload: Reload) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }
}
