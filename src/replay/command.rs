//! `flowgate replay`: from options to output.

use super::{
    decisions,
    engine::{ArrivalResult, Engine, ResultOf},
    event::{Arrival, Event},
    input::{Format, InputError, Inputs, STDIN},
    notes::{AbsentKeys, Unmatched},
    report::{self, Against, Collector, Comparison, HtmlReport, ReplayReport},
    times::Times,
    undecided::{UndecidedArrival, UndecidedArrivals},
};
use crate::{
    config,
    counted::{counted, inflected},
    flow::Instant,
    route::canonical_host,
};
use core::fmt;
use std::{
    fs,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
};

/// Recorded traffic, as the command line names it.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct TrafficOptions {
    /// Recorded traffic; `-` is the standard input. Gzip is unpacked.
    #[arg(value_name = "INPUT", required = true)]
    pub inputs: Vec<PathBuf>,
    /// The format of the inputs, if flowgate does not recognise it from their lines.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The host of requests that name none, as in most logs of nginx and Apache.
    #[arg(long, value_name = "HOST")]
    pub host: Option<String>,
    /// The listener that requests came by if their line names none, as in all logs of other gateways.
    #[arg(long, value_name = "NAME")]
    pub listener: Option<String>,
}

/// Why an option does not fit the configuration.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// `--host` is invalid.
    #[error("`{0}` is not a host: write `--host shop.example.com`")]
    NoHost(String),
    /// `--listener` names no listener.
    #[error("the configuration has no listener `{name}`; it has {known}")]
    NoSuchListener {
        /// The missing listener.
        name: String,
        /// Known listeners.
        known: String,
    },
}

impl TrafficOptions {
    /// Gives requests the host and the listener that their lines do not name.
    ///
    /// # Errors
    ///
    /// The host is none, or the configuration has no such listener.
    pub fn complete(&self, engine: &mut Engine) -> Result<(), TrafficError> {
        if let Some(host) = &self.host {
            canonical_host(host).map_err(|_| TrafficError::NoHost(host.clone()))?;
            engine.assume_host(host);
        }
        let Some(name) = &self.listener else { return Ok(()) };
        let names = || engine.snapshot().listeners.iter().map(|listener| &*listener.name);
        if !names().any(|known| known == name) {
            let known = some_of(names());
            return Err(TrafficError::NoSuchListener { name: name.clone(), known });
        }
        engine.assume_listener(name);
        Ok(())
    }
}

/// Names the first few.
pub(super) fn some_of<'a>(names: impl Iterator<Item = &'a str>) -> String {
    const MOST: usize = 8;
    let all: Vec<_> = names.map(|name| format!("`{name}`")).collect();
    let mut shown: Vec<_> = all.iter().take(MOST).cloned().collect();
    if all.len() > MOST {
        shown.push(format!("{} more", all.len() - MOST));
    }
    shown.join(", ")
}

/// The options of `flowgate replay`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The traffic.
    #[command(flatten)]
    pub traffic: TrafficOptions,
    /// Treat all requests as requests for this route, whatever their host and path.
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// What to print.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Output::Report)]
    pub output: Output,
    /// Also run the traffic through this configuration, and compare: in the report, on the
    /// page, and for each decision.
    #[arg(long, value_name = "FILE")]
    pub against: Option<PathBuf>,
    /// Also write the report to FILE, as an HTML page with timelines.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also draw the timeline of the busiest route to FILE, as SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Exit with 1 if a line cannot be read.
    #[arg(long)]
    pub strict: bool,
}

/// The kinds of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// What happened to the requests, by route and rule.
    Report,
    /// One JSON line for each request, in order.
    Decisions,
}

impl Options {
    /// Returns an error of the command line, if any.
    pub fn misuse(&self) -> Option<&'static str> {
        let stdin = self.traffic.inputs.iter().filter(|path| path.as_os_str() == STDIN);
        (stdin.count() > 1).then_some("the standard input, `-`, can be read once")
    }
}

/// Why a replay failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(Box<config::Diagnostics>),
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// `--route` names no route.
    #[error("the configuration has no route `{name}`; it has {known}")]
    NoSuchRoute {
        /// The missing route.
        name: String,
        /// Known routes.
        known: String,
    },
    /// `--host` or `--listener` does not fit.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The result cannot be printed.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Lines could not be read, with `--strict`.
    #[error("{} could not be read", counted(*.0, "line"))]
    BadLines(u64),
    /// The inputs have lines but no request, with `--strict`.
    #[error("there is no request in {}", counted(*.0, "line"))]
    NoRequest(u64),
}

