//! Counts over time, in a bounded number of columns.
//!
//! Columns start with a width of a millisecond. When there are too many, pairs are merged, so that
//! a minute and a month take the same memory.

use crate::flow::{Instant, time::nanos};
use core::time::Duration;

/// The most columns; a page shows about as many.
const MOST: usize = 512;

/// Columns of equal width from the first arrival on.
#[derive(Clone, Debug)]
pub struct Timeline {
    from: Instant,
    /// In nanoseconds.
    width: u64,
    columns: Vec<Column>,
}

/// The counts of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Column {
    /// Arrivals.
    pub offered: u64,
    /// Requests that started.
    pub admitted: u64,
    /// Requests that were rejected.
    pub rejected: u64,
    /// The waiting time in it in nanoseconds; divided by its width, the mean number waiting.
    pub waited: u64,
}

impl Timeline {
    pub(super) fn new(from: Instant) -> Self {
        Self { from, width: 1_000_000, columns: Vec::new() }
    }

    /// Counts an arrival at `now` that starts at `start` or is rejected.
    pub(super) fn note(&mut self, now: Instant, start: Option<Instant>) {
        self.at(now).offered += 1;
        match start {
            None => self.at(now).rejected += 1,
            Some(start) => {
                self.at(start).admitted += 1;
                self.wait(now, start);
            }
        }
    }

    /// Returns when the first column begins.
    pub(super) const fn from(&self) -> Instant {
        self.from
    }

    /// Returns the width of a column.
    pub fn width(&self) -> Duration {
        Duration::from_nanos(self.width)
    }

    /// Returns the columns from the first arrival on.
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn wait(&mut self, mut now: Instant, start: Instant) {
        while now < start {
            let since = nanos(now.since(self.from));
            let ends = (since / self.width + 1).saturating_mul(self.width);
            let end = self.from + Duration::from_nanos(ends);
            let until = end.min(start);
            self.at(now).waited += nanos(until.since(now));
            now = until;
        }
    }

    fn at(&mut self, now: Instant) -> &mut Column {
        let since = nanos(now.since(self.from));
        while since / self.width >= MOST as u64 {
            self.halve();
        }
        let index = usize::try_from(since / self.width).unwrap_or(MOST);
        if index >= self.columns.len() {
            self.columns.resize(index + 1, Column::default());
        }
        &mut self.columns[index]
    }

    fn halve(&mut self) {
        self.width = self.width.saturating_mul(2);
        let pairs = self.columns.chunks(2);
        self.columns =
            pairs.map(|pair| pair.iter().fold(Column::default(), Column::plus)).collect();
    }
}

impl Column {
    fn plus(self, other: &Self) -> Self {
        Self {
            offered: self.offered + other.offered,
            admitted: self.admitted + other.admitted,
            rejected: self.rejected + other.rejected,
            waited: self.waited.saturating_add(other.waited),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_wait_to_the_end_of_time_ends() {
        let mut timeline = Timeline::new(Instant::EPOCH);
        let late = Instant::FAR_FUTURE - Duration::from_millis(1);
        timeline.note(late, Some(Instant::FAR_FUTURE));
        let all = timeline.columns().iter().fold(Column::default(), Column::plus);
        assert_eq!((all.offered, all.admitted, all.waited), (1, 1, 1_000_000));
    }

    proptest! {
        #[test]
        fn nothing_is_lost_however_long_it_takes(
            arrivals in proptest::collection::vec((0..5_000_000_000_000_u64, proptest::option::of(0..2_000_000_000_u64)), 1..50),
        ) {
            let mut timeline = Timeline::new(Instant::EPOCH);
            for (at, wait) in &arrivals {
                let now = Instant::from_nanos(*at);
                timeline.note(now, wait.map(|wait| now + Duration::from_nanos(wait)));
            }
            let all = timeline.columns().iter().fold(Column::default(), Column::plus);
            let started = arrivals.iter().filter(|(_, wait)| wait.is_some()).count() as u64;
            prop_assert!(timeline.columns().len() <= MOST);
            prop_assert_eq!(all.offered, arrivals.len() as u64);
            prop_assert_eq!((all.admitted, all.rejected), (started, all.offered - started));
            prop_assert_eq!(all.waited, arrivals.iter().filter_map(|(_, wait)| *wait).sum::<u64>());
        }
    }
}
