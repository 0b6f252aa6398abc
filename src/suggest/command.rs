//! `flowgate suggest`: from traffic to limits.
//!
//! The options of `flowgate suggest`.

use super::{
    proposal::Percent,
    recording::Recording,
    study::Study,
    suggested_config::SuggestedConfig,
    traffic::{Grouping, Traffic},
};
use crate::{
    admin_client::{AdminClient, AdminOptions, ClientError},
    config::{self, Diagnostics, Text},
    counted::counted,
    flow::{Instant, time::spelled},
    replay::{Engine, Format, InputError, Inputs, TrafficError, TrafficOptions, Unmatched},
    route::{KeyPart, KeySpec},
};
use core::time::Duration;
use std::{
    io::{self, Write},
    path::Path,
};

/// The result of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuggestResult {
    /// At least one limit or reserve.
    Proposed,
    /// None: the traffic is too short, or has too little.
    Nothing,
}

/// The reason why nothing could be suggested.
#[derive(Debug, thiserror::Error)]
pub enum SuggestError {
    /// The configuration has errors.
    #[error("{0}")]
    Config(Box<Diagnostics>),
    /// An input cannot be read.
    #[error(transparent)]
    Input(#[from] InputError),
    /// The gateway does not answer, or shows no requests.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// `--key` is no key.
    #[error("`--key`: {0}")]
    Key(crate::route::ParseError),
    /// The key is a segment, which only the templates of a route name.
    #[error("no limit can be proposed for `path:{0}`: only the paths of a route say where it is")]
    Segment(String),
    /// `--host` or `--listener` does not fit.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The result cannot be printed.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
}

impl From<Diagnostics> for SuggestError {
    fn from(problems: Diagnostics) -> Self {
        Self::Config(Box::new(problems))
    }
}

/// Every request, if no configuration has routes.
const ALL: &str = "listeners: [{ name: web, listen: 127.0.0.1:0 }]\n\
                   routes: [{ name: all, match: { path_prefix: / }, respond: { status: 204 } }]\n\
                   end: true\n";

/// The configurations that a command names, or would.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The one whose routes get limits, if it is named.
    pub routes: Option<&'a Path>,
    /// The one of the gateway to record.
    pub gateway: &'a Path,
}

/// Traffic that was read, and where it is from.
struct Source {
    inputs: Inputs,
    /// The names of files, or of a gateway.
    name: String,
    /// `log` or `recording`.
    kind: &'static str,
    notes: Vec<String>,
}

/// Suggests limits for the traffic of the inputs or of a running gateway, for the routes of a
/// configuration if one is named, and prints them to `out`.
///
/// # Errors
/// Something cannot be read or written, or the gateway does not answer.
pub fn run(
    options: &Options,
    files: Files<'_>,
    out: &mut impl Write,
) -> Result<SuggestResult, SuggestError> {
    let plan = match files.routes {
        Some(path) => config::read_rules(path)?,
        None => Text::new(Path::new("none.yaml"), ALL).rules()?,
    };
    let mut engine = Engine::new(plan, Instant::EPOCH, None);
    options.traffic.complete(&mut engine)?;
    let parts: Result<_, _> =
        options.key.split(',').map(|part| KeyPart::parse(part.trim(), 64)).collect();
    let key = parts.and_then(KeySpec::new).map_err(SuggestError::Key)?;
    if let Some(segment) = key.segments().next() {
        return Err(SuggestError::Segment(segment.name().to_owned()));
    }
    let mut source =
        if options.live.live { record(options, files.gateway)? } else { read(options)? };
    let mut unmatched = Unmatched::new(&engine);
    let inputs = &mut source.inputs;
    let grouping = match files.routes {
        _ if options.together => Grouping::Together,
        Some(_) => Grouping::ByRoute,
        None => Grouping::ByPath,
    };
    let traffic = Traffic::read(inputs, &engine, &key, grouping, &mut unmatched);
    source.notes.extend(unmatched.explain_absent());
    write_config(options, source, &traffic, files.routes.is_some(), out)
}

/// Reads files.
fn read(options: &Options) -> Result<Source, SuggestError> {
    let TrafficOptions { inputs: paths, format, .. } = &options.traffic;
    let inputs = Inputs::open(paths, *format, &mut |_| {})?;
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    Ok(Source { inputs, name: names.join(", "), kind: "log", notes: Vec::new() })
}

