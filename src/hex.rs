//! Hexadecimal digits.

/// Returns the 32 digits of `number`, in lower case.
// Each request has some: by itself, the loop becomes 40 vector instructions.
#[inline(never)]
pub(crate) fn digits_of_128(number: u128) -> [u8; 32] {
    let mut text = [0; 32];
    for (byte, pair) in number.to_be_bytes().iter().zip(text.chunks_exact_mut(2)) {
        pair.copy_from_slice(&[digit(byte >> 4), digit(byte & 15)]);
    }
    text
}

/// Returns the 16 digits of `number`, in lower case.
pub(crate) fn digits(number: u64) -> [u8; 16] {
    let [.., text] = *digits_of_128(number.into()).as_chunks().0 else { return [b'0'; 16] };
    text
}

const fn digit(number: u8) -> u8 {
    number + b'0' + if number > 9 { b'a' - b'0' - 10 } else { 0 }
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
