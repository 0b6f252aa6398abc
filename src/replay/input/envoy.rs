//! Envoy's access log: JSON with configurable fields, or its default text format.
//!
//! ```text
//! [start] "method path protocol" status flags … received sent duration service_time
//!     "forwarded" "agent" "id" "authority" "upstream" [cluster local local remote …]
//! ```
//!
//! Istio adds fields at both dots. `start` is the arrival, `duration` is in milliseconds. Nothing
//! is escaped: the path and the user agent may contain quotes, so fields around them are counted
//! from both ends.

use super::{
    common::{Fields, find, quoted, request_line},
    logged::{
        LoggedRequest, TextCache, address, last_hop, method, nanos, rfc3339, some_headers, status,
        text,
    },
    problems::Reason,
};
use crate::{
    flow::Instant,
    replay::event::{Ending, Request},
};
use core::time::Duration;
use serde_json::{Map, Value};

/// A line's content in either format; empty and `-` are absent.
struct Line<'a> {
    at: Instant,
    takes: Duration,
    method: &'a str,
    host: Option<&'a str>,
    path: Option<&'a str>,
    forwarded: Option<&'a str>,
    agent: Option<&'a str>,
    /// The peer.
    remote: Option<&'a str>,
    status: Option<u16>,
    flags: Option<&'a str>,
}

/// Returns whether an object is of Envoy's log.
pub(super) fn is_json(object: &Map<String, Value>) -> bool {
    object.contains_key("start_time")
        && (object.contains_key("response_code") || object.contains_key("response_flags"))
}

/// Returns whether a line begins like Envoy's text.
pub(super) fn is_text(line: &[u8]) -> bool {
    stamp(line).is_some_and(|(stamp, rest)| rfc3339(stamp).is_ok() && quoted(rest).is_some())
}

/// Parses JSON with the names of Envoy's documentation, Istio or Envoy Gateway (which uses header
/// names).
pub(super) fn json(
    object: &Map<String, Value>,
    cache: &mut TextCache,
) -> Result<Option<LoggedRequest>, Reason> {
    let start = text(object, &["start_time", "timestamp", "time"]);
    let Some(method) = text(object, &["method", ":method", "request_method"]) else {
        // Without HTTP there is no method, but there is more of Envoy.
        let is_envoys = ["response_flags", "response_code", "upstream_cluster"]
            .iter()
            .any(|name| object.contains_key(*name));
        return if start.is_some() && is_envoys {
            Ok(None)
        } else {
            Err("there is no `method`, `response_code` or `response_flags` of Envoy".into())
        };
    };

    let line = Line {
        at: rfc3339(start.ok_or("there is no `start_time`")?)?,
        takes: nanos(object.get("duration"), 6, "duration", "milliseconds")?,
        method,
        host: text(object, &["authority", ":authority", "host"]),
        path: text(object, &["x_envoy_original_path", "x-envoy-origin-path", "path", ":path"]),
        forwarded: text(object, &["x_forwarded_for", "x-forwarded-for"]),
        agent: text(object, &["user_agent", "user-agent"]),
        remote: text(object, &["downstream_remote_address", "downstream_direct_remote_address"]),
        status: status(object.get("response_code").or_else(|| object.get("status"))),
        flags: text(object, &["response_flags"]),
    };
    line.logged(cache).map(Some)
}

