//! The Common and Combined Log Formats of nginx and Apache.
//!
//! ```text
//! [vhost|forwarded] client ident user [day/month/year:time zone] "request" status bytes ["referer" "agent" ["forwarded"]]
//! ```
//!
//! A leading `vhost` is Apache's `vhost_combined`; a third quoted field is `X-Forwarded-For` in
//! nginx's `main`. That may also be first, with commas that distinguish it from a virtual host; if
//! no client follows, its last address is the peer. Stamps are whole seconds unless they have a
//! fraction, and lines have no duration. Control characters, quotes and non-ASCII bytes are escaped
//! as `\xHH` or `\"`, also in what was no request, as from a TLS client on a cleartext port; `-`
//! means that nothing was received. Further fields are ignored.

use super::{
    logged::{LoggedRequest, TextCache, add_header, address, instant, last_hop, method, target},
    problems::Reason,
};
use crate::{flow::Instant, replay::event::Request};
use core::{net::IpAddr, time::Duration};
use http::{HeaderMap, Method};
use jiff::fmt::strtime;
use std::{borrow::Cow, sync::Arc};

/// The status of a request line that is too long, of which nginx logs the beginning.
const CUT: u16 = 414;

/// Precedes a request's version.
const VERSION: &[u8] = b" HTTP/";

/// The longest prefix to show, in characters.
const MOST_SHOWN: usize = 80;

/// The format of stamps.
pub(super) const STAMP: &str = "%d/%b/%Y:%H:%M:%S%.f %z";

/// Returns whether a line is of this format.
pub(super) fn is_common(line: &[u8]) -> bool {
    parse(line, &mut TextCache::default()).is_ok()
}

/// Parses a line; `None` without a request.
pub(super) fn parse(line: &[u8], cache: &mut TextCache) -> Result<Option<LoggedRequest>, Reason> {
    let Parts { before, stamp, after } = cut(line)?;
    let at = second(stamp, cache)?;
    let (request, rest) = quoted(after).ok_or("no request in quotes follows the time")?;
    let Parties { vhost, forwarded, client } = parties(before)?;
    if before.is_empty() && !after.trim_ascii_start().starts_with(b"\"") {
        return Err("no client precedes the time".into());
    }

    let status = status(rest).ok_or("no status follows the request")?;
    let is_cut = status == CUT && !request.windows(VERSION.len()).any(|part| part == VERSION);
    let Some((name, path)) = request_line(&request).filter(|_| !is_cut) else { return Ok(None) };

    let (absolute, path) = target(&path);
    let host = absolute.or(vhost).map(|host| cache.text(host));
    let request = Request {
        method: method(&name)?,
        host,
        path: Some(cache.text(path)),
        headers: headers(forwarded.as_deref(), rest, cache),
        client,
    };
    let logged = LoggedRequest::new(at, request, Duration::ZERO, Some(status));
    let coarse = (!stamp.contains(&b'.')).then_some(Duration::ZERO);
    Ok(Some(LoggedRequest { coarse, ..logged }))
}

/// Returns the status, which has three digits: a count of bytes, as in other formats, is none.
fn status(rest: &[u8]) -> Option<u16> {
    let field = Fields(rest).next().filter(|field| field.len() == 3)?;
    str::from_utf8(field).ok()?.parse().ok()
}

pub(super) struct Parts<'a> {
    pub(super) before: &'a [u8],
    pub(super) stamp: &'a [u8],
    pub(super) after: &'a [u8],
}

/// Splits a line at its stamp.
pub(super) fn cut(line: &[u8]) -> Result<Parts<'_>, Reason> {
    const NONE: &str = "no time in brackets, as in [21/Nov/2026:05:00:00 +0000]";
    let mut from = 0;
    // User names may contain brackets.
    while let Some(open) = find(&line[from..], b'[').map(|at| from + at) {
        let rest = &line[open + 1..];
        let end = find(rest, b']').ok_or(NONE)?;
        let has = |byte: u8| rest[..end].contains(&byte);
        if rest[..end].first().is_some_and(u8::is_ascii_digit) && has(b'/') && has(b':') {
            return Ok(Parts {
                before: &line[..open],
                stamp: &rest[..end],
                after: &rest[end + 1..],
            });
        }
        from = open + 1;
    }
    Err(NONE.into())
}