/// A configuration with the counts of its traffic.
struct Run {
    engine: Engine,
    is_counted: bool,
    collector: Option<Collector>,
}

struct Results {
    report: ReplayReport,
    against: Option<Against>,
    /// The format of times.
    times: Times,
    /// Notes for the reader.
    notes: Vec<String>,
    bad: u64,
    /// Lines of the inputs.
    lines: u64,
    requests: u64,
}

/// Runs the inputs through the rules of `config`, prints results to `out` and unreadable lines to
/// `errors`, and draws its progress on `terminal`.
///
/// # Errors
///
/// Something cannot be read or written.
pub fn run(
    options: &Options,
    config: &Path,
    out: impl Write,
    errors: &mut impl Write,
    terminal: Option<&mut dyn Write>,
) -> Result<(), ReplayError> {
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    let mut progress = Progress::new(&options.traffic.inputs, terminal);
    let results = replay(options, config, &mut out, &mut progress);
    progress.clear();
    let results = results?;

    match options.output {
        Output::Report => print_report(&mut out, &results)?,
        Output::Decisions => {
            for note in &results.notes {
                writeln!(errors, "{note}")?;
            }
        }
    }
    out.flush()?;

    if let Some(path) = &options.html {
        let inputs: Vec<_> =
            options.traffic.inputs.iter().map(|path| path.display().to_string()).collect();
        let page = HtmlReport {
            config: &config.display().to_string(),
            inputs: &inputs.join(", "),
            report: &results.report,
            against: results.against.as_ref(),
            notes: &results.notes,
            times: &results.times,
        };
        write_file(path, &page.write())?;
    }
    if let Some(path) = &options.svg {
        let busiest = results.report.routes.iter().max_by_key(|route| route.offered);
        let picture = busiest
            .map(|route| report::draw(&route.timeline, &route.name, &results.times, true))
            .unwrap_or_default();
        write_file(path, &picture)?;
    }

    if options.strict && results.bad > 0 {
        return Err(ReplayError::BadLines(results.bad));
    }
    if options.strict && results.lines > 0 && results.requests == 0 {
        return Err(ReplayError::NoRequest(results.lines));
    }
    Ok(())
}

fn replay(
    options: &Options,
    config: &Path,
    out: &mut impl Write,
    progress: &mut Progress<'_>,
) -> Result<Results, ReplayError> {
    /// Events between two updates of the progress.
    const STEP: u64 = 4096;

    let is_reported = options.output == Output::Report || options.html.is_some();
    let run = Run::new(config, options, is_reported || options.svg.is_some())?;
    let against = options.against.as_ref();
    let other = against.map(|path| Run::new(path, options, is_reported)).transpose()?;

    let TrafficOptions { inputs, format, .. } = &options.traffic;
    let mut inputs = Inputs::open(inputs, *format, &mut |bytes| progress.at(bytes))?;
    let times = inputs.times().clone();
    let is_listed = options.output == Output::Decisions;
    let mut replay = Replaying::new(run, other, times.clone(), is_listed);
    let mut number = 0;

    while let Some(event) = inputs.next_event() {
        match event {
            Event::Arrival(arrival) => {
                replay.arrive(number, arrival);
                number += 1;
            }
            Event::Complete(complete) => {
                replay.run.engine.complete(&complete);
                if let Some((other, _)) = &mut replay.other {
                    other.engine.complete(&complete);
                }
            }
            Event::Unreadable => number += 1,
        }

        replay.note_decided(out)?;
        if number.is_multiple_of(STEP) {
            progress.at(inputs.bytes());
        }
    }
    replay.end_waits();
    replay.note_decided(out)?;

    let Replaying { run, other, unmatched, absent_keys, .. } = replay;
    let against = options.against.as_ref().zip(other);
    let against = against.map(|(path, (other, comparison))| Against {
        config: path.display().to_string(),
        report: other.report(times.origin()),
        comparison,
    });

    let mut reasons = absent_keys.explain(&run.engine);
    reasons.extend(unmatched.explain(&run.engine));
    let notes = notes(&inputs, &reasons);

    let report = run.report(times.origin());
    let bad = inputs.bad.count;
    Ok(Results { report, against, times, notes, bad, lines: inputs.lines, requests: number })
}

