//! The gateway's own log, on standard error, written by a thread of its own.
//!
//! Logging appends to one buffer and never blocks. While the reader stalls, the buffer holds up to
//! 256 KiB and one event. Further lines are dropped and counted, in `/metrics` and by a later
//! line of the log.

use crate::{lines::write_out, meter::Counters, terminal_text::is_unsafe};
use core::fmt::Debug;
use std::{
    env,
    ffi::OsString,
    io::{self, IsTerminal, Write},
    mem,
    os::fd::AsFd,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::Ordering::Relaxed,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread,
    time::Duration,
};
use tracing::field::{Field, Visit};
use tracing_subscriber::{
    EnvFilter,
    field::{RecordFields, VisitOutput},
    fmt,
    fmt::{
        FormatFields,
        format::{DefaultVisitor, Writer},
    },
};

/// The default filter. `h2` warns about single connections, so that a client could fill the log;
/// `redis` warns at each attempt, while the gateway itself logs when a store begins to fail.
const LOGGED: &str = "info,h2=error,redis=off";

/// Bytes that may wait before lines are dropped: about two thousand lines.
const BUFFER: usize = 256 * 1024;

/// The longest time for the last lines to be written.
const PATIENCE: Duration = Duration::from_secs(2);

/// The gateway's own log.
///
/// Dropping it writes what waits, within two seconds; drop it last.
#[derive(Debug)]
pub struct Log {
    shared: Arc<Shared>,
    /// Disconnected when the writer has ended.
    ended: Receiver<()>,
    is_json: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Lines dropped since the start because the buffer was full.
    dropped: u64,
    is_closed: bool,
}

impl Log {
    /// Starts the log on standard error, as text or, with `json`, as JSON. `RUST_LOG` filters it;
    /// the default is `info,h2=error,redis=off`, also if it is invalid, which is logged. `counters`
    /// count dropped lines.
    ///
    /// # Errors
    ///
    /// The system has no thread left.
    pub fn to_stderr(json: bool, counters: Arc<Counters>) -> io::Result<Self> {
        let mut log = Self::start(io::stderr(), counters)?;
        log.is_json = json;
        let (filter, problem) = filter(env::var_os(EnvFilter::DEFAULT_ENV));
        let colour = io::stderr().is_terminal()
            && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let lines = fmt()
            .with_env_filter(filter)
            .with_writer(Arc::clone(&log.shared))
            .with_ansi(colour)
            .with_target(false);
        if json {
            lines.json().init();
        } else {
            lines.fmt_fields(QuotedFields).init();
        }
        if let Some(error) = problem {
            tracing::warn!("RUST_LOG is not a filter: {error}; using {LOGGED}");
        }
        Ok(log)
    }

    /// Returns whether its lines are JSON.
    pub fn is_json(&self) -> bool {
        self.is_json
    }

    fn start(output: impl AsFd + Send + 'static, counters: Arc<Counters>) -> io::Result<Self> {
        let shared = Arc::new(Shared { counters, ..Shared::default() });
        let (end, ended) = sync_channel(0);
        let writer = Arc::clone(&shared);
        thread::Builder::new().name("log".to_owned()).spawn(move || {
            writer.write_out(output);
            drop(end);
        })?;
        Ok(Self { shared, ended, is_json: false })
    }
}

/// Returns the filter that `RUST_LOG` is `set` to, or the default one with what is wrong with it.
fn filter(set: Option<OsString>) -> (EnvFilter, Option<String>) {
    let Some(set) = set else { return (EnvFilter::new(LOGGED), None) };
    let text = set.into_string().map_err(|_| "it is not UTF-8".to_owned());
    match text.and_then(|text| EnvFilter::try_new(text).map_err(|error| error.to_string())) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(LOGGED), Some(error)),
    }
}

/// Writes fields as `name=value`. A value with blanks is in quotes, so that programs can tell the fields
/// apart.
struct QuotedFields;

impl<'w> FormatFields<'w> for QuotedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> core::fmt::Result {
        let mut visitor = QuotingVisitor(DefaultVisitor::new(writer, true));
        fields.record(&mut visitor);
        visitor.0.finish()
    }
}

/// Reports whether a text is in quotes as a whole, as `Debug` writes one.
fn is_quoted(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let mut is_escaped = false;
    inner.is_some_and(|inner| {
        let ends = inner.chars().any(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        });
        !ends && !is_escaped
    })
}

struct QuotingVisitor<'w>(DefaultVisitor<'w>);

impl Visit for QuotingVisitor<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        let is_odd = |c: char| c.is_whitespace() || is_unsafe(c);
        let is_word = !text.starts_with('"') && !text.contains(is_odd);
        if field.name() == "message" || is_word || is_quoted(&text) {
            self.0.record_debug(field, value);
        } else {
            self.0.record_debug(field, &text);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.changed.notify_one();
        // A failure could be reported nowhere.
        let _ended: Result<(), RecvTimeoutError> = self.ended.recv_timeout(PATIENCE);
    }
}

