//! Removes the prefixes that other programs add to the lines of a log. Prefixes may be nested.
//!
//! ```text
//! {"log":"…\n","stream":"stdout","time":"…"}                      Docker's files
//! time stdout F …                                                 Kubernetes (CRI), Podman
//! service-1  | …                                                  Docker Compose, Swarm
//! [pod/name/container] …                                          kubectl logs --prefix
//! time …                                                          docker logs -t
//! [<priority>]Nov 21 05:00:07 [host] program[process]: …          syslog, RFC 3164
//! [<priority>]1 time host program process message-id data …       syslog, RFC 5424
//! time host program[process]: …                                   rsyslog, journalctl -o short-iso
//! ```

use super::lines::LONGEST;
use core::{mem, net::IpAddr};
use serde_json::{Map, Value};

/// The most prefixes of a line.
const MOST: usize = 5;

/// Ends a colour of a terminal.
const RESET: &[u8] = b"\x1b[0m";

/// A line without its prefixes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unwrapped {
    Line(Vec<u8>),
    /// Other parts of the line follow.
    Part,
    /// The parts of the line are longer than [`LONGEST`] together.
    TooLong,
}

/// Removes prefixes, and joins the parts of long lines.
#[derive(Debug, Default)]
pub(super) struct Unwrapper {
    stdout: Parts,
    stderr: Parts,
}

/// The parts of a line so far.
#[derive(Debug, Default)]
struct Parts {
    text: Vec<u8>,
    is_too_long: bool,
}

impl Unwrapper {
    /// Removes the prefixes of a line without its end.
    pub(super) fn unwrap(&mut self, mut line: Vec<u8>) -> Unwrapped {
        if is_heading(&line) {
            line.clear();
        }
        for _ in 0..MOST {
            let blanks = line.len() - line.trim_ascii_start().len();
            match without_first(&line[blanks..], self.expects_more()) {
                Step::Bare => break,
                Step::Rest(rest) => {
                    let prefix = line.len() - rest.len();
                    line.drain(..prefix);
                }
                Step::Text(text) => line = text,
                Step::Part(part) => match self.join(&part) {
                    Unwrapped::Line(joined) => line = joined,
                    other @ (Unwrapped::Part | Unwrapped::TooLong) => return other,
                },
            }
        }
        if line.ends_with(RESET) {
            line.truncate(line.len() - RESET.len());
        }
        Unwrapped::Line(line)
    }

    /// Returns the beginning of a line whose last part is missing at the end of the log.
    pub(super) fn unfinished(&mut self) -> Option<Vec<u8>> {
        let all = [&mut self.stdout, &mut self.stderr];
        let left = all.into_iter().find(|parts| !parts.text.is_empty())?;
        Some(mem::take(left).text)
    }

    fn expects_more(&self) -> bool {
        [&self.stdout, &self.stderr].iter().any(|parts| !parts.text.is_empty())
    }

    fn join(&mut self, part: &Part) -> Unwrapped {
        let parts = match part.stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        if (parts.text.len() + part.text.len()) as u64 > LONGEST {
            parts.is_too_long = true;
            parts.text.clear();
        }
        if !parts.is_too_long {
            parts.text.extend_from_slice(&part.text);
        }
        if !part.is_last {
            return Unwrapped::Part;
        }
        let Parts { text, is_too_long } = mem::take(parts);
        if is_too_long { Unwrapped::TooLong } else { Unwrapped::Line(text) }
    }
}

/// Removes the first prefix. `expects_more`: the last part of a line is still to come.
fn without_first(line: &[u8], expects_more: bool) -> Step<'_> {
    match line.first() {
        None => Step::Bare,
        Some(b'{') => json(line, expects_more),
        Some(_) => {
            let part = cri(line);
            let rest = || message(line).or_else(|| rest(line));
            part.or_else(|| rest().map(Step::Rest)).unwrap_or(Step::Bare)
        }
    }
}

/// A line after one step.
#[derive(Debug, PartialEq, Eq)]
enum Step<'a> {
    /// It has no prefix that is known.
    Bare,
    /// The line without its first prefix.
    Rest(&'a [u8]),
    /// The text of a JSON object around a line.
    Text(Vec<u8>),
    /// A part of a long line.
    Part(Part),
}

/// A part of a long line, which a container has written.
#[derive(Debug, PartialEq, Eq)]
struct Part {
    text: Vec<u8>,
    stream: Stream,
    is_last: bool,
}

