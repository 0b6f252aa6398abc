//! The access log of Nginx Proxy Manager.
//!
//! ```text
//! [time] [cache upstream-status] status - method scheme host "target" [Client address] [Length bytes] … "agent" "referer"
//! ```
//!
//! Fields before the target are counted from the target on: the status of the upstream may be
//! several.

use super::{
    common::{cut, quoted, request_line, second},
    logged::{LoggedRequest, TextCache, add_header, address, method, target},
    reason::Reason,
};
use crate::replay::event::Request;
use core::time::Duration;
use http::HeaderMap;

/// Precedes the client's address.
const CLIENT: &[u8] = b"[Client ";

/// Returns whether a line is of this log.
pub(super) fn is_ours(line: &[u8]) -> bool {
    let Ok(parts) = cut(line) else { return false };
    parts.before.is_empty() && quoted(parts.after).is_some_and(|(_, rest)| client(rest).is_some())
}

/// Parses a line; `None` without a request.
pub(super) fn parse(line: &[u8], cache: &mut TextCache) -> Result<Option<LoggedRequest>, Reason> {
    let parts = cut(line)?;
    let at = second(parts.stamp, cache)?;
    let quote = parts.after.iter().position(|byte| *byte == b'"');
    let quote = quote.ok_or("no target in quotes follows the time")?;
    let fields = str::from_utf8(&parts.after[..quote]).map_err(|_| "the fields are not text")?;
    let (uri, rest) = quoted(parts.after).ok_or("no target in quotes follows the time")?;
    let (peer, rest) = client(rest).ok_or("no `[Client …]` follows the target")?;
    let mut fields = fields.split_ascii_whitespace().rev();
    let host = fields.next().ok_or("no host precedes the target")?;
    let _scheme = fields.next().ok_or("no scheme precedes the host")?;
    let name = fields.next().ok_or("no method precedes the scheme")?;
    let status = match fields.next() {
        Some("-") => fields.next(),
        // nginx writes an empty method for a request that it could not read.
        status if name == "-" => status,
        Some(_) | None => None,
    };
    let status = status.filter(|word| word.len() == 3).and_then(|word| word.parse().ok());
    let status = status.ok_or("no status precedes the method")?;
    let request = [name.as_bytes(), b" ", &uri, b" HTTP/1.1"].concat();
    let Some((name, path)) = request_line(&request).filter(|_| *uri != *b"-") else {
        return Ok(None);
    };
    let (absolute, path) = target(&path);
    let mut headers = HeaderMap::new();
    let mut rest = rest;
    for name in ["user-agent", "referer"] {
        let Some((value, more)) = quoted(rest) else { break };
        rest = more;
        if !matches!(&*value, b"" | b"-") {
            add_header(&mut headers, name, &value);
        }
    }
    let request = Request {
        method: method(&name)?,
        host: absolute
            .or_else(|| Some(host).filter(|host| *host != "-"))
            .map(|host| cache.text(host)),
        path: Some(cache.text(path)),
        headers: (!headers.is_empty()).then(|| headers.into()),
        client: peer.and_then(address),
    };
    let logged = LoggedRequest::answered(at, request, Duration::ZERO, Some(status));
    let coarse = (!parts.stamp.contains(&b'.')).then_some(Duration::ZERO);
    Ok(Some(LoggedRequest { coarse, ..logged }))
}

/// Splits `[Client address]` from what follows; `None` without it.
fn client(rest: &[u8]) -> Option<(Option<&str>, &[u8])> {
    let text = rest.trim_ascii_start().strip_prefix(CLIENT)?;
    let end = text.iter().position(|byte| *byte == b']')?;
    Some((str::from_utf8(&text[..end]).ok(), &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shown(line: &str) -> String {
        match parse(line.as_bytes(), &mut TextCache::default()) {
            Ok(Some(it)) => it.shown(),
            Ok(None) => "no request".to_owned(),
            Err(reason) => reason.into_owned(),
        }
    }

    #[test]
    fn both_formats_are_read() {
        const END: &str = "[Client 2001:db8::7] [Length 162] [Gzip -] ";
        let expected = "1795237200000000000 +0ns 2001:db8::7 GET a.example /b?c=\"d Answered(Some(301)) referer: https://r.example/ user-agent: agent \"x\"";
        for (before, after) in [
            ("- 301 301", "[Sent-to 10.0.0.2] "),
            ("HIT - 301", "[Sent-to 10.0.0.2] "),
            ("- 502, 301 301", "[Sent-to app] "),
            ("301", ""),
        ] {
            let line = format!(
                r#"[21/Nov/2026:05:00:00 +0000] {before} - GET https a.example "/b?c=\x22d" {END}{after}"agent \x22x\x22" "https://r.example/""#
            );
            assert!(is_ours(line.as_bytes()), "{line}");
            assert_eq!(shown(&line), expected, "{line}");
        }
    }

    #[test]
    fn a_line_without_a_request_is_no_line_that_lacks_something() {
        const T: &str = "[21/Nov/2026:05:00:00 +0000]";
        const END: &str = r#"[Client 192.0.2.1] [Length 0] [Gzip -] [Sent-to a] "-" "-""#;
        for (line, expected) in [
            (format!(r#"{T} - - 400 - - http localhost "-" {END}"#), "no request"),
            (format!(r#"{T} - - 400 - GET http localhost "-" {END}"#), "no request"),
            (format!(r#"{T} - - 4000 - GET http localhost "/" {END}"#), "no status"),
            (format!(r#"{T} GET http localhost "/" {END}"#), "no status"),
            (format!(r#"{T} "/" {END}"#), "no host"),
            (format!(r#"{T} - - 200 - GET http localhost "/" [Len"#), "no `[Client"),
            (format!(r#"{T} - - 200 - GET http localhost "/"#), "no target"),
            (format!(r#"{T} - - 400 -  http localhost "-" {END}"#), "no request"),
        ] {
            let said = shown(&line);
            assert!(said.contains(expected), "{line}: {said}");
        }
    }

    proptest! {
        #[test]
        fn no_line_panics(
            fields in r#"[0-9A-Z" -]{0,30}"/?[ -~]{0,9}"? (\[Client [0-9a-f:.]{0,9}\]?)?[ -~]{0,20}"#,
        ) {
            let line = format!("[21/Nov/2026:05:00:00 +0000] {fields}");
            drop(parse(line.as_bytes(), &mut TextCache::default()));
        }
    }
}
