//! Times: exact decimal numbers, and the formats of instants and durations.
//!
//! Instants are shown by the log's clock, or relative to the first minute of events, which have no
//! date.

use crate::flow::{
    Instant,
    time::{nanos, spelled},
};
use core::{fmt, time::Duration};
use jiff::{
    Timestamp,
    civil::{Date, DateTime},
    tz::Offset,
};

/// The time format of a replay.
#[derive(Clone, Debug)]
pub struct Times {
    /// The origin of relative times: the first whole minute.
    origin: Instant,
    /// `None` for events.
    clock: Option<Clock>,
}

#[derive(Clone, Copy, Debug)]
struct Clock {
    /// The zone of the log's first stamp; UTC without one.
    zone: Offset,
    /// The day of all arrivals; `None` for several days.
    day: Option<Date>,
}

impl Times {
    /// Shows times relative to `origin`.
    pub(super) const fn relative(origin: Instant) -> Self {
        Self { origin, clock: None }
    }

    /// Shows the time of day in `zone` for a log from `first` to `last`.
    pub(super) fn clock(zone: Offset, first: Instant, last: Instant) -> Self {
        let minute = nanos(Duration::from_mins(1));
        let origin = Instant::from_nanos(first.as_nanos() / minute * minute);
        let day = local(zone, first).date();
        let day = Some(day).filter(|day| *day == local(zone, last).date());
        Self { origin, clock: Some(Clock { zone, day }) }
    }

    /// Returns the origin of relative times.
    pub(super) const fn origin(&self) -> Instant {
        self.origin
    }

    /// Formats an instant to the millisecond: `05:00:07.250`, with its date if the log has several
    /// days, or `7.250 s`.
    pub(super) fn at(&self, at: Instant) -> String {
        self.on_clock(at, "%H:%M:%S%.3f").unwrap_or_else(|| millis(at.since(self.origin)))
    }

    /// Formats an instant to the nanosecond.
    pub(super) fn exact(&self, at: Instant) -> String {
        let relative = || format!("{} ms", Millis(nanos(at.since(self.origin))));
        self.on_clock(at, "%H:%M:%S%.f").unwrap_or_else(relative)
    }

    /// Formats an instant as RFC 3339, if the log has a clock.
    pub(super) fn stamp(&self, at: Instant) -> Option<String> {
        let zone = self.clock?.zone;
        let stamp = timestamp(at);
        let is_utc = zone == Offset::UTC;
        Some(if is_utc { stamp.to_string() } else { stamp.display_with_offset(zone).to_string() })
    }

    /// Formats the span of a log: `2026-11-21 05:00:07 to 05:01:30 UTC`.
    pub fn span(&self, first: Instant, last: Instant) -> Option<String> {
        let Clock { zone, day } = self.clock?;
        let format = if day.is_some() { "%H:%M:%S" } else { "%F %H:%M:%S" };
        let last = local(zone, last).strftime(format);
        Some(format!("{} to {last} {}", local(zone, first).strftime("%F %H:%M:%S"), name(zone)))
    }

    /// Returns the label at `at` of an axis of length `whole`, the first one with the zone.
    pub(super) fn tick(&self, at: Instant, whole: Duration, is_first: bool) -> Option<String> {
        let zone = self.clock?.zone;
        let format = match whole.as_secs() {
            0..20 => "%H:%M:%S%.1f",
            20..7_200 => "%H:%M:%S",
            7_200..172_800 => "%H:%M",
            _ => "%m-%d %H:%M",
        };
        let label = local(zone, at).strftime(format).to_string();
        Some(if is_first { format!("{label} {}", name(zone)) } else { label })
    }

    fn on_clock(&self, at: Instant, format: &str) -> Option<String> {
        let Clock { zone, day } = self.clock?;
        let at = local(zone, at);
        let time = at.strftime(format);
        Some(if day == Some(at.date()) {
            time.to_string()
        } else {
            format!("{} {time}", at.date())
        })
    }
}

fn timestamp(at: Instant) -> Timestamp {
    // The last instant, in 2554, is before the last timestamp.
    Timestamp::from_nanosecond(at.as_nanos().into()).unwrap_or(Timestamp::MAX)
}

fn local(zone: Offset, at: Instant) -> DateTime {
    zone.to_datetime(timestamp(at))
}

