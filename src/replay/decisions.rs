//! `--output decisions`: one JSON line an arrival, in the order of the arrivals.

use super::{
    engine::{Ruled, Unreached},
    times::Times,
};
use crate::flow::{Instant, time::nanos};
use core::time::Duration;
use std::io::{self, Write};

/// Writes what became of the arrival `number`, which came at `at`: as a `time` of the log's
/// clock, or as milliseconds `t` since the first minute of events; and under `against` what became of it in another configuration.
///
/// `decision` is `null` if the arrival reached no route, and `unreached` says why; `reason` is
/// `null` unless it was rejected. `rule`, `limit` and `used` are
/// `null` if no rule let it pass by a number, as where a route has none. A breaker is a rule without
/// `limit` and `used`.
///
/// # Errors
///
/// Those of `out`.
pub(super) fn write(
    out: &mut impl Write,
    number: u64,
    (times, at): (&Times, Instant),
    here: Ruled<'_>,
    there: Option<Ruled<'_>>,
) -> io::Result<()> {
    out.write_all(b"{\"i\":")?;
    write_whole(out, number)?;
    if let Some(stamp) = times.stamp(at) {
        // A stamp has nothing to escape.
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

fn write_members(out: &mut impl Write, (engine, ruling): Ruled<'_>) -> io::Result<()> {
    let (route, decided) = match (ruling.route, ruling.decided) {
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

/// Writes a time without a point if it is whole, as it is usually given.
fn write_number(out: &mut impl Write, t: Duration) -> io::Result<()> {
    match nanos(t) {
        whole if whole.is_multiple_of(1_000_000) => write_whole(out, whole / 1_000_000),
        nanos => write_decimal(out, nanos),
    }
}

fn write_millis(out: &mut impl Write, time: Duration) -> io::Result<()> {
    write_decimal(out, nanos(time))
}

/// Writes nanoseconds as [`Millis`](super::decimal::Millis) shows them, faster than `fmt` does.
fn write_decimal(out: &mut impl Write, nanos: u64) -> io::Result<()> {
    write_whole(out, nanos / 1_000_000)?;
    let (mut text, mut rest) = (*b".000000", nanos % 1_000_000);
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

/// Writes a number without the ways of `fmt`, which take longer than many a decision.
fn write_whole(out: &mut impl Write, mut number: u64) -> io::Result<()> {
    let mut digits = [b'0'; 20];
    let mut first = digits.len();
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
        first -= 1;
        if number == 0 {
            break;
        }
    }
    out.write_all(&digits[first..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_number_is_written_as_it_is_everywhere(number: u64, bits in 0..64_u32) {
            let (number, mut out) = (number >> bits, Vec::new());
            write_whole(&mut out, number).unwrap();
            prop_assert_eq!(String::from_utf8(out).unwrap(), number.to_string());
        }

        #[test]
        fn a_time_is_written_as_it_is_shown(nanos: u64, unit in 0..7_u32) {
            let (nanos, mut out) = (nanos / 10_u64.pow(unit) * 10_u64.pow(unit), Vec::new());
            write_decimal(&mut out, nanos).unwrap();
            let shown = super::super::decimal::Millis(nanos).to_string();
            prop_assert_eq!(String::from_utf8(out).unwrap(), shown);
        }
    }
}
