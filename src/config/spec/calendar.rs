//! When the days, weeks and months of a time zone begin; the only user of `jiff`.
//!
//! The rules of time zones are compiled in, so that one file means the same on every machine. They
//! reach to the end of an `Instant`, in the year 2554.
//!
//! A window begins with the first instant whose date, on the clocks of the zone, is in it: 01:00
//! where clocks are turned forward at midnight. Where they are turned back over midnight, a window
//! that has begun goes on.

use crate::flow::{
    Instant,
    calendar::{Calendar, Run},
};
use jiff::{Timestamp, civil, tz::TimeZone};
use std::num::NonZeroU64;

/// A kind of window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::config) enum Unit {
    Day,
    /// From Monday, as in ISO 8601.
    Week,
    Month,
}

const DAY: i64 = 24 * 60 * 60;

/// The last whole year of an `Instant`.
const LAST_YEAR: i16 = 2553;

impl Unit {
    /// Returns the unit of `word`, as it stands after the slash of a limit.
    pub(in crate::config) fn named(word: &str) -> Option<Self> {
        match word {
            "day" => Some(Self::Day),
            "week" => Some(Self::Week),
            "month" => Some(Self::Month),
            _ => None,
        }
    }

    pub(in crate::config) const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }
}

/// Returns the zone of that name, in the spelling of the database.
pub(in crate::config) fn zone(name: &str) -> Option<String> {
    let zone = TimeZone::get(name).ok()?;
    zone.iana_name().map(str::to_owned)
}

/// Returns the calendar of `unit` in the zone `name`, or `None` if there is no such zone.
pub(in crate::config) fn calendar(unit: Unit, name: &str) -> Option<Calendar> {
    let zone = TimeZone::get(name).ok()?;
    let (runs, days) = match unit {
        // 1970 began on a Thursday.
        Unit::Day => (periods(&zone, 1, 0), 1),
        Unit::Week => (periods(&zone, 7, 3), 7),
        Unit::Month => (months(&zone), 31),
    };
    let step = NonZeroU64::new(nanos(days * DAY))?;
    Some(Calendar::new(&format!("{} ({name})", unit.word()), step, runs))
}

/// Returns when periods of so many `days` begin, of which one began `phase` days before 1970.
fn periods(zone: &TimeZone, days: i64, phase: i64) -> Vec<Run> {
    let length = days * DAY;
    let last = i64::from(LAST_YEAR - 1970) * 366 * DAY;
    let transitions = zone.following(Timestamp::UNIX_EPOCH);
    let offset = i64::from(zone.to_offset(Timestamp::UNIX_EPOCH).seconds());
    let turns =
        transitions.map(|turn| (turn.timestamp().as_second(), i64::from(turn.offset().seconds())));
    let mut turns =
        [(0, offset)].into_iter().chain(turns).take_while(|(at, _)| *at < last).peekable();

    let mut runs = Vec::new();
    // The latest period that has begun.
    let mut latest = (offset + phase * DAY).div_euclid(length);

    while let Some((from, offset)) = turns.next() {
        let until = turns.peek().map_or(i64::MAX, |next| next.0);
        // A date is skipped over: the period begins as clocks are turned.
        let current = (from + offset + phase * DAY).div_euclid(length);
        if current > latest {
            latest = current;
            push(&mut runs, from, 1, length);
        }

        let next = (latest + 1) * length - phase * DAY - offset;
        if next < until {
            let count = (until - next)
                .div_euclid(length)
                .saturating_add(i64::from((until - next) % length > 0));
            latest += count;
            push(&mut runs, next, count, length);
        }
    }

    runs
}

/// Adds `count` periods from `start` on, to the last run if they follow its own.
fn push(runs: &mut Vec<Run>, start: i64, count: i64, length: i64) {
    let start = Instant::from_nanos(nanos(start));
    let count = count.unsigned_abs();
    if let Some(run) = runs.last_mut()
        && Some(start.as_nanos())
            == run.count.get().checked_mul(nanos(length)).map(|span| run.start.as_nanos() + span)
    {
        run.count = run.count.saturating_add(count);
    } else if let Some(count) = NonZeroU64::new(count) {
        runs.push(Run { start, count });
    }
}

