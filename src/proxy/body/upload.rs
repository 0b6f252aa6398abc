//! How far a request's body has come on its way to the upstream.

use crate::proxy::timeouts::{timeout::Timeout, timer::AtomicInstant};
use crate::{clock::Clock, flow::Instant};
use core::{
    fmt,
    pin::Pin,
    sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};
use std::sync::Arc;
use tokio::sync::Notify;

/// What an upload waits for, or how it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum UploadState {
    /// The upstream has yet to take what the client sent.
    #[default]
    UnderWay,
    Done,
    TooLong,
    Stalled,
    Broken,
    /// The client's next part is waited for.
    Awaited,
    Slow,
}

impl UploadState {
    /// By their numbers.
    const ALL: [Self; 7] = [
        Self::UnderWay,
        Self::Done,
        Self::TooLong,
        Self::Stalled,
        Self::Broken,
        Self::Awaited,
        Self::Slow,
    ];

    fn of(number: u8) -> Self {
        Self::ALL.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Returns the limit that cut an upload off in this state, if one did.
    pub(crate) fn timeout(self) -> Option<Timeout> {
        match self {
            Self::Stalled => Some(Timeout::Idle),
            Self::Slow => Some(Timeout::BodyRate),
            Self::UnderWay | Self::Done | Self::TooLong | Self::Broken | Self::Awaited => None,
        }
    }
}

/// The progress of an upload, for the task that waits for the response.
#[derive(Debug, Default)]
pub(crate) struct Upload {
    /// True if its length was declared.
    pub(crate) is_declared: bool,
    bytes: AtomicU64,
    /// An [`UploadState`].
    state: AtomicU8,
    /// The time when its first part was asked for.
    begun: AtomicInstant,
    /// The time when its last part was taken to be sent on.
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

    pub(crate) fn state(&self) -> UploadState {
        UploadState::of(self.state.load(Relaxed))
    }

    /// Returns whether it was cut off for the client's doing.
    pub(crate) fn is_cut(&self) -> bool {
        match self.state() {
            UploadState::TooLong
            | UploadState::Stalled
            | UploadState::Broken
            | UploadState::Slow => true,
            UploadState::UnderWay | UploadState::Done | UploadState::Awaited => false,
        }
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
            UploadState::Done | UploadState::UnderWay => self.taken().unwrap_or(begun),
            UploadState::TooLong
            | UploadState::Stalled
            | UploadState::Broken
            | UploadState::Awaited
            | UploadState::Slow => now,
        };
        end.since(begun)
    }

    /// Notes that the client's next part is waited for.
    pub(crate) fn wait(&self, clock: &Clock) {
        self.set(UploadState::Awaited);
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

    pub(crate) fn set(&self, state: UploadState) {
        self.state.store(state as u8, Relaxed);
    }
}

/// The time that an early response's end waits for the client of HTTP/2 to stop sending.
const EARLY_END: Duration = Duration::from_secs(1);

/// A wait at the end of a response, until its client has stopped sending.
pub(crate) struct EarlyEnd(Pin<Box<dyn Future<Output = ()> + Send>>);

impl EarlyEnd {
    /// Begins to wait for the end of `upload`, though not for long.
    ///
    /// curl 7.88 notices the end of a response without a length only if its own side has ended
    /// before. An upload of a declared length that ends early is an error in HTTP/2: its stream
    /// is reset, which curl notices.
    pub(crate) fn of(upload: Arc<Upload>, clock: Clock) -> Self {
        Self(Box::pin(async move {
            let _in_time = clock.timeout(EARLY_END, upload.gone.notified()).await;
        }))
    }

    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        self.0.as_mut().poll(context)
    }
}

impl fmt::Debug for EarlyEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EarlyEnd").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_found_by_its_number() {
        for state in UploadState::ALL {
            assert_eq!(UploadState::of(state as u8), state);
        }
    }
}
