//! The combined format of Apache and nginx: a line for each request, which log tools read.
//!
//! ```text
//! client - user [day/month/year:time +0000] "request" status bytes "referer" "agent"
//! ```

use super::AccessRecord;
use http::HeaderName;
use http::header::{REFERER, USER_AGENT};
use jiff::{Timestamp, fmt::strtime};
use std::io::{self, Write};

/// The format of the time, which is in UTC.
const STAMP: &str = "%d/%b/%Y:%H:%M:%S +0000";

/// Writes a record without the end of its line.
///
/// # Errors
///
/// Those of `out`.
pub(super) fn write(out: &mut impl Write, record: &AccessRecord<'_>) -> io::Result<()> {
    write!(out, "{} - ", record.client_ip)?;
    match record.user {
        // A blank would begin the next field.
        Some(user) => write_escaped(out, user, b' ')?,
        None => out.write_all(b"-")?,
    }

    let seconds = i64::try_from(record.ts.as_nanos() / 1_000_000_000).unwrap_or(i64::MAX);
    let stamp = Timestamp::from_second(seconds).and_then(|time| strtime::format(STAMP, time));
    write!(out, " [{}] \"", stamp.as_deref().unwrap_or("-"))?;

    if record.method.is_empty() {
        out.write_all(b"-")?;
    } else {
        write_escaped(out, record.method, b'"')?;
        out.write_all(b" ")?;
        write_escaped(out, record.path, b'"')?;
        write!(out, " {}", record.protocol.map_or("HTTP/1.1", in_request_line))?;
    }

    write!(out, "\" {} {}", record.status, record.bytes_out)?;
    write_field(out, record, &REFERER)?;
    write_field(out, record, &USER_AGENT)
}

/// Returns a version of HTTP as it stands behind a target.
fn in_request_line(protocol: &str) -> &str {
    if protocol == "HTTP/2" { "HTTP/2.0" } else { protocol }
}

fn write_field(
    out: &mut impl Write,
    record: &AccessRecord<'_>,
    name: &HeaderName,
) -> io::Result<()> {
    let found = record.headers.iter().find(|field| field.0 == *name);
    out.write_all(b" \"")?;
    match found {
        Some(field) if !field.1.is_empty() => write_escaped(out, &field.1, b'"')?,
        Some(_) | None => out.write_all(b"-")?,
    }
    out.write_all(b"\"")
}

/// Writes what a client chose, with `\xHH` in place of quotes, backslashes, `end` and all bytes that are
/// no visible ASCII: no client can write a line of its own.
fn write_escaped(out: &mut impl Write, text: &str, end: u8) -> io::Result<()> {
    for byte in text.bytes() {
        let is_plain =
            (b' '..=b'~').contains(&byte) && !matches!(byte, b'"' | b'\\') && byte != end;
        if is_plain {
            out.write_all(&[byte])?;
        } else {
            write!(out, "\\x{byte:02X}")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{super::sample, *};

    fn written(record: &AccessRecord<'_>) -> String {
        let mut line = Vec::new();
        write(&mut line, record).unwrap();
        String::from_utf8(line).unwrap()
    }

    #[test]
    fn a_record_is_a_line_that_log_tools_read() {
        let fields =
            [(USER_AGENT, "curl/8.5".to_owned()), (REFERER, "https://example.com/a".to_owned())];
        let mut record = sample("/a");
        record.headers = &fields;
        record.user = Some("ann");
        let expected = "192.0.2.7 - ann [21/Nov/2026:05:00:00 +0000] \"GET /a HTTP/2.0\" 429 17 \
                        \"https://example.com/a\" \"curl/8.5\"";
        assert_eq!(written(&record), expected);

        let bare =
            "192.0.2.7 - - [21/Nov/2026:05:00:00 +0000] \"GET /a HTTP/2.0\" 429 17 \"-\" \"-\"";
        assert_eq!(written(&sample("/a")), bare);
    }

    #[test]
    fn a_client_writes_no_line_and_ends_no_field() {
        let agent = "\" 200 1\n127.0.0.1 - - \\ \u{7f}ü";
        let fields = [(USER_AGENT, agent.to_owned())];
        let mut record = sample("/\"\u{1b}[2J");
        record.headers = &fields;
        record.user = Some("a b\"");
        let line = written(&record);
        let expected = "192.0.2.7 - a\\x20b\\x22 [21/Nov/2026:05:00:00 +0000] \"GET /\\x22\\x1B[2J HTTP/2.0\" 429 17 \
                        \"-\" \"\\x22 200 1\\x0A127.0.0.1 - - \\x5C \\x7F\\xC3\\xBC\"";
        assert_eq!(line, expected);
    }

    #[test]
    fn a_request_that_could_not_be_read_has_a_dash() {
        let record = AccessRecord { method: "", path: "", protocol: None, ..sample("") };
        assert!(written(&record).contains("+0000] \"-\" 429 17"), "{}", written(&record));
    }
}
