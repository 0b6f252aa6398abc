//! Shares, as the command line takes them and the suggestion shows them.

use core::fmt;
use std::str::FromStr;

/// A share, as in `0.1%`.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Percent(f64);

impl Percent {
    /// Returns `part` of `whole`; nothing of nothing is nothing.
    pub fn of(part: u64, whole: u64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a share is shown to a few digits")]
        let share = if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        Self(share)
    }

    /// Returns the part of a whole that is 1.
    pub const fn share(self) -> f64 {
        self.0
    }
}

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "write a percentage, as in `0.1%`".to_owned();
        let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
        let number: f64 = number.trim().parse().map_err(|_| wrong())?;
        let is_share = number.is_finite() && (0.0..=1000.0).contains(&number);
        if is_share { Ok(Self(number / 100.0)) } else { Err(wrong()) }
    }
}

/// Writes `12.3 %`, and more digits of small shares.
impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        match percent {
            0.0 => f.write_str("0 %"),
            0.0..0.01 => write!(f, "{percent:.4} %"),
            0.01..1.0 => write!(f, "{percent:.3} %"),
            _ => write!(f, "{percent:.1} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_and_shown() {
        for (text, shown) in [("0.1%", "0.100 %"), ("50 %", "50.0 %"), ("0%", "0 %")] {
            assert_eq!(text.parse::<Percent>().unwrap().to_string(), shown);
        }
        for text in ["", "1", "x%", "-1%", "1001%", "NaN%", "inf%"] {
            assert!(text.parse::<Percent>().is_err(), "{text}");
        }
        assert_eq!(Percent::of(1, 30_000).to_string(), "0.0033 %");
        assert_eq!(Percent::of(0, 0).to_string(), "0 %");
    }
}