pub(super) fn find(bytes: &[u8], byte: u8) -> Option<usize> {
    bytes.iter().position(|other| *other == byte)
}

pub(super) fn second(stamp: &[u8], cache: &mut TextCache) -> Result<Instant, Reason> {
    if let Some((known, at)) = &cache.second
        && **known == *stamp
    {
        return Ok(*at);
    }
    let parsed = strtime::parse(STAMP, stamp);
    let time = parsed.and_then(|parsed| Ok((parsed.to_timestamp()?, parsed.offset())));
    let none = |_| format!("no such time: {}", String::from_utf8_lossy(stamp));
    let (time, zone) = time.map_err(none)?;
    let at = instant(time)?;
    cache.zone = cache.zone.or(zone);
    cache.second = Some((stamp.into(), at));
    Ok(at)
}

#[derive(Default)]
pub(super) struct Parties<'a> {
    vhost: Option<&'a str>,
    forwarded: Option<String>,
    /// The peer, if it is an address.
    pub(super) client: Option<IpAddr>,
}

/// Parses the part before the stamp.
pub(super) fn parties(before: &[u8]) -> Result<Parties<'_>, Reason> {
    let mut fields = Fields(before);
    let mut next = || fields.next().and_then(|field| str::from_utf8(field).ok());
    let first = next();

    // X-Forwarded-For before all else, whose addresses have commas between them.
    if let Some(list) = first.filter(|field| field.contains(',')) {
        let mut list = list.to_owned();
        while list.ends_with(',')
            && let Some(field) = next()
        {
            list = list + " " + field;
        }
        if let Some(client) = next().and_then(address) {
            return Ok(Parties { forwarded: Some(list), client: Some(client), vhost: None });
        }
        let (before, client) = last_hop(&list).unzip();
        let forwarded = before.unwrap_or(Some(&list)).map(str::to_owned);
        return Ok(Parties { forwarded, client, vhost: None });
    }

    // A virtual host may be an address; ident is not.
    if let Some(client) = next().and_then(address) {
        let vhost = first.filter(|name| *name != "-");
        return Ok(Parties { vhost, client: Some(client), forwarded: None });
    }

    let client = first.and_then(address);
    if client.is_none() && fields.any(|field| str::from_utf8(field).is_ok_and(is_address)) {
        let before = String::from_utf8_lossy(before.trim_ascii());
        let shown: String = before.chars().take(MOST_SHOWN).collect();
        return Err(format!("a prefix of an unknown kind precedes the client: {shown}").into());
    }
    Ok(Parties { client, ..Parties::default() })
}

fn is_address(text: &str) -> bool {
    address(text).is_some()
}

/// The fields of a line, separated by spaces or in quotes, without unescaping.
pub(super) struct Fields<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.0 = self.0.trim_ascii_start();
        if let (b"\"", text) = self.0.split_at_checked(1)? {
            let end = quote(text).unwrap_or(text.len());
            self.0 = text.get(end + 1..).unwrap_or_default();
            return Some(&text[..end]);
        }
        let (field, rest) = self.0.split_at(find(self.0, b' ').unwrap_or(self.0.len()));
        self.0 = rest;
        Some(field)
    }
}

fn quote(text: &[u8]) -> Option<usize> {
    let mut end = 0;
    while *text.get(end)? != b'"' {
        end += if text[end] == b'\\' { 2 } else { 1 };
    }
    Some(end)
}

/// Returns the first quoted text of `bytes`, and the rest.
pub(super) fn quoted(bytes: &[u8]) -> Option<(Cow<'_, [u8]>, &[u8])> {
    let text = &bytes[find(bytes, b'"')? + 1..];
    let end = quote(text)?;
    let rest = &text[end + 1..];
    let text = &text[..end];
    Some((if text.contains(&b'\\') { unescaped(text).into() } else { text.into() }, rest))
}