/// A replay in progress.
struct Replaying {
    run: Run,
    /// The configuration to compare with, and the differences so far.
    other: Option<(Run, Comparison)>,
    undecided: UndecidedArrivals,
    unmatched: Unmatched,
    absent_keys: AbsentKeys,
    times: Times,
    /// True if each decision is written.
    is_listed: bool,
}

impl Replaying {
    fn new(run: Run, other: Option<Run>, times: Times, is_listed: bool) -> Self {
        Self {
            unmatched: Unmatched::new(&run.engine),
            run,
            other: other.map(|run| (run, Comparison::default())),
            undecided: UndecidedArrivals::default(),
            absent_keys: AbsentKeys::default(),
            times,
            is_listed,
        }
    }

    /// Has both configurations decide about an arrival.
    fn arrive(&mut self, number: u64, arrival: Arrival) {
        let here = self.run.engine.arrive(&arrival);
        let there = self.other.as_mut().and_then(|(other, _)| other.engine.arrive(&arrival));
        let results = [here, there];
        let is_compared = self.other.is_some();
        self.undecided.push(UndecidedArrival { number, arrival, results }, is_compared);
    }

    /// Goes on until no arrival waits.
    fn end_waits(&mut self) {
        self.run.engine.end_waits();
        if let Some((other, _)) = &mut self.other {
            other.engine.end_waits();
        }
    }

    /// Counts and writes the decisions that are known, in the order of the arrivals.
    fn note_decided(&mut self, out: &mut impl Write) -> Result<(), ReplayError> {
        let other = self.other.as_mut().map(|(other, _)| &mut other.engine);
        for (of, engine) in [Some(&mut self.run.engine), other].into_iter().flatten().enumerate() {
            for ended in engine.take_ended() {
                self.undecided.note(ended.arrival.id, of, ended.result);
            }
        }

        let is_compared = self.other.is_some();
        while let Some(decided) = self.undecided.pop(is_compared) {
            let UndecidedArrival { number, arrival, results: [Some(here), there] } = decided else {
                continue;
            };
            self.note(number, &arrival, &here, there.as_ref(), out)?;
        }
        Ok(())
    }

    fn note(
        &mut self,
        number: u64,
        arrival: &Arrival,
        here: &ArrivalResult,
        there: Option<&ArrivalResult>,
        out: &mut impl Write,
    ) -> Result<(), ReplayError> {
        self.run.count(arrival, here);
        let engine = &self.run.engine;
        self.unmatched.note_result(engine, arrival, here);
        self.absent_keys.note(engine, arrival, here);

        let here = ResultOf { engine, result: here };
        let mut compared = None;
        if let (Some((other, comparison)), Some(there)) = (&mut self.other, there) {
            other.count(arrival, there);
            let there = ResultOf { engine: &other.engine, result: there };
            comparison.note(number, &self.times, arrival, here, there);
            compared = Some(there);
        }
        if self.is_listed {
            decisions::write(out, number, &self.times, arrival.at, here, compared)?;
        }
        Ok(())
    }
}

impl Run {
    fn new(config: &Path, options: &Options, is_counted: bool) -> Result<Self, ReplayError> {
        let plan = config::read_rules(config).map_err(|e| ReplayError::Config(Box::new(e)))?;
        let mut engine = Engine::new(plan, Instant::EPOCH, options.route.as_deref());
        options.traffic.complete(&mut engine)?;
        check_route(options.route.as_deref(), &engine)?;
        Ok(Self { engine, is_counted, collector: None })
    }

    /// Counts the result of an arrival.
    fn count(&mut self, arrival: &Arrival, result: &ArrivalResult) {
        if self.is_counted {
            let first = || Collector::new(&self.engine, arrival.at);
            self.collector.get_or_insert_with(first).note(&self.engine, arrival, result);
        }
    }

    fn report(self, origin: Instant) -> ReplayReport {
        self.collector.unwrap_or_else(|| Collector::new(&self.engine, origin)).report()
    }
}

