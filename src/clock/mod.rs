//! The only reader of the operating system's clocks, and the only sleeper.

mod alarm;
mod wall;

use crate::flow::{Instant, WallOffset};
use core::{fmt, time::Duration};
use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::Relaxed},
    },
};

pub use alarm::Alarm;
pub use wall::{Reading, Step, WallWatch};

/// A monotonic clock that starts at the wall clock's time and knows the wall clock's later steps.
///
/// It reads tokio's clock, which a test runtime can pause: on Linux `CLOCK_MONOTONIC`, which does
/// not count suspended time. Clones are cheap and give the same time.
#[derive(Clone)]
pub struct Clock {
    origin: tokio::time::Instant,
    /// Nanoseconds between the Unix epoch and `origin`.
    offset: u64,
    /// In nanoseconds.
    stepped: Arc<AtomicI64>,
    alarm: Option<Arc<Alarm>>,
}

impl Clock {
    /// Starts a clock at the wall clock's time.
    pub fn start() -> Self {
        Self { origin: read(), offset: read_wall(), stepped: Arc::default(), alarm: None }
    }

    /// Continues another process's clock: both give the same instants, to a microsecond and never
    /// earlier ones here.
    pub fn resume(other: SharedReading) -> Self {
        let (origin, [_, after]) = read_both();
        let passed = after.saturating_sub(other.monotonic);
        let offset = other.instant.as_nanos().saturating_add(passed);
        Self { origin, offset, stepped: Arc::default(), alarm: None }
    }

    /// Returns a reading that [`Self::resume`] continues in another process.
    pub fn share(&self) -> SharedReading {
        let (read, [before, _]) = read_both();
        SharedReading { instant: self.at(read), monotonic: before }
    }

    /// Returns how far the wall clock is ahead, by its known steps.
    pub fn wall_offset(&self) -> WallOffset {
        WallOffset::from_nanos(self.stepped.load(Relaxed))
    }

    /// Starts a clock at this time, so that each run of a test is the same.
    #[cfg(test)]
    pub(crate) fn start_at(time: Instant) -> Self {
        Self { offset: time.as_nanos(), ..Self::start() }
    }

    /// Returns the wall clock's time at `instant`, by its known steps.
    pub fn wall(&self, instant: Instant) -> Instant {
        WallOffset::from_nanos(self.stepped.load(Relaxed)).at(instant)
    }

    /// Returns the wall clock's time.
    pub fn wall_now(&self) -> Instant {
        self.wall(self.now())
    }

    /// Reads both clocks.
    pub fn read(&self) -> Reading {
        let before = self.now();
        let wall = read_wall();
        Reading { before, wall: Instant::from_nanos(wall), after: self.now() }
    }

    /// Sets the wall clock's offset for this clock and its clones.
    pub fn set_wall(&self, wall: WallOffset) {
        self.stepped.store(wall.as_nanos(), Relaxed);
    }

    /// Returns this clock with a sleeper finer than tokio's millisecond, on the current runtime.
    ///
    /// # Errors
    ///
    /// No timer descriptor can be had.
    pub fn with_alarm(&self) -> io::Result<Self> {
        Ok(Self { alarm: Some(Alarm::start(self.clone())?), ..self.clone() })
    }

    /// Reads the clock.
    pub fn now(&self) -> Instant {
        self.at(read())
    }

    /// Sleeps until `deadline`, exact to about 10 µs with an alarm, else to 1 ms.
    pub async fn sleep_until(&self, deadline: Instant) {
        match &self.alarm {
            Some(alarm) => alarm.sleep_until(deadline).await,
            None => tokio::time::sleep_until(self.to_tokio(deadline)).await,
        }
    }

    /// Runs `future` for at most `limit`, exact to 1 ms.
    ///
    /// # Errors
    ///
    /// [`Elapsed`] if it has not ended by then; it is dropped.
    pub async fn timeout<F: Future>(
        &self,
        limit: Duration,
        future: F,
    ) -> Result<F::Output, Elapsed> {
        tokio::time::timeout(limit, future).await.map_err(|_| Elapsed)
    }

    /// Returns a timer at `deadline`, exact to 1 ms, that its owner polls and resets.
    pub fn timer(&self, deadline: Instant) -> tokio::time::Sleep {
        tokio::time::sleep_until(self.to_tokio(deadline))
    }

