//! The real size of allocations.

/// Returns how many bytes the allocator takes for a request: mimalloc's sizes are multiples of 16,
/// and above 128 a quarter of the lower power of two apart.
pub(in crate::flow) const fn allocated(bytes: usize) -> usize {
    let step = match bytes.checked_next_power_of_two() {
        Some(above) if above > 128 => above / 8,
        Some(_) => 16,
        None => return bytes,
    };
    bytes.div_ceil(step).saturating_mul(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_as_much_as_was_asked_for_or_up_to_a_quarter_more() {
        for (asked, given) in [
            (0, 0),
            (1, 16),
            (24, 32),
            (80, 80),
            (88, 96),
            (128, 128),
            (129, 160),
            (480, 512),
            (512, 512),
            (513, 640),
            (1_600, 1_792),
            (usize::MAX, usize::MAX),
        ] {
            assert_eq!(allocated(asked), given, "{asked}");
        }
    }
}
