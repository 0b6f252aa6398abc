//! The JSON access logs of Caddy and Traefik.

use super::{
    common::STAMP as COMMON_STAMP,
    events::headers,
    logged::{
        LoggedRequest, TextCache, address, digits, instant, method, nanos, rfc3339, some_headers,
        status, text,
    },
    reason::Reason,
};
use crate::{
    flow::Instant,
    replay::{decimal::scaled, event::Request},
};
use core::time::Duration;
use jiff::{SignedDuration, civil::DateTime, fmt::strtime, tz::TimeZone};
use serde_json::{Map, Value};
use std::sync::Arc;

type Object = Map<String, Value>;

/// Returns whether an object is of Caddy's log.
pub(super) fn is_caddy(object: &Object) -> bool {
    object.get("request").is_some_and(Value::is_object)
}

/// Returns whether an object is of Traefik's log.
pub(super) fn is_traefik(object: &Object) -> bool {
    object.contains_key("RequestMethod") || object.contains_key("DownstreamStatus")
}

/// Parses a line of Caddy, whose `ts` is the answer's end. `None` for other lines, such as errors
/// of handlers: their requests have lines of their own.
pub(super) fn caddy(
    object: &Object,
    cache: &mut TextCache,
) -> Result<Option<LoggedRequest>, Reason> {
    if !is_access(object) {
        let is_caddys = ["level", "ts", "msg"].iter().all(|name| object.contains_key(*name));
        let is_of_log = is_caddys || is_caddy(object);
        return if is_of_log { Ok(None) } else { Err("the line has no `request`".into()) };
    }
    let request = object.get("request").and_then(Value::as_object);
    let request = request.ok_or("the line has no `request`")?;
    let takes = caddy_duration(object.get("duration"))?;
    let ts = object.get("ts");
    let end = caddy_time(ts)?;
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
    let logged = LoggedRequest::answered(end - takes, request, takes, status(object.get("status")));
    Ok(Some(LoggedRequest { coarse: is_coarse.then_some(takes), ..logged }))
}

/// Returns whether a line of Caddy is an access line, by its logger or message.
fn is_access(object: &Object) -> bool {
    let logger = text(object, &["logger"]);
    let message = text(object, &["msg"]);
    match logger.and_then(|logger| logger.strip_prefix("http.log.access")) {
        Some(log) => log.is_empty() || log.starts_with('.'),
        None => logger.is_none() && message.is_none_or(|message| message == "handled request"),
    }
}

