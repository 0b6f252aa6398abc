//! Reads recorded traffic into events in the order of time; formats are detected.
//!
//! Events are streamed in the order of their lines, so that a recorded clock may step back; several
//! inputs are merged by the latest time that each has reached.
//!
//! Lines of a log are in the order of ends. They are read completely and sorted by arrival, which
//! takes about 300 bytes per line.

mod caddy;
mod common;
mod envoy;
mod events;
mod flowgate;
mod format;
mod lines;
mod logged;
mod prefix;
mod problems;
mod proxy_manager;
#[cfg(test)]
mod tests;
mod traefik;

pub use format::Format;
pub(super) use lines::STDIN;
pub use problems::{BadLine, BadLines, InputError, UnreadableLog};

use super::{
    event::{Arrival, Event, Id},
    times::Times,
};
use crate::{access_log::StreamState, flow::Instant};
use core::time::Duration;
use format::{Detected, detect, foreign};
use jiff::tz::Offset;
use lines::{Line, Lines, Meter};
use logged::{LoggedRequest, TextCache, spread};
use problems::{LeftOut, Reason, cut_short, excerpt, json_reason, no_line, too_long};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    vec::IntoIter,
};

/// Open inputs, and their problems.
pub struct Inputs {
    /// Inputs of events.
    all: Vec<Input>,
    /// Arrivals of logs in the order of time.
    logged: IntoIter<Arrival>,
    times: Times,
    meter: Meter,
    /// Notes for the reader.
    pub notes: Vec<String>,
    /// True if stamps are whole seconds, over which arrivals are spread.
    pub has_whole_seconds: bool,
    /// Lines read.
    pub lines: u64,
    left_out: LeftOut,
    /// The duration of a stream of live requests; of several, the longest.
    pub observed: Duration,
    /// Unreadable lines.
    pub bad: BadLines,
}

struct Input {
    name: String,
    number: u32,
    format: Format,
    lines: Lines,
    /// Arrivals so far.
    arrivals: u64,
    /// The next event.
    head: Option<Event>,
    latest: Instant,
}

enum Parsed {
    Blank,
    /// No request, as for a connection.
    NoRequest,
    /// A request that reached no rule.
    Undecided,
    /// The state of a stream of live requests.
    Stream(StreamState),
    Request(LoggedRequest),
}

