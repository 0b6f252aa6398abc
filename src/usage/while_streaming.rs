//! Charges of what a response has cost so far, while it passes.
//!
//! A request is charged at once for its first changes. Later a charge waits until an eighth more than
//! was charged before is due, and at last until the end: so a request has few charges, which its log
//! line can hold, and what is not charged yet is a small part of its cost.

/// The charges of a request that wait for nothing.
const AT_ONCE: usize = 16;

/// The most charges of a request while its response passes. From a reserve of 1 on, they reach nine
/// million.
pub const MAX_CHARGES: usize = 128;

/// The part of what was charged that is due before a later charge, as its denominator.
const PART: u64 = 8;

/// Returns whether to charge now for a response that has cost `cost` so far, after `made` charges of
/// `charged` in all, the reserve included.
pub fn is_due(cost: u64, charged: u64, made: usize) -> bool {
    let excess = cost.saturating_sub(charged);
    excess > 0 && made < MAX_CHARGES && (made < AT_ONCE || excess.saturating_mul(PART) >= charged)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the charges of a response that costs one more after the other, up to `most`. Less than an
    /// eighth of its cost is ever not charged.
    fn charge(reserve: u64, most: u64) -> Vec<u64> {
        let mut totals = vec![];
        let mut charged = reserve;
        for cost in 1..=most {
            if is_due(cost, charged, totals.len()) {
                charged = cost;
                totals.push(cost);
            }
            assert!(cost.saturating_sub(charged) * 8 < cost, "{charged} of {cost}");
        }
        totals
    }

    #[test]
    fn the_first_charges_wait_for_nothing() {
        assert_eq!(charge(1, 17), (2..=17).collect::<Vec<u64>>());
        assert_eq!(charge(20, 21), [21]);
        assert_eq!(charge(20, 20), [0; 0]);
    }

    #[test]
    fn later_ones_leave_less_than_an_eighth_of_the_cost_uncharged() {
        let totals = charge(1, 100_000);
        assert_eq!(
            totals[..20],
            [2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 20, 23, 26, 30]
        );
        assert!(totals.len() < MAX_CHARGES, "{}", totals.len());
    }

    #[test]
    fn a_request_has_so_many_charges_and_no_more() {
        let mut charged = 1_u64;
        let mut made = 0;
        while is_due(charged + charged.div_ceil(8).max(1), charged, made) {
            charged += charged.div_ceil(8).max(1);
            made += 1;
        }
        assert_eq!(made, MAX_CHARGES);
        assert!(charged > 9_000_000, "{charged}");
        assert!(!is_due(u64::MAX, charged, made), "the rest waits for the end");
    }
}
