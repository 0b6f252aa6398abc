//! A connection to an upstream server, and the task that moves its bytes.

use super::{body::RequestBody, http2_client::Stream, listening::Listening, terms::Terms};
use bytes::Bytes;
use core::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};
use http_body::{Body as _, Frame};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use std::{
    io,
    sync::{Arc, OnceLock},
    task::Wake,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    task::AbortHandle,
};

/// The fields that hyper takes of a head by default. With another limit it takes
/// memory from the heap for each head.
const HEADERS_FREE: usize = 100;

/// The bytes of a head that fit into hyper's buffer by default.
const HEADER_BYTES_FREE: usize = 200 * 1024;

/// A way to a server for one request.
pub(super) enum Wire {
    Http1(Http1Wire),
    Http2(Stream),
}

impl Wire {
    /// Polls for the next part of an answer that comes over this connection.
    pub(super) fn poll_frame(
        &self,
        incoming: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        match self {
            Self::Http1(wire) => wire.poll_frame(incoming, context),
            Self::Http2(_) => Pin::new(incoming).poll_frame(context),
        }
    }

    /// Whether what was handed over has left for the server, as far as the system knows. Over
    /// HTTP/2 that makes no difference to others.
    pub(super) fn has_left(&self) -> bool {
        match self {
            Self::Http1(wire) => wire.has_left(),
            Self::Http2(_) => true,
        }
    }

    /// Ends what is under way on it.
    pub(super) fn abort(&self) {
        match self {
            Self::Http1(wire) => wire.abort(),
            Self::Http2(stream) => stream.abort(),
        }
    }
}

/// An open connection of HTTP/1.1.
pub(super) struct Http1Wire {
    pub(super) sender: SendRequest<RequestBody>,
    pub(super) terms: Terms,
    bell: Arc<Bell>,
    is_behind: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Http1Wire {
    /// Begins to speak over `stream`.
    pub(super) async fn open<T>(stream: T, terms: Terms) -> io::Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let limits = terms.limits;
        let stream = Listening::new(stream);
        let is_behind = stream.behind();
        let mut builder = http1::Builder::new();
        builder.max_header_size(limits.header_bytes);
        if limits.header_bytes > HEADER_BYTES_FREE {
            builder.max_buf_size(limits.header_bytes * 2);
        }
        if limits.headers != HEADERS_FREE {
            builder.max_headers(limits.headers);
        }
        let (sender, connection) =
            builder.handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
        let bell = Arc::<Bell>::default();
        let task = tokio::spawn(Bell::attend(Arc::clone(&bell), async move {
            // Ends when its lease or the pool lets go of it; its error reaches the
            // request that waits for it.
            drop(connection.with_upgrades().await);
        }));
        Ok(Self { sender, terms, bell, is_behind, task: task.abort_handle() })
    }

    fn poll_frame(
        &self,
        incoming: &mut Incoming,
        context: &mut Context<'_>,
    ) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        self.bell.hold();
        let polled = Pin::new(&mut *incoming).poll_frame(context);
        self.bell.release(u32::from(incoming.is_end_stream()));
        polled
    }

    /// Whether what was handed over has left for the server, as far as the system knows.
    fn has_left(&self) -> bool {
        !self.is_behind.load(Relaxed)
    }

    /// Cuts the connection off.
    pub(super) fn abort(&self) {
        self.task.abort();
    }
}

/// What wakes a connection's task.
///
/// Whoever takes a part of an answer wakes the task through it, as there is room for
/// the next one; after the last one the task would be polled for nothing, which costs
/// a thousand instructions. All of it happens on the worker's only thread.
#[derive(Debug, Default)]
struct Bell {
    /// The task that hears it; the same for as long as it lives.
    task: OnceLock<Waker>,
    held: AtomicBool,
    /// How often it was rung while it was held.
    rung: AtomicU32,
}

impl Bell {
    /// Runs `future`, which is woken by `bell`, as a part of the task that polls this.
    async fn attend(bell: Arc<Self>, future: impl Future<Output = ()>) {
        let waker = Waker::from(Arc::clone(&bell));
        let mut future = pin!(future);
        poll_fn(|context| {
            bell.task.get_or_init(|| context.waker().clone());
            future.as_mut().poll(&mut Context::from_waker(&waker))
        })
        .await;
    }

    /// Keeps it from sounding until it is released.
    fn hold(&self) {
        self.held.store(true, Relaxed);
    }

    /// Lets it sound again, at once if it was rung more than `in_vain` times.
    fn release(&self, in_vain: u32) {
        self.held.store(false, Relaxed);
        if self.rung.swap(0, Relaxed) > in_vain {
            self.sound();
        }
    }

    fn sound(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.held.load(Relaxed) {
            self.rung.fetch_add(1, Relaxed);
        } else {
            self.sound();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::tests::Woken;

    #[test]
    fn a_bell_that_was_rung_in_vain_wakes_nobody() {
        let (bell, woken) = (Arc::<Bell>::default(), Arc::<Woken>::default());
        let waker = Waker::from(Arc::clone(&woken));
        bell.task.get_or_init(|| waker);
        let mut expected = 0;
        for (in_vain, rings, wakes) in [(1, 1, 0), (1, 2, 1), (0, 1, 1), (0, 0, 0), (1, 0, 0)] {
            bell.hold();
            for _ in 0..rings {
                bell.wake_by_ref();
            }
            assert_eq!(woken.times(), expected, "it sounds while it is held");
            bell.release(in_vain);
            expected += wakes;
            assert_eq!(woken.times(), expected, "{in_vain} in vain of {rings}");
        }
        bell.wake_by_ref();
        assert_eq!(woken.times(), expected + 1);
    }
}
