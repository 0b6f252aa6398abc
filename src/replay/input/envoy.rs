//! Envoy's access log: JSON, whose fields its user names, and the text that is written
//! where no format is given.
//!
//! ```text
//! [start] "method path protocol" status flags … received sent duration service_time
//!     "forwarded" "agent" "id" "authority" "upstream" [cluster local local remote …]
//! ```
//!
//! Istio has further fields in both places of dots. `start` is the arrival, `duration` is
//! in milliseconds. Nothing is escaped: quotes may stand in the path, which has no space and
//! no status behind it, and in what a client says it is, for which the fields around it are
//! counted from both ends.

use super::{
    common::{Fields, find, quoted, request_line},
    logged::{
        Logged, Words, address, last_hop, method, nanos, rfc3339, some_headers, status, text,
    },
    reason::Reason,
};
use crate::{
    flow::Instant,
    replay::event::{Ending, Request},
};
use core::time::Duration;
use serde_json::{Map, Value};

/// What a line contains, whatever it is written in; empty and `-` are nothing.
struct Line<'a> {
    at: Instant,
    takes: Duration,
    method: &'a str,
    host: Option<&'a str>,
    path: Option<&'a str>,
    forwarded: Option<&'a str>,
    agent: Option<&'a str>,
    /// Who connected.
    remote: Option<&'a str>,
    status: Option<u16>,
    flags: Option<&'a str>,
}

/// Says whether an object has what only Envoy's log has.
pub(super) fn is_json(object: &Map<String, Value>) -> bool {
    object.contains_key("start_time")
        && (object.contains_key("response_code") || object.contains_key("response_flags"))
}

/// Says whether a line begins as Envoy's text does.
pub(super) fn is_text(line: &[u8]) -> bool {
    stamp(line).is_some_and(|(stamp, rest)| rfc3339(stamp).is_ok() && quoted(rest).is_some())
}

/// Reads a JSON line with the names of Envoy's documentation, of Istio, or of Envoy
/// Gateway, which calls header fields what HTTP calls them.
pub(super) fn json(
    object: &Map<String, Value>,
    words: &mut Words,
) -> Result<Option<Logged>, Reason> {
    let start = text(object, &["start_time", "timestamp", "time"]);
    let Some(method) = text(object, &["method", ":method", "request_method"]) else {
        // Of what was no HTTP, Envoy knows no method.
        return if start.is_some() { Ok(None) } else { Err("there is no `start_time`".into()) };
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
    line.logged(words).map(Some)
}

/// Reads a line of text; `None` if it holds no request.
pub(super) fn plain(line: &[u8], words: &mut Words) -> Result<Option<Logged>, Reason> {
    /// Of the first of the three numbers.
    const MOST_FLAGS: usize = 8;
    let (start, rest) =
        stamp(line).ok_or("no time in brackets, as in [2026-11-21T05:00:00.000Z]")?;
    let at = rfc3339(start)?;
    let (request, rest) = request(rest).ok_or("no request in quotes follows the time")?;
    let Some((method, path)) = request_line(request) else { return Ok(None) };
    let fields: Vec<&str> = Fields(rest).take(MOST_FLAGS + 3).map(utf8).collect();
    let status = fields.first().and_then(|field| field.parse().ok());
    let status = status.ok_or("no status follows the request")?;
    let is_number = |at: usize| fields.get(at).is_some_and(|it| it.parse::<u64>().is_ok());
    let is_unknown = |at: usize| fields.get(at) == Some(&"-");
    let counts = (2..MOST_FLAGS).find(|at| {
        is_number(*at) && is_number(at + 1) && (is_number(at + 2) || is_unknown(at + 2))
    });
    let counts = counts.ok_or("no bytes received, bytes sent and duration follow the status")?;
    let duration = fields.get(counts + 2).and_then(|it| it.parse().ok()).unwrap_or(0);
    // Behind the time that the service took.
    let mut quoted = Fields(rest);
    quoted.nth(counts + 3);
    let told = Told::of(quoted.0.trim_ascii());
    let line = Line {
        at,
        takes: Duration::from_millis(duration),
        method: &method,
        host: told.authority,
        path: Some(&path),
        forwarded: told.forwarded,
        agent: told.agent,
        remote: told.remote,
        status: Some(status),
        flags: fields.get(1).copied(),
    };
    line.logged(words).map(Some)
}

/// Parts the request from what follows, which begins with the status.
fn request(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start().strip_prefix(b"\"")?;
    let is_end = |it: &[u8]| matches!(it, [b'"', b' ', b'0'..=b'9']);
    let end = text.windows(3).position(is_end).or_else(|| find(text, b'"'))?;
    Some((&text[..end], &text[end + 1..]))
}

/// What stands in quotes at the end of a line of text, and the client that Istio adds.
#[derive(Default)]
struct Told<'a> {
    forwarded: Option<&'a str>,
    agent: Option<&'a str>,
    authority: Option<&'a str>,
    remote: Option<&'a str>,
}

