//! Loans from coming windows, by start.
//!
//! Loans are kept by start and not by bucket, so that an edit of the buckets changes none.

use super::algorithm::allocated;
use crate::flow::time::Instant;
use core::time::Duration;

/// Loans in the order of starts. One word, as few clients borrow.
#[expect(clippy::box_collection, reason = "a word in every state, of which few lend")]
#[derive(Clone, Debug, Default)]
pub(in crate::flow) struct Loans(Option<Box<Vec<Loan>>>);

/// The cost that starts at one instant.
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
        let at = loans.partition_point(|loan| loan.start < start);
        match loans.get_mut(at).filter(|loan| loan.start == start) {
            Some(loan) => loan.count = loan.count.saturating_add(count),
            None => loans.insert(at, Loan { start, count }),
        }
    }

    /// Removes the loans started by `now`, and passes them to `each` in order.
    pub(in crate::flow) fn settle(&mut self, now: Instant, mut each: impl FnMut(Loan)) {
        if let Some(loans) = &mut self.0 {
            let due = loans.partition_point(|loan| loan.start <= now);
            loans.drain(..due).for_each(&mut each);
            if loans.is_empty() {
                self.0 = None;
            }
        }
    }

    /// Moves all loans for a clock that stepped `back` or `ahead`.
    pub(in crate::flow) fn shift(&mut self, back: Duration, ahead: Duration) {
        for loan in self.0.iter_mut().flat_map(|loans| loans.iter_mut()) {
            loan.start = loan.start + ahead - back;
        }
    }

    /// Returns each loan's start and count, for [`Self::of_numbers`].
    pub(in crate::flow) fn numbers(&self) -> impl Iterator<Item = u64> {
        self.as_slice().iter().flat_map(|loan| [loan.start.as_nanos(), loan.count])
    }

    /// Inverts [`Self::numbers`].
    pub(in crate::flow) fn of_numbers(numbers: &[u64]) -> Option<Self> {
        let (loans, []) = numbers.as_chunks::<2>() else { return None };
        let mut read = Self::default();
        for &[start, count] in loans {
            read.add(Instant::from_nanos(start), count);
        }
        Some(read)
    }

    /// Returns the loans started by `now`, and the others.
    pub(in crate::flow) fn split(&self, now: Instant) -> (&[Loan], &[Loan]) {
        let loans = self.as_slice();
        loans.split_at(loans.partition_point(|loan| loan.start <= now))
    }

    /// Returns the most bytes of this many loans: memory grows by doubling.
    pub(in crate::flow) const fn bytes(most: usize) -> usize {
        let room = if most < 4 { 4 } else { most.next_power_of_two() };
        allocated(size_of::<Vec<Loan>>()) + allocated(room * size_of::<Loan>())
    }
}