/// Parses a line of text; `None` without a request.
pub(super) fn plain(line: &[u8], cache: &mut TextCache) -> Result<Option<LoggedRequest>, Reason> {
    /// The last position of the first of three numbers.
    const MOST_FLAGS: usize = 8;

    let (start, rest) =
        stamp(line).ok_or("no time in brackets, as in [2026-11-21T05:00:00.000Z]")?;
    let at = rfc3339(start)?;
    let (request, rest) = request(rest).ok_or("no request in quotes follows the time")?;
    let Some((method, path)) = request_line(request) else { return Ok(None) };

    // Of Istio's fields between the flags and the counts, the number is not known.
    let fields: Vec<&str> = Fields(rest).take(MOST_FLAGS + 3).map(utf8).collect();
    let status = fields.first().and_then(|field| field.parse().ok());
    let status = status.ok_or("no status follows the request")?;
    let is_number = |at: usize| fields.get(at).is_some_and(|field| field.parse::<u64>().is_ok());
    let is_unknown = |at: usize| fields.get(at) == Some(&"-");
    let counts = (2..MOST_FLAGS).find(|at| {
        is_number(*at) && is_number(at + 1) && (is_number(at + 2) || is_unknown(at + 2))
    });
    let counts = counts.ok_or("no bytes received, bytes sent and duration follow the status")?;
    let duration = fields.get(counts + 2).and_then(|field| field.parse().ok()).unwrap_or(0);

    // After the upstream's service time.
    let mut quoted = Fields(rest);
    quoted.nth(counts + 3);
    let entry = EnvoyEntry::of(quoted.0.trim_ascii());

    let line = Line {
        at,
        takes: Duration::from_millis(duration),
        method: &method,
        host: entry.authority,
        path: Some(&path),
        forwarded: entry.forwarded,
        agent: entry.agent,
        remote: entry.remote,
        status: Some(status),
        flags: fields.get(1).copied(),
    };
    line.logged(cache).map(Some)
}

/// Splits the request from the status and what follows.
fn request(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b"\"")?;
    let is_end = |part: &[u8]| matches!(part, [b'"', b' ', b'0'..=b'9']);
    let end = text.windows(3).position(is_end).or_else(|| find(text, b'"'))?;
    Some((&text[..end], &text[end + 1..]))
}

/// The quoted fields at the end of a line, and Istio's client.
#[derive(Default)]
struct EnvoyEntry<'a> {
    forwarded: Option<&'a str>,
    agent: Option<&'a str>,
    authority: Option<&'a str>,
    remote: Option<&'a str>,
}

impl<'a> EnvoyEntry<'a> {
    /// Parses `"forwarded" "agent" "id" "authority" "upstream" [cluster local local remote …]`.
    fn of(text: &'a [u8]) -> Self {
        let said = |text| Some(utf8(text)).filter(|text| !matches!(*text, "" | "-"));
        let Some((text, more)) = text.strip_prefix(b"\"").and_then(|text| part_last(text, b"\""))
        else {
            return Self::default();
        };
        let remote = Fields(more).nth(3).and_then(said);
        let Some((forwarded, text)) = part_first(text, GAP) else {
            return Self { forwarded: said(text), remote, ..Self::default() };
        };
        let upstream = part_last(text, GAP);
        let authority = upstream.and_then(|(text, _)| part_last(text, GAP));
        let id = authority.and_then(|(text, _)| part_last(text, GAP));
        Self {
            forwarded: said(forwarded),
            agent: said(id.map_or(text, |(agent, _)| agent)),
            authority: authority.and_then(|(_, authority)| said(authority)),
            remote,
        }
    }
}

/// Separates quoted texts.
const GAP: &[u8] = b"\" \"";

fn utf8(text: &[u8]) -> &str {
    str::from_utf8(text).unwrap_or_default()
}

/// Splits at the first `gap`.
fn part_first<'a>(text: &'a [u8], gap: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(gap.len()).position(|part| part == gap)?;
    Some((&text[..at], &text[at + gap.len()..]))
}

/// Splits at the last `gap`.
fn part_last<'a>(text: &'a [u8], gap: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(gap.len()).rposition(|part| part == gap)?;
    Some((&text[..at], &text[at + gap.len()..]))
}