impl<'a> Told<'a> {
    /// Reads `"forwarded" "agent" "id" "authority" "upstream" [cluster local local remote …]`.
    fn of(text: &'a [u8]) -> Self {
        let said = |text| Some(utf8(text)).filter(|it| !matches!(*it, "" | "-"));
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

/// Between two quoted texts.
const GAP: &[u8] = b"\" \"";

fn utf8(text: &[u8]) -> &str {
    str::from_utf8(text).unwrap_or_default()
}

/// Parts a text at the first of these.
fn part_first<'a>(text: &'a [u8], gap: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(gap.len()).position(|it| it == gap)?;
    Some((&text[..at], &text[at + gap.len()..]))
}

/// The same at the last.
fn part_last<'a>(text: &'a [u8], gap: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = text.windows(gap.len()).rposition(|it| it == gap)?;
    Some((&text[..at], &text[at + gap.len()..]))
}

impl Line<'_> {
    fn logged(self, words: &mut Words) -> Result<Logged, Reason> {
        let mut forwarded = self.forwarded;
        let mut client = self.remote.and_then(address);
        if client.is_none()
            && let Some((before, last)) = forwarded.and_then(last_hop)
        {
            // Envoy appends the address that connected to what it received.
            (client, forwarded) = (Some(last), before);
        }
        let headers = [("x-forwarded-for", forwarded), ("user-agent", self.agent)];
        let request = Request {
            method: method(self.method)?,
            host: self.host.map(|host| words.text(host)),
            path: self.path.map(|path| words.text(path)),
            headers: some_headers(
                headers.into_iter().filter_map(|(name, value)| Some((name, value?))),
            ),
            client,
        };
        let logged = Logged::answered(self.at, request, self.takes, self.status);
        // Downstream connection termination; 0 is the status of what was never answered.
        let left = self.status == Some(0)
            || self.flags.is_some_and(|it| it.split(',').any(|it| it == "DC"));
        let ending = if left { Ending::Cancelled(self.takes) } else { logged.ending };
        Ok(Logged { ending, ..logged })
    }
}

