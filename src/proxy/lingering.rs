//! The end of a connection whose client still sends what nobody wants.

use super::{
    activity::{Activity, Uploading},
    readiness::Readiness,
};
use core::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};
use std::sync::Arc;
use tokio::{
    io::{AsyncRead, ReadBuf},
    time::Sleep,
};

/// How long a client may go on sending: enough for some megabytes over a slow line, and for one
/// that first sends all and then reads.
const LINGER: Duration = Duration::from_secs(10);

/// How much it may send meanwhile.
const LINGER_BYTES: usize = 16 * 1024 * 1024;

/// Bytes that are read in one go.
const READ: usize = 8 * 1024;

/// Takes what the client still sends until it has closed its side too.
///
/// To what comes for a socket that is closed the kernel answers with a reset, which may reach
/// the client before it has read why its request was refused, or stops it in the middle of a
/// write. So a server closes in stages (RFC 9112, 9.6).
#[derive(Debug)]
pub(super) struct Lingering {
    timer: Pin<Box<Sleep>>,
    /// Bytes that may still come.
    left: usize,
    /// The connection is not idle meanwhile.
    _noted: Uploading,
}

impl Lingering {
    /// Begins when the gateway's own side has been closed.
    pub(super) fn begin(activity: &Arc<Activity>) -> Self {
        let timer = Box::pin(activity.timer(LINGER));
        Self { timer, left: LINGER_BYTES, _noted: activity.linger() }
    }

    /// Reads from `stream` until it ends, has taken too long, or has brought too much.
    pub(super) fn poll<T: AsyncRead + Unpin>(
        &mut self,
        stream: &mut T,
        readiness: &mut Readiness,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        if self.timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        loop {
            let mut space = [MaybeUninit::uninit(); READ];
            let mut unwanted = ReadBuf::uninit(&mut space);
            let read = ready!(readiness.poll_read(stream, context, &mut unwanted));
            let count = unwanted.filled().len();
            self.left = self.left.saturating_sub(count);
            if read.is_err() || count == 0 || self.left == 0 {
                return Poll::Ready(());
            }
        }
    }
}
