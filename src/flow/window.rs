//! A ring of buckets in which windows are counted.
//!
//! A window `W` has `b` buckets; the instant `t` is in bucket `floor(t·b / W)`, so buckets align
//! with the clock. A ring keeps the latest of them. This is Sentinel's `LeapArray`, but a read
//! resets no expired bucket: only writes move the ring.

use super::{rate::Interval, time::Instant};
use core::{iter, num::NonZeroU64};

/// Time in buckets of one interval each, which need not be whole nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Grid {
    length: Interval,
}

/// The counts of the latest buckets.
#[derive(Clone, Debug)]
pub(super) struct Ring<T> {
    /// The index of the latest bucket written.
    head: u64,
    /// Its position in `cells`; older ones precede it, cyclically.
    at: u32,
    cells: Box<[T]>,
}

impl Grid {
    /// Divides every `window` nanoseconds into `buckets`.
    pub(super) const fn new(window: NonZeroU64, buckets: NonZeroU64) -> Self {
        Self { length: Interval::new(window, buckets) }
    }

    pub(super) fn index(self, now: Instant) -> u64 {
        self.length.whole(now)
    }

    /// Returns the first instant of bucket `index`.
    pub(super) fn start(self, index: u64) -> Instant {
        self.length.instant(self.length.times(index))
    }
}

impl<T: Copy + Default> Ring<T> {
    /// Returns an empty ring of `len` buckets, at least one.
    pub(super) fn new(len: u32) -> Self {
        Self { head: 0, at: 0, cells: vec![T::default(); len.max(1) as usize].into() }
    }

    pub(super) fn clear(&mut self) {
        self.cells.fill(T::default());
        self.head = 0;
        self.at = 0;
    }

    /// Returns the index of the latest bucket written.
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// Returns how many buckets it keeps.
    pub(super) fn span(&self) -> u64 {
        self.cells.len() as u64
    }

    /// Returns the bucket `index` for writing; the latest bucket stands for an older `index`.
    pub(super) fn advance(&mut self, index: u64) -> &mut T {
        let steps = index.saturating_sub(self.head);
        if steps >= self.span() {
            self.cells.fill(T::default());
        } else {
            for _ in 0..steps {
                self.at = self.after(self.at);
                self.cells[self.at as usize] = T::default();
            }
        }
        self.head = self.head.max(index);
        &mut self.cells[self.at as usize]
    }

    /// Returns the bucket `index`, or an empty one if it is not kept.
    pub(super) fn get(&self, index: u64) -> T {
        self.position(index).map_or_else(T::default, |at| self.cells[at])
    }

    /// Returns the bucket `index` for writing if it is kept and not later than the latest.
    pub(super) fn get_mut(&mut self, index: u64) -> Option<&mut T> {
        self.position(index).map(|at| &mut self.cells[at])
    }

    fn position(&self, index: u64) -> Option<usize> {
        let age = self.head.checked_sub(index).filter(|age| *age < self.span())?;
        let age = usize::try_from(age).ok()?;
        let at = self.at as usize;
        Some(if age <= at { at - age } else { at + self.cells.len() - age })
    }

    /// Returns the buckets that still count when `index` is current, oldest first, each with its
    /// index.
    pub(super) fn live(&self, index: u64) -> impl Iterator<Item = (u64, &T)> {
        let span = self.span();
        let forgotten = index.saturating_sub(self.head).min(span);
        // The oldest follows the latest.
        let mut at = self.at;
        let mut age = span;
        for _ in 0..=forgotten {
            at = self.after(at);
        }
        age -= forgotten;
        iter::from_fn(move || {
            age = age.checked_sub(1)?;
            let cell = &self.cells[at as usize];
            at = self.after(at);
            Some((age, cell))
        })
        .filter_map(|(age, cell)| Some((self.head.checked_sub(age)?, cell)))
    }

    fn after(&self, at: u32) -> u32 {
        if at as usize + 1 == self.cells.len() { 0 } else { at + 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    fn sums(ring: &Ring<u32>, index: u64) -> Vec<(u64, u32)> {
        ring.live(index).map(|(index, count)| (index, *count)).filter(|(_, n)| *n > 0).collect()
    }

    #[test]
    fn buckets_live_as_long_as_the_ring_remembers_them() {
        let mut ring = Ring::new(3);
        for (index, count) in [(7, 1), (8, 2), (9, 3), (9, 4)] {
            *ring.advance(index) += count;
        }
        assert_eq!(sums(&ring, 9), [(7, 1), (8, 2), (9, 7)]);
        assert_eq!(sums(&ring, 10), [(8, 2), (9, 7)]);
        assert_eq!(sums(&ring, 11), [(9, 7)]);
        assert_eq!(sums(&ring, 12), []);
        assert_eq!(sums(&ring, u64::MAX), []);
        *ring.advance(11) += 5;
        assert_eq!(sums(&ring, 11), [(9, 7), (11, 5)]);
        *ring.advance(90) += 6;
        assert_eq!(sums(&ring, 90), [(90, 6)]);
    }

    #[test]
    fn a_bucket_begins_with_the_first_instant_that_falls_in_it() {
        for (window, buckets) in [(1_000, 10), (1_000, 7), (10, 3), (60_000_000_000, 60)] {
            let grid =
                Grid::new(NonZeroU64::new(window).unwrap(), NonZeroU64::new(buckets).unwrap());
            for index in [0, 1, 2, 3, 7, 99] {
                let start = grid.start(index);
                assert_eq!(grid.index(start), index, "{grid:?}");
                if index > 0 {
                    assert_eq!(grid.index(start - Duration::from_nanos(1)), index - 1, "{grid:?}");
                }
            }
            let late = Instant::from_nanos(u64::MAX - 5);
            assert!(grid.start(grid.index(late)) <= late);
        }
    }
}
