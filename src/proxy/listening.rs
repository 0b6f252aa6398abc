//! A stream to a server that may answer before it has heard all.

use core::{
    pin::Pin,
    sync::atomic::{AtomicU8, Ordering::Relaxed},
    task::{Context, Poll},
};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that is read to its end though it can no longer be written.
///
/// A server that refuses an upload answers, closes, and resets what still comes. Its
/// answer has arrived then, but hyper would give up at the failed write. So what cannot be
/// written is dropped, and reading tells whether there is an answer.
#[derive(Debug)]
pub(super) struct Listening<T> {
    inner: T,
    is_deaf: bool,
    lull: Arc<Lull>,
}

/// Whether a stream was found to have nothing to read, in the poll of its task that is
/// under way.
///
/// hyper asks three times in one poll. The first time is enough: the task will be woken.
/// Outside of such polls, as after an upgrade, every question is passed on.
#[derive(Debug, Default)]
pub(super) struct Lull(AtomicU8);

const OUTSIDE: u8 = 0;
const UNKNOWN: u8 = 1;
const NOTHING: u8 = 2;

impl Lull {
    /// Polls a task's future, and with it the stream.
    pub(super) fn during<R>(&self, poll: impl FnOnce() -> R) -> R {
        self.0.store(UNKNOWN, Relaxed);
        let polled = poll();
        self.0.store(OUTSIDE, Relaxed);
        polled
    }

    fn is_known(&self) -> bool {
        self.0.load(Relaxed) == NOTHING
    }

    fn note(&self) {
        if self.0.load(Relaxed) == UNKNOWN {
            self.0.store(NOTHING, Relaxed);
        }
    }
}

impl<T> Listening<T> {
    pub(super) const fn new(inner: T, lull: Arc<Lull>) -> Self {
        Self { inner, is_deaf: false, lull }
    }

    /// Returns that all of `offered` was written if the server hears nothing any more.
    fn heard(
        &mut self,
        polled: Poll<io::Result<usize>>,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Err(error)) = &polled
            && is_closed(error)
        {
            self.is_deaf = true;
            return Poll::Ready(Ok(offered));
        }
        polled
    }
}

fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

impl<T: AsyncRead + Unpin> AsyncRead for Listening<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.lull.is_known() {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if polled.is_pending() {
            self.lull.note();
        }
        polled
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Listening<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_deaf {
            return Poll::Ready(Ok(bytes.len()));
        }
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.heard(polled, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let offered = || slices.iter().map(|slice| slice.len()).sum();
        if self.is_deaf {
            return Poll::Ready(Ok(offered()));
        }
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.heard(polled, offered())
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::task::Waker;

    /// Has nothing to read, and counts how often it is asked.
    struct Silent(usize);

    impl AsyncRead for Silent {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            self.0 += 1;
            Poll::Pending
        }
    }

    #[test]
    fn a_stream_that_has_nothing_is_asked_once_in_each_poll_of_its_task_and_always_outside() {
        let lull = Arc::<Lull>::default();
        let mut stream = Listening::new(Silent(0), Arc::clone(&lull));
        let mut ask = |times| {
            for _ in 0..times {
                let mut room = [0];
                let mut context = Context::from_waker(Waker::noop());
                let polled =
                    Pin::new(&mut stream).poll_read(&mut context, &mut ReadBuf::new(&mut room));
                assert!(polled.is_pending());
            }
            stream.inner.0
        };
        assert_eq!(lull.during(|| ask(3)), 1);
        assert_eq!(lull.during(|| ask(2)), 2);
        assert_eq!(ask(3), 5);
    }
}
