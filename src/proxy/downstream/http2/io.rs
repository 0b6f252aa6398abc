//! The socket of a client of HTTP/2, which notes what it does.

use crate::proxy::{
    body::upload_buffer::Receiver, connections::activity::Activity, io::vectored_write,
    message::http2_frame::PREFACE,
};
use bytes::Bytes;
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A byte stream that notes blocked writes in its [`Activity`], and holds back what would be too much.
#[derive(Debug)]
pub(crate) struct Watched<T> {
    inner: T,
    /// What was read already and is to be read once more, before anything else.
    ahead: Bytes,
    activity: Arc<Activity>,
    /// Bytes of the preface that have yet to come.
    preface: usize,
    receiver: Receiver,
}

impl<T> Watched<T> {
    /// Wraps a socket of which the beginning was read, to be read again.
    pub(crate) fn new(inner: T, ahead: Bytes, activity: &Arc<Activity>) -> Self {
        let receiver = Receiver::new(Arc::clone(activity.upload_buffer()));
        Self { inner, ahead, activity: Arc::clone(activity), preface: PREFACE.len(), receiver }
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
        let Self { inner, receiver, activity, .. } = &mut *self;
        ready!(receiver.poll_room(activity.clock(), context));
        let polled = Pin::new(inner).poll_read(context, buffer);
        self.note_read(&buffer.filled()[before..]);
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
