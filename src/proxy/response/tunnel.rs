//! Connections that change their protocol: two byte streams joined.

use crate::proxy::{
    connections::upload_buffer::UploadBuffer,
    record::Completion,
    timeouts::{streams::Part, timeout::Timeout},
    upstream::error::cause,
};
use crate::{clock::Clock, flow::Instant};
use bytes::{Buf, Bytes};
use core::{
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};
use h2::{Reason, RecvStream, SendStream};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional},
    sync::Notify,
};

/// The time that both sides may be silent after one of them has closed its direction.
const HALF_CLOSED: Duration = Duration::from_mins(1);

/// A request whose client and server have agreed to change their protocol.
#[derive(Debug)]
pub(crate) struct Joined<S> {
    pub(crate) server: S,
    /// The time that both sides may be silent.
    pub(crate) idle: Duration,
    pub(crate) completion: Box<Completion>,
}

/// Joins the two sides until one closes or both are silent for too long. The permit is held as long.
/// Returns whether the server broke it off.
pub(crate) async fn tunnel<C, S>(client: C, joined: Joined<S>) -> bool
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Joined { mut server, idle, mut completion } = joined;
    let clock = completion.peer.worker.clock.clone();
    let mut client = WatchedClient {
        inner: client,
        activity: Arc::new(TunnelActivity::new(clock.now())),
        completion: &mut completion,
        broke: false,
        clock: clock.clone(),
    };

    let activity = Arc::clone(&client.activity);
    let silence = async {
        loop {
            let until = activity.silent_until(idle);
            if clock.now() >= until {
                return;
            }
            tokio::select! {
                () = clock.timer(until) => {}
                () = activity.half_closed.notified() => {}
            }
        }
    };

    let ended = tokio::select! {
        copied = copy_bidirectional(&mut client, &mut server) => copied.map(drop),
        () = silence => {
            let is_set = !activity.is_half_closed.load(Relaxed);
            client.completion.upstream.timeout = is_set.then_some(Timeout::Tunnel);
            Ok(())
        }
    };

    let left = client.broke;
    match ended {
        Ok(()) => completion.complete(),
        // It ends as cancelled: the client has left.
        Err(_) if left => {}
        Err(error) => {
            completion.fail();
            completion.note_bad_response(&format!("its tunnel broke off: {}", cause(&error)));
            return true;
        }
    }
    false
}

/// The time when a tunnel last moved, and whether both directions are open.
struct TunnelActivity {
    /// In nanoseconds.
    last: AtomicU64,
    is_half_closed: AtomicBool,
    /// Wakes the task that waits for silence.
    half_closed: Notify,
}

impl TunnelActivity {
    fn new(now: Instant) -> Self {
        let last = AtomicU64::new(now.as_nanos());
        Self { last, is_half_closed: AtomicBool::new(false), half_closed: Notify::new() }
    }

    /// Returns when the tunnel has been silent for `idle`, or for less if one side has closed.
    fn silent_until(&self, idle: Duration) -> Instant {
        let idle = if self.is_half_closed.load(Relaxed) { idle.min(HALF_CLOSED) } else { idle };
        Instant::from_nanos(self.last.load(Relaxed)) + idle
    }

    fn half_close(&self) {
        self.is_half_closed.store(true, Relaxed);
        self.half_closed.notify_one();
    }
}

/// The client's byte stream, which notes what becomes of it.
struct WatchedClient<'a, T> {
    inner: T,
    activity: Arc<TunnelActivity>,
    /// Gets what the client is sent, and not only at the end: a drain may cut it off.
    completion: &'a mut Completion,
    /// True if the client was the one to break it off.
    broke: bool,
    clock: Clock,
}

impl<T> WatchedClient<'_, T> {
    /// Notes that it moved.
    fn note<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Ok(_)) = &polled {
            self.activity.last.store(self.clock.now().as_nanos(), Relaxed);
        }
        self.blame(polled)
    }

    /// Notes that it broke.
    fn blame<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.broke |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for WatchedClient<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        if is_end && matches!(polled, Poll::Ready(Ok(()))) {
            self.activity.half_close();
        }
        self.note(polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for WatchedClient<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.completion.add_bytes(count);
        }
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.blame(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The server has closed its direction.
        self.activity.half_close();
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.blame(polled)
    }
}

/// A stream of HTTP/2 as a stream of bytes. To drop it before both directions have ended resets it.
#[derive(Debug)]
pub(crate) struct Http2Tunnel {
    from_client: RecvStream,
    /// Received, and not yet read.
    unread: Bytes,
    to_client: Arc<Mutex<SendStream<Part>>>,
    /// The bytes of uploads that the connection holds.
    buffer: Option<Arc<UploadBuffer>>,
}

/// The direction to the client, to reset it or to see that the client has reset it.
#[derive(Clone, Debug)]
pub(crate) struct TunnelReset(Arc<Mutex<SendStream<Part>>>);

impl Http2Tunnel {
    pub(crate) fn new(
        from_client: RecvStream,
        to_client: SendStream<Part>,
        buffer: Option<Arc<UploadBuffer>>,
    ) -> Self {
        let to_client = Arc::new(Mutex::new(to_client));
        Self { from_client, unread: Bytes::new(), to_client, buffer }
    }

    /// Returns what resets it.
    pub(crate) fn reset(&self) -> TunnelReset {
        TunnelReset(Arc::clone(&self.to_client))
    }

    fn sender(&self) -> MutexGuard<'_, SendStream<Part>> {
        lock(&self.to_client)
    }
}

impl TunnelReset {
    /// Resets the stream: its server has broken off.
    pub(crate) fn send(&self) {
        lock(&self.0).send_reset(Reason::CANCEL);
    }

    /// Waits until the client has reset the stream, or its connection has ended.
    pub(crate) async fn client_left(&self) {
        poll_fn(|context| lock(&self.0).poll_reset(context).map(drop)).await;
    }
}

fn lock(stream: &Mutex<SendStream<Part>>) -> MutexGuard<'_, SendStream<Part>> {
    stream.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AsyncRead for Http2Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        while self.unread.is_empty() {
            match ready!(self.from_client.poll_data(context)) {
                Some(Ok(data)) => self.unread = data,
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Ok(())),
            }
        }
        let count = self.unread.len().min(buffer.remaining());
        buffer.put_slice(&self.unread[..count]);
        self.unread.advance(count);

        // The client may send as much again. An error says that the stream is over.
        drop(self.from_client.flow_control().release_capacity(count));
        if let Some(held) = &self.buffer {
            held.on_passed(count as u64);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Http2Tunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let mut sender = self.sender();
        sender.reserve_capacity(bytes.len());
        while sender.capacity() == 0 {
            match ready!(sender.poll_capacity(context)) {
                Some(Ok(_)) => {}
                Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error))),
                None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            }
        }
        let count = bytes.len().min(sender.capacity());
        let part = Part::new(Bytes::copy_from_slice(&bytes[..count]), None);
        sender.send_data(part, false).map_err(io::Error::other)?;
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The connection's task writes what it has.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let ended = self.sender().send_data(Part::new(Bytes::new(), None), true);
        Poll::Ready(ended.map_err(io::Error::other))
    }
}
