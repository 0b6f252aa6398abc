//! Interim answers (1xx) of upstreams on their way to a client of HTTP/1.1.

use crate::proxy::message::response::Response;
use std::sync::{Mutex, PoisonError};

/// Those that have yet to be written. The connection's task takes them when it has polled the
/// request.
#[derive(Debug, Default)]
pub(crate) struct Interim(Mutex<Vec<Response<()>>>);

impl Interim {
    pub(crate) fn push(&self, response: Response<()>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(response);
    }

    pub(crate) fn take(&self) -> Option<Vec<Response<()>>> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        (!waiting.is_empty()).then(|| core::mem::take(&mut *waiting))
    }
}
