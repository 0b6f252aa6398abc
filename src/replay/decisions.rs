//! `--output decisions`: one JSON line an arrival, in the order of the arrivals.

use super::{
    decimal::Millis,
    engine::{Engine, Ruling},
};
use crate::flow::time::nanos;
use core::time::Duration;
use std::io::{self, Write};

/// Writes what became of the arrival `number`, which came at `at`; `t` is counted from
/// `origin`.
///
/// `verdict` is `null` if the arrival reached no route; `rule`, `limit` and `used` are
/// `null` if no rule was asked, as where a route has none.
///
/// # Errors
///
/// Those of `out`.
pub fn write(
    out: &mut impl Write,
    number: u64,
    t: Duration,
    engine: &Engine,
    ruling: &Ruling,
) -> io::Result<()> {
    write!(out, "{{\"i\":{number},\"t\":")?;
    write_number(out, t)?;
    let route = match ruling.route {
        Ok(index) => &engine.snapshot().routes[index],
        Err(reason) => {
            out.write_all(b",\"verdict\":null,\"rule\":null,\"limit\":null,\"used\":null")?;
            out.write_all(b",\"wait_ms\":0.0,\"retry_after_ms\":null,\"route\":null,\"reason\":")?;
            serde_json::to_writer(&mut *out, reason.words())?;
            return out.write_all(b"}\n");
        }
    };
    let record = ruling.decided.map(|decided| decided.record(Some(route), &[]));
    if let Some(record) = &record {
        write!(out, ",\"verdict\":\"{}\",\"rule\":", record.verdict)?;
        serde_json::to_writer(&mut *out, &record.rule)?;
        write!(out, ",\"limit\":{},\"used\":{}", record.limit, record.used)?;
    } else {
        out.write_all(b",\"verdict\":\"passed\",\"rule\":null,\"limit\":null,\"used\":null")?;
    }
    let wait = record.as_ref().map_or(Duration::ZERO, |record| record.wait);
    write!(out, ",\"wait_ms\":{},\"retry_after_ms\":", Millis(nanos(wait)))?;
    match record.and_then(|record| record.retry_after) {
        Some(after) => write!(out, "{}", Millis(nanos(after)))?,
        None => out.write_all(b"null")?,
    }
    out.write_all(b",\"route\":")?;
    serde_json::to_writer(&mut *out, &*route.name)?;
    out.write_all(b"}\n")
}

/// Writes a time without a point if it is whole, as it is usually given.
fn write_number(out: &mut impl Write, t: Duration) -> io::Result<()> {
    match nanos(t) {
        whole if whole.is_multiple_of(1_000_000) => write!(out, "{}", whole / 1_000_000),
        nanos => write!(out, "{}", Millis(nanos)),
    }
}