/// Records what a running gateway does.
fn record(options: &Options, config: &Path) -> Result<Source, SuggestError> {
    let client = AdminClient::find(config, &options.live.admin)?;
    let recording = Recording::start(&client, options.live.time())?;
    let cut = recording.cut();
    let name = format!("the gateway at {}", client.endpoint());
    let inputs = Inputs::read(&name, Format::Flowgate, recording)?;
    let mut notes = Vec::new();
    if let Some(why) = cut.take() {
        notes.push(format!("the recording was ended early: {why}"));
    }
    notes.push(
        "a limit says nothing of hours and days that were not recorded: record longer, or read logs"
            .to_owned(),
    );
    Ok(Source { inputs, name, kind: "recording", notes })
}

fn write_config(
    options: &Options,
    Source { inputs, name, kind, notes: own }: Source,
    traffic: &Traffic,
    is_for_file: bool,
    out: &mut impl Write,
) -> Result<SuggestResult, SuggestError> {
    let first = traffic.requests.first().map_or(Instant::EPOCH, |request| request.at);
    let last = traffic.requests.last().map_or(Instant::EPOCH, |request| request.at);
    let between = last.since(first);

    let mut notes = inputs.notes.clone();
    if inputs.bad.count > 0 {
        let lines = counted(inputs.lines, "line");
        notes.push(format!("{} of {lines} could not be read:", inputs.bad.count));
        notes.extend(inputs.bad.shown.iter().map(|line| format!("  {line}")));
    }
    notes.extend(own);

    let study = Study {
        options,
        traffic,
        source: kind,
        // A recording may begin and end with silence.
        length: between.max(inputs.observed),
        middle: first + between / 2,
        has_whole_seconds: inputs.has_whole_seconds,
    };

    let routes = study.routes()?;
    let has_limit = routes.iter().any(|route| route.proposal.is_ok());
    let found = has_limit || traffic.costs.has_proposals();

    // Without a request there is neither a first nor a last one.
    let clock = inputs.times().span(first, last).filter(|_| !traffic.requests.is_empty());
    let clock = clock.map_or_else(String::new, |span| format!(", {span}"));

    let config = SuggestedConfig {
        inputs: name,
        source: kind,
        span: format!("{} long{clock}", spelled(Duration::from_secs(study.length.as_secs()))),
        key: &options.key,
        traffic,
        notes: &notes,
        routes,
        is_for_file,
        is_shared: options.together,
    };

    out.write_all(config.write().as_bytes())?;
    out.flush()?;
    Ok(if found { SuggestResult::Proposed } else { SuggestResult::Nothing })
}

/// From which traffic, and what for.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("inputs", |arg| arg.required(false).required_unless_present("live")))]
pub struct Options {
    /// The traffic.
    #[command(flatten)]
    pub traffic: TrafficOptions,
    /// The gateway to record.
    #[command(flatten)]
    pub live: LiveOptions,
    /// What to count by: `client_ip`, `header:NAME` or another key of a rule, or several with
    /// commas between.
    #[arg(long, value_name = "KEY", default_value = "client_ip")]
    pub key: String,
    /// Suggest one limit that all routes share, as a budget of the whole file.
    #[arg(long)]
    pub together: bool,
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

/// A running gateway in place of recorded traffic.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct LiveOptions {
    /// Record the requests of a running gateway, in place of INPUT. Its file must say
    /// `admin: { show_keys: true }`.
    #[arg(long, conflicts_with_all = ["inputs", "format"])]
    pub live: bool,
    /// How long to record, from 1s to 24h; 10m if this is not given. Ctrl-C ends it early.
    #[arg(long = "for", value_name = "DURATION", value_parser = humantime::parse_duration)]
    pub time: Option<Duration>,
    /// Where the gateway is.
    #[command(flatten)]
    pub admin: AdminOptions,
}

/// The time that is recorded if none is given.
const USUAL: Duration = Duration::from_mins(10);

/// The shortest and the longest recording.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_hours(24);

impl Options {
    /// Returns an error of the command line, if any.
    pub fn misuse(&self) -> Option<&'static str> {
        let LiveOptions { live, time, admin } = &self.live;
        if !live && (time.is_some() || *admin != AdminOptions::default()) {
            return Some("`--for` and the options of the admin listener are for `--live`");
        }
        let is_possible = (LEAST..=MOST).contains(&self.live.time());
        (!is_possible).then_some("`--for` is from 1s to 24h")
    }
}

impl LiveOptions {
    /// Returns how long to record.
    pub(super) fn time(&self) -> Duration {
        self.time.unwrap_or(USUAL)
    }
}
