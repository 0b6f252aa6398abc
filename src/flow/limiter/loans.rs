//! What was lent of time to come, by when it starts.
//!
//! A window's loans are remembered by their own starts and not by its buckets, so that an
//! edit, which cuts time otherwise, moves none of them and forgets none.

use super::allocated::allocated;
use crate::flow::time::Instant;
use core::time::Duration;

/// What was lent, in the order of starts. A word in size, as few clients borrow.
#[expect(clippy::box_collection, reason = "a word in every state, of which few lend")]
#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct Loans(Option<Box<Vec<Loan>>>);

/// What starts at one instant.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Loan {
    pub(in crate::flow) start: Instant,
    pub(in crate::flow) count: u64,
}

impl Loans {
    pub(in crate::flow) fn as_slice(&self) -> &[Loan] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }

    #[inline]
    pub(in crate::flow) fn is_empty(&self) -> bool {
        self.as_slice().is_empty()
    }

    pub(in crate::flow) fn add(&mut self, start: Instant, count: u64) {
        let loans = self.0.get_or_insert_default();
        let at = loans.partition_point(|it| it.start < start);
        match loans.get_mut(at).filter(|it| it.start == start) {
            Some(it) => it.count = it.count.saturating_add(count),
            None => loans.insert(at, Loan { start, count }),
        }
    }

    /// Takes out what has started by `now`, and gives it to `each` in the order of starts.
    pub(in crate::flow) fn settle(&mut self, now: Instant, mut each: impl FnMut(Loan)) {
        if let Some(loans) = &mut self.0 {
            let due = loans.partition_point(|it| it.start <= now);
            loans.drain(..due).for_each(&mut each);
            if loans.is_empty() {
                self.0 = None;
            }
        }
    }

    /// Moves all of them on a clock that was stepped `back` or `ahead`.
    pub(in crate::flow) fn shift(&mut self, back: Duration, ahead: Duration) {
        for loan in self.0.iter_mut().flat_map(|loans| loans.iter_mut()) {
            loan.start = loan.start + ahead - back;
        }
    }

    /// Returns those that have started by `now`, and the others.
    pub(in crate::flow) fn split(&self, now: Instant) -> (&[Loan], &[Loan]) {
        let loans = self.as_slice();
        loans.split_at(loans.partition_point(|it| it.start <= now))
    }

    /// Returns the memory that so many loans take at most, in bytes: room grows by doubling.
    pub(in crate::flow) const fn bytes(most: usize) -> usize {
        let room = if most < 4 { 4 } else { most.next_power_of_two() };
        allocated(size_of::<Vec<Loan>>()) + allocated(room * size_of::<Loan>())
    }
}