/// Reads Caddy's `duration`: seconds, or as configured nanoseconds or Go's text (`1m2.5s`).
fn caddy_duration(value: Option<&Value>) -> Result<Duration, Reason> {
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
fn caddy_time(ts: Option<&Value>) -> Result<Instant, Reason> {
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

/// Parses a line of Traefik: `StartUTC` is the arrival, `Duration` is in nanoseconds, and a lone
/// `time` is the second of writing.
pub(super) fn traefik(object: &Object, cache: &mut TextCache) -> Result<LoggedRequest, Reason> {
    let takes = nanos(object.get("Duration"), 0, "Duration", "nanoseconds")?;
    let (at, coarse) = if let Some(start) = text(object, &["StartUTC", "StartLocal"]) {
        (rfc3339(start)?, None)
    } else {
        let end = rfc3339(text(object, &["time"]).ok_or("there is no `StartUTC`")?)?;
        (end - takes, Some(takes))
    };
    let name = text(object, &["RequestMethod"]).ok_or("there is no `RequestMethod`")?;
    let fields = object.iter().filter_map(|(name, value)| {
        Some((name.strip_prefix("request_")?, value.as_str().filter(|value| *value != "-")?))
    });
    let request = Request {
        method: method(name)?,
        host: text(object, &["RequestHost", "RequestAddr"]).map(|host| cache.text(host)),
        path: text(object, &["RequestPath"]).map(|path| cache.text(path)),
        headers: some_headers(fields),
        client: text(object, &["ClientHost", "ClientAddr"]).and_then(address),
    };
    let logged =
        LoggedRequest::answered(at, request, takes, status(object.get("DownstreamStatus")));
    Ok(LoggedRequest { coarse, ..logged })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(line: &str) -> Object {
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
        assert!(is_caddy(&line) && !is_traefik(&line));
        let it = caddy(&line, &mut TextCache::default()).unwrap().unwrap();
        assert_eq!(
            it.shown(),
            "1646861401523172725 +929.675µs 192.0.2.1 GET localhost /x?y Answered(Some(200)) user-agent: curl/7.82.0"
        );
    }

    #[test]
    fn other_lines_of_caddy_are_no_second_request() {
        let cache = &mut TextCache::default();
        let mut is_read = |of: &str| {
            let request = r#""ts":1,"request":{"method":"GET","uri":"/"}"#;
            caddy(&object(&format!("{{{of}{request}}}")), cache).unwrap().is_some()
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
            assert_eq!(caddy_time(Some(&value(ts))), expected, "{ts}");
        }
        for ts in ["\"2022/03/09 21:30:01\"", "\"09/Mar/2022:22:30:01 +0100\"", "1646861401"] {
            let expected = Ok(Instant::from_nanos(1_646_861_401_000_000_000));
            assert_eq!(caddy_time(Some(&value(ts))), expected, "{ts}");
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
            assert_eq!(caddy_duration(Some(&value(duration))), Ok(expected), "{duration}");
        }
        for wrong in ["\"5\"", "\"5 s\"", "\"5y\"", "-1", "\"99999999999999h\""] {
            assert!(caddy_duration(Some(&value(wrong))).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_line_of_traefik_is_read() {
        let line = object(
            r#"{"ClientAddr":"192.0.2.1:5","ClientHost":"192.0.2.1","DownstreamStatus":404,"Duration":1500000,
            "RequestHost":"b.example","RequestMethod":"GET","RequestPath":"/b?c","StartUTC":"2026-11-21T05:00:00.000000001Z",
            "time":"2026-11-21T05:00:01Z","request_X-Tenant":"gold"}"#,
        );
        assert!(is_traefik(&line) && !is_caddy(&line));
        let it = traefik(&line, &mut TextCache::default()).unwrap();
        assert_eq!(
            it.shown(),
            "1795237200000000001 +1.5ms 192.0.2.1 GET b.example /b?c Answered(Some(404)) x-tenant: gold"
        );
        assert_eq!(it.coarse, None);
    }

    #[test]
    fn what_is_missing_is_named() {
        let cache = &mut TextCache::default();
        let reasons = [
            caddy(&object(r#"{"ts":1}"#), cache).map(drop),
            caddy(&object(r#"{"request":{"method":"GET"}}"#), cache).map(drop),
            traefik(&object(r#"{"RequestMethod":"GET"}"#), cache).map(drop),
            traefik(&object(r#"{"Duration":"soon"}"#), cache).map(drop),
        ]
        .map(|parsed| parsed.unwrap_err().into_owned());
        for (reason, cache) in
            reasons.iter().zip(["`request`", "`ts`", "`StartUTC`", "nanoseconds"])
        {
            assert!(reason.contains(cache), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_object_panics(
            names in proptest::collection::vec(0..13_usize, 0..12),
            values in proptest::collection::vec(r#"-?[0-9.e]{1,20}|"[0-9TZ:.+-]{0,30}"|\{"method":"GET","uri":"[ -~]{0,9}"\}|null|\[1\]"#, 12),
        ) {
            const NAMES: [&str; 13] = [
                "ts", "request", "duration", "status", "method", "StartUTC", "time", "Duration",
                "RequestMethod", "RequestPath", "ClientHost", "DownstreamStatus", "request_X-A",
            ];
            let cache = &mut TextCache::default();
            let pairs = names.iter().zip(&values);
            let object: Object = pairs
                .filter_map(|(name, value)| Some((NAMES[*name].to_owned(), serde_json::from_str(value).ok()?)))
                .collect();
            drop(caddy(&object, cache));
            drop(traefik(&object, cache));
        }
    }
}
