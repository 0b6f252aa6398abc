//! Connections that change their protocol: two byte streams joined.

use super::tail::Tail;
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
/// in `tail` is held as long.
pub(super) async fn tunnel(
    client: OnUpgrade,
    server: OnUpgrade,
    idle: Duration,
    mut tail: Box<Tail>,
) {
    let clock = tail.peer.worker.clock.clone();
    let Ok((client, server)) = tokio::try_join!(client, server) else {
        tail.fail();
        return;
    };
    let last = Arc::new(AtomicU64::new(clock.now().as_nanos()));
    let mut client =
        Noted { inner: TokioIo::new(client), last: Arc::clone(&last), clock: clock.clone() };
    let mut server = TokioIo::new(server);
    let copying = copy_bidirectional(&mut client, &mut server);
    let silence = async {
        loop {
            let since = Instant::from_nanos(last.load(Relaxed));
            if clock.now() >= since + idle {
                return;
            }
            clock.timer(since + idle).await;
        }
    };
    tokio::select! {
        copied = copying => match copied {
            Ok((_, down)) => {
                tail.add_bytes(usize::try_from(down).unwrap_or(usize::MAX));
                tail.complete();
            }
            Err(_) => tail.fail(),
        },
        () = silence => {
            tail.complete();
        }
    }
}

/// A byte stream that notes when it last moved.
struct Noted<T> {
    inner: T,
    last: Arc<AtomicU64>,
    clock: Clock,
}

impl<T> Noted<T> {
    fn note<R>(&self, polled: Poll<R>) -> Poll<R> {
        if polled.is_ready() {
            self.last.store(self.clock.now().as_nanos(), Relaxed);
        }
        polled
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Noted<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        self.note(polled)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Noted<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.note(polled)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
