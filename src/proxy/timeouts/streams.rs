//! The streams of one HTTP/2 connection, so that one whose client takes nothing is
//! reset alone.
//!
//! A client may close the window of a stream and go on with others, or answer pings:
//! the socket does not show it. So a part of an answer notes when its bytes are put into
//! frames, and the connection's timer looks for streams on which none were. The task of a
//! stream waits for a window without asking the body for more; what ends that is to abort it,
//! upon which the stream is reset.
//!
//! Worst case: what HTTP/2 has buffered when the task ends, one part of an answer, is
//! watched no more. It stays as long as the connection.

use super::{
    timeout::Timeout,
    timer::{AtomicInstant, RequestTimer},
};
use crate::{clock::Clock, flow::Instant};
use bytes::{Buf, Bytes};
use core::{
    sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::task::AbortHandle;

/// How often streams are looked at within the time that one may stand still.
const LOOKS: u32 = 4;

/// The streams that are open.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    open: Mutex<Vec<Arc<Stream>>>,
    /// Since when there has been a stream that was opened after the last look.
    new_since: AtomicInstant,
    /// The earliest deadline that a request waits for, or an earlier instant.
    next: AtomicInstant,
}

/// One of them.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Interim responses that its task sends when it has polled the request, and whether there are any.
    interim: Mutex<Vec<http::Response<()>>>,
    has_interim: AtomicBool,
    /// There once the request is served.
    task: OnceLock<AbortHandle>,
    /// Its place among those that are open.
    place: AtomicUsize,
    /// What its request waits for.
    timer: RequestTimer,
    /// Wakes its task, once its request has waited.
    waker: OnceLock<Waker>,
    /// Parts of the answer that the client was handed and has not wholly taken.
    handed: AtomicU32,
    /// Whether anything was handed or taken since the stream was last judged.
    moved: AtomicBool,
    /// When it was last found to have moved.
    moved_by: AtomicInstant,
    /// When the request must have ended.
    end_by: AtomicInstant,
    /// Which limit it was reset for.
    timeout: OnceLock<Timeout>,
}

impl Streams {
    /// Notes a stream whose request has come.
    pub(crate) fn enter(&self, clock: &Clock) -> Arc<Stream> {
        self.new_since.note(true, clock);
        let mut open = self.lock();
        let stream = Stream { place: AtomicUsize::new(open.len()), ..Stream::default() };
        let stream = Arc::new(stream);
        open.push(Arc::clone(&stream));
        stream
    }

    /// Returns the newest stream.
    pub(crate) fn newest(&self) -> Option<Arc<Stream>> {
        self.lock().last().map(Arc::clone)
    }

    /// Forgets a stream: its request has ended.
    pub(crate) fn leave(&self, stream: &Arc<Stream>) {
        let mut open = self.lock();
        let place = stream.place.load(Relaxed);
        if open.get(place).is_some_and(|open| Arc::ptr_eq(open, stream)) {
            open.swap_remove(place);
            if let Some(moved) = open.get(place) {
                moved.place.store(place, Relaxed);
            }
        }
    }

    /// Notes that a request waits for `deadline`. Returns whether that is earlier than what others
    /// wait for.
    pub(crate) fn wait_for(&self, deadline: Instant) -> bool {
        let is_earliest = self.next.get().is_none_or(|next| deadline < next);
        if is_earliest {
            self.next.set(deadline);
        }
        is_earliest
    }

    /// Returns when streams must be looked at: new ones, of which none may stand still for longer
    /// than `limit`, and those whose requests wait for a deadline.
    pub(crate) fn look_by(&self, limit: Duration) -> Option<Instant> {
        let new = self.new_since.get().map(|since| since + limit / LOOKS);
        new.into_iter().chain(self.next.get()).min()
    }

    /// Notes that there was a look.
    pub(crate) fn seen(&self) {
        self.new_since.clear();
        self.next.clear();
    }

