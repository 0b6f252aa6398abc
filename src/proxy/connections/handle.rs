//! An open client connection, so that its worker can ask it to end.

use crate::proxy::timeouts::atomic_instant::AtomicInstant;
use crate::{clock::Clock, flow::Instant, meter};
use core::{
    future::poll_fn,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};
use std::sync::{Arc, OnceLock};

/// An open client connection, as its worker sees it.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    /// Counts it as open for as long as anybody holds on to it.
    _open: meter::Connection,
    clock: Clock,
    /// Whether a request has come.
    is_used: AtomicBool,
    is_http2: AtomicBool,
    /// Since when it is to end.
    draining: AtomicInstant,
    /// The connection's task.
    task: OnceLock<Waker>,
}

impl ConnectionHandle {
    pub(crate) fn new(clock: &Clock, open: meter::Connection) -> Arc<Self> {
        Arc::new(Self {
            _open: open,
            clock: clock.clone(),
            is_used: AtomicBool::new(false),
            is_http2: AtomicBool::new(false),
            draining: AtomicInstant::default(),
            task: OnceLock::new(),
        })
    }

    /// Notes that a request has come.
    pub(crate) fn on_request(&self) {
        self.is_used.store(true, Relaxed);
    }

    /// Whether it has asked for anything yet.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used.load(Relaxed)
    }

    /// Notes that it speaks HTTP/2.
    pub(crate) fn on_http2(&self) {
        self.is_http2.store(true, Relaxed);
    }

    pub(crate) fn is_http2(&self) -> bool {
        self.is_http2.load(Relaxed)
    }

    /// Asks the connection to end when what is under way has ended.
    pub(crate) fn drain(&self) {
        if !self.is_draining() {
            self.draining.set(self.clock.now());
        }
        self.wake();
    }

    /// Wakes the connection's task.
    pub(crate) fn wake(&self) {
        if let Some(task) = self.task.get() {
            task.wake_by_ref();
        }
    }

    /// Whether [`Self::drain`] was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_set()
    }

    /// Returns since when the connection is to end.
    pub(crate) fn draining_since(&self) -> Option<Instant> {
        self.draining.get()
    }

    /// Notes the connection's task, which is woken when it is to end.
    pub(crate) fn wake_on_drain(&self, context: &Context<'_>) {
        self.task.get_or_init(|| context.waker().clone());
    }

    /// Waits until [`Self::drain`] is called.
    pub(crate) async fn drained(&self) {
        poll_fn(|context| {
            self.wake_on_drain(context);
            if self.is_draining() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