impl Line<'_> {
    fn logged(self, cache: &mut TextCache) -> Result<LoggedRequest, Reason> {
        let mut forwarded = self.forwarded;
        let mut client = self.remote.and_then(address);
        if client.is_none()
            && let Some((before, last)) = forwarded.and_then(last_hop)
        {
            // Envoy appends the peer's address to what it received.
            client = Some(last);
            forwarded = before;
        }

        let headers = [("x-forwarded-for", forwarded), ("user-agent", self.agent)];
        let request = Request {
            method: method(self.method)?,
            host: self.host.map(|host| cache.text(host)),
            path: self.path.map(|path| cache.text(path)),
            headers: some_headers(
                headers.into_iter().filter_map(|(name, value)| Some((name, value?))),
            ),
            client,
        };
        let logged = LoggedRequest::new(self.at, request, self.takes, self.status);

        // `DC` is a downstream connection termination; status 0 means no response.
        let left = self.status == Some(0)
            || self.flags.is_some_and(|flags| flags.split(',').any(|flag| flag == "DC"));
        let ending = if left { Ending::Cancelled(self.takes) } else { logged.ending };
        Ok(LoggedRequest { ending, ..logged })
    }
}

/// Splits the leading stamp in brackets from the rest.
fn stamp(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.strip_prefix(b"[")?;
    let end = rest.iter().position(|byte| *byte == b']')?;
    Some((str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::{super::logged::shown, *};
    use proptest::prelude::*;

    fn object(line: &str) -> String {
        let object = serde_json::from_str(line).unwrap();
        assert!(is_json(&object));
        shown(json(&object, &mut TextCache::default()))
    }

    #[test]
    fn json_is_read_under_the_names_that_are_usual() {
        let envoy = r#"{"start_time":"2026-11-21T05:00:00.125Z","method":"POST","path":"/a","protocol":"HTTP/1.1",
            "response_code":503,"duration":12,"x_forwarded_for":"192.0.2.5","user_agent":"-",
            "authority":"a.example","downstream_remote_address":"[2001:db8::1]:4711","upstream_host":null}"#;
        let expected = "1795237200125000000 +12ms 2001:db8::1 POST a.example /a Responded(Some(503)) x-forwarded-for: 192.0.2.5";
        assert_eq!(object(envoy), expected);
        // Istio has numbers in quotes.
        let istio =
            envoy.replace(":503", ":\"503\"").replace(":12,", ":\"12\",\"response_flags\":\"-\",");
        assert_eq!(object(&istio), expected);
        let gateway = envoy
            .replace("authority", ":authority")
            .replace("x_forwarded_for", "x-forwarded-for")
            .replace("\"path\"", "\"x-envoy-origin-path\"");
        assert_eq!(object(&gateway), expected);
    }

    #[test]
    fn text_is_read_with_the_fields_of_istio_and_without() {
        let envoy = r#"[2026-11-21T05:00:00.125Z] "POST /a?b HTTP/2" 204 - 154 0 226 100 "192.0.2.9, 192.0.2.5" "agent x" "cc21" "a.example" "192.0.2.80:80""#;
        let istio = r#"[2026-11-21T05:00:00.125Z] "POST /a?b HTTP/2" 204 - via_upstream - "-" 154 0 226 100 "192.0.2.9" "agent x" "cc21" "a.example" "192.0.2.80:80" outbound|80||a 10.0.0.1:5 10.0.0.2:80 192.0.2.5:33 - default"#;
        let expected = "1795237200125000000 +226ms 192.0.2.5 POST a.example /a?b Responded(Some(204)) user-agent: agent x x-forwarded-for: 192.0.2.9";
        for line in [envoy, istio] {
            assert!(is_text(line.as_bytes()));
            assert_eq!(shown(plain(line.as_bytes(), &mut TextCache::default())), expected);
        }
    }

    #[test]
    fn quotes_in_what_a_client_says_shift_no_field() {
        for agent in ["a \"b\" c", "\"", "a\" \"b", "\" \" \"x", "a\\"] {
            let line = format!(
                r#"[2026-11-21T05:00:00Z] "GET / HTTP/1.1" 200 - 0 5 7 6 "192.0.2.9, 192.0.2.5" "{agent}" "cc21" "a.example" "192.0.2.80:80""#
            );
            let istio =
                format!("{line} outbound|80||a 10.0.0.1:5 10.0.0.2:80 192.0.2.5:33 - default");
            for (line, forwarded) in [(line, "192.0.2.9"), (istio, "192.0.2.9, 192.0.2.5")] {
                let expected = format!(
                    "1795237200000000000 +7ms 192.0.2.5 GET a.example / Responded(Some(200)) user-agent: {agent} x-forwarded-for: {forwarded}"
                );
                assert_eq!(shown(plain(line.as_bytes(), &mut TextCache::default())), expected);
            }
        }
    }

    #[test]
    fn quotes_in_a_path_shift_no_field() {
        for path in ["/a\"b", "/a\"", "/\"200", "/a\\", "/a\\\"b", "/\"\""] {
            let line = format!(
                r#"[2026-11-21T05:00:00Z] "GET {path} HTTP/1.1" 200 - 0 5 7 6 "192.0.2.5" "x" "cc21" "a.example" "192.0.2.80:80""#
            );
            let expected = format!(
                "1795237200000000000 +7ms 192.0.2.5 GET a.example {path} Responded(Some(200)) user-agent: x"
            );
            assert!(is_text(line.as_bytes()));
            assert_eq!(shown(plain(line.as_bytes(), &mut TextCache::default())), expected);
        }
    }

    #[test]
    fn a_duration_that_is_not_known_is_none() {
        let line = r#"[2026-11-21T05:00:00Z] "GET / HTTP/1.1" 503 UH 0 19 - - "192.0.2.5" "-" "-" "h" "-""#;
        let expected = shown(plain(line.as_bytes(), &mut TextCache::default()));
        assert_eq!(expected, "1795237200000000000 +0ns 192.0.2.5 GET h / Responded(Some(503))");
    }

    #[test]
    fn a_client_that_left_is_known_by_the_flags() {
        let line = r#"[2026-11-21T05:00:00Z] "GET / HTTP/1.1" 0 UF,DC 0 0 7 - "-" "-" "-" "h" "-""#;
        let expected = shown(plain(line.as_bytes(), &mut TextCache::default()));
        assert_eq!(expected, "1795237200000000000 +7ms - GET h / Cancelled(7ms)");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (line, cache) in [
            ("x", "no time in brackets"),
            ("[yesterday] \"GET / HTTP/1.1\" 200", "RFC 3339"),
            ("[2026-11-21T05:00:00Z] GET", "no request in quotes"),
            ("[2026-11-21T05:00:00Z] \"GET / HTTP/1.1\" x", "no status"),
            ("[2026-11-21T05:00:00Z] \"GET / HTTP/1.1\" 200 - 1 2", "duration"),
            ("[2026-11-21T05:00:00Z] \"- - HTTP/1.1\" 400 DPE 0 11 0 - \"-\"", "no request"),
        ] {
            let reason = shown(plain(line.as_bytes(), &mut TextCache::default()));
            assert!(reason.contains(cache), "{line}: {reason}");
        }
        assert_eq!(
            object(r#"{"start_time":"2026-11-21T05:00:00Z","response_code":400,"method":null}"#),
            "no request"
        );
        assert!(
            object(r#"{"start_time":"soon","response_code":0,"method":"GET"}"#)
                .contains("RFC 3339")
        );
    }

    proptest! {
        #[test]
        fn no_line_panics(
            line: Vec<u8>,
            text in r#"\[2026-11-21T05:00:00Z\] "[A-Z-]{0,4} [!-~]{0,6} H" ([0-9-]{0,4} |"[ -~]{0,9}" ){0,16}"#,
        ) {
            for line in [&line, text.as_bytes()] {
                drop(plain(line, &mut TextCache::default()));
                prop_assert!(!is_text(line) || line.starts_with(b"["));
            }
        }
    }
}