    /// Resets the streams on which the client has taken nothing for `limit`, and those
    /// that are over their time. Wakes requests whose deadline has come. Returns when to look again.
    /// Where the whole connection was `congested` a stream may have waited for the others.
    pub(crate) fn judge(&self, now: Instant, limit: Duration, congested: bool) -> Instant {
        let mut open = self.lock();
        open.retain(|stream| !stream.task.get().is_some_and(AbortHandle::is_finished));
        for (place, stream) in open.iter().enumerate() {
            stream.place.store(place, Relaxed);
            if let Some(timeout) = stream.over(now, limit, congested)
                && let Some(task) = stream.task.get()
            {
                stream.timeout.get_or_init(|| timeout);
                task.abort();
            } else if stream.timer.next() <= now {
                stream.fire(now);
            } else if stream.timer.next() < Instant::FAR_FUTURE {
                self.wait_for(stream.timer.next());
            }
        }
        if open.is_empty() { Instant::FAR_FUTURE } else { now + limit / LOOKS }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Stream>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stream {
    /// Has its task send an interim response. To be called in that task.
    pub(crate) fn push_interim(&self, response: http::Response<()>) {
        self.interim.lock().unwrap_or_else(PoisonError::into_inner).push(response);
        self.has_interim.store(true, Relaxed);
    }

    /// Takes the interim responses that are to be sent.
    pub(crate) fn take_interim(&self) -> Vec<http::Response<()>> {
        if !self.has_interim.load(Relaxed) {
            return Vec::new();
        }
        self.has_interim.store(false, Relaxed);
        core::mem::take(&mut *self.interim.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes the task that serves it.
    pub(crate) fn serve(&self, task: AbortHandle) {
        self.task.get_or_init(|| task);
    }

    /// Has the request end at `deadline`, however slowly the client takes the answer.
    pub(crate) fn end_by(&self, deadline: Instant) {
        self.end_by.set(deadline);
    }

    /// Waits for `deadline`, in the stream's task.
    pub(crate) fn poll_deadline(&self, deadline: Instant, context: &Context<'_>) -> Poll<()> {
        self.waker.get_or_init(|| context.waker().clone());
        self.timer.poll(deadline)
    }

    /// Has its request look at its deadlines at `now`.
    fn fire(&self, now: Instant) {
        self.timer.begin();
        self.timer.fire(now);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }

    /// Returns which limit it was reset for, if it was.
    pub(crate) fn timeout(&self) -> Option<Timeout> {
        self.timeout.get().copied()
    }

    /// Returns which limit it is over.
    fn over(&self, now: Instant, limit: Duration, congested: bool) -> Option<Timeout> {
        if self.end_by.get().is_some_and(|deadline| deadline <= now) {
            return Some(Timeout::Request);
        }
        let moved = self.moved.swap(false, Relaxed);
        if moved || congested || self.handed.load(Relaxed) == 0 {
            self.moved_by.set(now);
            return None;
        }
        let is_still = self.moved_by.get().is_some_and(|since| since + limit <= now);
        is_still.then_some(Timeout::Write)
    }
}

/// A part of an answer, which notes what is taken of it.
#[derive(Debug)]
pub(crate) struct Part {
    bytes: Bytes,
    /// In HTTP/2 only: with HTTP/1.1 the socket shows it.
    stream: Option<Arc<Stream>>,
}

impl Part {
    /// Hands `bytes` to the client of `stream`.
    pub(crate) fn new(bytes: Bytes, stream: Option<&Arc<Stream>>) -> Self {
        if let Some(stream) = stream {
            stream.handed.fetch_add(1, Relaxed);
            stream.moved.store(true, Relaxed);
        }
        Self { bytes, stream: stream.cloned() }
    }
}

impl Part {
    /// Returns the bytes, for a client of HTTP/1.1.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        core::mem::take(&mut self.bytes)
    }
}

impl Buf for Part {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(stream) = &self.stream {
            stream.moved.store(true, Relaxed);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            stream.handed.fetch_sub(1, Relaxed);
        }
    }
}