/// Parts the stamp in brackets, with which a line begins, from what follows.
fn stamp(line: &[u8]) -> Option<(&str, &[u8])> {
    let rest = line.strip_prefix(b"[")?;
    let end = rest.iter().position(|byte| *byte == b']')?;
    Some((str::from_utf8(&rest[..end]).ok()?, &rest[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(it: Result<Option<Logged>, Reason>) -> String {
        match it {
            Ok(Some(it)) => it.shown(),
            Ok(None) => "no request".to_owned(),
            Err(reason) => reason.into_owned(),
        }
    }

    fn object(line: &str) -> String {
        let object = serde_json::from_str(line).unwrap();
        assert!(is_json(&object));
        shown(json(&object, &mut Words::default()))
    }

    #[test]
    fn json_is_read_under_the_names_that_are_usual() {
        let envoy = r#"{"start_time":"2026-11-21T05:00:00.125Z","method":"POST","path":"/a","protocol":"HTTP/1.1",
            "response_code":503,"duration":12,"x_forwarded_for":"192.0.2.5","user_agent":"-",
            "authority":"a.example","downstream_remote_address":"[2001:db8::1]:4711","upstream_host":null}"#;
        let told = "1795237200125000000 +12ms 2001:db8::1 POST a.example /a Answered(Some(503)) x-forwarded-for: 192.0.2.5";
        assert_eq!(object(envoy), told);
        // Istio has numbers in quotes.
        let istio =
            envoy.replace(":503", ":\"503\"").replace(":12,", ":\"12\",\"response_flags\":\"-\",");
        assert_eq!(object(&istio), told);
        let gateway = envoy
            .replace("authority", ":authority")
            .replace("x_forwarded_for", "x-forwarded-for")
            .replace("\"path\"", "\"x-envoy-origin-path\"");
        assert_eq!(object(&gateway), told);
    }

    #[test]
    fn text_is_read_with_the_fields_of_istio_and_without() {
        let envoy = r#"[2026-11-21T05:00:00.125Z] "POST /a?b HTTP/2" 204 - 154 0 226 100 "192.0.2.9, 192.0.2.5" "agent x" "cc21" "a.example" "192.0.2.80:80""#;
        let istio = r#"[2026-11-21T05:00:00.125Z] "POST /a?b HTTP/2" 204 - via_upstream - "-" 154 0 226 100 "192.0.2.9" "agent x" "cc21" "a.example" "192.0.2.80:80" outbound|80||a 10.0.0.1:5 10.0.0.2:80 192.0.2.5:33 - default"#;
        let told = "1795237200125000000 +226ms 192.0.2.5 POST a.example /a?b Answered(Some(204)) user-agent: agent x x-forwarded-for: 192.0.2.9";
        for line in [envoy, istio] {
            assert!(is_text(line.as_bytes()));
            assert_eq!(shown(plain(line.as_bytes(), &mut Words::default())), told);
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
                let told = format!(
                    "1795237200000000000 +7ms 192.0.2.5 GET a.example / Answered(Some(200)) user-agent: {agent} x-forwarded-for: {forwarded}"
                );
                assert_eq!(shown(plain(line.as_bytes(), &mut Words::default())), told);
            }
        }
    }

    #[test]
    fn quotes_in_a_path_shift_no_field() {
        for path in ["/a\"b", "/a\"", "/\"200", "/a\\", "/a\\\"b", "/\"\""] {
            let line = format!(
                r#"[2026-11-21T05:00:00Z] "GET {path} HTTP/1.1" 200 - 0 5 7 6 "192.0.2.5" "x" "cc21" "a.example" "192.0.2.80:80""#
            );
            let told = format!(
                "1795237200000000000 +7ms 192.0.2.5 GET a.example {path} Answered(Some(200)) user-agent: x"
            );
            assert!(is_text(line.as_bytes()));
            assert_eq!(shown(plain(line.as_bytes(), &mut Words::default())), told);
        }
    }

    #[test]
    fn a_duration_that_is_not_known_is_none() {
        let line = r#"[2026-11-21T05:00:00Z] "GET / HTTP/1.1" 503 UH 0 19 - - "192.0.2.5" "-" "-" "h" "-""#;
        let told = shown(plain(line.as_bytes(), &mut Words::default()));
        assert_eq!(told, "1795237200000000000 +0ns 192.0.2.5 GET h / Answered(Some(503))");
    }

    #[test]
    fn a_client_that_left_is_told_by_the_flags() {
        let line = r#"[2026-11-21T05:00:00Z] "GET / HTTP/1.1" 0 UF,DC 0 0 7 - "-" "-" "-" "h" "-""#;
        let told = shown(plain(line.as_bytes(), &mut Words::default()));
        assert_eq!(told, "1795237200000000000 +7ms - GET h / Cancelled(7ms)");
    }

    #[test]
    fn what_is_missing_is_named() {
        for (line, words) in [
            ("x", "no time in brackets"),
            ("[yesterday] \"GET / HTTP/1.1\" 200", "RFC 3339"),
            ("[2026-11-21T05:00:00Z] GET", "no request in quotes"),
            ("[2026-11-21T05:00:00Z] \"GET / HTTP/1.1\" x", "no status"),
            ("[2026-11-21T05:00:00Z] \"GET / HTTP/1.1\" 200 - 1 2", "duration"),
            ("[2026-11-21T05:00:00Z] \"- - HTTP/1.1\" 400 DPE 0 11 0 - \"-\"", "no request"),
        ] {
            let reason = shown(plain(line.as_bytes(), &mut Words::default()));
            assert!(reason.contains(words), "{line}: {reason}");
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
                drop(plain(line, &mut Words::default()));
                prop_assert!(!is_text(line) || line.starts_with(b"["));
            }
        }
    }
}
