//! What the process knows of an upstream's ejections, through all edits.

use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Shared by all workers.
#[derive(Debug, Default)]
pub struct EjectionState {
    turn: Mutex<()>,
    is_none_healthy: AtomicBool,
}

impl EjectionState {
    /// Waits for the turn to eject a server, which ends when the result is dropped: two workers could
    /// otherwise eject one each, and both count the other one in.
    pub fn take_turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes whether no server is healthy, and returns whether that has changed.
    pub fn note(&self, is_none_healthy: bool) -> bool {
        self.is_none_healthy.swap(is_none_healthy, Relaxed) != is_none_healthy
    }
}