fn months(zone: &TimeZone) -> Vec<Run> {
    let first = |year, month| {
        let date = civil::Date::new(year, month, 1).ok()?;
        let begin = zone.to_zoned(date.into()).ok()?.timestamp().as_second();
        Some(Run { start: Instant::from_nanos(nanos(begin)), count: NonZeroU64::MIN })
    };
    let years = 1970..=LAST_YEAR;
    years.flat_map(|year| (1..=12).filter_map(move |month| first(year, month))).collect()
}

/// Returns seconds in nanoseconds; zero if they are below.
fn nanos(seconds: i64) -> u64 {
    u64::try_from(seconds).unwrap_or_default().saturating_mul(1_000_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::ToSpan;

    /// Clocks turned at midnight, over it, by half an hour, every month of fasting, past a
    /// whole day; offsets of quarters; no turns at all.
    const ZONES: [&str; 14] = [
        "UTC",
        "Europe/Berlin",
        "Europe/Dublin",
        "America/Sao_Paulo",
        "America/Havana",
        "America/St_Johns",
        "Africa/Cairo",
        "Africa/Casablanca",
        "Asia/Beirut",
        "Asia/Gaza",
        "Asia/Kathmandu",
        "Australia/Lord_Howe",
        "Antarctica/Troll",
        "Pacific/Apia",
    ];

    /// Returns when `date` begins in `zone`, which is when the next one does if the zone skips it.
    fn begin(zone: &TimeZone, date: civil::Date) -> Instant {
        let begin = date.to_zoned(zone.clone()).expect("a date").timestamp().as_second();
        Instant::from_nanos(nanos(begin))
    }

    #[test]
    fn windows_begin_with_the_days_weeks_and_months_of_every_zone() {
        for name in ZONES {
            let zone = TimeZone::get(name).expect("a zone");
            let [days, weeks, months] = [Unit::Day, Unit::Week, Unit::Month]
                .map(|unit| calendar(unit, name).expect("a zone"));
            let mut date = civil::date(1970, 1, 2);
            let mut week = None;
            let mut month = None;
            while date.year() < 2045 {
                let from = begin(&zone, date);
                if date.weekday() == civil::Weekday::Monday {
                    week = Some(from);
                }
                if date.day() == 1 {
                    month = Some(from);
                }
                let last = from - core::time::Duration::from_nanos(1);
                for (calendar, begun) in [(&days, Some(from)), (&weeks, week), (&months, month)] {
                    let Some(begun) = begun else { continue };
                    let (start, end) = calendar.window(from);
                    assert_eq!((start, end > from), (begun, true), "{date} in {calendar:?}");
                    assert_eq!(calendar.window(last).1 == from, begun == from, "before {date}");
                }
                date = date.checked_add(1.day()).expect("a date");
            }
        }
    }

    #[test]
    fn there_is_no_year_after_the_last_one() {
        // Midnight in UTC, 02:00 in Berlin, if laws stay.
        let july = 16_740_864_000;
        let now = Instant::from_nanos(nanos(july));
        let day = calendar(Unit::Day, "Europe/Berlin");
        let month = calendar(Unit::Month, "Europe/Berlin");
        for (calendar, days) in [(day, 1), (month, 31)] {
            let (start, end) = calendar.expect("a zone").window(now);
            assert_eq!(start, Instant::from_nanos(nanos(july - 2 * 3600)));
            assert_eq!(end.since(start).as_secs(), days * 24 * 3600);
        }
        assert!(calendar(Unit::Day, "UTC").expect("a zone").even().is_some());
        assert!(calendar(Unit::Month, "UTC").expect("a zone").even().is_none());
        assert!(calendar(Unit::Day, "Europe/Nowhere").is_none());
    }
}