    /// Returns `instant` on tokio's clock.
    pub fn to_tokio(&self, instant: Instant) -> tokio::time::Instant {
        self.origin + Duration::from_nanos(instant.as_nanos().saturating_sub(self.offset)).min(FAR)
    }

    fn at(&self, instant: tokio::time::Instant) -> Instant {
        Instant::from_nanos(self.offset) + instant.saturating_duration_since(self.origin)
    }
}

/// An instant, and what the clock that all processes of a machine share showed then.
#[derive(Clone, Copy, Debug)]
pub struct SharedReading {
    /// The instant.
    pub instant: Instant,
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub monotonic: u64,
}

/// Tries to read two clocks without a pause between: the shortest one counts.
const TRIES: usize = 8;

/// Returns tokio's time, with `CLOCK_MONOTONIC` before and after it was read.
fn read_both() -> (tokio::time::Instant, [u64; 2]) {
    let tries = (0..TRIES).map(|_| {
        let before = monotonic();
        let read = read();
        (read, [before, monotonic()])
    });
    let shortest = tries.min_by_key(|(_, [before, after])| after.saturating_sub(*before));
    shortest.unwrap_or_else(|| (read(), [monotonic(); 2]))
}

/// Returns `CLOCK_MONOTONIC` in nanoseconds.
pub fn monotonic() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Tokio's clock overflows earlier.
const FAR: Duration = Duration::from_hours(24 * 365 * 30);

/// A time limit was reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the time limit was reached")]
pub struct Elapsed;

#[expect(clippy::disallowed_methods, reason = "the one reading of the monotonic clock")]
fn read() -> tokio::time::Instant {
    tokio::time::Instant::now()
}

/// Returns the nanoseconds since the Unix epoch.
#[expect(clippy::disallowed_types, reason = "the one reading of the wall's clock")]
fn read_wall() -> u64 {
    let wall = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    u64::try_from(wall.unwrap_or(Duration::ZERO).as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("offset", &self.offset).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_paused_clock_moves_only_by_sleeping() {
        let clock = Clock::start();
        let before = clock.now();
        assert_eq!(clock.now(), before);
        clock.sleep_until(before + Duration::from_hours(1)).await;
        assert_eq!(clock.now(), before + Duration::from_hours(1));
    }

    #[tokio::test]
    async fn another_process_continues_a_clock() {
        let old = Clock::start();
        for _ in 0..100 {
            let new = Clock::resume(old.share());
            let before = old.now();
            let here = new.now();
            let after = old.now();
            assert!(before <= here, "{before:?} {here:?}");
            // Both readings were made without a pause, or the test has nothing to compare.
            assert!(here.since(after) < Duration::from_millis(1), "{here:?} {after:?}");
        }
    }

    #[tokio::test]
    async fn an_alarm_rings_after_its_deadline_and_close_to_it() {
        let clock = Clock::start().with_alarm().expect("a timer descriptor");
        for micros in [0, 1, 50, 400, 2_500] {
            let deadline = clock.now() + Duration::from_micros(micros);
            clock.sleep_until(deadline).await;
            assert!(clock.now() >= deadline, "rang {micros} µs early");
        }
    }

    #[tokio::test]
    async fn alarms_ring_in_the_order_of_their_deadlines() {
        let clock = Clock::start().with_alarm().expect("a timer descriptor");
        let now = clock.now();
        let (sender, mut rung) = tokio::sync::mpsc::unbounded_channel();
        let sleepers: Vec<_> = [7_u64, 1, 5, 3, 1]
            .into_iter()
            .map(|millis| {
                let clock = clock.clone();
                let sender = sender.clone();
                tokio::spawn(async move {
                    clock.sleep_until(now + Duration::from_millis(millis)).await;
                    sender.send(millis).expect("the receiver lives");
                })
            })
            .collect();
        let dropped = clock.sleep_until(now + Duration::from_millis(2));
        drop(dropped);
        for sleeper in sleepers {
            sleeper.await.expect("a sleeper panicked");
        }
        drop(sender);
        let mut order = Vec::new();
        while let Some(millis) = rung.recv().await {
            order.push(millis);
        }
        assert_eq!(order, [1, 1, 3, 5, 7]);
    }
}
