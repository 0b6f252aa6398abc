//! How many requests per how long, and the time zone of calendar windows.

use super::{
    InvalidValue, Wrong, invalid, not,
    number::{duration, integer, integer_within},
};
use crate::{
    config::{
        diagnostics::quoted,
        spec::calendar::{self, Unit},
    },
    flow::Rate,
};
use std::time::Duration;

/// How many per how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::config) struct Limit {
    /// A calendar's window with its greatest length.
    pub rate: Rate,
    /// `None` if the window is a duration.
    pub unit: Option<Unit>,
}

impl Limit {
    /// Returns the rate, for whatever counts by durations.
    pub(in crate::config) fn steady(self) -> Result<Rate, InvalidValue> {
        match self.unit {
            None | Some(Unit::Day | Unit::Week) => Ok(self.rate),
            Some(Unit::Month) => invalid("months differ in length", MONTH),
        }
    }
}

const MONTH: &str =
    "write `/month` with `algorithm: fixed_window`, or a number of days, as in `100/30d`";

/// Reads how many per how long: `100/1m`, `100/s`, `1/333ns`, `10000/month`.
pub(in crate::config) fn limit(text: &str) -> Result<Limit, InvalidValue> {
    read_limit(text).map_err(|wrong| match meant(text).filter(|_| wrong.help == HELP) {
        Some(meant) => InvalidValue { help: format!("write `{meant}`"), ..wrong },
        None => wrong,
    })
}

/// The limit of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum PlanNumber {
    Limit(Limit),
    /// The number of requests in flight.
    Concurrency(u64),
}

/// Reads `1000/1m`, or the number of requests that may be in flight.
pub(in crate::config) fn plan_number(text: &str) -> Result<PlanNumber, Wrong> {
    const MOST: u64 = 1_000_000_000;
    if text.contains('/') {
        return Ok(PlanNumber::Limit(limit(text)?));
    }
    match integer(text) {
        Ok(_) => Ok(PlanNumber::Concurrency(integer_within(text, 1, MOST)?)),
        Err(_) => Ok(PlanNumber::Limit(limit(text)?)),
    }
}

/// What a rate looks like.
const HELP: &str = "write how many per how long, as in `100/1s` or `1000/1m`";

fn read_limit(text: &str) -> Result<Limit, InvalidValue> {
    let Some((count, window)) = text.split_once('/') else {
        return not(text, "is not a rate", HELP);
    };
    let count = count.trim();
    let window = window.trim();

    let help = || match count.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') => {
            format!("write {}", quoted(&format!("{whole}/{window}")))
        }
        Some(_) => "write a longer window, as in `1/2s` for `0.5/s`".to_owned(),
        // What has only digits is too large.
        None if count.bytes().all(|b| b.is_ascii_digit() || b == b'_') && !count.is_empty() => {
            format!("write at most {}", Rate::MAX_COUNT)
        }
        None => HELP.to_owned(),
    };

    let count = integer(count).map_err(|e| InvalidValue { help: help(), ..e })?;
    let unit = Unit::named(window);
    // humantime takes a month for 30.44 days.
    let mut words = window.split(|c: char| !c.is_ascii_alphabetic());
    let is_month = words.any(|word| matches!(word, "month" | "months" | "year" | "years" | "y"));

    if let Some(Unit::Month) = unit {
        let longest = Duration::from_hours(31 * 24);
        return Ok(Limit { rate: rate_of(count, longest)?, unit });
    }
    if is_month && unit.is_none() {
        return invalid(format!("{} has no one length", quoted(window)), MONTH);
    }

    let window = if window.starts_with(|c: char| c.is_ascii_digit()) {
        duration(window)
    } else {
        duration(&format!("1{window}"))
    };
    let window = window.map_err(|e| InvalidValue { help: HELP.to_owned(), ..e })?;
    Ok(Limit { rate: rate_of(count, window)?, unit })
}

/// Returns the rate that other gateways write as `text`: `10/1s` for `10r/s`, `10rps` and `10 per
/// second`.
fn meant(text: &str) -> Option<String> {
    let lower = text.trim().to_ascii_lowercase().replace([' ', ',', '_'], "");
    let digits = lower.find(|c: char| !c.is_ascii_digit()).unwrap_or(lower.len());
    let (number, rest) = lower.split_at(digits);
    let (thousands, rest) = match rest.strip_prefix('k') {
        Some(rest) => (1000, rest),
        None => (1, rest),
    };
    let count = number.parse::<u64>().ok()?.checked_mul(thousands).filter(|count| *count > 0)?;

    let words = ["requests", "request", "reqs", "req", "calls", "hits", "queries", "q", "r"];
    let rest = words.iter().find_map(|word| rest.strip_prefix(word)).unwrap_or(rest);
    let unit = ["/", "per", "every", "p", "@", "in"]
        .iter()
        .find_map(|word| rest.strip_prefix(word))
        .unwrap_or(rest);
    let length = unit.find(|c: char| !c.is_ascii_digit()).unwrap_or(unit.len());
    let (length, unit) = unit.split_at(length);
    let unit = match unit {
        "s" | "sec" | "secs" | "second" | "seconds" => "s",
        "m" | "min" | "mins" | "minute" | "minutes" => "m",
        "h" | "hr" | "hour" | "hours" => "h",
        "d" | "day" | "days" => "d",
        "ms" => "ms",
        _ => return None,
    };
    let length =
        if length.is_empty() { 1 } else { length.parse::<u32>().ok().filter(|n| *n > 0)? };
    let meant = format!("{count}/{length}{unit}");
    read_limit(&meant).is_ok().then_some(meant)
}

pub(in crate::config) fn zone(text: &str) -> Result<String, InvalidValue> {
    calendar::zone(text).map_or_else(
        || {
            not(
                text,
                "is not a time zone",
                "write a name of the IANA database, as in `Europe/Berlin` or `UTC`",
            )
        },
        Ok,
    )
}

/// Joins the two numbers of a rate, neither of which may be zero or beyond its bound.
pub(in crate::config) fn rate_of(count: u64, window: Duration) -> Result<Rate, InvalidValue> {
    if count == 0 {
        return invalid(
            "a limit of 0 lets nothing pass",
            "write at least 1, as in `1/1s`; to reject all requests, write `limit: 0`",
        );
    }
    if window.is_zero() {
        return invalid("a window of no length", "write how long the window is, as in `100/1s`");
    }
    Rate::new(count, window).map_or_else(
        || {
            invalid(
                format!("{count} is more than a limit can count"),
                format!("write at most {}", Rate::MAX_COUNT),
            )
        },
        Ok,
    )
}