/// Returns `UTC` or `UTC+01:00`.
fn name(zone: Offset) -> String {
    let minutes = zone.seconds() / 60;
    let sign = if minutes < 0 { '-' } else { '+' };
    let minutes = minutes.abs();
    match minutes {
        0 => "UTC".to_owned(),
        _ => format!("UTC{sign}{:02}:{:02}", minutes / 60, minutes % 60),
    }
}

/// Formats a time in milliseconds, or in seconds from one second on.
pub(super) fn millis(time: Duration) -> String {
    match nanos(time) {
        nanos if nanos < 1_000_000_000 => format!("{} ms", trimmed(nanos)),
        _ => format!("{:.3} s", time.as_secs_f64()),
    }
}

/// Formats the length of a span, which needs no parts of seconds from a minute on.
pub(super) fn short(time: Duration) -> String {
    let shown = match time.as_secs() {
        0..60 => time,
        _ => Duration::from_secs(time.as_secs()),
    };
    spelled(shown)
}

/// Formats a time with three digits, for an axis.
pub(super) fn three_digits(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        0.0 => "0".to_owned(),
        ..1.0 => format!("{:.0} ms", seconds * 1e3),
        1.0..120.0 => format!("{seconds:.1} s"),
        120.0..7200.0 => format!("{:.1} min", seconds / 60.0),
        7200.0..172_800.0 => format!("{:.1} h", seconds / 3600.0),
        _ => format!("{:.1} d", seconds / 86_400.0),
    }
}

fn trimmed(nanos: u64) -> String {
    Millis(nanos).to_string().trim_end_matches(".0").to_owned()
}

/// The most digits that are read: more change nothing in 64 bits.
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

    // Digits beyond the most that change anything are checked, and left out.
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

    /// 2026-11-21T22:30:00Z.
    const EVENING: Instant = Instant::from_nanos(1_795_300_200_000_000_000);

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3600)
    }

    #[test]
    fn a_day_is_named_once_unless_there_are_several() {
        let at = EVENING + Duration::from_micros(7_250_750);
        let one = Times::clock(Offset::UTC, EVENING, at);
        assert_eq!(one.at(at), "22:30:07.250");
        assert_eq!(one.exact(at), "22:30:07.25075");
        assert_eq!(one.span(EVENING, at).unwrap(), "2026-11-21 22:30:00 to 22:30:07 UTC");
        assert_eq!(one.at(EVENING + hours(2)), "2026-11-22 00:30:00.000");
        let later = EVENING + hours(2);
        let two = Times::clock(Offset::UTC, EVENING, later);
        assert_eq!(two.at(at), "2026-11-21 22:30:07.250");
        let span = "2026-11-21 22:30:00 to 2026-11-22 00:30:00 UTC";
        assert_eq!(two.span(EVENING, later).unwrap(), span);
    }

    #[test]
    fn the_zone_is_the_logs_own() {
        let zone = Offset::constant(-2);
        let times = Times::clock(zone, EVENING, EVENING);
        assert_eq!(times.at(EVENING), "20:30:00.000");
        assert_eq!(times.stamp(EVENING).unwrap(), "2026-11-21T20:30:00-02:00");
        assert_eq!(times.tick(EVENING, hours(1), true).unwrap(), "20:30:00 UTC-02:00");
        assert_eq!(times.tick(EVENING, hours(5), false).unwrap(), "20:30");
        assert_eq!(times.tick(EVENING, hours(99), false).unwrap(), "11-21 20:30");
        let utc = Times::clock(Offset::UTC, EVENING, EVENING);
        assert_eq!(
            utc.stamp(EVENING + Duration::from_nanos(1)).unwrap(),
            "2026-11-21T22:30:00.000000001Z"
        );
        assert_eq!(name(Offset::from_seconds(19_800).unwrap()), "UTC+05:30");
    }

    #[test]
    fn events_have_no_date() {
        let times = Times::relative(Instant::EPOCH);
        let at = Instant::EPOCH + Duration::from_millis(7_250);
        assert_eq!(times.at(at), "7.250 s");
        assert_eq!(times.exact(at), "7250.0 ms");
        assert_eq!((times.stamp(at), times.span(at, at)), (None, None));
        assert_eq!(times.tick(at, hours(1), true), None);
    }

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
