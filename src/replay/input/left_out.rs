//! Lines of logs that are no arrivals, or have no client, and what the report says of them.

use crate::counted::{counted, inflected};

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
                     another protocol, or the request was cut off for its length. They reach no rule",
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