impl Inputs {
    /// Opens the files at `paths` (`-` is standard input) and detects their formats unless `format`
    /// is given. Logs are read completely; `on_bytes` reports the progress.
    ///
    /// # Errors
    ///
    /// A file cannot be opened, or has an unknown format, or events and logs are mixed.
    pub fn open(
        paths: &[PathBuf],
        format: Option<Format>,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<Self, InputError> {
        let meter = Meter::default();
        let mut inputs = Vec::with_capacity(paths.len());
        for (number, path) in (0..).zip(paths) {
            inputs.push(Input::open(path, number, format, &meter)?);
        }
        Self::of(inputs, meter, on_bytes)
    }

    /// Reads the lines of one log as they come, until they end.
    ///
    /// # Errors
    ///
    /// The first bytes cannot be read.
    pub fn read(
        name: &str,
        format: Format,
        lines: impl io::Read + 'static,
    ) -> Result<Self, InputError> {
        let name = name.to_owned();
        let failed = |source| InputError::Io { name: name.clone(), source };
        let lines = Lines::of(lines).map_err(failed)?;
        Self::of(vec![Input::new(name, 0, format, lines)], Meter::default(), &mut |_| {})
    }

    fn of(
        inputs: Vec<Input>,
        meter: Meter,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<Self, InputError> {
        let is_events = |input: &Input| input.format == Format::Events;
        let (all, logs): (Vec<_>, Vec<_>) = inputs.into_iter().partition(is_events);
        if let (Some(events), false) = (all.first(), logs.is_empty()) {
            return Err(InputError::Mixed { name: events.name.clone() });
        }

        let mut inputs = Self {
            all,
            logged: Vec::new().into_iter(),
            times: Times::relative(Instant::EPOCH),
            meter,
            notes: Vec::new(),
            has_whole_seconds: false,
            lines: 0,
            left_out: LeftOut::default(),
            observed: Duration::ZERO,
            bad: BadLines::default(),
        };

        for at in 0..inputs.all.len() {
            inputs.refill(at);
        }
        inputs.load(logs, on_bytes)?;
        Ok(inputs)
    }

    /// Returns the next event, or `None` at the end.
    pub fn next_event(&mut self) -> Option<Event> {
        if let Some(arrival) = self.logged.next() {
            return Some(Event::Arrival(arrival));
        }
        let inputs = self.all.iter().enumerate();
        let heads =
            inputs.filter_map(|(at, input)| input.head.as_ref().map(|_| (input.latest, at)));
        let (_, at) = heads.min()?;
        let event = self.all[at].head.take();
        self.refill(at);
        event
    }

    /// Returns the time format of these inputs.
    pub fn times(&self) -> &Times {
        &self.times
    }

    /// Returns the bytes read from disk.
    pub fn bytes(&self) -> u64 {
        self.meter.bytes()
    }

    fn load(&mut self, logs: Vec<Input>, on_bytes: &mut dyn FnMut(u64)) -> Result<(), InputError> {
        let mut cache = TextCache::default();
        let mut all = Vec::new();
        for log in logs {
            self.load_log(log, &mut cache, &mut all, on_bytes)?;
        }
        self.has_whole_seconds = spread(&mut all);
        if self.has_whole_seconds {
            let note = "the timestamps are whole seconds: the requests of a second are spread evenly over it, \
                 so bursts within a second are not seen";
            self.notes.push(note.to_owned());
        }
        // The sort is stable: lines of one instant keep their order.
        all.sort_by_key(|(_, arrival)| arrival.at);
        self.notes.extend(self.left_out.notes(self.lines));
        if let (Some((_, first)), Some((_, last))) = (all.first(), all.last()) {
            let zone = cache.zone.unwrap_or(Offset::UTC);
            self.times = Times::clock(zone, first.at, last.at);
        }
        self.logged = all.into_iter().map(|(_, arrival)| arrival).collect::<Vec<_>>().into_iter();
        Ok(())
    }

    /// Reads a log to its end, and adds its requests to `all`.
    ///
    /// # Errors
    ///
    /// No line of it is in its format.
    fn load_log(
        &mut self,
        mut log: Input,
        cache: &mut TextCache,
        all: &mut Vec<(Option<Duration>, Arrival)>,
        on_bytes: &mut dyn FnMut(u64),
    ) -> Result<(), InputError> {
        /// Lines between two calls of `on_bytes`.
        const STEP: u64 = 4096;
        let lines_before = self.lines;
        let bad_before = self.bad.count;
        let mut stream = None;
        let mut first_bad = None;

        loop {
            if self.lines.is_multiple_of(STEP) {
                on_bytes(self.bytes());
            }
            let reason = match log.lines.advance() {
                Ok(Line::End) => break,
                Ok(Line::Here) => match log.parse_logged(cache) {
                    Ok(Parsed::Blank) => continue,
                    Ok(Parsed::Stream(state)) => {
                        stream = Some(state);
                        continue;
                    }
                    Ok(Parsed::NoRequest) => {
                        self.lines += 1;
                        self.left_out.without_request += 1;
                        continue;
                    }
                    Ok(Parsed::Undecided) => {
                        self.lines += 1;
                        self.left_out.undecided += 1;
                        continue;
                    }
                    Ok(Parsed::Request(logged)) => {
                        self.lines += 1;
                        if logged.request.client.is_none() && log.format != Format::Flowgate {
                            self.left_out.nameless += 1;
                        }
                        let id = Id { input: log.number, number: log.arrivals };
                        log.arrivals += 1;
                        all.push((logged.coarse, logged.arrival(id)));
                        continue;
                    }
                    Err(reason) => reason,
                },
                Ok(Line::TooLong) => too_long(),
                Err(error) => {
                    self.bad.note(&log.name, log.lines.number, &cut_short(&error));
                    break;
                }
            };
            self.lines += 1;
            self.bad.note(&log.name, log.lines.number, &reason);
            first_bad.get_or_insert_with(|| log.bad_line(&reason));
        }

        let lines = self.lines - lines_before;
        if lines > 0
            && lines == self.bad.count - bad_before
            && let Some((first, line)) = first_bad
        {
            return Err(no_line(first, &line, log.format));
        }
        if let Some(stream) = stream {
            self.note_stream(&stream);
        }
        Ok(())
    }

    /// Notes how long a stream of live requests was followed, and how many of them it lost.
    fn note_stream(&mut self, stream: &StreamState) {
        self.left_out.lost += stream.lost;
        let observed = Duration::try_from_secs_f64(stream.seconds).unwrap_or_default();
        self.observed = self.observed.max(observed);
    }

    /// Reads until the input `at` has an event or ends.
    fn refill(&mut self, at: usize) {
        let input = &mut self.all[at];

        while input.head.is_none() {
            let before = input.arrivals;
            let reason = match input.lines.advance() {
                Ok(Line::End) => return,
                Ok(Line::Here) => match input.parse() {
                    Ok(Some(event)) => {
                        self.lines += 1;
                        input.latest = event.at().map_or(input.latest, |at| at.max(input.latest));
                        input.head = Some(event);
                        return;
                    }
                    Ok(None) => continue,
                    Err(reason) => reason,
                },
                Ok(Line::TooLong) => too_long(),
                Err(error) => {
                    self.bad.note(&input.name, input.lines.number, &cut_short(&error));
                    return;
                }
            };

            self.lines += 1;
            self.bad.note(&input.name, input.lines.number, &reason);
            input.head = (input.arrivals > before).then_some(Event::Unreadable);
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
                Detected::Known(format) => format,
                Detected::Empty => Format::Events,
                Detected::Unknown(_) if lines.is_long_ahead() => {
                    return Err(InputError::TooLong { name });
                }
                Detected::Unknown(line) => {
                    let kind = foreign(&line).or_else(|| foreign(lines.first()));
                    return Err(InputError::Unknown { name, line: excerpt(lines.first()), kind });
                }
            },
        };

        Ok(Self::new(name, number, format, lines))
    }

    fn new(name: String, number: u32, format: Format, lines: Lines) -> Self {
        let latest = Instant::EPOCH;
        Self { name, number, format, lines, arrivals: 0, head: None, latest }
    }

    /// Parses the current line; `None` if it is blank.
    fn parse(&mut self) -> Result<Option<Event>, Reason> {
        let line = self.lines.text();
        if line.trim_ascii().is_empty() {
            return Ok(None);
        }
        events::parse(line, self.number, &mut self.arrivals).map(Some)
    }

    /// Describes the current line, which cannot be read.
    fn bad_line(&self, reason: &str) -> (BadLine, Vec<u8>) {
        let bad = BadLine::new(&self.name, self.lines.number, reason);
        (bad, self.lines.text().to_vec())
    }

    fn parse_logged(&self, cache: &mut TextCache) -> Result<Parsed, Reason> {
        let line = self.lines.text().trim_ascii();
        if line.is_empty() {
            return Ok(Parsed::Blank);
        }

        let object = || serde_json::from_slice(line).map_err(|error| json_reason(&error));
        let logged = match self.format {
            Format::Flowgate => {
                if let Some(state) = flowgate::parse_stream(line) {
                    return Ok(Parsed::Stream(state));
                }
                let logged = flowgate::parse(line, cache)?;
                return Ok(logged.map_or(Parsed::Undecided, Parsed::Request));
            }
            Format::Nginx | Format::Apache | Format::Common | Format::Combined => clf(line, cache),
            Format::NginxProxyManager => proxy_manager::parse(line, cache),
            Format::Caddy => caddy::parse(&object()?, cache),
            Format::Envoy if line.starts_with(b"{") => envoy::json(&object()?, cache),
            Format::Envoy => envoy::plain(line, cache),
            Format::Traefik if !line.starts_with(b"{") => clf(line, cache),
            Format::Traefik => traefik::parse_json(&object()?, cache).map(Some),
            Format::Events => Err("events are no log".into()),
        };

        logged.map(|logged| logged.map_or(Parsed::NoRequest, Parsed::Request))
    }
}

/// Parses a line of the Common Log Format, which Traefik has with fields of its own.
fn clf(line: &[u8], cache: &mut TextCache) -> Result<Option<LoggedRequest>, Reason> {
    if traefik::is_clf(line) { traefik::parse_clf(line, cache) } else { common::parse(line, cache) }
}

impl fmt::Debug for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inputs").field("lines", &self.lines).finish_non_exhaustive()
    }
}
