//! The time as a client's connection sees it: instants that its parts share, one reading of the
//! clock for each poll, and one timer for all its deadlines.

use crate::{clock::Clock, flow::Instant};
use core::{
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    task::{Context, Poll},
};
use tokio::time::Sleep;

/// An instant that may be absent.
#[derive(Debug, Default)]
pub(crate) struct AtomicInstant(AtomicU64);

impl AtomicInstant {
    pub(crate) fn get(&self) -> Option<Instant> {
        match self.0.load(Relaxed) {
            0 => None,
            nanos => Some(Instant::from_nanos(nanos)),
        }
    }

    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Relaxed) != 0
    }

    pub(crate) fn set(&self, now: Instant) {
        self.0.store(now.as_nanos().max(1), Relaxed);
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Relaxed);
    }

    /// Sets it at the beginning of a wait, and clears it at the end.
    pub(crate) fn note(&self, waiting: bool, clock: &Clock) {
        if waiting != self.is_set() {
            if waiting { self.set(clock.now()) } else { self.clear() }
        }
    }
}

/// Between polls.
const OUTSIDE: u64 = 0;
/// In a poll that has not read the time.
const UNREAD: u64 = 1;

/// The last reading of the clock in the poll under way.
#[derive(Debug, Default)]
pub(crate) struct PollTime(AtomicU64);

impl PollTime {
    /// Polls what may use the time of this poll.
    pub(crate) fn during<T>(&self, poll: impl FnOnce() -> T) -> T {
        self.0.store(UNREAD, Relaxed);
        let polled = poll();
        self.0.store(OUTSIDE, Relaxed);
        polled
    }

    /// Reads the clock, and remembers the reading until the poll ends.
    pub(crate) fn read(&self, clock: &Clock) -> Instant {
        let now = clock.now();
        if self.0.load(Relaxed) != OUTSIDE {
            self.0.store(now.as_nanos(), Relaxed);
        }
        now
    }

    /// Returns the last reading in this poll. Reads the clock if there is none.
    pub(crate) fn get(&self, clock: &Clock) -> Instant {
        match self.0.load(Relaxed) {
            OUTSIDE | UNREAD => self.read(clock),
            nanos => Instant::from_nanos(nanos),
        }
    }
}

/// The timer of a connection's task.
pub(crate) struct ConnectionTimer<'s> {
    clock: Clock,
    sleep: Pin<&'s mut Sleep>,
    armed: Instant,
    /// True if the runtime has the waker.
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

/// The deadlines of a request. Each wait in its task notes its deadline here whenever it is polled. The
/// connection's timer waits for the earliest one.
#[derive(Debug)]
pub(crate) struct RequestTimer {
    /// The earliest deadline, in nanoseconds.
    next: AtomicU64,
    /// The last time at which the connection's timer has fired.
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

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_reading_is_remembered_until_its_poll_ends() {
        let clock = Clock::start();
        let time = PollTime::default();
        let later = || clock.sleep_until(clock.now() + Duration::from_secs(1));
        let before = time.get(&clock);
        later().await;
        assert_eq!(time.get(&clock), clock.now(), "no poll is under way");
        time.during(|| assert_eq!(time.get(&clock), clock.now()));
        time.0.store(before.as_nanos(), Relaxed);
        assert_eq!(time.get(&clock), before, "within a poll");
        assert_eq!(time.read(&clock), clock.now());
        assert_eq!(time.get(&clock), clock.now());
        later().await;
        time.during(|| assert_eq!(time.get(&clock), clock.now(), "the next poll"));
    }
}
