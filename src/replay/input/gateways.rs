//! The JSON access logs of Caddy, Envoy and Traefik, as they write them by default.

use super::{
    Reason,
    events::headers,
    logged::{Logged, Words, add_header, address, digits, method, rfc3339, status, text},
};
use crate::{
    flow::Instant,
    replay::{decimal::scaled, event::Request},
};
use core::time::Duration;
use http::HeaderMap;
use serde_json::{Map, Value};
use std::sync::Arc;

type Object = Map<String, Value>;

/// Tells whether an object has what only Caddy's log has.
pub(super) fn is_caddy(object: &Object) -> bool {
    object.get("request").is_some_and(Value::is_object)
}

/// Tells whether an object has what only Traefik's log has.
pub(super) fn is_traefik(object: &Object) -> bool {
    object.contains_key("RequestMethod") || object.contains_key("DownstreamStatus")
}

/// Tells whether an object has what only Envoy's log has.
pub(super) fn is_envoy(object: &Object) -> bool {
    object.contains_key("start_time") && object.contains_key("response_code")
}

/// Reads a line of Caddy: `ts` is when the answer ended, `duration` is in seconds.
pub(super) fn caddy(object: &Object, words: &mut Words) -> Result<Logged, Reason> {
    let request = object.get("request").and_then(Value::as_object);
    let request = request.ok_or("there is no `request`, so it tells of none")?;
    let takes = nanos(object.get("duration"), 9, "duration", "seconds")?;
    let end = caddy_time(object.get("ts"))?;
    let name = text(request, &["method"]).ok_or("the request has no `method`")?;
    let fields = request.get("headers").and_then(Value::as_object);
    let client = text(request, &["remote_ip", "client_ip", "remote_addr"]).and_then(address);
    let request = Request {
        method: method(name)?,
        host: text(request, &["host"]).map(|host| words.text(host)),
        path: text(request, &["uri"]).map(|path| words.text(path)),
        headers: fields.and_then(|fields| headers(fields).ok()).map(Arc::new),
        client,
    };
    let takes = Duration::from_nanos(takes);
    Ok(Logged::answered(end - takes, request, takes, status(object.get("status"))))
}