/// Decodes escapes of nginx (`\xHH`) and Apache (also `\"`, `\\`, `\n` and the like).
fn unescaped(text: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            plain.push(byte);
            continue;
        }

        let Some((&what, after)) = rest.split_first() else { break };
        rest = after;
        plain.push(match what {
            b'n' => b'\n',
            b't' => b'\t',
            b'r' => b'\r',
            b'b' => 8,
            b'v' => 11,
            b'f' => 12,
            b'x' => {
                let hex = rest.get(..2).and_then(|hex| str::from_utf8(hex).ok());
                let Some(byte) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) else {
                    plain.push(b'\\');
                    plain.push(b'x');
                    continue;
                };
                rest = &rest[2..];
                byte
            }
            other => other,
        });
    }
    plain
}

/// Returns method and target of an HTTP request line. Without a version only `GET` (HTTP/0.9)
/// counts; others are of other protocols, as is HTTP/2's `PRI *`. Invalid bytes of the target are
/// escaped.
pub(super) fn request_line(line: &[u8]) -> Option<(String, String)> {
    let (method, rest) = line.split_at(find(line, b' ')?);
    let rest = rest.trim_ascii_start();

    let version = rest.iter().rposition(|byte| *byte == b' ');
    let version = version.filter(|at| rest[at + 1..].starts_with(b"HTTP/"));
    let target = version.map_or(rest, |at| &rest[..at]);
    let is_http = match version {
        Some(_) => method != b"PRI" && method != b"-" && Method::from_bytes(method).is_ok(),
        None => method == b"GET",
    };
    if !is_http || target.is_empty() {
        return None;
    }

    let mut escaped = String::with_capacity(target.len());
    for byte in target {
        if byte.is_ascii_graphic() {
            escaped.push(char::from(*byte));
        } else {
            use core::fmt::Write;
            // Writing to a String cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
    }
    Some((String::from_utf8_lossy(method).into_owned(), escaped))
}

/// Parses the headers after the byte count, with those `forwarded` before the stamp.
fn headers(forwarded: Option<&str>, rest: &[u8], cache: &mut TextCache) -> Option<Arc<HeaderMap>> {
    const FORWARDED: &str = "x-forwarded-for";
    let quotes = find(rest, b'"').map_or(&b""[..], |start| &rest[start..]);
    // A line contains no line feed.
    let from: Cow<'_, [u8]> = match forwarded {
        Some(list) => [list.as_bytes(), b"\n", quotes].concat().into(),
        None if quotes.is_empty() => return None,
        None => quotes.into(),
    };

    cache.headers(&from, || {
        let mut headers = HeaderMap::new();
        if let Some(list) = forwarded {
            add_header(&mut headers, FORWARDED, list.as_bytes());
        }

        let mut rest = rest;
        for name in ["referer", "user-agent", FORWARDED] {
            if headers.contains_key(name) {
                break;
            }
            let Some((value, more)) = quoted(rest) else { break };
            rest = more;
            if !matches!(&*value, b"" | b"-") {
                add_header(&mut headers, name, &value);
            }
        }
        (!headers.is_empty()).then_some(headers)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_a_whole_second_unless_it_has_a_fraction() {
        for (fraction, expected) in
            [("", (0, Some(Duration::ZERO))), (".5", (500, None)), (".012", (12, None))]
        {
            let line =
                format!(r#"::1 - - [21/Nov/2026:05:00:00{fraction} +0000] "GET / HTTP/1.1" 200 5"#);
            let logged = parse(line.as_bytes(), &mut TextCache::default()).unwrap().unwrap();
            let millis = logged.at.since(Instant::EPOCH).as_millis() - 1_795_237_200_000;
            assert_eq!((millis, logged.coarse), expected);
        }
    }
}
