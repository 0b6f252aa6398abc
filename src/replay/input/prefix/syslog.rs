//! The prefixes of syslog and journald.
//!
//! ```text
//! [<priority>]Nov 21 05:00:07 [host] program[process]: …          RFC 3164
//! [<priority>]1 time host program process message-id data …       RFC 5424
//! time host program[process]: …                                   rsyslog, journalctl -o short-iso
//! ```

use super::step::{is_iso_time, word};
use core::net::IpAddr;

/// The byte order mark before a message of RFC 5424.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A field without a value.
const NONE: &str = "-";

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Returns whether a line is journalctl's own, as `-- Boot 0a1b --`.
pub(super) fn is_heading(line: &[u8]) -> bool {
    line.starts_with(b"-- ") && line.trim_ascii_end().ends_with(b" --")
}

/// Returns the message of a line with such a prefix.
pub(super) fn message(line: &[u8]) -> Option<&[u8]> {
    let after = priority(line);
    let rest = after.unwrap_or(line);
    if let Some(message) = structured(rest) {
        return Some(message);
    }
    match after_time(rest) {
        Some(rest) => tagged(rest),
        // Some senders leave the time out.
        None => tagged(after?),
    }
}

/// Returns what follows `<190>`, before which a stream has the length of the message.
fn priority(line: &[u8]) -> Option<&[u8]> {
    let length = line.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let line = match line.get(length) {
        Some(b' ') if length > 0 => &line[length + 1..],
        Some(_) | None => line,
    };
    let rest = line.strip_prefix(b"<")?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let rest = rest.get(digits..)?.strip_prefix(b">")?;
    (1..=3).contains(&digits).then_some(rest)
}

/// Returns the message of RFC 5424.
fn structured(line: &[u8]) -> Option<&[u8]> {
    let rest = line.strip_prefix(b"1 ")?;
    let (time, mut rest) = word(rest)?;
    if time != NONE && !is_iso_time(time) {
        return None;
    }
    for _field in ["host", "program", "process", "message id"] {
        (_, rest) = word(rest)?;
    }
    let message = match rest.strip_prefix(b"-") {
        Some(rest) => rest,
        None => after_data(rest)?,
    };
    let message = message.trim_ascii_start();
    Some(message.strip_prefix(MARK).unwrap_or(message))
}

/// Returns what follows structured data, as `[id name="value"][id]`, in whose values `\` escapes.
fn after_data(data: &[u8]) -> Option<&[u8]> {
    let mut rest = data.strip_prefix(b"[")?;
    let mut is_quoted = false;
    loop {
        let (byte, after) = rest.split_first()?;
        rest = after;
        match byte {
            b'\\' if is_quoted => rest = rest.get(1..)?,
            b'"' => is_quoted = !is_quoted,
            b']' if !is_quoted => match rest.strip_prefix(b"[") {
                Some(next) => rest = next,
                None => return Some(rest),
            },
            _ => {}
        }
    }
}

/// Returns what follows the time.
fn after_time(line: &[u8]) -> Option<&[u8]> {
    if let Some(rest) = line.strip_prefix(b"[") {
        // journalctl's `short-monotonic`.
        let (seconds, rest) = rest
            .trim_ascii_start()
            .split_at_checked(rest.trim_ascii_start().iter().position(|byte| *byte == b']')?)?;
        let is_seconds = is_seconds(str::from_utf8(seconds).ok()?);
        return is_seconds.then(|| rest[1..].trim_ascii_start());
    }
    let (first, rest) = word(line)?;
    if is_iso_time(first) || is_seconds(first) {
        return Some(rest);
    }
    if DAYS.contains(&first) {
        let (date, rest) = word(rest)?;
        let (time, rest) = word(rest)?;
        let (_zone, rest) = word(rest)?;
        let is_date =
            date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
        return (is_date && is_time_of_day(time)).then_some(rest);
    }
    let (day, rest) = MONTHS.contains(&first).then(|| word(rest))??;
    if !day.parse().is_ok_and(|day: u8| (1..=31).contains(&day)) {
        return None;
    }
    let (mut time, mut rest) = word(rest)?;
    if time.len() == 4 && time.parse::<u16>().is_ok() {
        (time, rest) = word(rest)?;
    }
    is_time_of_day(time).then_some(rest)
}

/// Returns whether a word is as `05:00:07` or `05:00:07.123456`.
fn is_time_of_day(word: &str) -> bool {
    let (clock, fraction) = word.split_once('.').unwrap_or((word, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let parts = clock.split(':');
    let is_clock =
        parts.clone().count() == 3 && parts.clone().all(|part| part.len() == 2 && is_digits(part));
    is_clock && is_digits(fraction)
}

/// Returns whether a word is as `1795237207.123456`.
fn is_seconds(word: &str) -> bool {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    word.split_once('.').is_some_and(|(whole, fraction)| is_digits(whole) && is_digits(fraction))
}

/// Returns the message behind `[host] program[process]:`, or an object behind `[host]`.
fn tagged(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text.trim_ascii_start();
    for _ in 0..2 {
        if rest.starts_with(b"{") {
            return Some(rest);
        }
        let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
        let first = &rest[..end];
        if let Some(message) = after_tag(first, rest) {
            return Some(message.strip_prefix(b" ").unwrap_or(message));
        }
        rest = rest[end..].trim_ascii_start();
    }
    None
}

/// Returns what follows the colon of a tag in `first`, the first word of `text`. Behind the colon
/// of some programs there is no space.
fn after_tag<'a>(first: &[u8], text: &'a [u8]) -> Option<&'a [u8]> {
    let first = str::from_utf8(first).ok()?;
    if first.parse::<IpAddr>().is_ok() {
        return None;
    }
    let colon = match first.find("]:") {
        Some(bracket) => bracket + 1,
        None => first.strip_suffix(':')?.len(),
    };
    let tag = &first[..colon];
    let is_tag = !tag.is_empty() && !tag.starts_with('[') && !tag.contains(['"', '{']);
    is_tag.then(|| &text[colon + 1..])
}
