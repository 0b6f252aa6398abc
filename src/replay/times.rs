//! Formats instants: by the log's clock, or relative to the first minute of events, which have no
//! date.

use super::decimal::Millis;
use crate::flow::{Instant, time::nanos};
use core::time::Duration;
use jiff::{Timestamp, civil::Date, civil::DateTime, tz::Offset};

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
    pub(super) fn clock(zone: Offset, [first, last]: [Instant; 2]) -> Self {
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

fn trimmed(nanos: u64) -> String {
    Millis(nanos).to_string().trim_end_matches(".0").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21T22:30:00Z.
    const EVENING: Instant = Instant::from_nanos(1_795_300_200_000_000_000);

    fn hours(hours: u64) -> Duration {
        Duration::from_secs(hours * 3600)
    }

    #[test]
    fn a_day_is_named_once_unless_there_are_several() {
        let at = EVENING + Duration::from_micros(7_250_750);
        let one = Times::clock(Offset::UTC, [EVENING, at]);
        assert_eq!(one.at(at), "22:30:07.250");
        assert_eq!(one.exact(at), "22:30:07.25075");
        assert_eq!(one.span(EVENING, at).unwrap(), "2026-11-21 22:30:00 to 22:30:07 UTC");
        assert_eq!(one.at(EVENING + hours(2)), "2026-11-22 00:30:00.000");
        let later = EVENING + hours(2);
        let two = Times::clock(Offset::UTC, [EVENING, later]);
        assert_eq!(two.at(at), "2026-11-21 22:30:07.250");
        let span = "2026-11-21 22:30:00 to 2026-11-22 00:30:00 UTC";
        assert_eq!(two.span(EVENING, later).unwrap(), span);
    }

    #[test]
    fn the_zone_is_the_logs_own() {
        let zone = Offset::constant(-2);
        let times = Times::clock(zone, [EVENING, EVENING]);
        assert_eq!(times.at(EVENING), "20:30:00.000");
        assert_eq!(times.stamp(EVENING).unwrap(), "2026-11-21T20:30:00-02:00");
        assert_eq!(times.tick(EVENING, hours(1), true).unwrap(), "20:30:00 UTC-02:00");
        assert_eq!(times.tick(EVENING, hours(5), false).unwrap(), "20:30");
        assert_eq!(times.tick(EVENING, hours(99), false).unwrap(), "11-21 20:30");
        let utc = Times::clock(Offset::UTC, [EVENING, EVENING]);
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
}
