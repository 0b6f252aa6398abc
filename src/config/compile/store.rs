//! The store: addresses and options that make sense together, and rules that it can decide about.

use super::compiler::Compiler;
use crate::{
    config::{
        decode::{At, Key},
        diagnostics::{Lint, Problem, SourceSpan},
        plan::{StoreKind, StoreSettings, certificate},
        read::source::Files,
        spec::{
            OnStoreError, RedisUrl, Scope, StoreSpec,
            leaf::{Period, StoreUrl},
        },
    },
    flow::{Algorithm, Stored, Unstorable, limiter::SyncedConfig, time::spelled},
};
use std::{path::PathBuf, sync::Arc, time::Duration};

impl Compiler {
    pub(super) fn store(
        &mut self,
        spec: Option<&StoreSpec>,
        files: &Files,
    ) -> Option<Arc<StoreSettings>> {
        let spec = spec?;
        self.has_store = true;
        let urls = spec.redis.items();
        let first = urls.first()?;
        for other in &urls[1..] {
            if !belongs(&first.value.0, &other.value.0) {
                self.error(
                    Problem::error(
                        other.span,
                        "the URLs of one store differ in more than the node",
                    )
                    .also(first.span, "the first one")
                    .help("write the same scheme, user, password and database in each"),
                );
            }
        }

        let kind = self.store_kind(spec)?;
        let RedisUrl { is_tls, user, password, database, .. } = first.value.0.clone();

        if kind == StoreKind::Cluster && database != 0 {
            self.error(
                Problem::error(first.span, "a Redis Cluster has one database")
                    .help("remove the database from the URL"),
            );
        }

        self.store_in_cleartext(urls);
        if let Some(Err(problem)) = spec.ca.path().map(|ca| trusted(&ca, is_tls, files)) {
            self.error(problem);
        }

        Some(Arc::new(StoreSettings {
            nodes: urls.iter().map(|at| at.value.0.node.clone()).collect(),
            kind,
            is_tls,
            ca: spec.ca.path().map(|at| at.value),
            user,
            password,
            database,
            prefix: spec.prefix.value()?.0.clone(),
            connect_timeout: spec.connect_timeout.duration()?.value,
            timeout: spec.timeout.duration()?.value,
            lease: spec.lease.duration()?.value,
            gateways: u32::try_from(spec.gateways.number()?.value).unwrap_or(u32::MAX),
        }))
    }

    /// Warns of a store on another machine to which nothing is encrypted.
    fn store_in_cleartext(&mut self, urls: &[At<StoreUrl>]) {
        let is_remote = |at: &&At<StoreUrl>| !at.value.0.is_tls && !at.value.0.is_on_loopback();
        let Some(at) = urls.iter().find(is_remote) else { return };
        let what = if at.value.0.password.is_some() {
            "the store's password and clients' keys cross the network in cleartext"
        } else {
            "what gateways share crosses the network in cleartext"
        };
        self.warn(Problem::warning(Lint::StoreWithoutTls, at.span, what).help(
            "write `rediss://…`, with `ca: FILE` if the system does not trust its certificate",
        ));
    }

    fn store_kind(&mut self, spec: &StoreSpec) -> Option<StoreKind> {
        let kind = match (&spec.sentinel.at, spec.cluster.filter(|at| at.value)) {
            (Some(name), Some(cluster)) => {
                self.error(
                    Problem::error(cluster.span, "a store is one of `sentinel` and `cluster`")
                        .also(name.span, "the other one")
                        .help("remove one: a Redis Cluster needs no sentinels"),
                );
                return None;
            }
            (Some(name), None) => StoreKind::Sentinel {
                primary: name.value.0.clone(),
                user: spec.sentinel_user.value().map(|user| user.0.clone()),
                password: spec.sentinel_password.value().map(|password| password.0.clone()),
            },
            (None, Some(_)) => StoreKind::Cluster,
            (None, None) => StoreKind::Single,
        };

        if let (StoreKind::Single, Some(second)) = (&kind, spec.redis.items().get(1)) {
            self.error(
                Problem::error(second.span, "one store has one URL")
                    .help("remove it, or write `sentinel: NAME` or `cluster: true`"),
            );
        }

        self.sentinel_login(spec);
        Some(kind)
    }

    fn sentinel_login(&mut self, spec: &StoreSpec) {
        let user = spec.sentinel_user.as_ref().map(|at| (at.span, "sentinel_user"));
        let password = spec.sentinel_password.as_ref().map(|at| (at.span, "sentinel_password"));
        if spec.sentinel.is_none() {
            for (span, key) in user.into_iter().chain(password) {
                self.error(
                    Problem::error(span, format!("`{key}` without `sentinel`"))
                        .help("write `sentinel: NAME`, or the login into the URL of `redis`"),
                );
            }
        } else if let (Some((span, _)), None) = (user, password) {
            self.error(
                Problem::error(span, "`sentinel_user` without `sentinel_password`")
                    .help("write both, or remove it"),
            );
        }
    }

