//! `flowgate suggest`: from a log to limits.

use super::{
    page::{Page, RouteResult},
    peaks::{Peaks, WINDOWS},
    percent::Percent,
    proposal::{self, Basis, MARGIN, Proposal},
    traffic::{LEAST_REQUESTS, Request, Traffic},
    trial::{self, Limits, Tried, words},
};
use crate::{
    config::{self, Diagnostics, Text},
    flow::{Instant, time::spelled},
    replay::{Engine, InputError, Inputs, TrafficOptions},
    route::{KeySpec, Part, canonical_host},
};
use core::time::Duration;
use std::{
    io::{self, Write},
    path::Path,
};

/// From which traffic, and what for.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The traffic.
    #[command(flatten)]
    pub traffic: TrafficOptions,
    /// What to count by: `client_ip`, `header:NAME` or another key of a rule, or several with
    /// commas between.
    #[arg(long, value_name = "KEY", default_value = "client_ip")]
    pub key: String,
    /// The window of the limit. Without it, the one of 1s, 1m and 1h in which clients differ most.
    #[arg(long, value_name = "TIME", value_parser = humantime::parse_duration)]
    pub window: Option<Duration>,
    /// How far above the highest peak the limit is, 50% if neither this nor --target is given.
    #[arg(long, value_name = "PERCENT")]
    pub margin: Option<Percent>,
    /// Suggest the lowest limits that would have rejected at most this share of the requests, as
    /// in `0.1%`.
    #[arg(long, value_name = "PERCENT")]
    pub target: Option<Percent>,
}

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuggestResult {
    /// At least one limit.
    Proposed,
    /// None: the log is too short, or has too little.
    Nothing,
}

/// Why nothing could be suggested.
#[derive(Debug, thiserror::Error)]
pub enum SuggestError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(Box<Diagnostics>),
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// `--key` is no key.
    #[error("`--key`: {0}")]
    Key(crate::route::Invalid),
    /// `--host` is none.
    #[error("`{0}` is no host: write `--host shop.example.com`")]
    NoHost(String),
    /// The result cannot be printed.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

impl From<Diagnostics> for SuggestError {
    fn from(problems: Diagnostics) -> Self {
        Self::Config(Box::new(problems))
    }
}

/// The fewest windows that a log must be long.
const LEAST_WINDOWS: u32 = 10;

/// Fewer rejections say nothing of the next log.
const LEAST_REJECTED: u64 = 50;

/// Every request, if no configuration has routes.
const ALL: &str = "listeners: [{ name: web, listen: 127.0.0.1:0 }]\n\
                   routes: [{ name: all, match: { path_prefix: / }, respond: { status: 204 } }]\n\
                   end: true\n";

/// Suggests limits for the traffic of the inputs, for the routes of `config` if there is one, and
/// prints them to `out`.
///
/// # Errors
/// Something cannot be read or written.
pub fn run(
    options: &Options,
    config: Option<&Path>,
    out: &mut impl Write,
) -> Result<SuggestResult, SuggestError> {
    let plan = match config {
        Some(path) => config::read_rules(path)?,
        None => Text::new(Path::new("none.yaml"), ALL).rules()?,
    };
    let mut engine = Engine::new(plan, Instant::EPOCH, None);
    if let Some(host) = &options.traffic.host {
        canonical_host(host).map_err(|_| SuggestError::NoHost(host.clone()))?;
        engine.assume_host(host);
    }
    let parts: Result<_, _> =
        options.key.split(',').map(|part| Part::parse(part.trim(), 64)).collect();
    let key = parts.and_then(KeySpec::new).map_err(SuggestError::Key)?;
    let mut inputs = Inputs::open(&options.traffic.inputs, options.traffic.format, &mut |_| {})?;
    let traffic = Traffic::read(&mut inputs, &engine, &key, config.is_none());
    let first = traffic.requests.first().map_or(Instant::EPOCH, |request| request.at);
    let last = traffic.requests.last().map_or(Instant::EPOCH, |request| request.at);
    let mut notes = inputs.notes.clone();
    if inputs.bad.count > 0 {
        notes.push(format!("{} of {} lines could not be read", inputs.bad.count, inputs.lines));
    }
    let study = Study {
        options,
        traffic: &traffic,
        length: last.since(first),
        middle: first + last.since(first) / 2,
        has_whole_seconds: inputs.has_whole_seconds,
    };
    let routes = study.routes()?;
    let found = routes.iter().any(|route| route.proposal.is_ok());
    let clock =
        inputs.times().span(first, last).map_or_else(String::new, |span| format!(", {span}"));
    let names: Vec<_> =
        options.traffic.inputs.iter().map(|path| path.display().to_string()).collect();
    let page = Page {
        inputs: names.join(", "),
        span: format!("{} long{clock}", spelled(Duration::from_secs(study.length.as_secs()))),
        key: &options.key,
        traffic: &traffic,
        notes: &notes,
        routes,
        is_for_file: config.is_some(),
    };
    out.write_all(page.write().as_bytes())?;
    out.flush()?;
    Ok(if found { SuggestResult::Proposed } else { SuggestResult::Nothing })
}

