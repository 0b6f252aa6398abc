//! Times, sizes and rates of nginx.

use core::time::Duration;

/// Reads a time: seconds, or numbers with units, as in `1m30s`. `gateway.yaml` has none of zero.
pub(super) fn time(text: &str) -> Option<Duration> {
    read_time(text).filter(|time| !time.is_zero())
}

fn read_time(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }

    let mut rest = text;
    let mut total = 0_u64;
    while !rest.is_empty() {
        let digits = rest.find(|sign: char| !sign.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        let unit = &rest[digits..];
        let end = unit.find(|sign: char| sign.is_ascii_digit()).unwrap_or(unit.len());
        let milliseconds = match unit[..end].trim() {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };

        total = total.checked_add(count.checked_mul(milliseconds)?)?;
        rest = &unit[end..];
    }

    (!text.is_empty()).then(|| Duration::from_millis(total))
}

/// Returns a time as `gateway.yaml` has it, to the nanosecond.
pub(super) fn spelled(time: Duration) -> String {
    humantime::format_duration(time).to_string()
}

/// Reads a size, as in `8k`, `1m` or `2g`.
pub(super) fn size(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|sign: char| sign.is_ascii_alphabetic());
    let factor = match text[number.len()..].to_ascii_lowercase().as_str() {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        "g" => 1 << 30,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// Returns a size as `gateway.yaml` has it.
pub(super) fn sized(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{bytes}B"), |(unit, name)| format!("{}{name}", bytes / unit))
}

/// Requests per window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub count: u64,
    pub window: Duration,
}

impl Rate {
    /// Reads `10r/s` or `5r/m`.
    pub(super) fn read(text: &str) -> Option<Self> {
        let (count, unit) = text.split_once("r/")?;
        let window = match unit {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            _ => return None,
        };
        let count = count.parse().ok().filter(|count| *count > 0)?;
        Some(Self { count, window })
    }

    /// Returns it as `gateway.yaml` has it.
    pub(super) fn spelled(self) -> String {
        let Self { count, window } = self;
        if window.as_secs() == 60 { format!("{count}/1m") } else { format!("{count}/1s") }
    }

    /// Returns the distance of `requests` requests, rounded up to a nanosecond.
    pub(super) fn spaced(self, requests: u64) -> Option<Duration> {
        let nanoseconds = self.window.as_nanos().checked_mul(u128::from(requests))?;
        let nanoseconds = nanoseconds.div_ceil(u128::from(self.count));
        u64::try_from(nanoseconds).ok().map(Duration::from_nanos)
    }

    /// Reports whether nginx rounds it down: it counts in thousandths of a request a second.
    pub(super) fn is_rounded(self) -> bool {
        !(self.count * 1000).is_multiple_of(self.window.as_secs())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_nginx_are_read() {
        for (text, expected) in
            [("60", 60_000), ("60s", 60_000), ("1h30m", 5_400_000), ("500ms", 500)]
        {
            assert_eq!(time(text), Some(Duration::from_millis(expected)), "{text}");
        }
        for text in ["", "s", "0", "5x", "5sx", "99999999999999999999"] {
            assert_eq!(time(text), None, "{text}");
        }
        assert_eq!(["8k", "1M", "2g", "5"].map(size), [8192, 1 << 20, 2 << 30, 5].map(Some));
        assert_eq!([size(""), size("k"), size("1x"), size("99999999999g")], [None; 4]);
        assert_eq!([sized(1 << 20), sized(1536), sized(1)], ["1MiB", "1536B", "1B"]);
        let rate = Rate::read("3r/s").unwrap();
        assert_eq!(rate.spaced(20), Some(Duration::from_nanos(6_666_666_667)));
        assert_eq!([Rate::read("0r/s"), Rate::read("5r/h"), Rate::read("r/s")], [None; 3]);
        assert!(Rate::read("1r/m").unwrap().is_rounded());
        assert!(!Rate::read("30r/m").unwrap().is_rounded());
    }
}
