//! Windows of a calendar: days and months, which differ in length.
//!
//! A day of a time zone has 23 to 25 hours, a month 28 to 31 days. The caller passes the beginnings
//! of windows as values for the whole range of an [`Instant`]; here they are looked up. Windows an
//! even step apart form one run, so a zone's days take one run per change of its clock.

use super::time::Instant;
use core::{fmt, num::NonZeroU64, time::Duration};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// The beginnings of the windows.
#[derive(Clone, PartialEq, Eq)]
pub struct Calendar {
    name: Arc<str>,
    /// Nanoseconds between the beginnings of two windows of a run.
    step: NonZeroU64,
    runs: Arc<[Run]>,
}

/// Windows one step apart; the last ends where the next run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The first window's beginning.
    pub start: Instant,
    /// The number of windows.
    pub count: NonZeroU64,
}

impl Calendar {
    /// Returns the calendar of the windows in `runs`, which begin `step` apart. `name` describes
    /// them, as in `month (Europe/Berlin)`.
    ///
    /// Before the first run and after the last there are no boundaries.
    pub fn new(name: &str, step: NonZeroU64, mut runs: Vec<Run>) -> Self {
        runs.sort_by_key(|run| run.start);
        Self { name: name.into(), step, runs: runs.into() }
    }

    /// Returns the description.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the windows' length if all have the same.
    pub fn even(&self) -> Option<Duration> {
        (self.runs.len() == 1).then(|| Duration::from_nanos(self.step.get()))
    }

    /// Returns the beginning and end of the window of `now`.
    pub fn window(&self, now: Instant) -> (Instant, Instant) {
        let after = self.runs.partition_point(|run| run.start <= now);
        let next = self.runs.get(after).map_or(Instant::FAR_FUTURE, |run| run.start);
        let Some(run) = after.checked_sub(1).and_then(|at| self.runs.get(at)) else {
            return (Instant::EPOCH, next);
        };
        let begin =
            |index: u64| run.start + Duration::from_nanos(index.saturating_mul(self.step.get()));
        let passed = now.as_nanos().saturating_sub(run.start.as_nanos()) / self.step;
        let index = passed.min(run.count.get() - 1);
        let end = if index + 1 < run.count.get() { begin(index + 1) } else { next };
        (begin(index), end.min(next))
    }
}

/// By its name alone; see [`Deserialize`].
impl Serialize for Calendar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.name.serialize(serializer)
    }
}

/// Without its boundaries, which whoever reads it has to fill in by its name.
impl<'de> Deserialize<'de> for Calendar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        Ok(Self::new(&name, NonZeroU64::MAX, Vec::new()))
    }
}

impl fmt::Debug for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calendar(step: u64, runs: &[(u64, u64)]) -> Calendar {
        let nonzero = |n| NonZeroU64::new(n).expect("not zero");
        let run =
            |&(start, count)| Run { start: Instant::from_nanos(start), count: nonzero(count) };
        Calendar::new("day", nonzero(step), runs.iter().map(run).collect())
    }

    #[track_caller]
    fn check(calendar: &Calendar, expected: &[(u64, u64, u64)]) {
        for &(now, begin, end) in expected {
            let (from, to) = calendar.window(Instant::from_nanos(now));
            assert_eq!((from.as_nanos(), to.as_nanos()), (begin, end), "at {now}");
        }
    }

    #[test]
    fn the_last_window_of_a_run_is_longer_or_shorter() {
        // 24, 24, 25, 24, 23, 24, …
        let days = calendar(24, &[(0, 3), (73, 2), (120, u64::MAX)]);
        let days_of = [(0, 0, 24), (23, 0, 24), (24, 24, 48), (48, 48, 73), (72, 48, 73)];
        check(&days, &days_of);
        check(&days, &[(73, 73, 97), (97, 97, 120), (119, 97, 120), (120, 120, 144)]);
        check(&days, &[(12_000, 12_000, 12_024), (12_023, 12_000, 12_024)]);
        assert_eq!(days.even(), None);
        assert_eq!(calendar(24, &[(0, 9)]).even(), Some(Duration::from_nanos(24)));
    }

    #[test]
    fn beyond_what_was_said_there_are_no_boundaries() {
        let months = calendar(1, &[(31, 1), (59, 1), (90, 1)]);
        check(&months, &[(5, 0, 31), (31, 31, 59), (58, 31, 59), (59, 59, 90)]);
        check(&months, &[(90, 90, u64::MAX), (9_000, 90, u64::MAX)]);
        check(&calendar(1, &[]), &[(7, 0, u64::MAX)]);
    }
}
