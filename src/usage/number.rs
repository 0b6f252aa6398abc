//! The numbers of JSON as exact amounts, and the weights that multiply them.

use super::MAX_COST;
use core::fmt;

/// Parts of one in an [`Amount`].
const PARTS: u128 = 1_000_000_000_000;

/// Digits of a fraction in an [`Amount`]: [`PARTS`] is ten to this power.
const PLACES: i32 = 12;

/// Amounts are cut to this: no settlement is larger, and the sum of all weighted amounts fits.
const MAX_AMOUNT: u128 = MAX_COST as u128 * PARTS;

/// A number that is not negative, in parts of 10⁻¹².
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Amount(u128);

impl Amount {
    /// Returns a whole number as an amount, at most [`MAX_COST`].
    pub fn whole(number: u64) -> Self {
        Self(u128::from(number).saturating_mul(PARTS).min(MAX_AMOUNT))
    }

    /// Reads a number as JSON writes it. Digits beyond 10⁻¹² round up, and a number above [`MAX_COST`] is
    /// cut to it. `None` if it is negative.
    pub fn read(text: &str) -> Option<Self> {
        let mut number = Number::new();
        let (digits, exponent) = text.split_once(['e', 'E']).unwrap_or((text, ""));
        let mut is_fraction = false;
        for byte in digits.bytes() {
            match byte {
                b'-' => number.negate(),
                b'.' => is_fraction = true,
                b'0'..=b'9' => number.digit(byte, is_fraction),
                _ => return None,
            }
        }

        for byte in exponent.bytes() {
            match byte {
                b'-' => number.negate_exponent(),
                b'+' => {}
                b'0'..=b'9' => number.exponent_digit(byte),
                _ => return None,
            }
        }
        number.amount()
    }
}

/// The factor of a number, in thousandths. A negative one is a discount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(i64);

impl Weight {
    /// The weight with which a number counts as it is.
    pub const ONE: Self = Self(1000);

    /// The largest weight, 1,000,000, with which all sums of amounts fit.
    pub const MAX: Self = Self(1_000_000_000);

    /// Returns the weight of so many thousandths, cut to ± [`MAX`](Self::MAX).
    pub fn thousandths(thousandths: i64) -> Self {
        Self(thousandths.clamp(-Self::MAX.0, Self::MAX.0))
    }

    /// Returns the weight in thousandths.
    pub const fn in_thousandths(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Weight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.0 < 0 { "-" } else { "" };
        let thousandths = self.0.unsigned_abs();
        write!(f, "{sign}{}", thousandths / 1000)?;
        match thousandths % 1000 {
            0 => Ok(()),
            rest => write!(f, ".{}", format!("{rest:03}").trim_end_matches('0')),
        }
    }
}

/// Returns the sum of weighted amounts, rounded up once: at least 0 and at most [`MAX_COST`].
pub fn weighted_sum(terms: impl Iterator<Item = (Amount, Weight)>) -> u64 {
    let sum = terms.fold(0_i128, |sum, (amount, weight)| {
        let amount = i128::try_from(amount.0).unwrap_or(i128::MAX);
        sum.saturating_add(amount.saturating_mul(i128::from(weight.0)))
    });
    let sum = u128::try_from(sum).unwrap_or(0).div_ceil(PARTS * 1000);
    u64::try_from(sum).unwrap_or(u64::MAX).min(MAX_COST)
}

/// The mantissa takes no more digits once it has reached this: ten times it fits.
const FULL_MANTISSA: u128 = 1_000_000_000_000_000_000_000_000_000_000;

/// Exponents are cut to this; every number so large or small is cut anyway.
const MAX_EXPONENT: i32 = 1_000_000;

/// A number of JSON, whose characters come one by one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Number {
    is_negative: bool,
    /// The digits, as far as they fit.
    mantissa: u128,
    /// The power of ten of the mantissa's last digit.
    scale: i32,
    /// True if digits other than zero did not fit.
    is_cut: bool,
    exponent: i32,
    has_negative_exponent: bool,
}

impl Number {
    pub(super) const fn new() -> Self {
        Self {
            is_negative: false,
            mantissa: 0,
            scale: 0,
            is_cut: false,
            exponent: 0,
            has_negative_exponent: false,
        }
    }

    pub(super) const fn negate(&mut self) {
        self.is_negative = true;
    }

    pub(super) fn digit(&mut self, digit: u8, is_fraction: bool) {
        let digit = u128::from(digit - b'0');
        if self.mantissa < FULL_MANTISSA {
            self.mantissa = self.mantissa * 10 + digit;
            if is_fraction {
                self.scale = self.scale.saturating_sub(1);
            }
        } else {
            self.is_cut |= digit != 0;
            if !is_fraction {
                self.scale = self.scale.saturating_add(1);
            }
        }
    }

    pub(super) const fn negate_exponent(&mut self) {
        self.has_negative_exponent = true;
    }

    pub(super) fn exponent_digit(&mut self, digit: u8) {
        let exponent = self.exponent.saturating_mul(10).saturating_add(i32::from(digit - b'0'));
        self.exponent = exponent.min(MAX_EXPONENT);
    }

    /// Returns its amount: digits beyond 10⁻¹² round up, and a number above [`MAX_COST`] is cut to
    /// it. `None` if it is negative.
    pub(super) fn amount(&self) -> Option<Amount> {
        if self.mantissa == 0 {
            return Some(Amount(0));
        }
        if self.is_negative {
            return None;
        }

        let exponent = if self.has_negative_exponent { -self.exponent } else { self.exponent };
        let scale = self.scale.saturating_add(exponent).saturating_add(PLACES);
        let power = 10_u128.checked_pow(scale.unsigned_abs());
        let parts = if scale >= 0 {
            // What does not fit is above the bound.
            let parts = power.and_then(|power| self.mantissa.checked_mul(power));
            parts.unwrap_or(MAX_AMOUNT).saturating_add(u128::from(self.is_cut))
        } else {
            // Of a power that does not fit, less than one part is left.
            power.map_or(1, |power| {
                let is_exact = self.mantissa.is_multiple_of(power);
                (self.mantissa / power).saturating_add(u128::from(!is_exact || self.is_cut))
            })
        };
        Some(Amount(parts.min(MAX_AMOUNT)))
    }
}
