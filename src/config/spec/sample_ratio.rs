//! How many of the traces are sampled.

use super::values::{InvalidValue, invalid};
use crate::config::diagnostics::quoted;
use std::fmt;

/// A share of all traces, by their ids: a gateway that samples less samples a part of those.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleRatio {
    /// In millionths.
    millionths: u32,
}

impl SampleRatio {
    /// Reads percent with up to four decimals, up to 100.
    pub(in crate::config) fn parse(text: &str) -> Result<Self, InvalidValue> {
        let number = text.strip_suffix('%').map(str::trim);
        let parts = number.map(|number| number.split_once('.').unwrap_or((number, "0")));
        let is_number =
            |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let millionths = parts.and_then(|(whole, decimals)| {
            let fits = is_number(whole) && is_number(decimals) && decimals.len() <= 4;
            let whole = whole.parse::<u32>().ok().filter(|whole| fits && *whole <= 100)?;
            Some(whole * 10_000 + format!("{decimals:0<4}").parse::<u32>().ok()?)
        });
        match millionths.filter(|millionths| *millionths <= 1_000_000) {
            Some(millionths) => Ok(Self { millionths }),
            None => invalid(
                format!("{} is not a percentage", quoted(text)),
                "write a number from 0 to 100 with up to four decimals and `%`, as in `0.5%`",
            ),
        }
    }

    /// Whether a trace is sampled. The last 56 bits of an id are random (W3C Trace Context, level 2).
    pub const fn includes(self, trace_id: u128) -> bool {
        let random = trace_id & ((1 << 56) - 1);
        // The threshold of OpenTelemetry's consistent sampling: those above it are sampled.
        let rejected = (1_000_000 - self.millionths) as u128;
        random * 1_000_000 >= rejected << 56
    }
}

impl fmt::Display for SampleRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.millionths) / 10_000.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_of_the_traces_is_sampled() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut sampled = [0; 5];
        let ratios =
            [0, 1_000, 10_000, 500_000, 1_000_000].map(|millionths| SampleRatio { millionths });
        for _ in 0..100_000 {
            let id = random.u128(..);
            let included = ratios.map(|ratio| ratio.includes(id));
            assert!(included.is_sorted(), "a larger share has all of a smaller one");
            for (count, is_included) in sampled.iter_mut().zip(included) {
                *count += u32::from(is_included);
            }
        }
        assert_eq!((sampled[0], sampled[4]), (0, 100_000));
        assert!((60..150).contains(&sampled[1]), "{sampled:?}");
        assert!((900..1_100).contains(&sampled[2]), "{sampled:?}");
        assert!((49_000..51_000).contains(&sampled[3]), "{sampled:?}");
        for id in [0, 1, u128::MAX, 1 << 56, (1 << 56) - 1] {
            assert!(!ratios[0].includes(id) && ratios[4].includes(id), "{id:x}");
        }
    }

    #[test]
    fn a_share_is_shown_in_percent() {
        for (text, shown) in [
            ("0.0001%", "0.0001%"),
            ("0.1%", "0.1%"),
            ("1.0000 %", "1%"),
            ("12.50%", "12.5%"),
            ("100%", "100%"),
            ("0%", "0%"),
        ] {
            assert_eq!(SampleRatio::parse(text).unwrap().to_string(), shown);
        }
        for text in
            ["", "%", "1", "0.01", "-1%", "+1%", "1.%", ".5%", "0.00001%", "101%", "100.1%", "1e1%"]
        {
            let invalid = SampleRatio::parse(text).unwrap_err();
            assert!(invalid.message.contains("is not a percentage"), "{text}");
        }
    }
}
