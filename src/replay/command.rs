//! `flowgate replay`: from what was asked to what is printed.

use super::{
    decisions,
    engine::Engine,
    event::Event,
    input::{Format, InputError, Inputs},
};
use crate::config;
use std::{
    io::{self, BufWriter, Write},
    path::PathBuf,
};

/// What to replay, through what, and what to tell of it.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Recorded traffic; `-` is the standard input. Gzip is unpacked.
    #[arg(value_name = "INPUT", required = true)]
    pub inputs: Vec<PathBuf>,
    /// What the inputs are, if it cannot be told from their lines.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// The route that all arrivals belong to, whatever their host and path.
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// What to print.
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Output::Decisions)]
    pub output: Output,
    /// Fail if a line cannot be read.
    #[arg(long)]
    pub strict: bool,
}

/// What is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// One JSON line for each arrival, in order.
    Decisions,
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
    /// `--route` names none.
    #[error("the configuration has no route `{name}`; it has {known}")]
    NoSuchRoute {
        /// The name.
        name: String,
        /// Those that it has.
        known: String,
    },
    /// The result cannot be written.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
    /// With `--strict`.
    #[error("{0} lines could not be read")]
    BadLines(u64),
}

/// Runs the inputs through the rules of the file `config`, prints to `out`, and says
/// what could not be read to `complaints`.
///
/// # Errors
///
/// What could not be read or written.
pub fn run(
    options: &Options,
    config: &std::path::Path,
    out: impl Write,
    complaints: &mut impl Write,
) -> Result<(), ReplayError> {
    let plan = config::read_rules(config).map_err(|e| ReplayError::Config(Box::new(e)))?;
    let mut inputs = Inputs::open(&options.inputs, options.format, &mut |_| {})?;
    let origin = inputs.origin();
    let mut engine = Engine::new(plan, origin, options.route.as_deref());
    check_route(options.route.as_deref(), &engine)?;
    let mut out = BufWriter::with_capacity(64 * 1024, out);
    let mut number = 0;
    while let Some(event) = inputs.next_event() {
        match event {
            Event::Complete(complete) => engine.complete(&complete),
            Event::Arrival(arrival) => {
                let ruling = engine.arrive(&arrival);
                let t = arrival.at.since(origin);
                decisions::write(&mut out, number, t, &engine, &ruling)?;
                number += 1;
            }
        }
    }
    out.flush()?;
    for note in &inputs.notes {
        writeln!(complaints, "note: {note}")?;
    }
    for line in &inputs.bad.shown {
        writeln!(complaints, "{line}")?;
    }
    match inputs.bad.count {
        0 => Ok(()),
        count if options.strict => Err(ReplayError::BadLines(count)),
        count => Ok(writeln!(complaints, "{count} of {} lines were passed over", inputs.lines)?),
    }
}

fn check_route(name: Option<&str>, engine: &Engine) -> Result<(), ReplayError> {
    const MOST: usize = 8;
    let routes = &engine.snapshot().routes;
    let Some(name) = name.filter(|name| routes.iter().all(|route| *route.name != **name)) else {
        return Ok(());
    };
    let mut known: Vec<_> =
        routes.iter().take(MOST).map(|route| format!("`{}`", route.name)).collect();
    if routes.len() > MOST {
        known.push(format!("{} more", routes.len() - MOST));
    }
    Err(ReplayError::NoSuchRoute { name: name.to_owned(), known: known.join(", ") })
}
