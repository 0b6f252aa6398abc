//! Hexadecimal digits, made at once as the bytes of a number: each request has some.

/// Returns the 16 digits of `number`, in lower case.
pub(crate) fn digits(number: u64) -> [u8; 16] {
    let mut text = [0; 16];
    let (first, last) = text.split_at_mut(8);
    first.copy_from_slice(&eight(number >> 32).to_be_bytes());
    last.copy_from_slice(&eight(number & 0xffff_ffff).to_be_bytes());
    text
}

/// Returns the 32 digits of `number`, in lower case.
#[expect(clippy::cast_possible_truncation, reason = "the halves of the number")]
pub(crate) fn digits_of_128(number: u128) -> [u8; 32] {
    let mut text = [0; 32];
    let (first, last) = text.split_at_mut(16);
    first.copy_from_slice(&digits((number >> 64) as u64));
    last.copy_from_slice(&digits(number as u64));
    text
}

/// Returns the eight digits of a number of 32 bits, the first in the highest byte.
const fn eight(number: u64) -> u64 {
    const EACH: u64 = 0x0101_0101_0101_0101;
    let pairs = (number | number << 16) & 0x0000_ffff_0000_ffff;
    let bytes = (pairs | pairs << 8) & 0x00ff_00ff_00ff_00ff;
    let digits = (bytes | bytes << 4) & (0x0f * EACH);
    // 10 to 15 are letters: they have bit 4 once 6 is added.
    let letters = (digits + 0x06 * EACH) >> 4 & EACH;
    digits + 0x30 * EACH + letters * 0x27
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn they_are_what_the_standard_library_writes(number: u64, long: u128) {
            prop_assert_eq!(digits(number).to_vec(), format!("{number:016x}").into_bytes());
            prop_assert_eq!(digits_of_128(long).to_vec(), format!("{long:032x}").into_bytes());
        }
    }
}
