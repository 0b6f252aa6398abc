//! Interim answers (1xx) of upstreams on their way to a client of HTTP/1.1. `connections/interim_frames.rs`
//! has those of HTTP/2.

use crate::proxy::message::response::Response;
use core::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// Those that have yet to be written. The connection's task takes them when it has polled the
/// request.
#[derive(Debug, Default)]
pub(crate) struct Interim {
    waiting: Mutex<Vec<Response<()>>>,
    /// Whether there are any. One task uses this, which needs no lock to find out.
    is_there: AtomicBool,
}

impl Interim {
    pub(crate) fn push(&self, response: Response<()>) {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(response);
        self.is_there.store(true, Relaxed);
    }

    pub(crate) fn take(&self) -> Option<Vec<Response<()>>> {
        if !self.is_there.load(Relaxed) {
            return None;
        }
        self.is_there.store(false, Relaxed);
        Some(core::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}
