//! The open connections of clients: the settings of each, and how a worker asks them to end.

use crate::config::{ClientTimeouts, HeaderCase, Limits, Settings};
use crate::proxy::timeouts::timer::AtomicInstant;
use crate::{clock::Clock, flow::Instant, meter};
use core::{
    future::poll_fn,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// The version of HTTP that a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http1,
    Http2,
}

/// The limits of a connection, those of the configuration that it began under. A
/// copy: an idle connection must not keep a whole configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConnectionOptions {
    pub(crate) timeouts: ClientTimeouts,
    pub(crate) limits: Limits,
    pub(crate) header_case: HeaderCase,
}

impl ConnectionOptions {
    pub(crate) fn of(settings: &Settings) -> Self {
        let &Settings { timeouts, limits, header_case, .. } = settings;
        Self { timeouts, limits, header_case }
    }
}

/// An open client connection, as its worker sees it.
#[derive(Debug)]
pub(crate) struct ConnectionHandle {
    /// Counts the connection as open until it is dropped.
    _open: meter::Connection,
    clock: Clock,
    /// True if a request has come.
    is_used: AtomicBool,
    is_http2: AtomicBool,
    /// The time since which it is to end.
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

    /// True if a request has come.
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

    /// Makes the connection end after the requests in progress.
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

    /// True if [`Self::drain`] was called.
    pub(crate) fn is_draining(&self) -> bool {
        self.draining.is_set()
    }

    /// Returns the time since which the connection is to end.
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

/// The time for which a drain waits for requests that clients may have sent before they learned of it:
/// the first one of a new connection, or requests of HTTP/2 that cross the GOAWAY.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The connections that are open.
#[derive(Debug, Default)]
pub struct Connections {
    state: Mutex<State>,
    /// True if the worker ends, and cuts off the requests in progress.
    cut_off: AtomicBool,
    /// True if each connection's next response is its last.
    retiring: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    open: HashMap<u64, Arc<ConnectionHandle>>,
    entered: u64,
    draining: bool,
}

impl Connections {
    /// Notes an open connection; returns the place to leave.
    pub(crate) fn enter(&self, handle: &Arc<ConnectionHandle>) -> u64 {
        let mut state = self.lock();
        state.entered += 1;
        let place = state.entered;
        if state.draining {
            handle.drain();
        }
        state.open.insert(place, Arc::clone(handle));
        place
    }

    pub(crate) fn leave(&self, place: u64) {
        self.lock().open.remove(&place);
    }

    /// Makes every connection that has been used end after the requests in progress. The first request of
    /// a new connection may be on its way: see [`GRACE`].
    pub(crate) fn drain_used(&self) {
        for handle in self.lock().open.values().filter(|handle| handle.is_used()) {
            handle.drain();
        }
    }

    /// Makes every connection, and every later one, end after the requests in progress.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        state.draining = true;
        for handle in state.open.values() {
            handle.drain();
        }
    }

    /// Makes each connection's next response its last, because another process accepts connections.
    ///
    /// An idle connection stays open, and so does one whose response has begun: the next request may be on
    /// its way, and would be lost. In HTTP/2 the client learns which requests are served.
    pub(crate) fn retire(&self) {
        self.retiring.store(true, Relaxed);
        for handle in self.lock().open.values().filter(|handle| handle.is_http2()) {
            handle.drain();
        }
    }

    /// True if [`Self::retire`] was called.
    pub(crate) fn are_retiring(&self) -> bool {
        self.retiring.load(Relaxed)
    }

    /// Notes that requests in progress from here on are cut off, because the gateway ends.
    pub(crate) fn cut_off(&self) {
        self.cut_off.store(true, Relaxed);
    }

    /// True if [`Self::cut_off`] was called.
    pub(crate) fn are_cut_off(&self) -> bool {
        self.cut_off.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
