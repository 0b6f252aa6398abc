//! Readiness for requests, and the results of the latest edits.

use crate::{config::Diagnostic, flow::Instant};
use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// The number of edits that are remembered, and of the problems of a rejected one.
const EDITS: usize = 10;
const PROBLEMS: usize = 50;

/// The state of `/readyz`: not ready at the start and while draining.
#[derive(Debug, Default)]
pub struct Readiness {
    ready: AtomicBool,
    /// Locked only by the control thread.
    edits: Mutex<Edits>,
}

/// The results of the latest edits.
#[derive(Clone, Debug, Default)]
pub struct Edits {
    /// The latest ones, oldest first.
    pub recent: VecDeque<Reload>,
    /// The latest applied one.
    pub applied: Option<Reload>,
    /// The latest rejected one.
    pub rejected: Option<Arc<RejectedReload>>,
}

/// The result of an edit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reload {
    /// The time when it was applied or rejected.
    pub at: Instant,
    /// The changes, or all problems.
    pub outcome: Result<String, String>,
}

/// A rejected edit with its problems at their lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedReload {
    /// The time when it was rejected.
    pub at: Instant,
    /// The first problems.
    pub problems: Vec<Diagnostic>,
    /// Their number.
    pub count: usize,
    /// All of them, drawn.
    pub drawing: String,
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
        let reload = Reload { at, outcome: Ok(changes.to_owned()) };
        let mut edits = self.edits();
        edits.applied = Some(reload.clone());
        edits.add(reload);
    }

    /// Records a rejected edit with its problems, and as they are drawn.
    pub fn rejected(&self, at: Instant, drawing: &str, problems: &[Diagnostic]) {
        let mut edits = self.edits();
        edits.rejected = Some(Arc::new(RejectedReload {
            at,
            problems: problems.iter().take(PROBLEMS).cloned().collect(),
            count: problems.len(),
            drawing: drawing.to_owned(),
        }));
        edits.add(Reload { at, outcome: Err(drawing.to_owned()) });
    }

    /// Returns the latest edit's result.
    pub fn last_reload(&self) -> Option<Reload> {
        self.edits().recent.back().cloned()
    }

    /// Returns the results of the latest edits.
    pub fn edits(&self) -> MutexGuard<'_, Edits> {
        self.edits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Edits {
    fn add(&mut self, reload: Reload) {
        // The drawing of ten thousand problems is kept for the latest only.
        if let Some(Reload { outcome: Err(drawing), .. }) = self.recent.back_mut() {
            drawing.clear();
        }
        if self.recent.len() == EDITS {
            self.recent.pop_front();
        }
        self.recent.push_back(reload);
    }
}
