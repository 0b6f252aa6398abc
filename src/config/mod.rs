//! From `gateway.yaml` to what the gateway runs by.
//!
//! ```text
//! text ──▶ tree ──▶ spec ──▶ plan ──▶ snapshot
//!  source   yaml     decode    compile   live
//!                    + vocabulary
//! ```
//!
//! The *tree* keeps every value's place. The *spec* is the file as written, each leaf read. The
//! *plan* is the file as meant, checked and compiled, without state. The *snapshot* is a plan in
//! force, joined with the state that outlives it. Everything up to the plan is a function of the
//! files alone and reports all problems at once, each at its place, drawn with a hint.
//!
//! What is absent here: sockets, clocks, tasks, and any lock. A snapshot is never changed.

mod calendar;
mod certificate;
mod changes;
mod claim;
mod compile;
mod cut;
mod decode;
mod describe;
mod diff;
mod error;
mod live;
mod node;
mod open_quote;
mod plan;
mod problem;
mod remarks;
mod scenario;
mod secrets;
mod settings;
mod snapshot;
mod source;
mod spec;
mod store;
mod syntax;
mod values;
mod vocabulary;
pub mod watch;
mod yaml;

pub use certificate::{Certificate, Certificates};
pub use changes::{Changes, Fate};
pub use claim::{Applicant, Claims, Known, Unrouted, is_served, outcome};
pub use compile::overlap;
pub use describe::{RoutePromises, RulePromise, describe, promises};
pub use diff::{Difference, Named, RouteChange, RuleChange, diff};
pub use error::{Diagnostics, Entry};
pub use live::{Division, Live, Retired, Summary};
pub use plan::Plan;
pub use problem::{Problem, Severity};
pub use scenario::{
    Arrivals, Bound, Count, Expect, Measure, Numbered, Scenario, Spread, Step, Test, What, When,
    Word, read_scenario,
};
pub use settings::{AccessLog, ClientTimeouts, Limits, RateLimitHeaders, Settings};
pub use snapshot::{
    AnswerLimits, Cost, Except, Exchange, HeaderEdits, Limit, Listener, Reject, Route,
    RouteOptions, RouteRule, RouteTimeouts, Server, Shared, Snapshot, Upstream,
};
pub use source::{STDIN, fingerprint};
pub use spec::{Balance, OnMissing, OnStoreError};
pub use store::{Secret, Store, StoreKind};
pub use vocabulary::{reference, schema};

use decode::Decoder;
use error::Source;
use node::Content;
use problem::Problems;
use spec::FileSpec;
use std::{
    num::NonZeroUsize,
    path::{Path, PathBuf},
    thread::available_parallelism,
};

/// The text of a configuration, read once.
#[derive(Debug)]
pub struct Text(Source);

impl Text {
    /// Reads the file at `path`, or the standard input if that is [`STDIN`].
    ///
    /// # Errors
    /// It cannot be read, or is not text.
    pub fn read(path: &Path) -> Result<Self, Diagnostics> {
        source::read_input(path).map(Self)
    }

    /// Compiles it with the certificates that it names.
    ///
    /// # Errors
    /// Everything that is wrong with them, in the order of the file.
    pub fn plan(&self) -> Result<Plan, Diagnostics> {
        parse(&self.0)
    }

    /// Compiles it for its rules only: what it says of TLS is left out, so that no certificate need
    /// be there.
    ///
    /// # Errors
    /// Everything else that is wrong with it, in the order of the file.
    pub fn rules(&self) -> Result<Plan, Diagnostics> {
        let (spec, problems) = spec(&self.0)?;
        let spec = spec.map(FileSpec::without_certificates);
        plan(&self.0, spec, problems)
    }

    /// Returns the certificates and keys that it names, as pairs of files that may not exist yet.
    /// What is wrong with the text is left to [`Self::plan`]; the list is then empty or not whole.
    pub fn certificate_files(&self) -> Vec<(PathBuf, PathBuf)> {
        let Ok((spec, _)) = spec(&self.0) else { return Vec::new() };
        let pair = |c: &spec::CertificateSpec| (c.cert.value.clone(), c.key.value.clone());
        let listeners = spec.iter().flat_map(|spec| &spec.listeners);
        listeners.filter_map(|l| l.certificates.as_ref()).flatten().map(pair).collect()
    }
}

/// Reads the file at `path` and the certificates that it names.
///
/// # Errors
/// Everything that is wrong with them, in the order of the file.
pub fn read(path: &Path) -> Result<Plan, Diagnostics> {
    parse(&source::read(path)?)
}

/// Reads the file at `path` for its rules only; see [`Text::rules`].
///
/// # Errors
/// Everything that is wrong with it but for certificates, in the order of the file.
pub fn read_rules(path: &Path) -> Result<Plan, Diagnostics> {
    Text(source::read(path)?).rules()
}

/// Returns what [`Text::certificate_files`] does of the file at `path`; nothing if it cannot be
/// read.
pub fn certificate_files(path: &Path) -> Vec<(PathBuf, PathBuf)> {
    source::read(path).map_or_else(|_| Vec::new(), |source| Text(source).certificate_files())
}

/// Takes a text through all steps to the plan.
fn parse(source: &Source) -> Result<Plan, Diagnostics> {
    let (spec, problems) = spec(source)?;
    plan(source, spec, problems)
}

/// Compiles what was read, with the problems found so far.
fn plan(
    source: &Source,
    spec: Option<FileSpec>,
    mut problems: Problems,
) -> Result<Plan, Diagnostics> {
    let Some(spec) = spec else { return Err(Diagnostics::new(source, problems)) };
    let certificates = spec.listeners.iter().filter_map(|l| l.certificates.as_ref()).flatten();
    let files = certificates.flat_map(|c| [&c.cert.value, &c.key.value]);
    let ca = spec.store.iter().filter_map(|store| store.ca.as_ref()).map(|at| &at.value);
    let files = source::read_all(files.chain(ca));
    let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (plan, more) = compile::compile(spec, &files, source, cores);
    problems.extend(more);
    if problems.is_empty() { Ok(plan) } else { Err(Diagnostics::new(source, problems)) }
}

/// Reads a text as far as it can be read, with the problems found.
fn spec(source: &Source) -> Result<(Option<FileSpec>, Problems), Diagnostics> {
    let root = yaml::read(&source.text).map_err(|problem| Diagnostics::new(source, problem))?;
    if root.content == Content::Empty {
        let empty = Problem::about_file("the file is empty")
            .help("write `listeners`, `upstreams` and `routes`; `flowgate demo` runs an example");
        return Err(Diagnostics::new(source, empty));
    }
    let mut decoder = Decoder::new(&source.text);
    let folder = source.path.parent().unwrap_or_else(|| Path::new(""));
    let spec = FileSpec::read(&mut decoder, &root, folder);
    if let Some(problem) = open_quote::find(&source.text, &root, &decoder.missing) {
        return Err(Diagnostics::new(source, problem));
    }
    Ok((spec, decoder.problems))
}

#[cfg(test)]
mod tests;
