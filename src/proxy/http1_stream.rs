//! A client's stream of HTTP/1.1, between its socket and hyper.
//!
//! Browsers and Prometheus send characters in a request's target that hyper's parser of URIs does
//! not take. They are percent-encoded here, before the one parser that there is sees them, so that
//! all read the same request. And hyper's own answers to what it cannot read are held back: they
//! say nothing, and the gateway has one that does.

use super::{activity::Activity, io::Watched, request_line::Heads};
use bytes::Bytes;
use core::{
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};
use std::{
    io::{self, IoSlice},
    sync::Arc,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// See the module.
#[derive(Debug)]
pub(super) struct Http1Stream<T> {
    inner: Watched<T>,
    activity: Arc<Activity>,
    heads: Heads,
    /// What did not fit when a target was written anew; to be read before anything else.
    spare: Bytes,
    /// Requests that had come when their answers had been written.
    answered: u32,
    /// Whether hyper has nothing left to write.
    is_flushed: bool,
    /// What hyper has answered by itself.
    held_back: Vec<u8>,
}

impl<T> Http1Stream<T> {
    /// Wraps a stream that is between two requests.
    pub(super) fn new(inner: Watched<T>, activity: &Arc<Activity>) -> Self {
        Self {
            inner,
            activity: Arc::clone(activity),
            heads: Heads::default(),
            spare: Bytes::new(),
            answered: activity.seen(),
            is_flushed: true,
            held_back: Vec::new(),
        }
    }

    /// Returns the stream, of which hyper has `left` unread, between two requests.
    pub(super) fn into_inner(self, left: Bytes) -> Watched<T> {
        let Self { mut inner, spare, .. } = self;
        inner.rewind(if spare.is_empty() { left } else { [left, spare].concat().into() });
        inner
    }

    /// Returns the stream and what hyper has answered by itself, if it was held back.
    pub(super) fn into_unanswered(self) -> Option<(Watched<T>, Vec<u8>)> {
        let Self { inner, held_back, .. } = self;
        (!held_back.is_empty()).then_some((inner, held_back))
    }

    /// Whether what hyper writes now is an answer of its own: it has written all before, and has
    /// handed no request over since.
    fn is_of_hyper(&self) -> bool {
        let is_new = self.is_flushed && self.activity.seen() == self.answered;
        is_new || !self.held_back.is_empty()
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Http1Stream<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { inner, activity, heads, spare, .. } = &mut *self;
        if spare.is_empty() {
            let before = buffer.filled().len();
            ready!(Pin::new(inner).poll_read(context, buffer))?;
            let Some(rewritten) = heads.read(&buffer.filled()[before..], activity) else {
                return Poll::Ready(Ok(()));
            };
            buffer.set_filled(before);
            *spare = rewritten.into();
        }
        let count = spare.len().min(buffer.remaining());
        buffer.put_slice(&spare.split_to(count));
        if spare.is_empty() {
            // Even an empty one keeps its buffer.
            drop(mem::take(spare));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Http1Stream<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_of_hyper() {
            self.held_back.extend_from_slice(bytes);
            return Poll::Ready(Ok(bytes.len()));
        }
        self.is_flushed = false;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.is_of_hyper() {
            for slice in slices {
                self.held_back.extend_from_slice(slice);
            }
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        self.is_flushed = false;
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    /// hyper calls it when it has written all that it has.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held_back.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.is_flushed = true;
        if !self.activity.is_serving() {
            self.answered = self.activity.seen();
        }
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.held_back.is_empty() {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
