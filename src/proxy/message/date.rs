//! The time as HTTP writes it: `Sun, 06 Nov 1994 08:49:37 GMT` (RFC 9110, 5.6.7).

use crate::flow::Instant;
use bytes::Bytes;
use http::HeaderValue;
use std::sync::{Mutex, PoisonError};

const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAY: u64 = 86_400;

/// The last second in the form of `Date`. One worker uses it; the lock is there for the compiler.
#[derive(Debug, Default)]
pub struct DateCache(Mutex<Option<(u64, HeaderValue)>>);

impl DateCache {
    /// Returns the time of the wall's clock as the field `Date` has it.
    pub(crate) fn at(&self, wall: Instant) -> HeaderValue {
        let second = wall.since(Instant::EPOCH).as_secs();
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some((of, date)) if *of == second => date.clone(),
            Some(_) | None => last.insert((second, http_date(wall))).1.clone(),
        }
    }
}

fn http_date(wall: Instant) -> HeaderValue {
    let seconds = wall.since(Instant::EPOCH).as_secs();
    let days = seconds / DAY;
    let second = seconds % DAY;
    let (year, month, day) = civil(days);
    let text = format!(
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS.get(usize::try_from(days % 7).unwrap_or_default()).unwrap_or(&""),
        MONTHS.get(month).unwrap_or(&""),
        second / 3600,
        second / 60 % 60,
        second % 60,
    );
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .unwrap_or_else(|_| HeaderValue::from_static(""))
}

/// Returns year, month from 0 and day of the month of a day since 1970-01-01. Source: Howard
/// Hinnant, "chrono-Compatible Low-Level Date Algorithms" (2013), `civil_from_days`.
fn civil(days: u64) -> (u64, usize, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 2 } else { from_march - 10 };
    let year = era * 400 + year + u64::from(month < 2);
    (year, usize::try_from(month).unwrap_or_default(), day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (951_782_399, "Mon, 28 Feb 2000 23:59:59 GMT"),
            (951_782_400, "Tue, 29 Feb 2000 00:00:00 GMT"),
            (951_868_800, "Wed, 01 Mar 2000 00:00:00 GMT"),
            (1_735_689_599, "Tue, 31 Dec 2024 23:59:59 GMT"),
            (4_107_542_400, "Mon, 01 Mar 2100 00:00:00 GMT"),
        ] {
            let wall = Instant::EPOCH + Duration::from_secs(seconds);
            assert_eq!(http_date(wall).to_str().ok(), Some(expected));
        }
    }
}
