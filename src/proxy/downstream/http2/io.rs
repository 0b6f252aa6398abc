//! The socket of a client of HTTP/2, which notes what it does.

use crate::proxy::{
    body::upload_buffer::Receiver,
    connections::activity::Activity,
    io::{input::TURN_MAX, vectored_write},
};
use bytes::Bytes;
use core::{
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::yield_now,
};

/// A byte stream that notes blocked writes in its [`Activity`], and holds back what would be too much.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    inner: T,
    /// What was read already and is to be read once more, before anything else.
    ahead: Bytes,
    activity: Arc<Activity>,
    /// Bytes of the preface that have yet to come.
    preface: usize,
    /// Bytes read since other tasks of the worker had their turn.
    turn: usize,
    receiver: Receiver,
}

/// What a client of HTTP/2 begins with (RFC 9113, 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl<T> Watched<T> {
    /// Wraps a socket of which the beginning was read, to be read again.
    pub(crate) fn new(inner: T, ahead: Bytes, activity: &Arc<Activity>) -> Self {
        let receiver = Receiver::new(Arc::clone(activity.upload_buffer()));
        let activity = Arc::clone(activity);
        Self { inner, ahead, activity, preface: PREFACE.len(), turn: 0, receiver }
    }

    fn note_read(&mut self, read: &[u8]) {
        let mut frames = read;
        if self.preface > 0 {
            frames = read.get(self.preface..).unwrap_or_default();
            self.preface = self.preface.saturating_sub(read.len());
            if self.preface == 0 {
                self.activity.on_preface();
            }
        }
        self.receiver.on_received(frames);
    }

    fn noted<R>(&self, polled: Poll<R>) -> Poll<R> {
        self.activity.on_write(polled.is_pending());
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.ahead.is_empty() {
            let count = self.ahead.len().min(buffer.remaining());
            let again = self.ahead.split_to(count);
            buffer.put_slice(&again);
            self.note_read(&again);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let Self { inner, receiver, activity, turn, .. } = &mut *self;
        ready!(receiver.poll_room(activity.clock(), context));
        if *turn >= TURN_MAX {
            *turn = 0;
            // Small frames cost much: h2 would go on for as long as there are more.
            let _pending = pin!(yield_now()).poll(context);
            return Poll::Pending;
        }
        let polled = Pin::new(inner).poll_read(context, buffer);
        let read = &buffer.filled()[before..];
        *turn = if polled.is_pending() { 0 } else { *turn + read.len() };
        self.note_read(read);
        polled
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.noted(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = vectored_write::poll_write(&mut self.inner, context, slices);
        self.noted(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.noted(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.noted(polled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        clock::Clock,
        meter::Counters,
        proxy::{body::upload_buffer::UploadBuffer, connections::handle::ConnectionHandle},
    };
    use core::future::poll_fn;

    #[tokio::test]
    async fn a_flood_is_read_in_turns() {
        let counters = Arc::<Counters>::default();
        let clock = Clock::start();
        let handle = ConnectionHandle::new(&clock, counters.connection(1).expect("the first"));
        let activity = Activity::new(&clock, &handle, UploadBuffer::new(&counters, u64::MAX));
        let mut watched = Watched::new(tokio::io::repeat(b'x'), Bytes::new(), &activity);
        for _ in 0..3 {
            let mut total = 0;
            poll_fn(|context| {
                let mut space = [0; 10_000];
                let mut block = ReadBuf::new(&mut space);
                while total < 10 * TURN_MAX {
                    let Poll::Ready(read) = Pin::new(&mut watched).poll_read(context, &mut block)
                    else {
                        break;
                    };
                    read.expect("no end");
                    total += block.filled().len();
                    block.clear();
                }
                Poll::Ready(())
            })
            .await;
            assert!((TURN_MAX..TURN_MAX + 10_000).contains(&total), "{total} bytes in one turn");
        }
    }
}
