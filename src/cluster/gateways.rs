//! How many gateways share the store, as far as this one knows.
//!
//! The store counts the gateways that have registered within a lease. A store that has lost its
//! memory counts only the gateways that have come back. If it fails again, the first would use the
//! whole limit, the second half of it: `N + N/2 + N/3 + …`. So when the store does not know this
//! gateway, and with each new connection, the divisor only grows until all gateways could return.

use crate::flow::Instant;
use core::time::Duration;

/// The number of gateways.
#[derive(Debug)]
pub(super) struct Gateways {
    /// The least divisor, as configured.
    least: u32,
    /// The number in the store's latest answer; before the first, the configured one.
    count: u32,
    /// Among how many gateways rules are divided.
    divisor: u32,
    /// How long other gateways may take to return to a store that has forgotten them.
    absence: Duration,
    /// Until when the divisor does not shrink.
    until: Instant,
}

impl Gateways {
    /// Returns the number before the first answer.
    pub(super) fn new(least: u32, absence: Duration) -> Self {
        let least = least.max(1);
        Self { least, count: least, divisor: least, absence, until: Instant::EPOCH }
    }

    /// Takes the number in an answer. `may_forget` if the store may have forgotten other gateways
    /// since the answer before.
    pub(super) fn update(&mut self, gateways: u32, may_forget: bool, now: Instant) {
        self.count = gateways.max(1);
        if may_forget {
            self.until = now + self.absence;
        }
        let most = if now < self.until { self.divisor } else { self.least };
        self.divisor = self.count.max(most);
    }

    /// Returns the number of gateways that the store has seen lately.
    pub(super) const fn count(&self) -> u32 {
        self.count
    }

    /// Returns among how many gateways rules are divided.
    pub(super) const fn divisor(&self) -> u32 {
        self.divisor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABSENCE: Duration = Duration::from_secs(12);

    /// Returns the divisor after each answer of the store: second, number, and whether it did not
    /// know this gateway.
    fn divisors(least: u32, answers: &[(u64, u32, bool)]) -> Vec<u32> {
        let mut gateways = Gateways::new(least, ABSENCE);
        let divisor = |(second, count, is_unknown): &(u64, u32, bool)| {
            let now = Instant::EPOCH + Duration::from_secs(100 + second);
            gateways.update(*count, *is_unknown, now);
            gateways.divisor()
        };
        answers.iter().map(divisor).collect()
    }

    #[test]
    fn a_store_without_memory_divides_as_before_until_all_could_return() {
        let answers = [(0, 3, true), (60, 1, true), (63, 2, false), (71, 2, false), (72, 2, false)];
        assert_eq!(divisors(1, &answers), [3, 3, 3, 3, 2]);
    }

    #[test]
    fn a_store_that_loses_its_memory_again_and_again_is_believed_when_it_has_kept_it() {
        let answers = [(0, 3, true), (60, 1, true), (70, 1, true), (80, 1, true), (92, 1, false)];
        assert_eq!(divisors(1, &answers), [3, 3, 3, 3, 1]);
    }

    #[test]
    fn more_gateways_count_at_once_and_fewer_do_if_the_store_knows_them() {
        let answers = [(0, 1, true), (1, 5, false), (20, 3, false), (21, 4, false)];
        assert_eq!(divisors(1, &answers), [1, 5, 3, 4]);
    }

    #[test]
    fn what_the_file_says_is_the_least_that_divides() {
        assert_eq!(divisors(3, &[(0, 1, true), (50, 1, false), (51, 4, false)]), [3, 3, 4]);
        let mut gateways = Gateways::new(0, ABSENCE);
        assert_eq!((gateways.count(), gateways.divisor()), (1, 1));
        gateways.update(0, false, Instant::EPOCH);
        assert_eq!((gateways.count(), gateways.divisor()), (1, 1));
    }
}
