//! Problems of inputs: errors, unreadable lines, and lines that are no arrivals.

use super::{
    format::{Format, foreign, format_of},
    lines::LONGEST,
};
use crate::{
    counted::{counted, inflected},
    terminal_text::printable,
};
use std::{borrow::Cow, fmt, io};

/// Why an input cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be opened or read.
    #[error("cannot read {name}")]
    Io {
        /// The input.
        name: String,
        /// Why.
        source: io::Error,
    },
    /// Its first lines have no known format.
    #[error(
        "the format of {name} is unknown. Its first line:\n  {line}\n{}Known formats: {}. \
         `--format` names one; prefixes of syslog, journald, Docker and Kubernetes are removed",
        kind.as_ref().map_or_else(String::new, |kind| format!("It looks like {kind}.\n")),
        Format::names()
    )]
    Unknown {
        /// The input.
        name: String,
        /// The beginning of the line.
        line: String,
        /// The kind of log that the line looks like, and what to do.
        kind: Option<String>,
    },
    /// The same, and one of them is too long.
    #[error(
        "the lines of {name} are of no format that is known, and one of the first is longer than {LONGEST} bytes"
    )]
    TooLong {
        /// The input.
        name: String,
    },
    /// It has lines, and none of them can be read.
    #[error("{0}")]
    NoLine(Box<UnreadableLog>),
    /// Events and logs have different clocks.
    #[error("events cannot be merged with logs, whose times are of another clock: {name}")]
    Mixed {
        /// The input.
        name: String,
    },
}

/// A log without a readable line.
#[derive(Debug, thiserror::Error)]
#[error(
    "no line of {} can be read as `--format {format}`: {first}\n  {line}\n{advice}", first.input
)]
pub struct UnreadableLog {
    /// The first line.
    first: BadLine,
    /// Its beginning.
    line: String,
    /// The format that was detected or named.
    format: String,
    /// The format that the line looks like, or the known formats.
    advice: String,
}

/// Why a line cannot be read.
pub(super) type Reason = Cow<'static, str>;

/// Describes an error of a JSON line, without its position in the line.
pub(super) fn json_reason(error: &serde_json::Error) -> Reason {
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    if error.is_data() { said.to_owned().into() } else { format!("not JSON: {said}").into() }
}

/// The count and examples of unreadable lines.
#[derive(Clone, Debug, Default)]
pub struct BadLines {
    /// The count.
    pub count: u64,
    /// The first few lines.
    pub shown: Vec<BadLine>,
}

/// An unreadable line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The input.
    pub input: String,
    /// From 1.
    pub line: u64,
    /// Its problem.
    pub reason: String,
}

/// Bad lines to show.
const MOST_SHOWN: usize = 5;

impl BadLines {
    pub(super) fn note(&mut self, input: &str, line: u64, reason: &str) {
        self.count += 1;
        if self.shown.len() < MOST_SHOWN {
            self.shown.push(BadLine::new(input, line, reason));
        }
    }
}

impl BadLine {
    pub(super) fn new(input: &str, line: u64, reason: &str) -> Self {
        /// The longest reason, in characters.
        const LONGEST: usize = 300;
        // It may contain control characters of the line.
        Self { input: input.to_owned(), line, reason: printable(reason, LONGEST) }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.input, self.line, self.reason)
    }
}

pub(super) fn too_long() -> Reason {
    format!("it is longer than {LONGEST} bytes").into()
}

pub(super) fn cut_short(error: &io::Error) -> String {
    format!("{error}; the rest is not read")
}

/// Returns the error for a log without a readable line, of which `line` is the first.
pub(super) fn no_line(first: BadLine, line: &[u8], format: Format) -> InputError {
    let advice = match format_of(line.trim_ascii()) {
        Some(other) if !other.is_read_like(format) => {
            let name = other.name();
            Some(format!("It looks like `--format {name}`; without `--format` flowgate finds out."))
        }
        Some(_) | None => foreign(line).map(|kind| format!("It looks like {kind}.")),
    };
    let advice = advice.unwrap_or_else(|| format!("Known formats: {}.", Format::names()));
    let format = format.name();
    InputError::NoLine(Box::new(UnreadableLog { first, line: excerpt(line), format, advice }))
}

/// Returns the beginning of a line, to be shown.
pub(super) fn excerpt(line: &[u8]) -> String {
    const LONGEST: usize = 160;
    printable(String::from_utf8_lossy(line).trim(), LONGEST)
}

