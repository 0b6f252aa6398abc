//! From peaks to a limit.
//!
//! A limit is useful where it lies between clients: above all that behave alike, below those that
//! stand out. A client stands out if its peak is at least three times that of the next lower one,
//! and at most one in fifty do. Where none does, the limit lies above all of them.
//!
//! Shares, as the command line takes them and the suggestion shows them.

use super::traffic::{Peak, Peaks};
use core::{fmt, time::Duration};
use std::str::FromStr;

/// The factor to the next lower peak from which a peak stands out.
const APART: u64 = 3;

/// One client in this many may stand out.
const ONE_IN: usize = 50;

/// Of fewer clients none stands out.
const LEAST_KEYS: usize = 10;

/// A lower peak stands out from nobody.
const LEAST_PEAK: u64 = 10;

/// The margin where none is asked for.
pub(super) const MARGIN: f64 = 0.5;

/// The most by which a difference between the log's halves raises a limit.
const MOST_DRIFT: f64 = 4.0;

/// A limit for each key of a route.
#[derive(Clone, Debug)]
pub(super) struct Proposal {
    pub window: Duration,
    pub limit: u64,
    pub basis: Basis,
}

/// The reason for this limit.
#[derive(Clone, Debug)]
pub(super) enum Basis {
    /// Between the clients that stand out and all others, whose highest peak this is.
    Apart { highest: u64, outliers: Vec<Peak>, factor: f64 },
    /// Above the highest peak.
    Highest { highest: u64, factor: f64 },
    /// The lowest that rejects no more.
    Target(Percent),
}

/// Returns the limit below the clients that stand out, in the window where they do most.
pub(super) fn apart(windows: &[Peaks], margin: f64) -> Option<Proposal> {
    let found = windows.iter().filter_map(|peaks| Some((gap(&peaks.all)?, peaks)));
    let ((_, first), peaks) = found.max_by_key(|((ratio, _), _)| *ratio)?;
    let (ordinary, outliers) = peaks.all.split_at(first);
    let highest = ordinary.last()?.most;
    let factor = factor(ordinary, margin);
    let limit = raised(highest, factor);
    // A limit that the outliers hardly reach is none for them.
    (limit < outliers.first()?.most).then(|| Proposal {
        window: peaks.window,
        limit,
        basis: Basis::Apart { highest, outliers: outliers.to_vec(), factor },
    })
}

/// Returns the limit above all clients.
pub(super) fn above_all(peaks: &Peaks, margin: f64) -> Proposal {
    let highest = peaks.quantile(100);
    let factor = factor(&peaks.all, margin);
    let basis = Basis::Highest { highest, factor };
    Proposal { window: peaks.window, limit: raised(highest, factor), basis }
}

/// Returns where the clients that stand out begin, and how far, in hundredths.
fn gap(all: &[Peak]) -> Option<(u64, usize)> {
    if all.len() < LEAST_KEYS {
        return None;
    }
    let most = (all.len() / ONE_IN).max(1);
    let candidates = all.len() - most..all.len();
    let ratio = |index: usize| all[index].most * 100 / all[index - 1].most.max(1);
    let ratios = candidates.filter(|index| all[*index].most >= LEAST_PEAK);
    let ratios = ratios.map(|index| (ratio(index), index));
    ratios.filter(|(ratio, _)| *ratio >= APART * 100).max()
}

/// Returns what a peak is multiplied by: the margin, or more if the halves of the log differ by
/// more, as the next one may differ as much.
fn factor(all: &[Peak], margin: f64) -> f64 {
    let highest = |half: usize| all.iter().map(|peak| peak.halves[half]).max().unwrap_or(0);
    let halves = [highest(0), highest(1)];
    let low = halves[0].min(halves[1]);
    let high = halves[0].max(halves[1]);
    #[expect(clippy::cast_precision_loss, reason = "a ratio of counts")]
    let drift = if low == 0 { 1.0 } else { high as f64 / low as f64 };
    (1.0 + margin).max(drift.min(MOST_DRIFT))
}

/// Returns a peak times `factor`, rounded up to two digits.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a positive count of requests"
)]
pub(super) fn raised(peak: u64, factor: f64) -> u64 {
    round_up((peak as f64 * factor).ceil().max(1.0) as u64)
}

/// Rounds up to two digits.
fn round_up(number: u64) -> u64 {
    let mut unit = 1;
    while number / unit >= 100 {
        unit *= 10;
    }
    number.div_ceil(unit) * unit
}

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

    fn peaks(all: &[u64]) -> Peaks {
        let all = (0..).zip(all).map(|(key, most)| Peak { key, most: *most, halves: [*most; 2] });
        Peaks { window: Duration::from_mins(1), all: all.collect() }
    }

    #[test]
    fn a_client_far_above_all_others_stands_out() {
        let mut all: Vec<u64> = (1..=20).collect();
        all.push(600);
        let found = apart(&[peaks(&all)], MARGIN).unwrap();
        assert_eq!(found.limit, 30);
        let Basis::Apart { highest: 20, outliers, .. } = found.basis else { panic!("{found:?}") };
        assert_eq!(outliers.len(), 1);
        assert_eq!(above_all(&peaks(&all), MARGIN).limit, 900);
    }

    #[test]
    fn nobody_stands_out_of_a_crowd_or_of_a_few() {
        let crowd: Vec<u64> = (1..=40).map(|n| n * n).collect();
        assert!(apart(&[peaks(&crowd)], MARGIN).is_none());
        assert!(apart(&[peaks(&[1, 1, 1, 500])], MARGIN).is_none(), "four clients");
        let two: Vec<u64> = [vec![1; 30], vec![500, 500]].concat();
        assert!(apart(&[peaks(&two)], MARGIN).is_none(), "more than one in fifty");
        let small: Vec<u64> = [vec![1; 30], vec![5]].concat();
        assert!(apart(&[peaks(&small)], MARGIN).is_none(), "five requests are nothing");
    }

    #[test]
    fn halves_that_differ_raise_the_limit() {
        let peak = |halves: [u64; 2]| Peak { key: 0, most: halves[0].max(halves[1]), halves };
        let limit = |halves: [u64; 2]| {
            above_all(&Peaks { window: Duration::from_secs(1), all: vec![peak(halves)] }, MARGIN)
                .limit
        };
        assert_eq!(limit([10, 10]), 15);
        assert_eq!(limit([5, 10]), 20);
        assert_eq!(limit([1, 100]), 400);
        assert_eq!(limit([0, 10]), 15);
    }

    #[test]
    fn limits_are_round() {
        for (number, expected) in [(1, 1), (99, 99), (100, 100), (101, 110), (12_345, 13_000)] {
            assert_eq!(round_up(number), expected);
        }
    }

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
