//! The time, read once while a connection of HTTP/1.1 is polled.
//!
//! What ends a response, its `Date`, and what begins the wait for the next request happen one after
//! the other, mostly in the same poll.

use crate::{clock::Clock, flow::Instant};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
