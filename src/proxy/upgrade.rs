//! Connections that change their protocol: two byte streams joined.

use super::{tail::Tail, timeout::Timeout};
use crate::{clock::Clock, flow::Instant};
use bytes::Bytes;
use core::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

/// A request whose client and server have agreed to change their protocol.
#[derive(Debug)]
pub(super) struct Joined<S> {
    pub(super) server: S,
    /// How long both sides may be silent.
    pub(super) idle: Duration,
    pub(super) tail: Box<Tail>,
}

/// Joins the two sides until one closes or both are silent for too long. The permit is held as long.
pub(super) async fn tunnel<C, S>(client: C, joined: Joined<S>)
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let Joined { mut server, idle, mut tail } = joined;
    let clock = tail.peer.worker.clock.clone();
    let mut client = Noted {
        inner: client,
        last: AtomicU64::new(clock.now().as_nanos()).into(),
        tail: &mut tail,
        broke: false,
        clock: clock.clone(),
    };
    let last = Arc::clone(&client.last);
    let silence = async {
        loop {
            let since = Instant::from_nanos(last.load(Relaxed));
            if clock.now() >= since + idle {
                return;
            }
            clock.timer(since + idle).await;
        }
    };
    let ended = tokio::select! {
        copied = copy_bidirectional(&mut client, &mut server) => copied.map(drop),
        () = silence => {
            client.tail.timeout = Some(Timeout::Tunnel);
            Ok(())
        }
    };
    let left = client.broke;
    match ended {
        Ok(()) => tail.complete(),
        // It ends as cancelled: the client has left.
        Err(_) if left => {}
        Err(_) => tail.fail(),
    }
}

/// A stream of which the beginning has been read already.
#[derive(Debug)]
pub(super) struct Rewound<T> {
    io: T,
    ahead: Bytes,
}

impl<T> Rewound<T> {
    pub(super) fn new(io: T, ahead: Bytes) -> Self {
        Self { io, ahead }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Rewound<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Rewound<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

/// The client's byte stream, which notes what becomes of it.
struct Noted<'a, T> {
    inner: T,
    /// When it last moved, in nanoseconds.
    last: Arc<AtomicU64>,
    /// Gets what the client is sent, and not only at the end: a drain may cut it off.
    tail: &'a mut Tail,
    /// Whether the client was the one to break it off.
    broke: bool,
    clock: Clock,
}

impl<T> Noted<'_, T> {
    /// Notes that it moved.
    fn note<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        if let Poll::Ready(Ok(_)) = &polled {
            self.last.store(self.clock.now().as_nanos(), Relaxed);
        }
        self.blame(polled)
    }

    /// Notes that it broke.
    fn blame<R>(&mut self, polled: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        self.broke |= matches!(polled, Poll::Ready(Err(_)));
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Noted<'_, T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.note(polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noted<'_, T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = polled {
            self.tail.add_bytes(count);
        }
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(context);
        self.blame(polled)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(context);
        self.blame(polled)
    }
}
