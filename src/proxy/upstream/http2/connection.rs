//! A connection of HTTP/2 to a server, which several requests share.

use super::sending::{Pings, Total};
use crate::proxy::{
    connections::upload_buffer::UploadPart,
    upstream::transport::{BoxedIo, ConnectionSettings},
};
use crate::{clock::Clock, flow::Instant};
use core::{
    fmt,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
    time::Duration,
};
use h2::client::{Builder, SendRequest};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most requests on one connection at once. A server may allow fewer.
pub(crate) const STREAMS_MAX: usize = 100;

/// The bytes of one response that a server may send before its client takes them.
pub(super) const STREAM_WINDOW: u32 = 256 * 1024;

/// The same of all responses: room for each of them, so that a client that takes nothing does not make
/// others wait.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;

/// The bytes by which the memory of small DATA frames that no client has taken may exceed their data.
/// h2 counts 256 bytes for a smaller frame, and ends the connection of all requests beyond this. It is
/// enough for [`STREAMS_MAX`] clients that take nothing, if frames have 42 bytes or more.
const SMALL_FRAMES_BUDGET: usize = 128 * 1024 * 1024;

/// The bytes of one request's body that may wait until the server takes them.
const STREAM_SEND_BUFFER: usize = 64 * 1024;

/// The bytes by which a header may exceed the limit so that flowgate itself refuses it, with an
/// explanation.
const EXPLAINED_BYTES: usize = 16 * 1024;

/// A connection of HTTP/2 to a server, which several requests share.
pub(crate) struct Connection {
    sender: SendRequest<UploadPart>,
    written: Written,
    settings: ConnectionSettings,
    streams: AtomicUsize,
    /// True if it takes no more requests.
    is_retired: AtomicBool,
    /// The time at which its last request ended, in nanoseconds.
    idle_since: AtomicU64,
    clock: Clock,
    /// The bytes that are kept of the bodies that it carries.
    pub(super) kept: Total,
    pub(super) pings: Arc<Pings>,
}

impl Connection {
    /// Begins HTTP/2 over `stream`, with `streams` requests at once until the server announces its own
    /// number.
    pub(in crate::proxy::upstream) async fn open(
        stream: BoxedIo,
        settings: ConnectionSettings,
        streams: usize,
        clock: &Clock,
    ) -> io::Result<Arc<Self>> {
        // A header that is a little too large is read, and refused with an explanation.
        let list = settings.limits.header_bytes + EXPLAINED_BYTES;
        let written = Written::default();
        let (sender, mut driver) = Builder::new()
            .enable_push(false)
            .initial_max_send_streams(streams)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .data_frame_budget(SMALL_FRAMES_BUDGET)
            .max_send_buffer_size(STREAM_SEND_BUFFER)
            .max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX))
            .handshake(CountedIo::new(stream, &written))
            .await
            .map_err(io::Error::other)?;

        let pings = Arc::new(Pings::new(driver.ping_pong(), clock.clone()));
        tokio::spawn(async move {
            // It ends with the connection, or when no request and no pool has the connection any more.
            // Requests see the end themselves.
            drop(driver.await);
        });

        Ok(Arc::new(Self {
            sender,
            written,
            settings,
            streams: AtomicUsize::new(0),
            is_retired: AtomicBool::new(false),
            idle_since: AtomicU64::new(clock.now().as_nanos()),
            clock: clock.clone(),
            kept: Total::default(),
            pings,
        }))
    }

    /// Returns the settings that it was opened with.
    pub(crate) fn settings(&self) -> &ConnectionSettings {
        &self.settings
    }

    /// Returns the handle that sends one request.
    pub(super) fn sender(&self) -> SendRequest<UploadPart> {
        self.sender.clone()
    }

    /// Returns the number of bytes that it has written.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Counts the beginning of a request.
    pub(super) fn add_stream(&self) {
        self.streams.fetch_add(1, Relaxed);
    }

    /// Counts the end of a request.
    pub(super) fn remove_stream(&self) {
        if self.streams.fetch_sub(1, Relaxed) == 1 {
            self.idle_since.store(self.clock.now().as_nanos(), Relaxed);
        }
    }

    /// Returns the number of requests that the server allows at once.
    pub(crate) fn streams_max(&self) -> usize {
        self.sender.current_max_send_streams().min(STREAMS_MAX)
    }

    /// True if it carries more requests than the server allows, as it may before the server announces its
    /// number.
    pub(super) fn is_overloaded(&self) -> bool {
        self.streams.load(Relaxed) > self.streams_max()
    }

    /// True if another request can begin now.
    pub(crate) fn has_room(&self) -> bool {
        self.streams.load(Relaxed) < self.streams_max()
    }

    /// True if it takes no more requests. Those that it carries may go on.
    pub(crate) fn is_over(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.is_retired.load(Relaxed)
            || matches!(self.sender().poll_ready(&mut context), Poll::Ready(Err(_)))
    }

    /// Gives it no more requests.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Relaxed);
    }

    /// Returns the time since which it carries no request; `None` while it does.
    pub(crate) fn idle_since(&self) -> Option<Instant> {
        let is_idle = self.streams.load(Relaxed) == 0;
        is_idle.then(|| Instant::from_nanos(self.idle_since.load(Relaxed)))
    }

    /// True if it has carried no request for `limit`.
    pub(crate) fn is_idle(&self, now: Instant, limit: Duration) -> bool {
        self.idle_since().is_some_and(|since| now.since(since) >= limit)
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("streams", &self.streams).finish_non_exhaustive()
    }
}

/// The number of bytes that a connection has written. A request that has begun since the last change of
/// this number was not sent.
pub(super) type Written = Arc<AtomicU64>;

/// A stream of bytes that counts those that are written.
pub(super) struct CountedIo {
    io: BoxedIo,
    written: Written,
}

impl CountedIo {
    pub(super) fn new(io: BoxedIo, written: &Written) -> Self {
        Self { io, written: Arc::clone(written) }
    }

    fn count(&self, polled: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = polled {
            self.written.fetch_add(bytes as u64, Relaxed);
        }
        polled
    }
}

impl AsyncRead for CountedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for CountedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.count(polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write_vectored(context, parts);
        self.count(polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
