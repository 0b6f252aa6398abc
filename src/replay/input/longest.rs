//! The bound of a line.

/// The longest line in bytes; longer ones are skipped.
pub(super) const LONGEST: u64 = 1024 * 1024;
