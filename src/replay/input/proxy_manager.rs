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
    problems::Reason,
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

    // The quoted target divides the fields before it from those behind it.
    let quote = parts.after.iter().position(|byte| *byte == b'"');
    let quote = quote.ok_or("no target in quotes follows the time")?;
    let fields = str::from_utf8(&parts.after[..quote]).map_err(|_| "the fields are not text")?;
    let (uri, rest) = quoted(parts.after).ok_or("no target in quotes follows the time")?;
    let (peer, rest) = client(rest).ok_or("no `[Client …]` follows the target")?;

    // Fields are counted back from the target.
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
    let logged = LoggedRequest::new(at, request, Duration::ZERO, Some(status));
    let coarse = (!parts.stamp.contains(&b'.')).then_some(Duration::ZERO);
    Ok(Some(LoggedRequest { coarse, ..logged }))
}

/// Splits `[Client address]` from what follows; `None` without it.
fn client(rest: &[u8]) -> Option<(Option<&str>, &[u8])> {
    let text = rest.trim_ascii_start().strip_prefix(CLIENT)?;
    let end = text.iter().position(|byte| *byte == b']')?;
    Some((str::from_utf8(&text[..end]).ok(), &text[end + 1..]))
}
