//! Removes the prefixes that other programs add to the lines of a log: syslog, journald, Docker,
//! Docker Compose and Kubernetes. Prefixes may be nested.

mod container;
mod step;
mod syslog;

use super::longest::LONGEST;
use core::mem;
use step::{Part, Step, Stream};

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
        if syslog::is_heading(&line) {
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
        Some(b'{') => container::json(line, expects_more),
        Some(_) => {
            let part = container::cri(line);
            let rest = || syslog::message(line).or_else(|| container::rest(line));
            part.or_else(|| rest().map(Step::Rest)).unwrap_or(Step::Bare)
        }
    }
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