/// A container's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

/// Splits at the first space.
fn word(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((str::from_utf8(&text[..end]).ok()?, text[end..].trim_ascii_start()))
}

/// Returns whether a word is a time as RFC 3339 or ISO 8601 writes it, as `2026-11-21T05:00:07.5Z`
/// and `2026-11-21T06:00:07+0100`.
fn is_iso_time(word: &str) -> bool {
    let bytes = word.as_bytes();
    let is_shape = |shape: &str| {
        let mut pairs = shape.bytes().zip(bytes);
        bytes.len() > shape.len()
            && pairs.all(|(shape, byte)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => *byte == other,
            })
    };
    let is_end = |byte: &u8| byte.is_ascii_digit() || b".,:+-Zz".contains(byte);
    is_shape("0000-00-00T00:00:00") && bytes[19..].iter().all(is_end)
}

/// Docker splits longer lines into parts of this length.
const DOCKER_PART: usize = 16 * 1024;

/// Escapes of terminals begin with this, as colours of Docker Compose.
const ESCAPE: &[u8] = b"\x1b[";

/// First members of objects around lines.
const FIRST: [&[u8]; 9] = [
    b"log",
    b"stream",
    b"time",
    b"date",
    b"message",
    b"MESSAGE",
    b"@timestamp",
    b"kubernetes",
    b"attrs",
];

/// Removes the JSON object around a line: Docker's, journald's (`journalctl -o json`), or that of a
/// log shipper. `expects_more`: the last part of a line is still to come.
fn json(line: &[u8], expects_more: bool) -> Step<'_> {
    if !is_wrapper(line) {
        return Step::Bare;
    }
    let Ok(object) = serde_json::from_slice::<Map<String, Value>>(line) else { return Step::Bare };
    let has = |name: &str| object.contains_key(name);

    // A program's own object may have one of these members; only a wrapper has the others too.
    let stream = object.get("stream").and_then(Value::as_str);
    let has_proof = stream.is_some() || has("time") || has("date") || has("@timestamp");
    let journal = || object.keys().any(|name| name.starts_with('_'));
    let text = match (object.get("log"), object.get("message"), object.get("MESSAGE")) {
        (Some(text), ..) if has_proof || has("kubernetes") => text,
        (None, Some(text), _) if has("@timestamp") => text,
        (None, None, Some(text)) if journal() => text,
        _ => return Step::Bare,
    };

    let text = match text {
        Value::String(text) => text.as_bytes().to_vec(),
        // Some shippers put the inner object here.
        Value::Object(_) => text.to_string().into_bytes(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => return Step::Bare,
    };

    // Docker splits a long line: only the end of its last part is an end of line.
    let has_end = text.ends_with(b"\n");
    let is_part = stream.is_some() && (expects_more || !has_end && text.len() >= DOCKER_PART);
    if !is_part {
        return Step::Text(text);
    }
    let stream = if stream == Some("stderr") { Stream::Stderr } else { Stream::Stdout };
    let is_last = has_end || text.len() < DOCKER_PART;
    Step::Part(Part { text, stream, is_last })
}

/// Returns whether the first member of an object is one that objects around lines begin with.
fn is_wrapper(line: &[u8]) -> bool {
    let member = line.strip_prefix(b"{").map(<[u8]>::trim_ascii_start);
    let Some(name) = member.and_then(|member| member.strip_prefix(b"\"")) else { return false };
    let end = name.iter().position(|byte| *byte == b'"').unwrap_or(0);
    let name = &name[..end];
    name.starts_with(b"_") || FIRST.contains(&name)
}

/// Removes the prefix of Kubernetes; with the tag `P` a line goes on.
fn cri(line: &[u8]) -> Option<Step<'_>> {
    let (time, rest) = word(line)?;
    if !is_iso_time(time) {
        return None;
    }
    let (stream, rest) = word(rest)?;
    let stream = match stream {
        "stdout" => Stream::Stdout,
        "stderr" => Stream::Stderr,
        _ => return None,
    };
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    // Further tags may follow behind colons.
    let is_last = match rest[..end].split(|byte| *byte == b':').next()? {
        b"F" => true,
        b"P" => false,
        _ => return None,
    };
    let text = rest.get(end + 1..).unwrap_or_default().to_vec();
    Some(Step::Part(Part { text, stream, is_last }))
}

