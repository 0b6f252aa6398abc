//! Recorded traffic: files found by their content, read into events in the order of time.
//!
//! Events are streamed in the order of their lines, so that a recorded clock may step
//! back; several such inputs are merged by the latest time that each has reached.

mod events;
mod lines;

use super::event::Event;
use crate::flow::Instant;
use lines::{LONGEST, Line, Lines, Meter};
use serde_json::{Map, Value};
use std::{
    borrow::Cow,
    fmt, io,
    path::{Path, PathBuf},
};

/// Why a line cannot be read.
type Reason = Cow<'static, str>;

/// What the lines of an input are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// JSON lines made for `replay`: see docs/replay.md.
    Events,
}

/// Inputs that are open, and what was wrong with them.
pub struct Inputs {
    all: Vec<Input>,
    meter: Meter,
    /// How many lines were read.
    pub lines: u64,
    /// Lines that could not be read.
    pub bad: Bad,
}

/// Lines that could not be read.
#[derive(Clone, Debug, Default)]
pub struct Bad {
    /// How many.
    pub count: u64,
    /// The first few.
    pub shown: Vec<BadLine>,
}

/// A line that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// The input.
    pub input: String,
    /// From 1.
    pub line: u64,
    /// What is wrong with it.
    pub reason: String,
}

/// Why an input cannot be used at all.
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
    /// None of its first lines is of a known format.
    #[error("the lines of {name} are of no format that is known: name it with `--format`")]
    Unknown {
        /// The input.
        name: String,
    },
}

/// One input.
struct Input {
    name: String,
    number: u32,
    format: Format,
    lines: Lines,
    /// Arrivals so far.
    arrivals: u64,
    /// The next event, and the latest time that this input has reached.
    head: Option<Event>,
    latest: Instant,
}

/// How many bad lines are shown.
const MOST_SHOWN: usize = 5;

/// How many lines are looked at to find out what they are.
const MOST_LOOKED_AT: usize = 20;

impl Inputs {
    /// Opens the files at `paths`, of which `-` is the standard input, and finds out what
    /// their lines are unless `format` says so.
    ///
    /// # Errors
    ///
    /// A file that cannot be opened, or is of an unknown format.
    pub fn open(paths: &[PathBuf], format: Option<Format>) -> Result<Self, InputError> {
        let meter = Meter::default();
        let mut inputs = Vec::with_capacity(paths.len());
        for (number, path) in (0..).zip(paths) {
            inputs.push(Input::open(path, number, format, &meter)?);
        }
        let mut inputs = Self { all: inputs, meter, lines: 0, bad: Bad::default() };
        for at in 0..inputs.all.len() {
            inputs.refill(at);
        }
        Ok(inputs)
    }

    /// Returns the next event, or `None` at the end.
    pub fn next_event(&mut self) -> Option<Event> {
        let inputs = self.all.iter().enumerate();
        let heads =
            inputs.filter_map(|(at, input)| input.head.as_ref().map(|_| (input.latest, at)));
        let (_, at) = heads.min()?;
        let event = self.all[at].head.take();
        self.refill(at);
        event
    }

    /// Returns the instant that `t` is counted from where none is said.
    pub fn origin(&self) -> Instant {
        Instant::EPOCH
    }

    /// Returns how many bytes have been read, as they lie on the disk.
    pub fn bytes(&self) -> u64 {
        self.meter.bytes()
    }

    /// Reads on until the input `at` has an event again or ends.
    fn refill(&mut self, at: usize) {
        let input = &mut self.all[at];
        loop {
            let reason = match input.lines.advance() {
                Ok(Line::End) => return,
                Ok(Line::Here) => match input.parse() {
                    Ok(Some(event)) => {
                        self.lines += 1;
                        input.latest = input.latest.max(event.at());
                        input.head = Some(event);
                        return;
                    }
                    Ok(None) => continue,
                    Err(reason) => reason,
                },
                Ok(Line::TooLong) => format!("it is longer than {LONGEST} bytes").into(),
                Err(error) => {
                    self.bad.note(
                        &input.name,
                        input.lines.number,
                        &format!("{error}; the rest is not read"),
                    );
                    return;
                }
            };
            self.lines += 1;
            self.bad.note(&input.name, input.lines.number, &reason);
        }
    }
}

impl Input {
    fn open(
        path: &Path,
        number: u32,
        format: Option<Format>,
        meter: &Meter,
    ) -> Result<Self, InputError> {
        let name = path.display().to_string();
        let failed = |source| InputError::Io { name: name.clone(), source };
        let mut lines = Lines::open(path, meter).map_err(failed)?;
        let format = match format {
            Some(format) => format,
            None => match detect(&mut lines).map_err(failed)? {
                Some(format) => format,
                None => return Err(InputError::Unknown { name }),
            },
        };
        let latest = Instant::EPOCH;
        Ok(Self { name, number, format, lines, arrivals: 0, head: None, latest })
    }

    /// Reads the current line; `None` if it is blank.
    fn parse(&mut self) -> Result<Option<Event>, Reason> {
        let line = self.lines.text();
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        match self.format {
            Format::Events => events::parse(line, self.number, &mut self.arrivals).map(Some),
        }
    }
}

impl Bad {
    fn note(&mut self, input: &str, line: u64, reason: &str) {
        self.count += 1;
        if self.shown.len() < MOST_SHOWN {
            // It may hold what the line holds.
            let reason = reason.chars().flat_map(char::escape_debug).collect();
            self.shown.push(BadLine { input: input.to_owned(), line, reason });
        }
    }
}

impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.input, self.line, self.reason)
    }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("lines", &self.lines).finish_non_exhaustive()
    }
}

/// Finds the format of the first line that is of a known one. An empty input is an empty
/// list of events.
fn detect(lines: &mut Lines) -> io::Result<Option<Format>> {
    let mut blank = true;
    for _ in 0..MOST_LOOKED_AT {
        let Some(line) = lines.look()? else {
            return Ok(blank.then_some(Format::Events));
        };
        let line = line.trim_ascii();
        blank &= line.is_empty();
        if let Some(format) = format_of(line) {
            return Ok(Some(format));
        }
    }
    Ok(None)
}

fn format_of(line: &[u8]) -> Option<Format> {
    if line.starts_with(b"{") {
        let object: Map<String, Value> = serde_json::from_slice(line).ok()?;
        return events::is_event(&object).then_some(Format::Events);
    }
    None
}

/// Says what is wrong with a JSON line, without the place, which is within the line.
fn json_reason(error: &serde_json::Error) -> Reason {
    let said = error.to_string();
    let said = said.split(" at line ").next().unwrap_or_default();
    if error.is_data() { said.to_owned().into() } else { format!("not JSON: {said}").into() }
}
