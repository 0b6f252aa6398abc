//! Whose turn it is to eject a server.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lets one server of an upstream at a time be ejected: two workers could otherwise eject one each,
/// and both count the other one in. Holds whether no server was healthy when that was last looked at.
#[derive(Debug, Default)]
pub struct EjectionTurn(Mutex<bool>);

impl EjectionTurn {
    /// Waits for the turn, which ends when the result is dropped.
    pub fn take(&self) -> MutexGuard<'_, bool> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