/// Removes a colour, the name of a service or pod, or a time alone.
fn rest(line: &[u8]) -> Option<&[u8]> {
    if let Some(escape) = line.strip_prefix(ESCAPE) {
        let end = escape.iter().position(|byte| *byte == b'm')?;
        let is_colour = escape[..end].iter().all(|byte| byte.is_ascii_digit() || *byte == b';');
        return is_colour.then(|| &escape[end + 1..]);
    }
    if line.starts_with(b"[pod/") {
        let end = line.iter().position(|byte| *byte == b']')?;
        return Some(line[end + 1..].trim_ascii_start());
    }
    let (first, rest) = word(line)?;
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@/".contains(&byte);
    if let Some(rest) = rest.strip_prefix(b"|").filter(|_| first.bytes().all(is_name)) {
        return Some(rest.strip_prefix(b" ").unwrap_or(rest));
    }
    is_iso_time(first).then_some(rest)
}

/// The byte order mark before a message of RFC 5424.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// A field without a value.
const NONE: &str = "-";

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Returns whether a line is journalctl's own, as `-- Boot 0a1b --`.
fn is_heading(line: &[u8]) -> bool {
    line.starts_with(b"-- ") && line.trim_ascii_end().ends_with(b" --")
}

/// Returns the message of a line with such a prefix.
fn message(line: &[u8]) -> Option<&[u8]> {
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

    // RFC 3164, for which some programs add the year.
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const INNER: &str =
        r#"192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] "GET /a|b HTTP/1.1" 200 5 "-" "x: y""#;

    fn unwrapped(line: &str) -> String {
        match Unwrapper::default().unwrap(line.as_bytes().to_vec()) {
            Unwrapped::Line(line) => String::from_utf8_lossy(&line).into_owned(),
            other @ (Unwrapped::Part | Unwrapped::TooLong) => format!("{other:?}"),
        }
    }

    #[test]
    fn every_prefix_is_removed() {
        let escaped = INNER.replace('"', "\\\"");
        for prefix in [
            "",
            "Nov 21 05:00:07 web1 nginx: ",
            "Nov  1 05:00:07 web1 nginx[123]: ",
            "Nov 21 05:00:07.123456 web1 nginx[123]: ",
            "Nov 21 05:00:07 nginx: ",
            "<190>Nov 21 05:00:07 web1 nginx: ",
            "<190>nginx: ",
            "Nov 21 05:00:07 192.0.2.50 docker/web.1[99]:",
            "2026-11-21T06:00:07+0100 web1 nginx[123]: ",
            "2026-11-21T06:00:07.123456+01:00 web1 nginx: ",
            "Sat 2026-11-21 05:00:07 UTC web1 nginx[123]: ",
            "1795237207.123456 web1 nginx[123]: ",
            "[ 1234.567890] web1 nginx[123]: ",
            "<165>1 2026-11-21T05:00:07.003Z web1 nginx 123 access - ",
            "<165>1 2026-11-21T05:00:07.003Z web1 nginx - - [a@1 k=\"v \\\"]\\\" w\"][b@2] ",
            "<165>1 - - - - - - \u{feff}",
            "412 <165>1 2026-11-21T05:00:07Z web1 nginx - - - ",
            "1 2026-11-21T05:00:07Z web1 nginx - - - ",
            "2026-11-21T05:00:07.123456789Z stdout F ",
            "2026-11-21T05:00:07.123456789+01:00 stderr F ",
            "2026-11-21T05:00:07.123456789Z ",
            "web-1  | ",
            "web_1 | ",
            "\u{1b}[36mweb-1      | \u{1b}[0m",
            "web.1.abc@node1    | 2026-11-21T05:00:07.1Z ",
            "[pod/web-5d/nginx] ",
            "[pod/web-5d/nginx] 2026-11-21T05:00:07.1Z ",
            "Nov 21 05:00:07 web1 dockerd[1]: web-1  | ",
        ] {
            assert_eq!(unwrapped(&format!("{prefix}{INNER}")), INNER, "{prefix}");
        }
        for (before, after) in [
            ("{\"log\":\"", "\\n\",\"stream\":\"stdout\",\"time\":\"2026-11-21T05:00:07.1Z\"}"),
            (
                "{\"log\":\"",
                "\\r\\n\",\"stream\":\"stdout\",\"attrs\":{},\"time\":\"2026-11-21T05:00:07.1Z\"}",
            ),
            ("{\"stream\":\"stderr\",\"_p\":\"F\",\"log\":\"", "\"}"),
            ("{\"__REALTIME_TIMESTAMP\":\"1\",\"_HOSTNAME\":\"web1\",\"MESSAGE\":\"", "\"}"),
            ("{\"@timestamp\":\"2026-11-21T05:00:07Z\",\"message\":\"", "\"}"),
        ] {
            let line = unwrapped(&format!("{before}{escaped}{after}"));
            assert_eq!(line.trim_end(), INNER, "{before}");
        }
    }

    #[test]
    fn lines_without_a_prefix_stay() {
        for line in [
            "",
            "Nov",
            "Nov 21 05:00:07",
            "Nov 21 05:00:07 web1 192.0.2.1 - -",
            "<190>",
            "a | b",
            "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"GET /a | b: c HTTP/1.1\" 200 5",
            "[2026-11-21T05:00:00.125Z] \"GET / HTTP/1.1\" 200 - 0 5 7 6 \"-\" \"a: b\" \"c\" \"h\" \"-\"",
            "{\"t\":1,\"path\":\"/\"}",
            "{\"log\":5,\"stream\":\"x\"}",
            "{\"log\":\"a\"}",
            "{\"stream\":{\"requests\":0,\"lost\":0,\"seconds\":5.0}}",
        ] {
            let expected = if line == "a | b" { "b" } else { line };
            assert_eq!(unwrapped(line), expected);
        }
        assert_eq!(unwrapped("-- Journal begins at Sat 2026-11-21 05:00:07 UTC. --"), "");
        assert_eq!(unwrapped("-- Reboot --"), "");
    }

    #[test]
    fn parts_of_a_line_are_joined_by_stream() {
        let mut unwrapper = Unwrapper::default();
        let mut next = |line: &str| unwrapper.unwrap(line.as_bytes().to_vec());
        assert_eq!(next("2026-11-21T05:00:07Z stdout P {\"a\":"), Unwrapped::Part);
        assert_eq!(next("2026-11-21T05:00:07Z stderr P oh "), Unwrapped::Part);
        assert_eq!(next("2026-11-21T05:00:07Z stdout P  1"), Unwrapped::Part);
        let line = |text: &str| Unwrapped::Line(text.into());
        assert_eq!(next("2026-11-21T05:00:07Z stdout F }"), line("{\"a\": 1}"));
        assert_eq!(next("2026-11-21T05:00:07Z stderr F no"), line("oh no"));
        let long = "x".repeat(16 * 1024);
        let docker =
            |text: &str| format!("{{\"log\":\"{text}\",\"stream\":\"stdout\",\"time\":\"t\"}}");
        assert_eq!(next(&docker(&long)), Unwrapped::Part);
        assert_eq!(next(&docker("y\\n")), line(&format!("{long}y\n")));
        assert_eq!(next(&docker("z")), line("z"), "other programs remove the end of a line");
        assert_eq!(next("2026-11-21T05:00:07Z stdout P left"), Unwrapped::Part);
        assert_eq!(unwrapper.unfinished().as_deref(), Some(&b"left"[..]));
        assert_eq!(unwrapper.unfinished(), None);
    }

    #[test]
    fn parts_that_never_end_take_bounded_memory() {
        let mut unwrapper = Unwrapper::default();
        let part = |tag: &str| {
            format!("2026-11-21T05:00:07Z stdout {tag} {}", "x".repeat(300 * 1024)).into_bytes()
        };
        for _ in 0..9 {
            assert_eq!(unwrapper.unwrap(part("P")), Unwrapped::Part);
            assert!(unwrapper.stdout.text.len() as u64 <= LONGEST);
        }
        assert_eq!(unwrapper.unwrap(part("F")), Unwrapped::TooLong);
        assert!(matches!(unwrapper.unwrap(part("F")), Unwrapped::Line(_)));
    }

    proptest! {
        #[test]
        fn no_line_panics(
            line: Vec<u8>,
            text in r#"(<[0-9]{0,4}>)?(Nov 21 |2026-11-21T)?[0-9:.Z+]{0,12} ?[a-z\[\]{}"\\=:|@ -]{0,40}"#,
        ) {
            let mut unwrapper = Unwrapper::default();
            let _line = unwrapper.unwrap(line);
            let _line = unwrapper.unwrap(text.into_bytes());
        }
    }
}
