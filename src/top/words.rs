//! Numbers and times in few characters.

use crate::terminal_text::is_unsafe;
use core::fmt::Write;

/// Steps of a bar, from nothing to all.
const BARS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Writes a count in at most 5 characters: `950`, `1.2k`, `35k`, `1.2M`.
pub(super) fn short(number: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let Some((unit, sign)) = UNITS.into_iter().find(|(unit, _)| number >= *unit) else {
        return number.to_string();
    };
    let tenths = number / (unit / 10);
    if tenths < 100 {
        format!("{}.{}{sign}", tenths / 10, tenths % 10)
    } else {
        format!("{}{sign}", tenths / 10)
    }
}

/// Writes a rate: small ones with a decimal.
pub(super) fn rate(number: f64) -> String {
    if number > 0.0 && number < 9.95 {
        return format!("{number:.1}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
    let whole = number.round() as u64;
    short(whole)
}

/// Writes milliseconds: `0.4 ms`, `35 ms`, `1.2 s`; `–` for none.
pub(super) fn millis(number: Option<f64>) -> String {
    match number {
        None => "–".to_owned(),
        Some(number) if number >= 1000.0 => format!("{:.1}s", number / 1000.0),
        Some(number) if number >= 9.95 => format!("{number:.0}ms"),
        Some(number) => format!("{number:.1}ms"),
    }
}

/// Writes seconds in the largest unit: `45 s`, `12 min`, `3 h`, `9 d`.
pub(super) fn seconds(number: u64) -> String {
    match number {
        0..60 => format!("{number} s"),
        60..3600 => format!("{} min", number / 60),
        3600..86_400 => format!("{} h", number / 3600),
        _ => format!("{} d", number / 86_400),
    }
}

/// Draws numbers as bars side by side, the highest as high as can be.
pub(super) fn bars(numbers: impl Iterator<Item = u64> + Clone) -> String {
    let most = numbers.clone().max().unwrap_or(0).max(1);
    numbers.map(|number| bar(number, most)).collect()
}

fn bar(number: u64, most: u64) -> char {
    let steps = BARS.len() as u64 - 1;
    let step = u128::from(number) * u128::from(steps);
    // Something is never drawn as nothing.
    let step = step.div_ceil(u128::from(most)).min(u128::from(steps));
    usize::try_from(step).map_or(' ', |step| BARS[step])
}

/// Draws how full something is in `width` characters.
pub(super) fn meter(used: u64, limit: u64, width: usize) -> String {
    let cells = u128::from(used) * width as u128 / u128::from(limit.max(1));
    let full = usize::try_from(cells).unwrap_or(width).min(width);
    let mut text = "█".repeat(full);
    // Writing to a String cannot fail.
    _ = write!(text, "{}", "░".repeat(width - full));
    text
}

/// Replaces what a terminal would take for more than text.
pub(super) fn plain(text: &str) -> String {
    text.chars().map(|sign| if is_unsafe(sign) { '\u{fffd}' } else { sign }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let of = |number: u64| short(number);
        assert_eq!([0, 999, 1_000, 9_999, 10_000].map(of), ["0", "999", "1.0k", "9.9k", "10k"]);
        assert_eq!([999_999, 1_200_000, u64::MAX].map(of), ["999k", "1.2M", "18446744T"]);
        assert_eq!([0.0, 0.04, 3.25, 10.4, 1e30].map(rate), ["0", "0.0", "3.2", "10", "18446744T"]);
        let of = [None, Some(0.42), Some(35.4), Some(1250.0)].map(millis);
        assert_eq!(of, ["–", "0.4ms", "35ms", "1.2s"]);
        assert_eq!([5, 65, 7200, 200_000].map(seconds), ["5 s", "1 min", "2 h", "2 d"]);
    }

    #[test]
    fn bars_show_the_highest_in_full_and_the_least_at_all() {
        assert_eq!(bars([0, 1, 50, 100].into_iter()), " ▁▄█");
        assert_eq!(bars([0, 0].into_iter()), "  ");
        assert_eq!(bars([u64::MAX, 1].into_iter()), "█▁");
        assert_eq!(meter(5, 10, 4), "██░░");
        assert_eq!(meter(50, 10, 4), "████");
        assert_eq!(meter(5, 0, 4), "████");
    }

    #[test]
    fn text_stays_text() {
        assert_eq!(plain("a\x1b[2Jb\n"), "a\u{fffd}[2Jb\u{fffd}");
        assert_eq!(plain("a\u{9b}b\u{202e}c\u{2028}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
    }
}
