//! One worker's open client connections, so that they can be asked to end.

use super::handle::ConnectionHandle;
use core::time::Duration;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

/// How long a drain waits for what clients may have sent before they learned of it: the first request of
/// a new connection, or requests of HTTP/2 that cross the GOAWAY.
pub(crate) const GRACE: Duration = Duration::from_secs(1);

/// The connections that are open.
#[derive(Debug, Default)]
pub struct Connections {
    state: Mutex<State>,
    /// Whether the worker ends with what is under way.
    cut_off: AtomicBool,
    /// Whether each connection's next answer is its last.
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

    /// Asks every connection that has been used to end when what is under way has ended.
    /// Of a new one the first request may be on its way: see [`GRACE`].
    pub(crate) fn drain_used(&self) {
        for handle in self.lock().open.values().filter(|handle| handle.is_used()) {
            handle.drain();
        }
    }

    /// Asks every connection, and every later one, to end when what is under way
    /// has ended.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        state.draining = true;
        for handle in state.open.values() {
            handle.drain();
        }
    }

    /// Makes each connection's next answer its last, as another process accepts connections.
    ///
    /// An idle one stays open, and so does one whose answer has begun: the next request may be on
    /// its way, and would be lost. In HTTP/2 the client learns which requests are served.
    pub(crate) fn retire(&self) {
        self.retiring.store(true, Relaxed);
        for handle in self.lock().open.values().filter(|handle| handle.is_http2()) {
            handle.drain();
        }
    }

    /// Whether [`Self::retire`] was called.
    pub(crate) fn are_retiring(&self) -> bool {
        self.retiring.load(Relaxed)
    }

    /// Notes that what is under way from here on is cut off, as the gateway ends.
    pub(crate) fn cut_off(&self) {
        self.cut_off.store(true, Relaxed);
    }

    /// Whether [`Self::cut_off`] was called.
    pub(crate) fn are_cut_off(&self) -> bool {
        self.cut_off.load(Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
