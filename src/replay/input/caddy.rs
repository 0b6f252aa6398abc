//! Caddy's access log, as JSON.

use super::{
    common::STAMP as COMMON_STAMP,
    events::headers,
    logged::{
        LoggedRequest, TextCache, address, digits, instant, method, nanos, rfc3339, status, text,
    },
    problems::Reason,
};
use crate::{
    flow::Instant,
    replay::{event::Request, times::scaled},
};
use core::time::Duration;
use jiff::{SignedDuration, civil::DateTime, fmt::strtime, tz::TimeZone};
use serde_json::{Map, Value};
use std::sync::Arc;

/// Returns whether an object is of Caddy's log.
pub(super) fn is_caddy(object: &Map<String, Value>) -> bool {
    object.get("request").is_some_and(Value::is_object)
}

/// Parses a line of Caddy, whose `ts` is the response's end. `None` for other lines, such as errors
/// of handlers: their requests have lines of their own.
pub(super) fn parse(
    object: &Map<String, Value>,
    cache: &mut TextCache,
) -> Result<Option<LoggedRequest>, Reason> {
    if !is_access(object) {
        let is_caddys = ["level", "ts", "msg"].iter().all(|name| object.contains_key(*name));
        let is_of_log = is_caddys || is_caddy(object);
        return if is_of_log { Ok(None) } else { Err("the line has no `request`".into()) };
    }

    let request = object.get("request").and_then(Value::as_object);
    let request = request.ok_or("the line has no `request`")?;
    let takes = duration_of(object.get("duration"))?;
    let ts = object.get("ts");
    let end = time_of(ts)?;
    // Text stamps without a fraction are whole seconds.
    let is_coarse = ts.and_then(Value::as_str).is_some_and(|ts| !ts.contains('.'));

    let name = text(request, &["method"]).ok_or("the request has no `method`")?;
    let fields = request.get("headers").and_then(Value::as_object);
    let client = text(request, &["remote_ip", "client_ip", "remote_addr"]).and_then(address);
    let request = Request {
        method: method(name)?,
        host: text(request, &["host"]).map(|host| cache.text(host)),
        path: text(request, &["uri"]).map(|path| cache.text(path)),
        headers: fields.and_then(|fields| headers(fields).ok()).map(Arc::new),
        client,
    };

    let logged = LoggedRequest::new(end - takes, request, takes, status(object.get("status")));
    Ok(Some(LoggedRequest { coarse: is_coarse.then_some(takes), ..logged }))
}

/// Returns whether a line of Caddy is an access line, by its logger or message.
fn is_access(object: &Map<String, Value>) -> bool {
    let logger = text(object, &["logger"]);
    let message = text(object, &["msg"]);
    match logger.and_then(|logger| logger.strip_prefix("http.log.access")) {
        Some(log) => log.is_empty() || log.starts_with('.'),
        None => logger.is_none() && message.is_none_or(|message| message == "handled request"),
    }
}

/// Reads Caddy's `duration`: seconds, or as configured nanoseconds or Go's text (`1m2.5s`).
fn duration_of(value: Option<&Value>) -> Result<Duration, Reason> {
    /// Seconds have a fraction except once in a billion, and no request is this short in
    /// nanoseconds.
    const NANOSECONDS: u64 = 60;
    if let Some(text) = value.and_then(Value::as_str) {
        // Go writes no blanks.
        let parsed = text.parse::<SignedDuration>().ok().filter(|_| !text.contains(' '));
        let nanos = parsed.and_then(|duration| u64::try_from(duration.as_nanos()).ok());
        let duration = nanos.map(Duration::from_nanos);
        return duration.ok_or_else(|| format!("`duration` is not a time: {text:?}").into());
    }
    match value.and_then(Value::as_u64) {
        Some(whole @ NANOSECONDS..) => Ok(Duration::from_nanos(whole)),
        Some(0..NANOSECONDS) | None => nanos(value, 9, "duration", "seconds"),
    }
}

/// Reads Caddy's `ts`: seconds, or as configured milliseconds, nanoseconds, wall time (taken as
/// UTC), or a stamp with its offset.
fn time_of(ts: Option<&Value>) -> Result<Instant, Reason> {
    /// As seconds, this is the year 5138; as milliseconds, 1973.
    const SECONDS: u64 = 100_000_000_000;
    if let Some(text) = ts.and_then(Value::as_str) {
        let wall = strtime::parse("%Y/%m/%d %H:%M:%S%.f", text).and_then(|time| time.to_datetime());
        let of_utc = |time: DateTime| time.to_zoned(TimeZone::UTC).map(|time| time.timestamp());
        let common = || strtime::parse(COMMON_STAMP, text).and_then(|time| time.to_timestamp());
        return match wall.and_then(of_utc).or_else(|_| common()) {
            Ok(stamp) => instant(stamp),
            Err(_) => rfc3339(text),
        };
    }
    let digits = digits(ts).ok_or("there is no `ts`")?;
    let whole = scaled(&digits, 0).ok_or("`ts` is not a time")?;
    let shift = match whole {
        ..SECONDS => 9,
        SECONDS..100_000_000_000_000 => 6,
        _ => 0,
    };
    scaled(&digits, shift).map(Instant::from_nanos).ok_or_else(|| "`ts` is not a time".into())
}