/// A log that is looked at.
struct Study<'a> {
    options: &'a Options,
    traffic: &'a Traffic,
    length: Duration,
    middle: Instant,
    /// Whether nothing is known of what happens within a second.
    has_whole_seconds: bool,
}

impl Study<'_> {
    fn routes(&self) -> Result<Vec<RouteResult>, Diagnostics> {
        let by_group = self.by_group();
        let peaks: Vec<Vec<Peaks>> = by_group.iter().map(|requests| self.peaks(requests)).collect();
        let mut proposals: Vec<Result<Proposal, String>> = Vec::new();
        for (requests, peaks) in by_group.iter().zip(&peaks) {
            proposals.push(self.first(requests.len(), peaks));
        }
        if let Some(target) = self.options.target {
            self.lower_to(target, &mut proposals)?;
        }
        let tried = self.settle(&peaks, &mut proposals)?;
        let groups = self.traffic.groups.iter().zip(0..);
        let results = groups.zip(by_group.iter().zip(peaks)).zip(proposals.into_iter().zip(tried));
        let results =
            results.map(|(((group, index), (requests, peaks)), (proposal, tried))| RouteResult {
                group: group.clone(),
                requests: requests.len(),
                without_key: self.traffic.without_key.get(&index).copied().unwrap_or(0),
                peaks,
                proposal: proposal.map(|proposal| (proposal, tried)),
            });
        Ok(results.filter(|it| it.requests > 0 || it.without_key > 0).collect())
    }

    /// Returns the requests of each route, by key and then by time.
    fn by_group(&self) -> Vec<Vec<Request>> {
        let mut groups = vec![Vec::new(); self.traffic.groups.len()];
        for request in &self.traffic.requests {
            groups[request.group as usize].push(*request);
        }
        for requests in &mut groups {
            // The sort is stable, so that each key's requests stay in the order of time.
            requests.sort_by_key(|request| request.key);
        }
        groups
    }

    fn peaks(&self, requests: &[Request]) -> Vec<Peaks> {
        let usual = |window: &Duration| *window <= self.length;
        let windows: Vec<Duration> = match self.options.window {
            Some(window) => vec![window],
            None => WINDOWS.into_iter().filter(usual).collect(),
        };
        windows.into_iter().map(|window| Peaks::of(requests, window, self.middle)).collect()
    }

    /// Whether the log says enough of this window.
    fn is_known(&self, window: Duration) -> bool {
        let is_seen = !self.has_whole_seconds || window >= Duration::from_secs(10);
        self.length >= window * LEAST_WINDOWS && (is_seen || self.options.window.is_some())
    }

    /// Returns a route's limit by its peaks alone, or why it has none.
    fn first(&self, requests: usize, peaks: &[Peaks]) -> Result<Proposal, String> {
        if requests < LEAST_REQUESTS {
            return Err(format!("{requests} requests are too few; {LEAST_REQUESTS} are needed"));
        }
        let known: Vec<_> =
            peaks.iter().filter(|peaks| self.is_known(peaks.window)).cloned().collect();
        let Some(usual) = usual(&known) else {
            let window =
                self.options.window.unwrap_or_else(|| WINDOWS[usize::from(self.has_whole_seconds)]);
            return Err(format!(
                "the log is too short; for a window of {} it must be {} long",
                words(window),
                words(window * LEAST_WINDOWS)
            ));
        };
        if let Some(target) = self.options.target {
            let highest = proposal::above_all(usual, 0.2);
            return Ok(Proposal { basis: Basis::Target(target), ..highest });
        }
        let found = proposal::apart(&known, self.margin());
        Ok(found.unwrap_or_else(|| proposal::above_all(usual, self.margin())))
    }

    fn margin(&self) -> f64 {
        self.options.margin.map_or(MARGIN, Percent::share)
    }

    /// Tries the proposals. A limit whose rejections are few, or differ between the halves of the
    /// log, says nothing of the next log: it gives way to one above all clients.
    fn settle(
        &self,
        peaks: &[Vec<Peaks>],
        proposals: &mut [Result<Proposal, String>],
    ) -> Result<Vec<Tried>, Diagnostics> {
        let tried = self.run(proposals)?;
        let mut has_changed = false;
        for ((proposal, tried), peaks) in proposals.iter_mut().zip(&tried).zip(peaks) {
            let Ok(found) = proposal else { continue };
            let is_apart = matches!(found.basis, Basis::Apart { .. });
            let known: Vec<_> =
                peaks.iter().filter(|peaks| self.is_known(peaks.window)).cloned().collect();
            if let Some(usual) = usual(&known).filter(|_| is_apart && !is_steady(tried)) {
                *found = proposal::above_all(usual, self.margin());
                has_changed = true;
            }
        }
        if has_changed { self.run(proposals) } else { Ok(tried) }
    }

    /// Lowers the limits as far as they reject at most this share, by halving.
    fn lower_to(
        &self,
        target: Percent,
        proposals: &mut [Result<Proposal, String>],
    ) -> Result<(), Diagnostics> {
        let margin = self.options.margin.map_or(0.0, Percent::share);
        let mut bounds: Vec<[u64; 2]> =
            proposals.iter().map(|it| [0, it.as_ref().map_or(0, |it| it.limit)]).collect();
        let is_open = |[low, high]: &[u64; 2]| high - low > (high / 100).max(1);
        while bounds.iter().any(is_open) {
            let middle = |[low, high]: [u64; 2]| (low + (high - low) / 2).max(1);
            for (proposal, bounds) in proposals.iter_mut().zip(&bounds) {
                if let Ok(proposal) = proposal {
                    proposal.limit = middle(*bounds);
                }
            }
            let tried = self.run(proposals)?;
            for (bounds, tried) in bounds.iter_mut().zip(tried).filter(|(it, _)| is_open(it)) {
                let middle = middle(*bounds);
                let side = usize::from(share(&tried) <= target);
                bounds[side] = middle;
            }
        }
        for (proposal, [_, high]) in proposals.iter_mut().zip(bounds) {
            if let Ok(proposal) = proposal {
                proposal.limit =
                    if margin > 0.0 { proposal::raised(high, 1.0 + margin) } else { high };
            }
        }
        Ok(())
    }

    fn run(&self, proposals: &[Result<Proposal, String>]) -> Result<Vec<Tried>, Diagnostics> {
        let limit =
            |it: &Result<Proposal, String>| it.as_ref().ok().map(|it| (it.window, it.limit));
        let limits: Limits = proposals.iter().map(limit).collect();
        trial::run(self.traffic, &limits, self.middle)
    }
}

/// Returns the window of a limit above all clients: a minute, or the longest that is known.
fn usual(known: &[Peaks]) -> Option<&Peaks> {
    let minute = known.iter().find(|peaks| peaks.window == WINDOWS[1]);
    minute.or_else(|| known.last())
}

fn share(tried: &Tried) -> Percent {
    Percent::of(tried.rejected.iter().sum(), tried.offered.iter().sum())
}

fn is_steady(tried: &Tried) -> bool {
    let halves = [0, 1].map(|half| Percent::of(tried.rejected[half], tried.offered[half]));
    tried.rejected.iter().sum::<u64>() >= LEAST_REJECTED && !super::page::varies(halves)
}