    /// Returns what holds while the store fails, if the rule is shared; `stored` says of each of
    /// its versions whether a store can decide about it.
    pub(super) fn scope(
        &mut self,
        scope: &Key<Scope>,
        on_store_error: &Key<OnStoreError>,
        stored: impl IntoIterator<Item = Result<Stored, Unstorable>>,
    ) -> Option<OnStoreError> {
        let Some(span) = cluster(scope) else {
            if let Some(at) = on_store_error.filter(|at| at.written) {
                self.error(
                    Problem::error(at.span, "`on_store_error` without `scope: cluster`")
                        .help("write `scope: cluster`, or remove it"),
                );
            }
            return None;
        };

        if !self.has_store {
            self.error(
                Problem::error(span, "`scope: cluster` without a `store`")
                    .help("write `store: { redis: redis://HOST:6379 }` at the top of the file"),
            );
        }

        let cannot = stored.into_iter().find_map(Result::err);
        if let Some(why) = cannot {
            self.error(unstorable(why, span));
        }
        on_store_error.value().copied()
    }
}

impl Compiler {
    /// Returns how often gateways sync a rule, if they do, and makes its versions synced ones.
    pub(super) fn sync_interval<T, const MIN: u64, const MAX: u64>(
        &mut self,
        key: &Key<Period<MIN, MAX>>,
        scope: &Key<Scope>,
        versions: &mut [(Algorithm, T)],
    ) -> Option<Duration> {
        let At { value: interval, span, .. } = key.duration()?;

        if cluster(scope).is_none() {
            self.error(
                Problem::error(span, "`sync_interval` without `scope: cluster`")
                    .help("write `scope: cluster`, or remove it"),
            );
            return None;
        }

        for (algorithm, _) in &mut *versions {
            if let Some(config) = SyncedConfig::new(algorithm.clone(), 1) {
                self.seldom(&config, interval, span);
                *algorithm = Algorithm::Synced(config);
            } else if algorithm.plans().is_some()
                && !matches!(algorithm.own(), Algorithm::Concurrency(_))
            {
                self.error(Problem::error(span, "`sync_interval` with `plans` of a bucket").help(
                    "write `algorithm: sliding_window`, whose counts do not depend on the plan",
                ));
                return None;
            } else if Stored::new(algorithm).is_ok() {
                self.error(
                    Problem::error(span, "`sync_interval` with `concurrency`")
                        .help("remove it: a request may end before the other gateways learn of it"),
                );
                return None;
            }
        }
        Some(interval)
    }

    /// Warns of a sync so rare that a window is over when other gateways learn of it.
    fn seldom(&mut self, config: &SyncedConfig, interval: Duration, span: SourceSpan) {
        let Some((_, window)) = config.whole().most_in_a_window() else { return };
        if 2 * interval > window {
            let often = spelled(window / 20).replace(' ', "");
            let help = if window / 20 < Duration::from_millis(10) {
                "write a longer window, or remove `sync_interval`".to_owned()
            } else {
                format!("write `sync_interval: {often}`")
            };
            self.warn(
                Problem::warning(
                    Lint::SyncIntervalTooLong,
                    span,
                    "gateways learn of a window when it is over",
                )
                .label("each of them lets a whole limit pass")
                .help(help),
            );
        }
    }
}

/// Returns where `cluster` stands, if it does.
fn cluster(scope: &Key<Scope>) -> Option<SourceSpan> {
    scope.filter(|at| at.value == Scope::Cluster).map(|at| at.span)
}

/// Finds what is wrong with whose certificates are trusted.
fn trusted(ca: &At<PathBuf>, is_tls: bool, files: &Files) -> Result<(), Problem> {
    if is_tls {
        return certificate::authorities(ca, files).map(drop);
    }
    Err(Problem::error(ca.span, "`ca` without TLS").help("write `rediss://…`, or remove it"))
}

fn unstorable(why: Unstorable, span: SourceSpan) -> Problem {
    let help = match why {
        Unstorable::Log => {
            "write `algorithm: sliding_window` with `strict: true`, whose bound is as hard"
        }
        Unstorable::Pacing => "write `scope: process`, or share the route's own `pacing`",
        Unstorable::Auto => {
            "write `scope: process`: each gateway finds its own limit, and those in front of one \
             service raise and lower theirs together"
        }
        Unstorable::WarmUp => "remove `warm_up`, or write `scope: process`",
        Unstorable::Closed => "write `scope: process`",
        Unstorable::Fraction => "write a window of whole microseconds",
        Unstorable::TooLarge => {
            "write smaller numbers: fewer `buckets`, a shorter window or a smaller `burst`"
        }
    };
    Problem::error(span, format!("this rule cannot be shared: {why}")).help(help)
}

/// True if two URLs may name nodes of one store.
fn belongs(one: &RedisUrl, other: &RedisUrl) -> bool {
    let node = one.node.clone();
    *one == RedisUrl { node, ..other.clone() }
}
