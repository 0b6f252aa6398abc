//! The end of an answer to a client of HTTP/2 that is still sending.

use super::upload::Upload;
use crate::clock::Clock;
use core::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};
use std::sync::Arc;

/// How long an early answer's end waits for the client of HTTP/2 to stop sending.
const EARLY_END: Duration = Duration::from_secs(1);

/// A wait at the end of an answer, until its client has stopped sending.
pub(crate) struct EarlyEnd(Pin<Box<dyn Future<Output = ()> + Send>>);

impl EarlyEnd {
    /// Begins to wait for the end of `upload`, though not for long.
    ///
    /// curl 7.88 notices the end of an answer without a length only if its own side has ended
    /// before. An upload of a declared length that ends early is an error in HTTP/2: its stream
    /// is reset, which curl notices.
    pub(crate) fn of(upload: Arc<Upload>, clock: Clock) -> Self {
        Self(Box::pin(async move {
            let _in_time = clock.timeout(EARLY_END, upload.gone.notified()).await;
        }))
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for EarlyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyEnd").finish_non_exhaustive()
    }
}
