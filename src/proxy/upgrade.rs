//! Connections that change their protocol: two byte streams joined.

use super::{activity::Uploading, tail::Tail, timeout::Timeout};
use crate::{clock::Clock, flow::Instant};
use core::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

/// Joins the two sides until one closes or both are silent for `idle`. The permit
/// in `tail` is held as long, and the client's side noted as being read.
pub(super) async fn tunnel(
    client: OnUpgrade,
    mut server: impl AsyncRead + AsyncWrite + Unpin,
    idle: Duration,
    mut tail: Box<Tail>,
    _reading: Uploading,
) {
    let clock = tail.peer.worker.clock.clone();
    // Who leaves before the answer is there ends it as cancelled.
    let Ok(client) = client.await else { return };
    let mut client = Noted {
        inner: TokioIo::new(client),
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
