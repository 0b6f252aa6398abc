//! Exact decimal numbers: times are whole nanoseconds and never floats.

use core::fmt;

/// More digits change nothing in 64 bits.
const MOST_DIGITS: usize = 36;

/// Returns a JSON number times `10^shift`, rounded; `None` if it is invalid, negative or too large.
pub(super) fn scaled(text: &str, shift: i32) -> Option<u64> {
    plain(text, shift).or_else(|| general(text, shift))
}

/// Reads digits with or without a point, the usual case; `None` for anything else.
fn plain(text: &str, shift: i32) -> Option<u64> {
    /// This many digits always fit.
    const MOST: usize = 18;
    if text.len() > MOST || text.starts_with('.') {
        return None;
    }
    let mut number = 0_u64;
    let mut point = None;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => number = number * 10 + u64::from(byte - b'0'),
            b'.' if point.is_none() => point = Some(at + 1),
            _ => return None,
        }
    }
    let places = point.map_or(0, |at| text.len() - at);
    if text.is_empty() || point == Some(text.len()) {
        return None;
    }
    let power = u32::try_from(shift).ok()?.checked_sub(u32::try_from(places).ok()?)?;
    number.checked_mul(10_u64.checked_pow(power)?)
}

fn general(text: &str, shift: i32) -> Option<u64> {
    let (mantissa, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], text[at + 1..].parse::<i32>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    if whole.is_empty() || fraction.is_empty() {
        return None;
    }
    let mut digits: u128 = 0;
    let mut count = 0;
    // The position of the last digit behind the point.
    let mut places: i32 = 0;
    for (at, byte) in whole.bytes().chain(fraction.bytes()).enumerate() {
        if !byte.is_ascii_digit() {
            return None;
        }
        if count < MOST_DIGITS {
            digits = digits * 10 + u128::from(byte - b'0');
            count += usize::from(digits > 0);
            places = i32::try_from(at + 1).ok()?.checked_sub(i32::try_from(whole.len()).ok()?)?;
        }
    }
    if digits == 0 {
        return Some(0);
    }
    let power = shift.checked_add(exponent)?.checked_sub(places)?;
    let ten = |power: u32| 10_u128.checked_pow(power);
    let value = match u32::try_from(power) {
        Ok(power) => digits.checked_mul(ten(power)?)?,
        Err(_) => match ten(power.unsigned_abs()) {
            Some(divisor) => (digits + divisor / 2) / divisor,
            None => 0,
        },
    };
    u64::try_from(value).ok()
}

/// Nanoseconds, shown exactly as milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Millis(pub u64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = self.0 / 1_000_000;
        let mut fraction = self.0 % 1_000_000;
        let mut width = 6;
        while width > 1 && fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        write!(f, "{whole}.{fraction:0width$}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn milliseconds_become_nanoseconds_without_rounding() {
        for (text, expected) in [
            ("0", Some(0)),
            ("12.5", Some(12_500_000)),
            ("0.000333", Some(333)),
            ("0.000001", Some(1)),
            ("1e-6", Some(1)),
            ("3.33E2", Some(333_000_000)),
            ("2678400000.000001", Some(2_678_400_000_000_001)),
            ("12.300000000000001", Some(12_300_000)),
            ("0.0000005", Some(1)),
            ("0.0000004", Some(0)),
            ("0.00000000000000000000000000000000000000000000000000000001", Some(0)),
            ("18446744073709.551615", Some(u64::MAX)),
            ("18446744073709.551616", None),
            ("1e400", None),
            ("0e400", Some(0)),
            ("1e-400", Some(0)),
            ("-1", None),
            ("", None),
            (".5", None),
            ("5.", None),
            ("1.2.3", None),
            ("0x10", None),
            ("NaN", None),
        ] {
            assert_eq!(scaled(text, 6), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(nanos: u64) {
            prop_assert_eq!(scaled(&Millis(nanos).to_string(), 6), Some(nanos));
        }

        #[test]
        fn the_short_way_comes_to_the_same(text in r"[0-9]{0,12}\.?[0-9.e-]{0,12}", shift in -3..12) {
            prop_assert!(plain(&text, shift).is_none_or(|number| general(&text, shift) == Some(number)));
        }

        #[test]
        fn no_text_panics(text in ".*", shift in -20..20) {
            let _ = scaled(&text, shift);
        }
    }

    #[test]
    fn a_decimal_is_always_written() {
        for (nanos, expected) in [(0, "0.0"), (12_500_000, "12.5"), (333, "0.000333")] {
            assert_eq!(Millis(nanos).to_string(), expected);
        }
    }
}
