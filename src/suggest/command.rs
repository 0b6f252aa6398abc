//! `flowgate suggest`: from traffic to limits.

use super::{
    options::Options, recording::Recording, study::Study, suggested_config::SuggestedConfig,
    traffic::Traffic,
};
use crate::counted::counted;
use crate::{
    admin_client::{AdminClient, ClientError},
    config::{self, Diagnostics, Text},
    flow::{Instant, time::spelled},
    replay::{Engine, Format, InputError, Inputs, TrafficError, TrafficOptions, Unmatched},
    route::{KeyPart, KeySpec},
};
use core::time::Duration;
use std::{
    io::{self, Write},
    path::Path,
};

/// What came of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuggestResult {
    /// At least one limit.
    Proposed,
    /// None: the traffic is too short, or has too little.
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
    /// The gateway does not answer, or shows no requests.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// `--key` is no key.
    #[error("`--key`: {0}")]
    Key(crate::route::ParseError),
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
    let mut source =
        if options.live.live { record(options, files.gateway)? } else { read(options)? };
    let mut unmatched = Unmatched::new(&engine);
    let inputs = &mut source.inputs;
    let traffic = Traffic::read(inputs, &engine, &key, files.routes.is_none(), &mut unmatched);
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
    let found = routes.iter().any(|route| route.proposal.is_ok());
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
    };
    out.write_all(config.write().as_bytes())?;
    out.flush()?;
    Ok(if found { SuggestResult::Proposed } else { SuggestResult::Nothing })
}
