//! A gate's state for another process, which takes over.
//!
//! The rules are exported with their numbers, and each state as a list of integers. The other
//! process installs the same rules, imports the states, and installs its own rules: what differs is
//! converted as by an edit.
//!
//! Requests go on while states are exported, a few at a time. A [`Journal`] sends every change
//! to a state that was exported already, so that no charge is lost or counted twice. It goes on
//! until the old process ends, for what its last requests change.

mod journal;
mod part;
mod rule;

pub use journal::{Journal, JournalReader, Late, LateChange};
pub use part::{StateOwner, StatePart};
pub use rule::{ExportedRule, GateExport};

pub(super) use part::Exporting;

pub(super) use super::traits::Transfer;

/// The version of the states' numbers and of the rules' form. An algorithm whose state changes its
/// form changes this number; states of another number are not imported.
pub const FORM: u32 = 1;

/// Returns a wide number in halves, the high one first.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
pub(super) const fn halves(wide: u128) -> [u64; 2] {
    [(wide >> 64) as u64, wide as u64]
}

/// Inverts [`halves`]. `None` above a bound that no state reaches, so that sums do not overflow.
pub(super) fn whole([high, low]: [u64; 2]) -> Option<u128> {
    let wide = u128::from(high) << 64 | u128::from(low);
    (wide < 1 << 120).then_some(wide)
}
