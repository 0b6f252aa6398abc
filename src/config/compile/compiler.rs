//! What the parts of the compiler share: the problems found so far.

use super::{geo::KnownPlaces, plan_file::PlanFile};
use crate::{
    auth::Users,
    config::{
        decode::At,
        diagnostics::{Problem, Problems, SourceSpan, Substitutions},
        plan::UpstreamPlan,
        spec::{calendar::Unit, leaf::Name, values::InvalidValue},
        vocabulary::nearest,
    },
    flow::calendar::Calendar,
    route::{Nat64, NetworkFile},
};
use ahash::AHashMap;
use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    hash::Hash,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

/// A listener, as routes and rules need to know it.
#[derive(Debug)]
pub(super) struct NamedListener {
    pub(super) name: Arc<str>,
    /// True if it asks clients for certificates.
    pub(super) verifies_clients: bool,
    /// True if it has a Unix socket, whose clients have no address.
    pub(super) has_unix_socket: bool,
}

/// The problems found while compiling.
#[derive(Debug, Default)]
pub(super) struct Compiler {
    /// The text of the file.
    pub(super) text: Arc<str>,
    pub(super) errors: Problems,
    pub(super) warnings: Problems,
    /// The prefixes behind which an IPv4 address stands.
    pub(super) nat64: Nat64,
    /// The files that say where clients are.
    pub(super) places: KnownPlaces,
    /// True if the file has a store.
    pub(super) has_store: bool,
    /// The listeners that have a name.
    pub(super) listeners: Vec<NamedListener>,
    /// Upstreams whose problems are reported: a route that names one has no further one.
    pub(super) faulty_upstreams: HashSet<Arc<str>>,
    /// True if none of the upstreams could be read, which has been reported.
    pub(super) are_upstreams_unreadable: bool,
    /// The upstreams of auth services that routes name by their URL.
    pub(super) auth_upstreams: Vec<UpstreamPlan>,
    /// The longest wait that the route's timeout leaves.
    pub(super) longest_wait: Duration,
    /// True if the route writes `timeout`, the short form of `timeouts.request`.
    pub(super) has_short_timeout: bool,
    /// The waits of the route that were longer.
    pub(super) shortened_waits: Vec<SourceSpan>,
    /// The users of each file that routes name, if it can be used, and what its contents hash to.
    pub(super) users: HashMap<PathBuf, Option<(Arc<Users>, u64)>>,
    /// The networks of each file that lists name, if it can be used.
    pub(super) network_files: HashMap<PathBuf, Option<Arc<NetworkFile>>>,
    /// The rows of each file of plans that rules name, if it can be used.
    pub(super) plan_files: HashMap<PathBuf, Option<Arc<PlanFile>>>,
    /// The hash of the files of networks and of plans that the route names.
    pub(super) network_print: u64,
    /// The number of networks in all lists.
    pub(super) networks_in_all: usize,
    /// Those that were asked for.
    pub(super) calendars: HashMap<(Unit, String), Calendar>,
    /// The values that variables are in.
    pub(super) substitutions: Arc<Substitutions>,
    /// Where the patterns stand whose words are not concealed yet.
    pub(super) patterns: Vec<SourceSpan>,
}

impl Compiler {
    /// Returns whether a listener has a Unix socket.
    pub(super) fn has_unix_socket(&self) -> bool {
        self.listeners.iter().any(|listener| listener.has_unix_socket)
    }

    pub(super) fn error(&mut self, problem: Problem) {
        self.errors.add(problem);
    }

    pub(super) fn warn(&mut self, problem: Problem) {
        self.warnings.add(problem);
    }

    /// Conceals in `words` what variables put into the patterns compiled since it was last called.
    pub(super) fn conceal(&mut self, words: String) -> String {
        let spans = core::mem::take(&mut self.patterns).into_iter();
        let substitutions = spans.filter_map(|span| self.substitutions.at(span));
        substitutions.fold(words, |words, one| one.conceal(&words))
    }

    pub(super) fn keep<T>(
        &mut self,
        value: Result<T, InvalidValue>,
        span: SourceSpan,
    ) -> Option<At<T>> {
        match value {
            Ok(value) => Some(At { value, span, written: true }),
            Err(InvalidValue { message, help }) => {
                self.error(Problem::error(span, message).help(help));
                None
            }
        }
    }

    pub(super) fn unique<K: Eq + Hash>(
        &mut self,
        values: impl Iterator<Item = (K, SourceSpan)>,
        message: impl Fn(&K) -> String,
        help: &str,
    ) {
        let mut seen = AHashMap::with_capacity(values.size_hint().1.unwrap_or_default());
        for (value, span) in values {
            match seen.entry(value) {
                Entry::Vacant(free) => _ = free.insert(span),
                Entry::Occupied(taken) => self.error(
                    Problem::error(span, message(taken.key()))
                        .label("again here")
                        .also(*taken.get(), "first here")
                        .help(help),
                ),
            }
        }
    }

    pub(super) fn names<'n>(&mut self, what: &str, names: impl Iterator<Item = &'n At<Name>>) {
        self.unique(
            names.map(|at| (&at.value.0, at.span)),
            |name| format!("two {what}s share the name `{name}`"),
            "write another name: it distinguishes them in logs, metrics and reloads",
        );
    }
}

/// Returns what to write in place of `name`, which is none of `known`.
pub(super) fn suggestion(name: &str, mut known: Vec<&str>, what: &str) -> String {
    const MOST: usize = 8;
    // In the order of the alphabet, so that the hint does not change from run to run.
    known.sort_unstable();
    if let Some(meant) = nearest(name, known.iter().copied()) {
        return format!("did you mean `{meant}`?");
    }
    if known.is_empty() {
        return format!("write the {what} under `{what}s`");
    }
    let shown: Vec<_> = known.iter().take(MOST).map(|word| format!("`{word}`")).collect();
    let more = if known.len() > MOST { ", …" } else { "" };
    format!("write one of {}{more}", shown.join(", "))
}