#[cfg(test)]
mod tests {
    use super::{super::logged::shown, *};
    use proptest::prelude::*;

    fn object(line: &str) -> Map<String, Value> {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn a_line_of_caddy_is_read() {
        let line = object(
            r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request",
            "request":{"remote_ip":"192.0.2.1","remote_port":"41342","client_ip":"192.0.2.1","proto":"HTTP/2.0",
            "method":"GET","host":"localhost","uri":"/x?y","headers":{"User-Agent":["curl/7.82.0"]}},
            "bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200}"#,
        );
        assert!(is_caddy(&line));
        assert_eq!(
            shown(parse(&line, &mut TextCache::default())),
            "1646861401523172725 +929.675µs 192.0.2.1 GET localhost /x?y Responded(Some(200)) user-agent: curl/7.82.0"
        );
    }

    #[test]
    fn other_lines_of_caddy_are_no_second_request() {
        let cache = &mut TextCache::default();
        let mut is_read = |of: &str| {
            let request = r#""ts":1,"request":{"method":"GET","uri":"/"}"#;
            parse(&object(&format!("{{{of}{request}}}")), cache).unwrap().is_some()
        };
        for of in [
            "",
            r#""logger":"http.log.access","msg":"handled request","#,
            r#""logger":"http.log.access.log0","#,
            r#""msg":"handled request","#,
        ] {
            assert!(is_read(of), "{of}");
        }
        for of in [
            r#""logger":"http.log.error","msg":"no upstreams available","#,
            r#""logger":"http.log.error.log0","msg":"handled request","#,
            r#""logger":"http.handlers.reverse_proxy","#,
            r#""msg":"aborting with incomplete response","#,
        ] {
            assert!(!is_read(of), "{of}");
        }
    }

    #[test]
    fn caddys_times_are_read_in_every_form_that_it_has() {
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        for ts in [
            "1646861401524.125",
            "1646861401524125000",
            "\"2022-03-09T21:30:01.524125Z\"",
            "\"2022-03-09T22:30:01.524125+0100\"",
            "\"2022/03/09 21:30:01.524125000\"",
        ] {
            let expected = Ok(Instant::from_nanos(1_646_861_401_524_125_000));
            assert_eq!(time_of(Some(&value(ts))), expected, "{ts}");
        }
        for ts in ["\"2022/03/09 21:30:01\"", "\"09/Mar/2022:22:30:01 +0100\"", "1646861401"] {
            let expected = Ok(Instant::from_nanos(1_646_861_401_000_000_000));
            assert_eq!(time_of(Some(&value(ts))), expected, "{ts}");
        }
        for (duration, expected) in [
            ("0.0015", Duration::from_micros(1500)),
            ("1500000", Duration::from_micros(1500)),
            ("86399", Duration::from_nanos(86_399)),
            ("61.5", Duration::from_millis(61_500)),
            ("\"1.5ms\"", Duration::from_micros(1500)),
            ("\"929.675µs\"", Duration::from_nanos(929_675)),
            ("\"1h2m3.5s\"", Duration::from_millis(3_723_500)),
            ("3", Duration::from_secs(3)),
            ("\"0s\"", Duration::ZERO),
        ] {
            assert_eq!(duration_of(Some(&value(duration))), Ok(expected), "{duration}");
        }
        for wrong in ["\"5\"", "\"5 s\"", "\"5y\"", "-1", "\"99999999999999h\""] {
            assert!(duration_of(Some(&value(wrong))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (line, missing) in
            [(r#"{"ts":1}"#, "`request`"), (r#"{"request":{"method":"GET"}}"#, "`ts`")]
        {
            let reason = parse(&object(line), &mut TextCache::default()).unwrap_err();
            assert!(reason.contains(missing), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_object_panics(
            names in proptest::collection::vec(0..5_usize, 0..6),
            values in proptest::collection::vec(r#"-?[0-9.e]{1,20}|"[0-9TZ:.+-]{0,30}"|\{"method":"GET","uri":"[ -~]{0,9}"\}|null|\[1\]"#, 6),
        ) {
            const NAMES: [&str; 5] = ["ts", "request", "duration", "status", "method"];
            let members = names.iter().zip(&values);
            let object: Map<String, Value> = members
                .filter_map(|(name, value)| Some((NAMES[*name].to_owned(), serde_json::from_str(value).ok()?)))
                .collect();
            drop(parse(&object, &mut TextCache::default()));
        }
    }
}
