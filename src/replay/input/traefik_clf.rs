//! Traefik's access log in its `common` format.
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
    logged::{LoggedRequest, TextCache, method, some_headers, target},
    reason::Reason,
};
use crate::replay::event::Request;
use core::time::Duration;

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
pub(super) fn parse(line: &[u8], cache: &mut TextCache) -> Result<Option<LoggedRequest>, Reason> {
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
    let logged = LoggedRequest::answered(at, request, tail.takes, tail.status);
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

    const T: &str = "[21/Nov/2026:05:00:00 +0000]";

    fn shown(line: &str) -> String {
        match parse(line.as_bytes(), &mut TextCache::default()) {
            Ok(Some(it)) => it.shown(),
            Ok(None) => "no request".to_owned(),
            Err(reason) => reason.into_owned(),
        }
    }

    #[test]
    fn a_line_is_read_with_its_duration_and_without_the_routers_name() {
        for (line, expected) in [
            (
                format!(
                    r#"192.0.2.1 - ann {T} "GET /a?b HTTP/2.0" 200 5 "https://c.example/" "curl/8.5" 7 "web@docker" "http://10.0.0.2:80" 12ms"#
                ),
                "+12ms 192.0.2.1 GET - /a?b Answered(Some(200)) referer: https://c.example/ user-agent: curl/8.5",
            ),
            (
                format!(r#"2001:db8::7 - - {T} "GET / HTTP/1.1" 404 19 "-" "-" 8 "-" "-" 0ms"#),
                "+0ns 2001:db8::7 GET - / Answered(Some(404))",
            ),
            (
                format!(r#"192.0.2.1 - - {T} "GET / HTTP/1.1" - - "-" "-" 9 "web@file" "-" 3ms"#),
                "+3ms 192.0.2.1 GET - / Answered(None)",
            ),
            (
                format!(r#"192.0.2.1 - - {T} "GET / HTTP/1.1" 499 0 - - - - - 3ms"#),
                "no fields of Traefik follow the time",
            ),
            (
                format!(
                    r#"192.0.2.1 - - {T} "GET /a" 200 5 HTTP/1.1" 499 0 "a "b"" "c" d" 9 "x" "y" 3ms"#
                ),
                "+3ms 192.0.2.1 GET - /a\"%20200%205 Cancelled(3ms) referer: a \"b\" user-agent: c\" d",
            ),
            (
                format!(r#"- - - {T} "GET / HTTP/1.1" 200 5 "-" "-" 9 "x" "y" 3ms"#),
                "+3ms - GET - / Answered(Some(200))",
            ),
        ] {
            let expected = if expected.starts_with('+') {
                format!("1795237200000000000 {expected}")
            } else {
                expected.to_owned()
            };
            assert_eq!(shown(&line), expected, "{line}");
        }
        assert_eq!(
            shown(&format!(r#"192.0.2.1 - - {T} "- - -" 200 5 "-" "-" 9 "x" "y" 3ms"#)),
            "no request"
        );
    }

    #[test]
    fn only_traefiks_lines_are_its() {
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

    proptest! {
        #[test]
        fn no_line_panics(
            fields in r#"("?[A-Z/ -]{0,9}"?|[0-9-]{1,4}| |"){0,16}"#,
        ) {
            let line = format!("192.0.2.1 - - {T} {fields} 5ms");
            drop(parse(line.as_bytes(), &mut TextCache::default()));
        }
    }
}
