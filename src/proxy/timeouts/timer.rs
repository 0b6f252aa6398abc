//! The one timer of a client's connection.
//!
//! Each wait has a deadline, and hardly any comes. So the timer is only ever moved to an earlier
//! deadline: where it fires too early, it is armed again. A request costs no operation on the
//! runtime's timer wheel.

use crate::{clock::Clock, flow::Instant};
use core::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
};
use tokio::time::Sleep;

/// The timer of a connection's task.
pub(crate) struct ConnectionTimer<'s> {
    clock: Clock,
    sleep: Pin<&'s mut Sleep>,
    armed: Instant,
    /// Whether the runtime knows what to wake.
    is_polled: bool,
}

impl<'s> ConnectionTimer<'s> {
    /// Returns a timer that uses `sleep`, which ends at `armed`.
    pub(crate) fn new(clock: &Clock, sleep: Pin<&'s mut Sleep>, armed: Instant) -> Self {
        Self { clock: clock.clone(), sleep, armed, is_polled: false }
    }

    /// Waits for `deadline`, and returns the time then. To be called by one task alone.
    pub(crate) fn poll(&mut self, deadline: Instant, context: &mut Context<'_>) -> Poll<Instant> {
        if deadline < self.armed {
            self.arm(deadline);
        }
        loop {
            if !self.has_fired(context) {
                return Poll::Pending;
            }
            let now = self.clock.now();
            if deadline <= now {
                return Poll::Ready(now);
            }
            self.arm(deadline);
        }
    }

    fn arm(&mut self, deadline: Instant) {
        self.armed = deadline;
        self.sleep.as_mut().reset(self.clock.to_tokio(deadline));
        self.is_polled = false;
    }

    fn has_fired(&mut self, context: &mut Context<'_>) -> bool {
        if self.is_polled {
            return self.sleep.is_elapsed();
        }
        self.is_polled = true;
        self.sleep.as_mut().poll(context).is_ready()
    }
}

/// The deadlines of a request. Whatever waits in its task names its deadline here each time it is
/// polled; the connection's timer waits for the earliest one.
#[derive(Debug)]
pub(crate) struct RequestTimer {
    /// The earliest deadline, in nanoseconds.
    next: AtomicU64,
    /// When the connection's timer has fired last.
    fired_at: AtomicU64,
}

impl Default for RequestTimer {
    fn default() -> Self {
        Self { next: AtomicU64::new(u64::MAX), fired_at: AtomicU64::new(0) }
    }
}

impl RequestTimer {
    /// Waits for `deadline`.
    pub(crate) fn poll(&self, deadline: Instant) -> Poll<()> {
        let deadline = deadline.as_nanos();
        if deadline <= self.fired_at.load(Relaxed) {
            return Poll::Ready(());
        }
        if deadline < self.next.load(Relaxed) {
            self.next.store(deadline, Relaxed);
        }
        Poll::Pending
    }

    /// Forgets all deadlines, before the tasks that wait are polled.
    pub(crate) fn begin(&self) {
        self.next.store(u64::MAX, Relaxed);
    }

    /// Returns the earliest deadline.
    pub(crate) fn next(&self) -> Instant {
        Instant::from_nanos(self.next.load(Relaxed))
    }

    /// Notes that the connection's timer has fired at `now`.
    pub(crate) fn fire(&self, now: Instant) {
        self.fired_at.store(now.as_nanos(), Relaxed);
    }
}
