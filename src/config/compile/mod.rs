//! Spec to plan: whether the values make sense together. Pure, and every problem is reported.

mod listeners;
mod quotas;
mod requests;
mod routes;
mod rules;
mod store;
mod upstreams;
mod waits;

pub use listeners::overlap;

use super::{
    calendar::Unit,
    decode::At,
    error::{Diagnostics, Source},
    node::Place,
    plan::Plan,
    problem::{Problem, Problems},
    settings::{AccessLog, ClientTimeouts, Limits, RateLimitHeaders, Settings},
    source::{self, Files},
    spec::FileSpec,
};
use crate::flow::calendar::Calendar;
use ahash::AHashMap;
use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::Hash,
    num::NonZeroUsize,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// The problems found while compiling.
#[derive(Debug, Default)]
struct Compiler {
    errors: Problems,
    warnings: Problems,
    /// Whether the file has a store.
    has_store: bool,
    /// Those that were asked for.
    calendars: HashMap<(Unit, String), Calendar>,
}

impl Compiler {
    fn error(&mut self, problem: Problem) {
        self.errors.add(problem);
    }

    fn warn(&mut self, problem: Problem) {
        self.warnings.add(problem);
    }

    /// Reports values that are given twice.
    fn unique<K: Eq + Hash>(
        &mut self,
        values: impl Iterator<Item = (K, Place)>,
        message: impl Fn(&K) -> String,
        help: &str,
    ) {
        let mut seen = AHashMap::with_capacity(values.size_hint().1.unwrap_or_default());
        for (value, place) in values {
            match seen.entry(value) {
                Entry::Vacant(free) => _ = free.insert(place),
                Entry::Occupied(taken) => self.error(
                    Problem::error(place, message(taken.key()))
                        .label("again here")
                        .also(*taken.get(), "first here")
                        .help(help),
                ),
            }
        }
    }

    /// Reports names that are given twice.
    fn names<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n At<Arc<str>>>) {
        self.unique(
            names.map(|at| (&at.value, at.place)),
            |name| format!("two {what}s share the name `{name}`"),
            "write another name: it tells them apart in logs, metrics and reloads",
        );
    }
}

/// Compiles `spec`, whose certificates stand in `files`, and returns the plan beside all problems
/// found; with a problem, the plan is not whole. `cores` is the default number of workers.
pub(super) fn compile(
    spec: FileSpec,
    files: &Files,
    source: &Source,
    cores: NonZeroUsize,
) -> (Plan, Problems) {
    let mut compiler = Compiler::default();
    let store = compiler.store(spec.store.as_ref(), files);
    let settings = Settings { store, ..settings(&spec, cores) };
    let listeners = compiler.listeners(&spec.listeners, spec.admin, files);
    let upstreams = compiler.upstreams(spec.upstreams);
    let watched = watched(source, &spec.listeners);
    let (routes, table) = compiler.routes(spec.routes, &upstreams, settings.limits.body);
    compiler.unused(&upstreams, &routes);
    let deciding_headers = routes::deciding_headers(&table, &routes);
    let plan = Plan {
        path: source.path.to_path_buf(),
        hash: source::hash(&source.text),
        settings,
        listeners,
        upstreams: upstreams.into_iter().map(|upstream| upstream.plan).collect(),
        routes,
        table,
        deciding_headers,
        warnings: Diagnostics::new(source, compiler.warnings),
        admin: spec.admin.map(|at| at.place),
        access_log: spec.access_log.map(|at| at.place),
        files: watched,
        is_sealed: spec.end == Some(true),
        unseals: spec.end == Some(false),
    };
    (plan, compiler.errors)
}

/// Returns the settings. What could not be read has been reported; its stand-in is never used.
fn settings(spec: &FileSpec, cores: NonZeroUsize) -> Settings {
    const NONE: Duration = Duration::ZERO;
    let workers = spec.workers.and_then(|n| NonZeroUsize::new(usize::try_from(n).ok()?));
    Settings {
        workers: workers.unwrap_or(cores),
        drain_timeout: spec.drain_timeout.unwrap_or(NONE),
        trusted_proxies: spec.trusted_proxies.clone(),
        timeouts: spec.timeouts.unwrap_or(ClientTimeouts {
            header_read: NONE,
            keep_alive: NONE,
            tls_handshake: NONE,
            write: NONE,
        }),
        limits: spec.limits.unwrap_or(Limits {
            header_bytes: 0,
            headers: 0,
            body: 0,
            connections: 0,
            upload_buffers: 0,
        }),
        access_log: spec.access_log.as_ref().map_or(AccessLog::Off, |at| at.value.clone()),
        admin: spec.admin.map(|at| at.value),
        rate_limit_headers: spec.headers.unwrap_or(RateLimitHeaders::Off),
        explain_headers: spec.explain_headers,
        via: spec.via.clone(),
        store: None,
    }
}

/// Returns the files whose change is a change of the configuration.
fn watched(source: &Source, listeners: &[super::spec::ListenerSpec]) -> Vec<PathBuf> {
    let certificates = listeners.iter().filter_map(|l| l.certificates.as_ref()).flatten();
    let named = certificates.flat_map(|c| [c.cert.value.clone(), c.key.value.clone()]);
    let mut seen = HashSet::new();
    let files = std::iter::once(source.path.to_path_buf()).chain(named);
    files.filter(|file| seen.insert(file.clone())).collect()
}