fn print_report(out: &mut impl Write, results: &Results) -> io::Result<()> {
    write!(out, "{}", report::write(&results.report, &results.times))?;
    if let Some(against) = &results.against {
        write!(out, "\n{}", against.write(&results.report))?;
    }
    if !results.notes.is_empty() {
        writeln!(out)?;
    }
    results.notes.iter().try_for_each(|note| writeln!(out, "{note}"))
}

/// Returns the notes, and lists unreadable lines.
fn notes(inputs: &Inputs, reasons: &[String]) -> Vec<String> {
    let notes = inputs.notes.iter().chain(reasons);
    let mut notes: Vec<String> = notes.map(|note| format!("note: {note}")).collect();
    if inputs.bad.count > 0 {
        let were = inflected(inputs.bad.count, "was", "were");
        let lines = counted(inputs.lines, "line");
        notes.push(format!(
            "{} of {lines} {were} skipped, because flowgate cannot read them:",
            inputs.bad.count
        ));
        notes.extend(inputs.bad.shown.iter().map(|line| format!("  {line}")));
    }
    notes
}

fn write_file(path: &Path, text: &str) -> Result<(), ReplayError> {
    fs::write(path, text).map_err(|source| ReplayError::File { path: path.to_owned(), source })
}

fn check_route(name: Option<&str>, engine: &Engine) -> Result<(), ReplayError> {
    let routes = &engine.snapshot().routes;
    let Some(name) = name.filter(|name| routes.iter().all(|route| *route.name != **name)) else {
        return Ok(());
    };
    let known = some_of(routes.iter().map(|route| &*route.name));
    Err(ReplayError::NoSuchRoute { name: name.to_owned(), known })
}

pub(super) struct Progress<'a> {
    out: Option<&'a mut dyn Write>,
    total: u64,
    /// In hundredths.
    shown: u64,
}

/// Smaller inputs are read before a bar can be seen.
const LEAST: u64 = 16 * 1024 * 1024;

/// Characters of the bar.
const WIDTH: usize = 40;

impl<'a> Progress<'a> {
    /// Draws to `terminal`, if all of `inputs` are files and together large.
    pub(super) fn new(inputs: &[PathBuf], terminal: Option<&'a mut dyn Write>) -> Self {
        let size = |path: &PathBuf| fs::metadata(path).ok().filter(fs::Metadata::is_file);
        let sizes: Option<Vec<u64>> = inputs.iter().map(|path| Some(size(path)?.len())).collect();
        let total = sizes.map_or(0, |sizes| sizes.iter().sum());
        Self { out: terminal.filter(|_| total >= LEAST), total, shown: u64::MAX }
    }

    pub(super) fn at(&mut self, bytes: u64) {
        let Some(out) = &mut self.out else { return };
        let share = (bytes.saturating_mul(100) / self.total).min(100);
        if share != self.shown {
            self.shown = share;
            let full = usize::try_from(share).unwrap_or(0) * WIDTH / 100;
            let bar = "#".repeat(full);
            // Errors of the terminal do not matter.
            let _gone = write!(out, "\r[{bar:<WIDTH$}] {share:>3} %").and_then(|()| out.flush());
        }
    }

    pub(super) fn clear(&mut self) {
        if let Some(out) = &mut self.out
            && self.shown != u64::MAX
        {
            let _gone = write!(out, "\r\x1b[K").and_then(|()| out.flush());
        }
    }
}

impl fmt::Debug for Progress<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").field("total", &self.total).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_is_drawn_for_files_that_are_large() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = fs::File::create(&path).unwrap();
        let drawn = |inputs: &[PathBuf]| {
            let mut out = Vec::new();
            let mut progress = Progress::new(inputs, Some(&mut out));
            for bytes in [LEAST / 2, LEAST / 2 + 1, 3 * LEAST] {
                progress.at(bytes);
            }
            progress.clear();
            String::from_utf8(out).unwrap()
        };
        file.set_len(LEAST - 1).unwrap();
        assert_eq!(drawn(std::slice::from_ref(&path)), "");
        file.set_len(LEAST).unwrap();
        let bar = drawn(std::slice::from_ref(&path));
        assert_eq!(bar.matches('\r').count(), 3, "{bar:?}");
        assert!(bar.contains(" 50 %") && bar.contains("100 %"), "{bar:?}");
        assert_eq!(drawn(&[path, "-".into()]), "");
    }
}
