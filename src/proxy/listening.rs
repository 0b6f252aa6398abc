//! A stream to a server that may answer before it has heard all.

use super::{gather, readiness::Readiness};
use core::{
    pin::Pin,
    task::{Context, Poll},
};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A stream that is read to its end though it can no longer be written.
///
/// A server that refuses an upload answers, closes, and resets what still comes. Its
/// answer has arrived then, but hyper would give up at the failed write. So what cannot be
/// written is dropped, and reading shows whether there is an answer.
#[derive(Debug)]
pub(super) struct Listening<T> {
    inner: T,
    is_deaf: bool,
    readiness: Readiness,
    /// Whether something was left over when it was written to last.
    is_behind: Arc<AtomicBool>,
}

impl<T> Listening<T> {
    pub(super) fn new(inner: T) -> Self {
        Self { inner, is_deaf: false, readiness: Readiness::default(), is_behind: Arc::default() }
    }

    /// Returns what says whether the system has yet to take some of what it was given.
    pub(super) fn behind(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.is_behind)
    }

    /// Returns that all of `offered` was written if the server hears nothing any more.
    fn heard(
        &mut self,
        polled: Poll<io::Result<usize>>,
        offered: usize,
    ) -> Poll<io::Result<usize>> {
        let all = matches!(polled, Poll::Ready(Ok(written)) if written == offered);
        self.is_behind.store(!all, Relaxed);
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
        let Self { inner, readiness, .. } = &mut *self;
        readiness.poll_read(inner, context, buffer)
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
        let polled = gather::poll_write(&mut self.inner, context, slices);
        self.heard(polled, offered())
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_deaf {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        // TLS takes more than the system does.
        self.is_behind.store(flushed.is_pending(), Relaxed);
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