impl Shared {
    /// Writes until the log is closed and its buffer empty.
    fn write_out(&self, output: impl AsFd) {
        let mut bytes = Vec::new();
        let mut reported = 0;
        loop {
            let mut waiting = self.lock();
            while waiting.bytes.is_empty() && !waiting.is_closed {
                waiting = self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            }

            mem::swap(&mut waiting.bytes, &mut bytes);
            let dropped = waiting.dropped;
            drop(waiting);
            if bytes.is_empty() {
                return;
            }

            if let Err(lost) = write_out(&output, &bytes) {
                self.count_dropped(lost.lines);
            }
            bytes.clear();

            if dropped > reported {
                reported = dropped;
                let lines = self.counters.log_dropped.load(Relaxed);
                tracing::warn!(
                    lines,
                    "lines of this log were lost since the start: its reader was too slow or stopped"
                );
            }
        }
    }

    fn count_dropped(&self, lines: usize) {
        self.counters.log_dropped.fetch_add(lines as u64, Relaxed);
    }

    /// Locks the buffer. Nothing that runs under this lock panics.
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each call writes the lines of one event.
impl Write for &Shared {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let mut waiting = self.lock();
        if waiting.bytes.len() < BUFFER {
            waiting.bytes.extend_from_slice(line);
        } else {
            waiting.dropped += 1;
            self.count_dropped(1);
        }
        drop(waiting);
        self.changed.notify_one();
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, pipe};

    #[test]
    fn a_log_whose_reader_stalls_drops_lines_and_counts_them() {
        let (mut reader, pipe) = pipe().unwrap();
        let counters = Arc::<Counters>::default();
        let log = Log::start(pipe, Arc::clone(&counters)).unwrap();
        let line = [b'x'; 1024];
        // The writer holds one full buffer at most, and the pipe less, while the other fills up.
        let lines = 3 * BUFFER / line.len();
        for _ in 0..lines {
            (&*log.shared).write_all(&line).unwrap();
        }
        let lost = usize::try_from(counters.log_dropped.load(Relaxed)).unwrap();
        assert!(lost >= 1);
        let reading = thread::spawn(move || reader.read_to_end(&mut Vec::new()));
        drop(log);
        assert_eq!(reading.join().unwrap().unwrap(), (lines - lost) * line.len());
    }

    #[test]
    fn an_invalid_filter_is_reported_and_the_default_is_used() {
        for (set, used, is_invalid) in [
            (None, LOGGED, false),
            (Some("debug"), "debug", false),
            (Some("info,h2=loud"), LOGGED, true),
        ] {
            let (filter, problem) = filter(set.map(OsString::from));
            let expected = EnvFilter::new(used).to_string();
            assert_eq!((filter.to_string(), problem.is_some()), (expected, is_invalid), "{set:?}");
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let (reader, pipe) = pipe().unwrap();
        drop(reader);
        let counters = Arc::<Counters>::default();
        let log = Log::start(pipe, Arc::clone(&counters)).unwrap();
        (&*log.shared).write_all(b"one\ntwo\n").unwrap();
        drop(log);
        assert_eq!(counters.log_dropped.load(Relaxed), 2);
    }

    #[test]
    fn a_value_with_blanks_is_in_quotes() {
        let (mut reader, pipe) = pipe().unwrap();
        let log = Log::start(pipe, Arc::default()).unwrap();
        let shared = Arc::clone(&log.shared);
        let lines = fmt().with_writer(shared).with_ansi(false).fmt_fields(QuotedFields);
        tracing::subscriber::with_default(lines.finish(), || {
            let error = format_args!("no connection to \"a\"");
            tracing::warn!(%error, detail = "was refused", server = %"a:80", count = 2, key = %"\"a\" route=x", "it fails: why");
        });
        drop(log);
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        let expected = r#"it fails: why error="no connection to \"a\"" detail="was refused" server=a:80 count=2 key="\"a\" route=x""#;
        assert!(written.trim_end().ends_with(expected), "{written}");
    }

    #[test]
    fn dropping_the_log_writes_its_last_lines() {
        let (mut reader, pipe) = pipe().unwrap();
        let log = Log::start(pipe, Arc::default()).unwrap();
        for line in ["one\n", "two\n", "three\n"] {
            (&*log.shared).write_all(line.as_bytes()).unwrap();
        }
        drop(log);
        let mut written = String::new();
        reader.read_to_string(&mut written).unwrap();
        assert_eq!(written, "one\ntwo\nthree\n");
    }
}