/// Reads Caddy's `ts`: seconds unless it is told to write milliseconds, nanoseconds or
/// RFC 3339.
fn caddy_time(ts: Option<&Value>) -> Result<Instant, Reason> {
    /// Seconds before this are before the year 5138, milliseconds after 1973.
    const SECONDS: u64 = 100_000_000_000;
    if let Some(text) = ts.and_then(Value::as_str) {
        return rfc3339(text);
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

/// Reads a line of Envoy, whose fields its user names: those of its documentation and of
/// Istio. `start_time` is the arrival, `duration` is in milliseconds.
pub(super) fn envoy(object: &Object, words: &mut Words) -> Result<Logged, Reason> {
    let at = rfc3339(text(object, &["start_time"]).ok_or("there is no `start_time`")?)?;
    let takes = nanos(object.get("duration"), 6, "duration", "milliseconds")?;
    let name = text(object, &["method", "request_method"]).ok_or("there is no `method`")?;
    let client = text(object, &["downstream_remote_address", "downstream_direct_remote_address"]);
    let fields = [
        ("x-forwarded-for", text(object, &["x_forwarded_for"])),
        ("user-agent", text(object, &["user_agent"])),
    ];
    let request = Request {
        method: method(name)?,
        host: text(object, &["authority", "host"]).map(|host| words.text(host)),
        path: text(object, &["x_envoy_original_path", "path"]).map(|path| words.text(path)),
        headers: some_headers(fields.into_iter().filter_map(|(name, value)| Some((name, value?)))),
        client: client.and_then(address),
    };
    Ok(Logged::answered(
        at,
        request,
        Duration::from_nanos(takes),
        status(object.get("response_code")),
    ))
}

/// Reads a line of Traefik: `StartUTC` is the arrival, `Duration` is in nanoseconds. If
/// only `time` is there, it is the second in which the line was written.
pub(super) fn traefik(object: &Object, words: &mut Words) -> Result<Logged, Reason> {
    let takes = Duration::from_nanos(nanos(object.get("Duration"), 0, "Duration", "nanoseconds")?);
    let (at, is_coarse) = match text(object, &["StartUTC", "StartLocal"]) {
        Some(start) => (rfc3339(start)?, false),
        None => (rfc3339(text(object, &["time"]).ok_or("there is no `StartUTC`")?)? - takes, true),
    };
    let name = text(object, &["RequestMethod"]).ok_or("there is no `RequestMethod`")?;
    let fields = object.iter().filter_map(|(name, value)| {
        Some((name.strip_prefix("request_")?, value.as_str().filter(|value| *value != "-")?))
    });
    let request = Request {
        method: method(name)?,
        host: text(object, &["RequestHost", "RequestAddr"]).map(|host| words.text(host)),
        path: text(object, &["RequestPath"]).map(|path| words.text(path)),
        headers: some_headers(fields),
        client: text(object, &["ClientHost", "ClientAddr"]).and_then(address),
    };
    let logged = Logged::answered(at, request, takes, status(object.get("DownstreamStatus")));
    Ok(Logged { is_coarse, ..logged })
}

fn some_headers<'a>(fields: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Arc<HeaderMap>> {
    let mut headers = HeaderMap::new();
    fields.for_each(|(name, value)| add_header(&mut headers, name, value.as_bytes()));
    (!headers.is_empty()).then(|| Arc::new(headers))
}

/// Reads a number of `unit`s, each of `10^shift` nanoseconds; nothing is zero.
fn nanos(value: Option<&Value>, shift: i32, name: &str, unit: &str) -> Result<u64, Reason> {
    let Some(digits) = digits(value).filter(|digits| digits != "-") else { return Ok(0) };
    scaled(&digits, shift)
        .ok_or_else(|| format!("`{name}` is not a number of {unit}, but {digits}").into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(line: &str) -> Object {
        serde_json::from_str(line).unwrap()
    }

    fn shown(it: &Logged) -> String {
        let Request { method, host, path, client, .. } = &it.request;
        let (host, path) = (host.as_deref().unwrap_or("-"), path.as_deref().unwrap_or("-"));
        let client = client.map_or_else(|| "-".to_owned(), |client| client.to_string());
        format!(
            "{} +{:?} {client} {method} {host} {path} {:?}",
            it.at.as_nanos(),
            it.takes,
            it.ending
        )
    }

    #[test]
    fn a_line_of_caddy_is_read() {
        let line = object(
            r#"{"level":"info","ts":1646861401.5241024,"logger":"http.log.access","msg":"handled request",
            "request":{"remote_ip":"192.0.2.1","remote_port":"41342","client_ip":"192.0.2.1","proto":"HTTP/2.0",
            "method":"GET","host":"localhost","uri":"/x?y","headers":{"User-Agent":["curl/7.82.0"]}},
            "bytes_read":0,"user_id":"","duration":0.000929675,"size":10900,"status":200}"#,
        );
        assert!(is_caddy(&line) && !is_envoy(&line) && !is_traefik(&line));
        let it = caddy(&line, &mut Words::default()).unwrap();
        assert_eq!(
            shown(&it),
            "1646861401523172725 +929.675µs 192.0.2.1 GET localhost /x?y Answered(Some(200))"
        );
        assert_eq!(it.request.headers.unwrap().get("user-agent").unwrap(), "curl/7.82.0");
        for ts in ["1646861401524.125", "1646861401524125000", "\"2022-03-09T21:30:01.524125Z\""] {
            let ts: Value = serde_json::from_str(ts).unwrap();
            assert_eq!(caddy_time(Some(&ts)), Ok(Instant::from_nanos(1_646_861_401_524_125_000)));
        }
    }

    #[test]
    fn a_line_of_envoy_is_read() {
        let line = object(
            r#"{"start_time":"2026-11-21T05:00:00.125Z","method":"POST","path":"/a","protocol":"HTTP/1.1",
            "response_code":503,"duration":12,"x_forwarded_for":"192.0.2.5","user_agent":"-",
            "authority":"a.example","downstream_remote_address":"[2001:db8::1]:4711","upstream_host":null}"#,
        );
        assert!(is_envoy(&line) && !is_caddy(&line) && !is_traefik(&line));
        let it = envoy(&line, &mut Words::default()).unwrap();
        assert_eq!(
            shown(&it),
            "1795237200125000000 +12ms 2001:db8::1 POST a.example /a Answered(Some(503))"
        );
        assert_eq!(it.request.headers.unwrap().get("x-forwarded-for").unwrap(), "192.0.2.5");
    }

    #[test]
    fn a_line_of_traefik_is_read() {
        let line = object(
            r#"{"ClientAddr":"192.0.2.1:5","ClientHost":"192.0.2.1","DownstreamStatus":404,"Duration":1500000,
            "RequestHost":"b.example","RequestMethod":"GET","RequestPath":"/b?c","StartUTC":"2026-11-21T05:00:00.000000001Z",
            "time":"2026-11-21T05:00:01Z","request_X-Tenant":"gold"}"#,
        );
        assert!(is_traefik(&line) && !is_caddy(&line) && !is_envoy(&line));
        let it = traefik(&line, &mut Words::default()).unwrap();
        assert_eq!(
            shown(&it),
            "1795237200000000001 +1.5ms 192.0.2.1 GET b.example /b?c Answered(Some(404))"
        );
        assert!(!it.is_coarse);
        assert_eq!(it.request.headers.unwrap().get("x-tenant").unwrap(), "gold");
    }

    #[test]
    fn what_is_missing_is_named() {
        let words = &mut Words::default();
        let reasons = [
            caddy(&object(r#"{"ts":1}"#), words),
            caddy(&object(r#"{"request":{"method":"GET"}}"#), words),
            envoy(&object(r#"{"method":"GET"}"#), words),
            envoy(&object(r#"{"start_time":"yesterday"}"#), words),
            traefik(&object(r#"{"RequestMethod":"GET"}"#), words),
            traefik(&object(r#"{"Duration":"soon"}"#), words),
        ]
        .map(|it| it.unwrap_err().into_owned());
        for (reason, words) in reasons.iter().zip([
            "`request`",
            "`ts`",
            "`start_time`",
            "RFC 3339",
            "`StartUTC`",
            "nanoseconds",
        ]) {
            assert!(reason.contains(words), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_object_panics(
            names in proptest::collection::vec(0..20_usize, 0..12),
            values in proptest::collection::vec(r#"-?[0-9.e]{1,20}|"[0-9TZ:.+-]{0,30}"|\{"method":"GET","uri":"[ -~]{0,9}"\}|null|\[1\]"#, 12),
        ) {
            const NAMES: [&str; 20] = [
                "ts", "request", "duration", "status", "start_time", "method", "path", "authority", "x_forwarded_for",
                "downstream_remote_address", "response_code", "StartUTC", "time", "Duration", "RequestMethod",
                "RequestPath", "ClientHost", "DownstreamStatus", "request_X-A", "user_agent",
            ];
            let words = &mut Words::default();
            let pairs = names.iter().zip(&values);
            let object: Object = pairs
                .filter_map(|(name, value)| Some((NAMES[*name].to_owned(), serde_json::from_str(value).ok()?)))
                .collect();
            for read in [caddy, envoy, traefik] {
                drop(read(&object, words));
            }
        }
    }
}