#[derive(Debug, Default)]
pub(super) struct LeftOut {
    /// Lines without a request.
    pub(super) without_request: u64,
    /// Lines of flowgate's log whose requests reached no rule.
    pub(super) undecided: u64,
    /// Lines of other logs without a client address.
    pub(super) nameless: u64,
    /// Lines that a stream of `/requests` has lost.
    pub(super) lost: u64,
}

impl LeftOut {
    /// Returns notes about them, of `lines` in all.
    pub(super) fn notes(&self, lines: u64) -> impl Iterator<Item = String> {
        let Self { without_request, undecided, nameless, lost } = self;
        let all = counted(lines, "line");

        let notes = [
            (
                *without_request,
                format!(
                    "{without_request} of {all} {} no request: the connection sent none or spoke \
                     another protocol, or the request was cut off for its length. Such lines reach no rule",
                    inflected(*without_request, "has", "have")
                ),
            ),
            (
                *nameless,
                format!(
                    "{nameless} of {all} {} no address of a client, only a host name or nothing: \
                     all such requests count as one client",
                    inflected(*nameless, "has", "have")
                ),
            ),
            (
                *undecided,
                format!(
                    "{undecided} of {all} {} without a decision, and left out. The gateway rejected \
                     the request before any rule decided, or the client left or the gateway ended \
                     while a store decided",
                    inflected(*undecided, "is", "are")
                ),
            ),
            (
                *lost,
                format!(
                    "{} {} missing besides these {lines}, because the stream was read too slowly",
                    counted(*lost, "request"),
                    inflected(*lost, "is", "are")
                ),
            ),
        ];

        notes.into_iter().filter_map(|(count, note)| (count > 0).then_some(note))
    }
}

#[cfg(test)]
mod tests {
    use crate::replay::{Format, Inputs};
    use core::time::Duration;
    use std::fs;

    const REQUEST: &str = r#"{"ts":"2026-11-21T05:00:00.5Z","method":"GET","host":"a","path":"/","status":404,
        "duration_ms":1.0,"client_ip":"192.0.2.7","config_hash":"00d1ce"}"#;

    #[test]
    fn a_recorded_stream_is_a_log_that_says_what_it_lacks() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("recorded");
        let request = REQUEST.replace('\n', "");
        let state = |numbers: &str| format!("{{\"stream\":{{{numbers}}}}}\n");
        let first = state(r#""requests":0,"lost":0,"seconds":5.0"#);
        let last = state(r#""requests":2,"lost":7,"seconds":12.5,"ended":"time""#);
        let text = format!("{first}{request}\n{request}\n{last}");
        fs::write(&path, &text).unwrap();
        let opened = Inputs::open(&[path], None, &mut |_| {}).unwrap();
        let read = Inputs::read("a", Format::Flowgate, std::io::Cursor::new(text)).unwrap();
        for mut inputs in [opened, read] {
            assert_eq!((inputs.lines, inputs.bad.count), (2, 0));
            assert_eq!(inputs.observed, Duration::from_millis(12_500));
            let note = "7 requests are missing besides these 2";
            assert!(inputs.notes[0].starts_with(note), "{:?}", inputs.notes);
            assert_eq!(std::iter::from_fn(|| inputs.next_event()).count(), 2);
        }
    }

    #[test]
    fn a_line_that_only_looks_like_the_state_of_a_stream_is_bad() {
        let text = "{\"stream\":{\"requests\":-1}}\n{\"stream\":5}\n";
        let error = Inputs::read("a", Format::Flowgate, text.as_bytes()).unwrap_err().to_string();
        let begin = "no line of a can be read as `--format flowgate`: a:1: ";
        assert!(error.starts_with(begin), "{error}");
    }

    #[test]
    fn a_log_without_a_readable_line_is_rejected_whatever_the_others_have() {
        let folder = tempfile::tempdir().unwrap();
        let names = ["a.log", "b.log"].map(|name| folder.path().join(name));
        let request = REQUEST.replace('\n', "");
        fs::write(&names[0], format!("{request}\n{}", "bad\n".repeat(9))).unwrap();
        fs::write(&names[1], "bad\n").unwrap();
        let opened = Inputs::open(&names, Some(Format::Flowgate), &mut |_| {});
        let error = opened.unwrap_err().to_string();
        assert!(error.contains("b.log can be read as ") && error.contains("b.log:1: "), "{error}");
    }
}
