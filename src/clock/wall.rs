//! Detects steps of the wall clock: by an administrator, by NTP, or because the machine slept.
//!
//! Both system clocks are slewed alike, so that they differ by steps only. They are compared twice
//! a second, with two system calls. Decisions never read the wall clock.

use crate::flow::{Instant, WallOffset};
use core::time::Duration;

/// The time between two comparisons of the clocks.
const INTERVAL: Duration = Duration::from_millis(500);

/// The smallest step. Readings are this exact; smaller differences count towards the next step.
const MIN_STEP: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
/// The times of both clocks.
pub struct Reading {
    /// The monotonic clock before the wall clock was read.
    pub before: Instant,
    /// The wall clock.
    pub wall: Instant,
    /// The monotonic clock after it.
    pub after: Instant,
}

/// A step of the wall clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// The step of the clock in nanoseconds; negative means back.
    pub by: i64,
    /// Its offset from the monotonic clock now.
    pub wall: WallOffset,
}

/// Compares the clocks that `read` reads.
#[derive(Debug)]
pub struct WallWatch<R> {
    read: R,
    ticks: tokio::time::Interval,
    wall: WallOffset,
}

impl<R: FnMut() -> Reading> WallWatch<R> {
    /// Starts with clocks that show the same time.
    pub fn new(read: R) -> Self {
        let mut ticks = tokio::time::interval(INTERVAL);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        Self { read, ticks, wall: WallOffset::default() }
    }

    /// Starts with a wall clock that is `wall` ahead.
    #[must_use]
    pub fn knowing(self, wall: WallOffset) -> Self {
        Self { wall, ..self }
    }

    /// Waits for the next step. Cancel-safe.
    pub async fn stepped(&mut self) -> Step {
        loop {
            self.ticks.tick().await;
            if let Some(step) = self.compare() {
                return step;
            }
        }
    }

    fn compare(&mut self) -> Option<Step> {
        let Reading { before, wall, after } = (self.read)();
        // Another process ran between the readings; the next reading decides.
        if after.since(before) >= MIN_STEP {
            return None;
        }
        let apart = i128::from(wall.as_nanos()) - i128::from(before.as_nanos());
        let by = i64::try_from(apart - i128::from(self.wall.as_nanos())).ok()?;
        if u128::from(by.unsigned_abs()) < MIN_STEP.as_nanos() {
            return None;
        }
        self.wall = WallOffset::from_nanos(self.wall.as_nanos().saturating_add(by));
        Some(Step { by, wall: self.wall })
    }
}

impl Step {
    /// Returns its size as text: `+2d`, `-1s 500ms`.
    pub fn words(&self) -> String {
        let sign = if self.by < 0 { '-' } else { '+' };
        let rounded = Duration::from_millis((self.by.unsigned_abs() + 500_000) / 1_000_000);
        format!("{sign}{}", crate::flow::time::spelled(rounded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use core::cell::Cell;

    const SECOND: i64 = 1_000_000_000;
    const DAY: i64 = 24 * 3600 * SECOND;

    #[tokio::test(start_paused = true)]
    async fn a_step_is_found_within_a_second_and_what_is_none_never() {
        let clock = Clock::start();
        let offset = Cell::new(0);
        let slow = Cell::new(Duration::ZERO);
        let mut watch = WallWatch::new(|| {
            let before = clock.now();
            let wall = WallOffset::from_nanos(offset.get()).at(before);
            Reading { before, wall, after: before + slow.get() }
        });
        let second = Duration::from_secs(1);
        clock.timeout(10 * second, watch.stepped()).await.expect_err("nothing has happened");
        let mut stepped = 0;
        for by in [2 * DAY, -3 * DAY, 10_000_000, -SECOND, 40 * 365 * DAY, -50 * 365 * DAY] {
            offset.set(offset.get() + by);
            let step = clock.timeout(second, watch.stepped()).await.expect("within a second");
            stepped += by;
            assert_eq!(step, Step { by, wall: WallOffset::from_nanos(stepped) });
            clock.timeout(10 * second, watch.stepped()).await.expect_err("one step only");
        }
        // Less is no step, until it is together.
        offset.set(offset.get() + 9_999_999);
        clock.timeout(10 * second, watch.stepped()).await.expect_err("too little");
        offset.set(offset.get() + 1);
        let step = clock.timeout(second, watch.stepped()).await.expect("enough together");
        assert_eq!(step.by, 10_000_000);
        // A reading that took long says nothing.
        offset.set(offset.get() + DAY);
        slow.set(MIN_STEP);
        clock.timeout(10 * second, watch.stepped()).await.expect_err("there is no step");
        slow.set(Duration::ZERO);
        let step = clock.timeout(second, watch.stepped()).await.expect("a good reading");
        assert_eq!(step.by, DAY);
    }

    #[tokio::test]
    async fn the_clocks_of_the_system_agree_and_every_clone_knows_of_a_step() {
        let clock = Clock::start();
        let reading = clock.read();
        let apart = reading.wall.since(reading.after).max(reading.before.since(reading.wall));
        assert!(apart < Duration::from_mins(1), "{reading:?}");
        let clone = clock.clone();
        clock.set_wall(WallOffset::from_nanos(-SECOND));
        let now = clone.now();
        assert_eq!(clone.wall(now), now - Duration::from_secs(1));
    }

    #[test]
    fn a_step_is_formatted_as_text() {
        let words = |by| Step { by, wall: WallOffset::default() }.words();
        assert_eq!(words(2 * DAY), "+2d");
        assert_eq!(words(-1_500_400_000), "-1s 500ms");
        assert_eq!(words(-4_999_600_000), "-5s");
    }
}
