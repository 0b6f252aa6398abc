//! Traefik's access log, as JSON or in its `common` format.
//!
//! ```text
//! client - user [start] "method path protocol" status bytes "referer" "agent" number "router" "server" 5ms
//! ```
//!
//! `start` is the arrival. Traefik escapes nothing, so that fields after the request are found from
//! the end. `-` is a field without a value or one that is dropped; without a status, Traefik itself
//! has responded.

use super::{
    common::{Parties, Parts, cut, parties, request_line, second},
    logged::{
        LoggedRequest, TextCache, address, method, nanos, rfc3339, some_headers, status, target,
        text,
    },
    problems::Reason,
};
use crate::replay::event::Request;
use core::time::Duration;
use serde_json::{Map, Value};

/// Returns whether an object is of Traefik's log.
pub(super) fn is_traefik(object: &Map<String, Value>) -> bool {
    object.contains_key("RequestMethod") || object.contains_key("DownstreamStatus")
}

/// Parses a line of Traefik: `StartUTC` is the arrival, `Duration` is in nanoseconds, and a lone
/// `time` is the second of writing.
pub(super) fn parse_json(
    object: &Map<String, Value>,
    cache: &mut TextCache,
) -> Result<LoggedRequest, Reason> {
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
    let logged = LoggedRequest::new(at, request, takes, status(object.get("DownstreamStatus")));
    Ok(LoggedRequest { coarse, ..logged })
}

/// Fields after the protocol.
struct Tail<'a> {
    status: Option<u16>,
    referer: &'a str,
    agent: &'a str,
    takes: Duration,
}

/// Returns whether a line ends as Traefik's do.
pub(super) fn is_clf(line: &[u8]) -> bool {
    line.ends_with(b"ms") && cut(line).is_ok_and(|parts| fields(parts.after).is_some())
}

/// Parses a line; `None` without a request.
pub(super) fn parse_clf(
    line: &[u8],
    cache: &mut TextCache,
) -> Result<Option<LoggedRequest>, Reason> {
    let Parts { before, stamp, after } = cut(line)?;
    let at = second(stamp, cache)?;
    let (request, tail) = fields(after).ok_or("no fields of Traefik follow the time")?;
    let Some((name, path)) = request_line(request.as_bytes()) else { return Ok(None) };
    let (host, path) = target(&path);
    let Parties { client, .. } = parties(before)?;
    let headers = [("referer", tail.referer), ("user-agent", tail.agent)];
    let request = Request {
        method: method(&name)?,
        host: host.map(|host| cache.text(host)),
        path: Some(cache.text(path)),
        headers: some_headers(headers.into_iter().filter(|(_, value)| !matches!(*value, "" | "-"))),
        client,
    };
    let logged = LoggedRequest::new(at, request, tail.takes, tail.status);
    Ok(Some(LoggedRequest { coarse: Some(Duration::ZERO), ..logged }))
}

/// Splits what follows the time into the request and the fields after it.
fn fields(after: &[u8]) -> Option<(&str, Tail<'_>)> {
    let text = str::from_utf8(after).ok()?.trim().strip_prefix('"')?;
    let (text, takes) = text.rsplit_once(' ')?;
    let takes = Duration::from_millis(takes.strip_suffix("ms")?.parse().ok()?);
    let (text, _server) = last_quoted(text)?;
    let (text, _router) = last_quoted(text)?;
    let (text, number) = text.rsplit_once(' ')?;
    number.parse::<u64>().ok().or_else(|| (number == "-").then_some(0))?;
    // The status is the first number or `-` after a quote, as in a path that contains quotes.
    let end = text.match_indices("\" ").map(|(at, _)| at);
    let mut found = end.filter_map(|at| Some((&text[..at], status_and_more(&text[at + 2..])?)));
    let (request, (status, quoted)) = found.next()?;
    let (referer, agent) = quoted.strip_prefix('"')?.strip_suffix('"')?.split_once("\" \"")?;
    Some((request, Tail { status, referer, agent, takes }))
}

/// Splits `status bytes …`.
fn status_and_more(text: &str) -> Option<(Option<u16>, &str)> {
    let (status, rest) = text.split_once(' ')?;
    let (bytes, rest) = rest.split_once(' ')?;
    let is_number = |word: &str| word == "-" || word.parse::<u64>().is_ok();
    let status = match status {
        // Traefik has no response of a server.
        "-" | "0" => None,
        digits => Some(digits.parse().ok().filter(|_| digits.len() == 3)?),
    };
    (is_number(bytes) && rest.starts_with('"')).then_some((status, rest))
}

/// Splits a quoted text, or `-`, from the end.
fn last_quoted(text: &str) -> Option<(&str, &str)> {
    if let Some(rest) = text.strip_suffix(" -") {
        return Some((rest, "-"));
    }
    text.strip_suffix('"')?.rsplit_once(" \"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(line: &str) -> Map<String, Value> {
        serde_json::from_str(line).unwrap()
    }

    #[test]
    fn a_line_of_traefik_is_read() {
        let line = object(
            r#"{"ClientAddr":"192.0.2.1:5","ClientHost":"192.0.2.1","DownstreamStatus":404,"Duration":1500000,
            "RequestHost":"b.example","RequestMethod":"GET","RequestPath":"/b?c","StartUTC":"2026-11-21T05:00:00.000000001Z",
            "time":"2026-11-21T05:00:01Z","request_X-Tenant":"gold"}"#,
        );
        assert!(is_traefik(&line));
        let it = parse_json(&line, &mut TextCache::default()).unwrap();
        assert_eq!(
            it.shown(),
            "1795237200000000001 +1.5ms 192.0.2.1 GET b.example /b?c Responded(Some(404)) x-tenant: gold"
        );
        assert_eq!(it.coarse, None);
    }

    #[test]
    fn only_traefiks_lines_are_its() {
        const T: &str = "[21/Nov/2026:05:00:00 +0000]";
        let traefik = format!(r#"192.0.2.1 - - {T} "GET / HTTP/1.1" 200 5 "-" "-" 9 "x" "y" 3ms"#);
        assert!(is_clf(traefik.as_bytes()));
        for other in [
            format!(r#"192.0.2.1 - - {T} "GET / HTTP/1.1" 200 5 "-" "-" "192.0.2.9" 3ms"#),
            format!(r#"192.0.2.1 - - {T} "GET / HTTP/1.1" 200 5 "-" "3ms"#),
            "3ms".to_owned(),
        ] {
            assert!(!is_clf(other.as_bytes()), "{other}");
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        for (line, missing) in [
            (r#"{"RequestMethod":"GET"}"#, "`StartUTC`"),
            (r#"{"Duration":"soon"}"#, "nanoseconds"),
        ] {
            let reason = parse_json(&object(line), &mut TextCache::default()).unwrap_err();
            assert!(reason.contains(missing), "{reason}");
        }
    }

    proptest! {
        #[test]
        fn no_object_panics(
            names in proptest::collection::vec(0..8_usize, 0..9),
            values in proptest::collection::vec(r#"-?[0-9.e]{1,20}|"[0-9TZ:.+-]{0,30}"|null|\[1\]"#, 9),
        ) {
            const NAMES: [&str; 8] = [
                "StartUTC", "time", "Duration", "RequestMethod", "RequestPath", "ClientHost",
                "DownstreamStatus", "request_X-A",
            ];
            let members = names.iter().zip(&values);
            let object: Map<String, Value> = members
                .filter_map(|(name, value)| Some((NAMES[*name].to_owned(), serde_json::from_str(value).ok()?)))
                .collect();
            drop(parse_json(&object, &mut TextCache::default()));
        }
    }
}
