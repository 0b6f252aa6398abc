//! A client's socket that notes what it does.

use super::{
    activity::Activity, connection::Protocol, gather, lingering::Lingering, readiness::Readiness,
    upload_buffer::Receiver,
};
use bytes::Bytes;
use core::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read of a client that need not be sending: most heads are shorter, and
/// cost no second read.
const FIRST_READ: usize = 1024;

/// A byte stream that notes reads and blocked writes in its [`Activity`], and looks whether
/// a client that waits for its answer has left.
#[derive(Debug)]
pub(super) struct Watched<T> {
    inner: T,
    readiness: Readiness,
    /// What was read already and is to be read once more, before anything else.
    ahead: Bytes,
    activity: Arc<Activity>,
    /// Whether bytes on an idle connection are the beginning of a request. On
    /// HTTP/2 they may be the answer to a ping.
    reads_begin_requests: bool,
    /// Bytes of HTTP/2's preface that have yet to come.
    preface: usize,
    /// Whether hyper has read to the end.
    has_ended: bool,
    /// There once the sending side is closed, if the client may go on sending.
    lingering: Option<Box<Lingering>>,
    /// In HTTP/2 only.
    receiver: Option<Box<Receiver>>,
}

/// What a client of HTTP/2 begins with (RFC 9113, 3.4).
pub(super) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

impl<T> Watched<T> {
    /// Wraps a socket of which the beginning was read, to be read again.
    pub(super) fn new(inner: T, ahead: Bytes, activity: Arc<Activity>, protocol: Protocol) -> Self {
        let (preface, reads_begin_requests) = match protocol {
            Protocol::Http1 => (0, true),
            Protocol::Http2 => (PREFACE.len(), false),
        };
        let (readiness, none, lingering) = (Readiness::default(), Bytes::new(), None);
        let buffer = activity.upload_buffer().cloned();
        let receiver = buffer.map(|buffer| Box::new(Receiver::new(buffer)));
        let mut this = Self {
            inner,
            readiness,
            ahead: none,
            activity,
            reads_begin_requests,
            preface,
            has_ended: false,
            lingering,
            receiver,
        };
        this.rewind(ahead);
        this
    }

    /// Puts back what was read on a connection that was idle.
    pub(super) fn rewind(&mut self, bytes: Bytes) {
        // Empty ones would still keep the buffer that they are a part of.
        if !bytes.is_empty() {
            self.ahead = bytes;
        }
    }

    fn note_read(&mut self, read: &[u8]) {
        if self.reads_begin_requests && !read.is_empty() {
            self.activity.on_read();
        }
        let mut frames = read;
        if self.preface > 0 {
            frames = read.get(self.preface..).unwrap_or_default();
            self.preface = self.preface.saturating_sub(read.len());
            if self.preface == 0 {
                self.activity.on_preface();
            }
        }
        if let Some(receiver) = &mut self.receiver {
            receiver.on_received(frames);
        }
    }

    /// Whether there is something that was put back.
    pub(super) fn is_rewound(&self) -> bool {
        !self.ahead.is_empty()
    }

    /// Reads what was put back.
    fn read_again(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.ahead.len().min(buffer.remaining());
        let again = self.ahead.split_to(count);
        buffer.put_slice(&again);
        self.note_read(&again);
        if self.ahead.is_empty() {
            self.ahead = Bytes::new();
        }
    }

    fn noted<R>(&self, polled: Poll<R>) -> Poll<R> {
        self.activity.on_write(polled.is_pending());
        polled
    }
}

impl<T: AsyncRead + Unpin> Watched<T> {
    /// Polls for what a client sends that need not send anything, and puts it back. Returns
    /// whether it may send more.
    pub(super) fn poll_early(&mut self, context: &mut Context<'_>) -> Poll<io::Result<bool>> {
        // Not a part of any future, which would be larger by as much.
        let mut space = [MaybeUninit::uninit(); FIRST_READ];
        let mut early = ReadBuf::uninit(&mut space);
        ready!(self.readiness.poll_read(&mut self.inner, context, &mut early))?;
        self.rewind(Bytes::copy_from_slice(early.filled()));
        Poll::Ready(Ok(!early.filled().is_empty()))
    }

    /// Notes what became of a write, and looks for the client that does not take it.
    fn written(
        &mut self,
        polled: Poll<io::Result<usize>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        if polled.is_pending() {
            self.poll_presence(context)?;
        }
        self.noted(polled)
    }

    /// Looks whether the client of HTTP/1.1 still waits for its answer, unless it has sent
    /// something else meanwhile.
    ///
    /// hyper would look for itself, but makes room for a whole head before it does, which
    /// costs every request an allocation of 8 KiB.
    fn poll_presence(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if !self.reads_begin_requests
            || self.has_ended
            || self.is_rewound()
            || !self.activity.is_to_look()
        {
            return Ok(());
        }
        match self.poll_early(context) {
            Poll::Ready(Ok(false)) => Err(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Ready(Ok(true)) | Poll::Pending => Ok(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Watched<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.is_rewound() {
            self.read_again(buffer);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let Self { inner, readiness, receiver, activity, .. } = &mut *self;
        if let Some(receiver) = receiver {
            ready!(receiver.poll_room(activity, context));
        }
        let polled = readiness.poll_read(inner, context, buffer);
        let read = &buffer.filled()[before..];
        self.has_ended |= read.is_empty() && matches!(polled, Poll::Ready(Ok(())));
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
        self.written(polled, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = gather::poll_write(&mut self.inner, context, slices);
        self.written(polled, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_presence(context)?;
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.noted(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            let polled = Pin::new(&mut self.inner).poll_shutdown(context);
            ready!(self.noted(polled))?;
            if self.reads_begin_requests && self.activity.is_unread() {
                self.lingering = Some(Box::new(Lingering::begin(&self.activity)));
            }
        }
        let Self { inner, readiness, lingering, .. } = &mut *self;
        match lingering {
            Some(lingering) => lingering.poll(inner, readiness, context).map(Ok),
            None => Poll::Ready(Ok(())),
        }
    }
}
