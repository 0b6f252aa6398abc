//! How far a request's body has come on its way to the upstream.

use crate::proxy::timeouts::{atomic_instant::AtomicInstant, timeout::Timeout};
use crate::{clock::Clock, flow::Instant};
use core::{
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use tokio::sync::Notify;

/// The upstream has yet to take what the client sent.
pub(crate) const UNDER_WAY: u8 = 0;
pub(crate) const DONE: u8 = 1;
pub(crate) const TOO_LONG: u8 = 2;
pub(crate) const STALLED: u8 = 3;
pub(crate) const BROKEN: u8 = 4;
/// The client's next part is waited for.
pub(crate) const AWAITED: u8 = 5;
pub(crate) const SLOW: u8 = 6;

/// Returns the limit that cut an upload off in this state, if one did.
pub(crate) fn timeout(state: u8) -> Option<Timeout> {
    match state {
        STALLED => Some(Timeout::Idle),
        SLOW => Some(Timeout::BodyRate),
        _ => None,
    }
}

/// How far an upload has come, for the task that waits for the answer.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// Whether its length was declared.
    pub(crate) is_declared: bool,
    bytes: AtomicU64,
    state: AtomicU8,
    /// When its first part was asked for.
    begun: AtomicInstant,
    /// When its last part was taken to be sent on.
    taken: AtomicInstant,
    /// Notified when it is read no more, in HTTP/2.
    pub(crate) gone: Notify,
}

impl Upload {
    /// Returns the notes of a body, whose length may be declared.
    pub(crate) fn new(is_declared: bool) -> Self {
        Self { is_declared, ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// One of this module's constants.
    pub(crate) fn state(&self) -> u8 {
        self.state.load(Relaxed)
    }

    /// Returns whether it was cut off for the client's doing.
    pub(crate) fn is_cut(&self) -> bool {
        matches!(self.state(), TOO_LONG | STALLED | BROKEN | SLOW)
    }

    /// Returns when its last part was taken to be sent on, if any was; once it is done,
    /// that is when it ended.
    pub(crate) fn taken(&self) -> Option<Instant> {
        self.taken.get()
    }

    /// Returns how long the body has taken until `now`: to its end, or to the last part that the
    /// server took if the server is behind.
    pub(crate) fn duration(&self, now: Instant) -> Duration {
        let Some(begun) = self.begun.get() else { return Duration::ZERO };
        let end = match self.state() {
            DONE | UNDER_WAY => self.taken().unwrap_or(begun),
            _ => now,
        };
        end.since(begun)
    }

    /// Notes that the client's next part is waited for.
    pub(crate) fn wait(&self, clock: &Clock) {
        self.set(AWAITED);
        if !self.begun.is_set() {
            self.begun.set(clock.now());
        }
    }

    /// Notes that a part was taken at `now`.
    pub(crate) fn take_at(&self, now: Instant) {
        if !self.begun.is_set() {
            self.begun.set(now);
        }
        self.taken.set(now);
    }

    /// Notes that the part had so many bytes.
    pub(crate) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Notes its state, one of this module's constants.
    pub(crate) fn set(&self, state: u8) {
        self.state.store(state, Relaxed);
    }
}
