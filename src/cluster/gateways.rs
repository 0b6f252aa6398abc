//! How many gateways share the store, as far as this one knows.
//!
//! The store counts who has greeted it within a lease. One that has lost its memory counts those
//! that have come back, so that the first would have a limit for itself and the second half of it:
//! `N + N/2 + N/3 + …` if it fails again. A store that does not know a gateway that comes back may
//! not know others, either. From then on, until all have had the time to return, the number that
//! divides only grows. Nor does it know what came after the moment that it was restored to: so it
//! is with each new connection.

use crate::flow::Instant;
use core::time::Duration;

/// The number of gateways.
#[derive(Debug)]
pub(super) struct Gateways {
    /// What the file says: the least that divides.
    least: u32,
    /// What the store told last; until then, what the file says.
    told: u32,
    /// Among how many gateways rules are divided.
    divisor: u32,
    /// How long others may take to return to a store that has forgotten them.
    absence: Duration,
    /// Until when the divisor does not shrink.
    until: Instant,
}

impl Gateways {
    /// Returns what is known before the store has told.
    pub(super) fn new(least: u32, absence: Duration) -> Self {
        let least = least.max(1);
        Self { least, told: least, divisor: least, absence, until: Instant::EPOCH }
    }

    /// Takes what the store told, and whether it may have forgotten others since it told the last
    /// time.
    pub(super) fn on_told(&mut self, gateways: u32, may_forget: bool, now: Instant) {
        self.told = gateways.max(1);
        if may_forget {
            self.until = now + self.absence;
        }
        let most = if now < self.until { self.divisor } else { self.least };
        self.divisor = self.told.max(most);
    }

    /// Returns what the store told last.
    pub(super) const fn told(&self) -> u32 {
        self.told
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

    /// Has the store tell numbers, each in its second; `true` if it did not know this gateway.
    /// Returns the divisor after each.
    fn divisors(least: u32, told: &[(u64, u32, bool)]) -> Vec<u32> {
        let mut gateways = Gateways::new(least, ABSENCE);
        let divisor = |(second, count, is_unknown): &(u64, u32, bool)| {
            let now = Instant::EPOCH + Duration::from_secs(100 + second);
            gateways.on_told(*count, *is_unknown, now);
            gateways.divisor()
        };
        told.iter().map(divisor).collect()
    }

    #[test]
    fn who_comes_back_to_a_store_without_memory_divides_as_before_until_all_could_return() {
        let told = [(0, 3, true), (60, 1, true), (63, 2, false), (71, 2, false), (72, 2, false)];
        assert_eq!(divisors(1, &told), [3, 3, 3, 3, 2]);
    }

    #[test]
    fn a_store_that_loses_its_memory_again_and_again_is_believed_when_it_has_kept_it() {
        let told = [(0, 3, true), (60, 1, true), (70, 1, true), (80, 1, true), (92, 1, false)];
        assert_eq!(divisors(1, &told), [3, 3, 3, 3, 1]);
    }

    #[test]
    fn more_gateways_count_at_once_and_fewer_do_if_the_store_knows_them() {
        let told = [(0, 1, true), (1, 5, false), (20, 3, false), (21, 4, false)];
        assert_eq!(divisors(1, &told), [1, 5, 3, 4]);
    }

    #[test]
    fn what_the_file_says_is_the_least_that_divides() {
        assert_eq!(divisors(3, &[(0, 1, true), (50, 1, false), (51, 4, false)]), [3, 3, 4]);
        let mut gateways = Gateways::new(0, ABSENCE);
        assert_eq!((gateways.told(), gateways.divisor()), (1, 1));
        gateways.on_told(0, false, Instant::EPOCH);
        assert_eq!((gateways.told(), gateways.divisor()), (1, 1));
    }
}
