//! `--output decisions`: one JSON line per arrival, in order.

use super::{
    engine::{ResultOf, Unreached},
    times::Times,
};
use crate::flow::{Instant, time::nanos};
use core::time::Duration;
use std::io::{self, Write};

/// Writes the result of arrival `number` at `at`, as a `time` of the log's clock or as milliseconds
/// `t` of events; with another configuration, its result under `against`.
///
/// `decision` is `null` if the arrival reached no route; `unreached` says why. `reason` is `null`
/// unless it was rejected. `rule`, `limit` and `used` are `null` if no rule with a limit passed it;
/// a breaker has no `limit` and `used`.
///
/// # Errors
///
/// Those of `out`.
pub(super) fn write(
    out: &mut impl Write,
    number: u64,
    times: &Times,
    at: Instant,
    here: ResultOf<'_>,
    there: Option<ResultOf<'_>>,
) -> io::Result<()> {
    out.write_all(b"{\"i\":")?;
    write_whole(out, number)?;

    if let Some(stamp) = times.stamp(at) {
        // A stamp needs no escapes.
        write!(out, ",\"time\":\"{stamp}\"")?;
    } else {
        out.write_all(b",\"t\":")?;
        write_number(out, at.since(times.origin()))?;
    }

    out.write_all(b",")?;
    write_members(out, here)?;
    if let Some(there) = there {
        out.write_all(b",\"against\":{")?;
        write_members(out, there)?;
        out.write_all(b"}")?;
    }
    out.write_all(b"}\n")
}

fn write_members(out: &mut impl Write, decided: ResultOf<'_>) -> io::Result<()> {
    let ResultOf { engine, result } = decided;
    let (route, decided) = match (result.route, result.decided) {
        (Ok(index), Some(decided)) => (&engine.snapshot().routes[index], decided),
        (route, _) => {
            out.write_all(b"\"decision\":null,\"reason\":null,\"rule\":null,\"limit\":null")?;
            out.write_all(b",\"used\":null,\"wait_ms\":0.0,\"retry_after_ms\":null")?;
            out.write_all(b",\"route\":null,\"unreached\":")?;
            return Ok(serde_json::to_writer(out, &route.err().map(Unreached::words))?);
        }
    };

    let record = decided.record(Some(route), &[]);
    out.write_all(b"\"decision\":\"")?;
    out.write_all(record.decision.as_bytes())?;
    out.write_all(b"\",\"reason\":")?;
    serde_json::to_writer(&mut *out, &record.reason)?;
    out.write_all(b",\"rule\":")?;
    serde_json::to_writer(&mut *out, &record.rule)?;

    out.write_all(b",\"limit\":")?;
    write_count(out, record.limit)?;
    out.write_all(b",\"used\":")?;
    write_count(out, record.used)?;

    out.write_all(b",\"wait_ms\":")?;
    write_millis(out, record.wait)?;
    out.write_all(b",\"retry_after_ms\":")?;
    match record.retry_after {
        Some(after) => write_millis(out, after)?,
        None => out.write_all(b"null")?,
    }

    out.write_all(b",\"route\":")?;
    Ok(serde_json::to_writer(out, &*route.name)?)
}

/// Writes a time without a point if it is whole.
fn write_number(out: &mut impl Write, t: Duration) -> io::Result<()> {
    match nanos(t) {
        whole if whole.is_multiple_of(1_000_000) => write_whole(out, whole / 1_000_000),
        nanos => write_decimal(out, nanos),
    }
}

fn write_millis(out: &mut impl Write, time: Duration) -> io::Result<()> {
    write_decimal(out, nanos(time))
}

/// Writes nanoseconds like [`Millis`](super::times::Millis), faster than `fmt`.
fn write_decimal(out: &mut impl Write, nanos: u64) -> io::Result<()> {
    write_whole(out, nanos / 1_000_000)?;
    let mut text = *b".000000";
    let mut rest = nanos % 1_000_000;
    for digit in text[1..].iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
    }
    let last = text.iter().rposition(|digit| *digit != b'0').unwrap_or_default();
    out.write_all(&text[..=last.max(1)])
}

fn write_count(out: &mut impl Write, count: Option<u64>) -> io::Result<()> {
    match count {
        Some(count) => write_whole(out, count),
        None => out.write_all(b"null"),
    }
}

/// Writes a number, faster than `fmt`.
fn write_whole(out: &mut impl Write, number: u64) -> io::Result<()> {
    out.write_all(itoa::Buffer::new().format(number).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_is_written_as_it_is_everywhere(number: u64, bits in 0..64_u32) {
            let number = number >> bits;
            let mut out = Vec::new();
            write_whole(&mut out, number).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }

        #[test]
        fn a_time_is_written_as_it_is_shown(nanos: u64, unit in 0..7_u32) {
            let nanos = nanos / 10_u64.pow(unit) * 10_u64.pow(unit);
            let mut out = Vec::new();
            write_decimal(&mut out, nanos).unwrap();
            let shown = super::super::times::Millis(nanos).to_string();
            prop_assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
    }
}
