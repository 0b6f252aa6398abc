//! Numbers: counts, durations, sizes and shares.

use super::{InvalidValue, Wrong, invalid, not};
use crate::{
    config::diagnostics::quoted,
    flow::{Rate, breaker::Ratio, time::spelled},
};
use bytesize::ByteSize;
use std::{num::NonZeroU64, time::Duration};

/// Reads a whole number; `_` may part its digits.
pub(in crate::config) fn integer(text: &str) -> Result<u64, InvalidValue> {
    let digits = text.replace('_', "");
    let well_formed = !text.starts_with('_') && !text.ends_with('_') && !digits.starts_with('+');
    match digits.parse() {
        Ok(number) if well_formed => Ok(number),
        _ if digits.starts_with('-') => {
            not(text, "is below zero", "write a whole number, as in `10`")
        }
        _ if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) && well_formed => {
            not(text, "is too large", "write a smaller number")
        }
        _ => not(
            text,
            "is not a whole number",
            "write digits without quotes, unit or point, as in `10`",
        ),
    }
}

/// Reads a whole number of at least `min` and at most `max`.
pub(in crate::config) fn integer_within(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let number = integer(text)?;
    if (min..=max).contains(&number) {
        return Ok(number);
    }
    let wanted = format!("a number from {min} to {max}");
    Err(Wrong::Bound { found: number.to_string(), wanted })
}

/// Reads a duration such as `500ms` or `1m 30s`; `0` needs no unit.
pub(in crate::config) fn duration(text: &str) -> Result<Duration, InvalidValue> {
    const HELP: &str = "write a number and a unit, as in `500ms`, `5s`, `1m 30s` or `2h`";
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    if text.starts_with('-') {
        return not(text, "is below zero", HELP);
    }
    if text.bytes().all(|b| b.is_ascii_digit() || b == b'_' || b == b'.') && !text.is_empty() {
        let help = format!("write the unit: `{text}s` for seconds, `{text}ms` for milliseconds");
        return not(text, "has no unit", help);
    }
    // humantime takes `M` for a month, which no timeout means.
    if text.bytes().any(|b| b.is_ascii_uppercase()) {
        let message = format!("{} is not a duration: units are lower-case", quoted(text));
        return invalid(message, HELP);
    }
    match humantime::parse_duration(text) {
        Ok(duration) if duration <= Rate::MAX_WINDOW => Ok(duration),
        Ok(_) => not(text, "is longer than a year", "write at most `366d`"),
        Err(_) => not(text, "is not a duration", HELP),
    }
}

/// Reads a duration of at least `min` and at most `max` nanoseconds.
pub(in crate::config) fn duration_within(
    text: &str,
    min: u64,
    max: u64,
) -> Result<Duration, Wrong> {
    let duration = duration(text)?;
    let shown = |duration| spelled(duration).replace(' ', "");
    within(
        duration,
        [min, max].map(Duration::from_nanos),
        shown,
        format!("as long as {}", quoted(text)),
    )
}

/// Reads a timeout that may be absent: `off`, or a duration of `min` to `max` nanoseconds.
pub(in crate::config) fn optional_timeout(
    text: &str,
    min: u64,
    max: u64,
) -> Result<Option<Duration>, Wrong> {
    if text == "off" {
        return Ok(None);
    }
    let timeout = duration_within(text, min, max).map_err(|wrong| match wrong {
        Wrong::Text(InvalidValue { message, help }) => {
            Wrong::Text(InvalidValue { message, help: format!("{help}, or `off` for no timeout") })
        }
        Wrong::Bound { found, wanted } => {
            Wrong::Bound { found, wanted: format!("{wanted}, or `off`") }
        }
    })?;
    Ok(Some(timeout))
}

/// Reads a number of bytes such as `64KiB`, `10MB` or `1048576`.
pub(in crate::config) fn size(text: &str) -> Result<u64, InvalidValue> {
    text.parse::<ByteSize>().map(|size| size.as_u64()).or_else(|_| {
        not(
            text,
            "is not a size",
            "write a number and a unit, as in `64KiB`, `10MiB` (1024 each) or `10MB` (1000 each)",
        )
    })
}

/// Reads how many bytes per second, as in `1KiB/s`, or `off`.
pub(in crate::config) fn byte_rate(text: &str) -> Result<Option<NonZeroU64>, InvalidValue> {
    const HELP: &str = "write a size per second, as in `1KiB/s`, or `off`";
    if text == "off" {
        return Ok(None);
    }
    let bytes = text.split_once('/').filter(|(_, time)| matches!(time.trim(), "s" | "1s"));
    let bytes = bytes.and_then(|(bytes, _)| size(bytes.trim()).ok()).and_then(NonZeroU64::new);
    bytes.map_or_else(|| not(text, "is not a size per second", HELP), |bytes| Ok(Some(bytes)))
}

/// Reads a number of bytes of at least `min` and at most `max`.
pub(in crate::config) fn size_within(text: &str, min: u64, max: u64) -> Result<u64, Wrong> {
    let shown = |size| ByteSize(size).display().iec().to_string().replace(".0 ", "");
    within(size(text)?, [min, max], shown, format!("as large as {}", quoted(text)))
}

/// Returns the value, or that it is beyond a bound; `too_much` is a larger one in words.
pub(super) fn within<T: PartialOrd + Copy>(
    value: T,
    [min, max]: [T; 2],
    shown: impl Fn(T) -> String,
    too_much: String,
) -> Result<T, Wrong> {
    if value < min {
        let wanted = format!("at least `{}`", shown(min));
        return Err(Wrong::Bound { found: shown(value), wanted });
    }
    if value > max {
        return Err(Wrong::Bound { found: too_much, wanted: format!("at most `{}`", shown(max)) });
    }
    Ok(value)
}

/// Reads a part of a whole: a number from 0 to 1 with up to six decimals, or a percentage with up to
/// four.
pub(in crate::config) fn ratio(text: &str) -> Result<Ratio, InvalidValue> {
    let percent = text.strip_suffix('%').map(str::trim_end);
    let decimals = if percent.is_some() { 4 } else { 6 };
    let number = percent.unwrap_or(text);
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let millionths = (digits(whole, 6) && digits(part, decimals))
        .then(|| format!("{whole}{part:0<decimals$}").parse().ok())
        .flatten();
    millionths.and_then(Ratio::new).map_or_else(
        || {
            not(
                text,
                "is not a part of a whole",
                "write a number from 0 to 1, or a percentage, as in `0.5` or `50%` for a half",
            )
        },
        Ok,
    )
}

/// Reads a whole number of percent, up to 100.
pub(in crate::config) fn percent(text: &str) -> Result<u32, InvalidValue> {
    let number = text.strip_suffix('%').and_then(|number| integer(number.trim()).ok());
    match number.and_then(|number| u32::try_from(number).ok()) {
        Some(percent) if percent <= 100 => Ok(percent),
        _ => not(text, "is not a percentage", "write a number from 0 to 100 and `%`, as in `20%`"),
    }
}
