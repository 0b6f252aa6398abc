//! Readiness for requests, and the last edit's result.

use crate::flow::Instant;
use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

/// The state of `/readyz`: not ready at the start and while draining.
#[derive(Debug, Default)]
pub struct Readiness {
    ready: AtomicBool,
    /// Locked only by the control thread.
    last: Mutex<Option<Reload>>,
}

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// When it was applied or rejected.
    pub at: Instant,
    /// What changed, or all problems.
    pub outcome: Result<String, String>,
}

impl Readiness {
    /// Sets whether requests should come.
    pub fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Relaxed);
    }

    /// Returns whether requests should come.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Relaxed)
    }

    /// Records an applied edit and its changes.
    pub fn reloaded(&self, at: Instant, changes: &str) {
        self.record(Reload { at, outcome: Ok(changes.to_owned()) });
    }

    /// Records a rejected edit and its problems.
    pub fn rejected(&self, at: Instant, problems: &str) {
        self.record(Reload { at, outcome: Err(problems.to_owned()) });
    }

    /// Returns the last edit's result.
    pub fn last_reload(&self) -> Option<Reload> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, reload: Reload) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(reload);
    }
}
