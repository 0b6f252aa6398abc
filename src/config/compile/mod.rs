//! Spec to plan: whether the values make sense together. Pure, and every problem is reported.

mod access;
mod acme;
mod actions;
mod admin;
mod algorithm;
mod budgets;
mod compiler;
mod compress;
mod conditions;
mod cors;
mod forward_auth;
mod geo;
mod listeners;
mod matches;
mod mirror;
mod networks;
mod numbers;
mod plan_file;
mod plans;
mod queues;
mod quotas;
mod redirect;
mod routes;
mod rules;
mod settle;
mod store;
mod templates;
mod tracing;
mod upstreams;

use crate::{
    config::{
        decode::Key,
        diagnostics::{Diagnostics, Problems, Severity, Source},
        plan::{ClientTimeouts, Limits, Places, Plan, Settings},
        read::source::{self, Files},
        spec::{ClientTimeoutsSpec, FileSpec, LimitsSpec, LogFormat, leaf::Timeout},
        vocabulary::{DescribedMap, ShownKey},
        watched::Watched,
    },
    route::{Nat64, NetworkList},
};
use compiler::Compiler;
use http::{
    HeaderName,
    header::{REFERER, USER_AGENT},
};
use routes::Parts;
use std::{collections::HashSet, num::NonZeroUsize, sync::Arc};
use upstreams::Compiled;

/// Compiles `spec`, whose certificates stand in `files`, and returns the plan beside all problems
/// found; with a problem, the plan is not whole. `cores` is the default number of workers.
pub(super) fn compile(
    spec: FileSpec,
    files: &Files,
    source: &Source,
    cores: NonZeroUsize,
) -> (Plan, Problems) {
    let substitutions = Arc::clone(&source.substitutions);
    let mut compiler =
        Compiler { text: Arc::clone(&source.text), substitutions, ..Compiler::default() };

    let nat64 = compiler.nat64(&spec);
    let geo = compiler.geo(&spec, files, source.folder());
    compiler.network_files(&spec, files, source.folder());
    compiler.plan_files(&spec, files);
    let trusted_proxies = compiler.trusted_proxies(&spec.trusted_proxies);
    let store = compiler.store(spec.store.value(), files);
    let tracing = compiler.tracing(spec.tracing.value(), files);
    let admin = compiler.admin(&spec.admin, files);
    let own = settings(&spec, cores);
    let acme = compiler.acme(&spec, files);
    let settings = Settings { trusted_proxies, nat64, geo, acme, admin, tracing, store, ..own };

    let admin = spec.admin.value().and_then(|admin| admin.listen.address());
    let listeners = compiler.listeners(&spec, admin, files, source.folder());
    compiler.are_upstreams_unreadable = spec.upstreams.is_written() && spec.upstreams.at.is_none();

    let upstreams = compiler.upstreams(spec.upstreams.items(), files);
    let watched = watched(source, &spec);
    let places = places(&spec, &upstreams);
    let mut groups = compiler.groups(&spec);
    let specs = spec.routes.into_items();
    let parts = Parts { upstreams: &upstreams, groups: &groups, limits: &settings.limits, files };
    let (mut routes, table) = compiler.routes(specs, &parts);
    Compiler::store_tags(&mut groups.plans, &mut routes);

    let body_limit = spec.limits.value().and_then(|limits| limits.body.read(|size| size.0));
    let mut limited = routes.iter().enumerate().filter(|(_, route)| route.options.body_limit == 0);
    if limited.any(|(index, _)| table.matcher(index).is_some_and(routes::takes_bodies)) {
        compiler.no_bodies(body_limit);
    }

    let unread = source.lost.iter().filter(|problem| problem.severity == Severity::Warning);
    for problem in source.allowed.unknown.iter().chain(unread) {
        compiler.warn(problem.clone());
    }

    let deciding_headers = routes::deciding_headers(&table, &routes, &groups.plans);
    let named = upstreams.into_iter().map(|upstream| upstream.plan);
    let plan = Plan {
        path: source.path.to_path_buf(),
        hash: source::hash(&source.text),
        settings,
        listeners,
        upstreams: named.chain(compiler.auth_upstreams).collect(),
        groups: groups.plans,
        routes,
        table,
        deciding_headers,
        warnings: Diagnostics::new(source, compiler.warnings),
        notes: Vec::new(),
        places,
        files: watched,
    };

    (plan, compiler.errors)
}

/// Returns the places of what problems with the whole plan point at.
fn places(spec: &FileSpec, upstreams: &[Compiled]) -> Places {
    let admin = spec.admin.value().and_then(|admin| admin.listen.address());
    let names = spec.listeners.items().iter().flat_map(|at| at.value.acme_names());
    Places {
        admin: admin.map(|at| at.span),
        access_log: spec.access_log.as_ref().map(|at| at.span),
        access_log_format: spec.access_log_format.as_ref().map(|at| at.span),
        trusted_proxies: spec.trusted_proxies.span,
        acme: spec.acme.as_ref().map(|at| at.span),
        acme_names: names.map(|names| names.names).collect(),
        upstreams: upstreams.iter().map(Compiled::place).collect(),
    }
}

/// Returns the fields that the access log has, each once.
fn logged_headers(spec: &FileSpec) -> Arc<[HeaderName]> {
    let mut names: Vec<HeaderName> = Vec::new();
    for at in spec.access_log_headers.items() {
        if !names.contains(&at.value.0) {
            names.push(at.value.0.clone());
        }
    }
    // The format has a place for these two.
    if spec.access_log_format.value() == Some(&LogFormat::Combined) {
        let missing = [REFERER, USER_AGENT].into_iter().filter(|name| !names.contains(name));
        names.extend(missing.collect::<Vec<_>>());
    }
    names.into()
}

/// Returns the field in which proxies name the client, if it is not the usual one.
fn client_ip_header(spec: &FileSpec) -> Option<HeaderName> {
    let name = spec.client_ip_header.value().map(|name| &name.0);
    name.filter(|name| name.as_str() != "x-forwarded-for").cloned()
}

/// Returns the settings. What could not be read has been reported; its stand-in is never used.
fn settings(spec: &FileSpec, cores: NonZeroUsize) -> Settings {
    let workers = spec.workers.number().and_then(|at| usize::try_from(at.value).ok());
    let workers = workers.and_then(NonZeroUsize::new).unwrap_or(cores);
    let drain_timeout = spec.drain_timeout.duration().map(|at| at.value);
    Settings {
        workers,
        drain_timeout: drain_timeout.unwrap_or_default(),
        trusted_proxies: NetworkList::default(),
        client_ip_header: client_ip_header(spec),
        nat64: Nat64::default(),
        geo: None,
        dns_servers: spec.dns_servers.plain(|server| server.0),
        timeouts: spec.timeouts.value().map(client_timeouts).unwrap_or_default(),
        limits: spec.limits.value().map(limits).unwrap_or_default(),
        access_log: spec.access_log.value().map(|target| target.0.clone()).unwrap_or_default(),
        access_log_format: spec.access_log_format.value().copied().unwrap_or_default(),
        acme: None,
        admin: None,
        rate_limit_headers: spec.headers.value().copied().unwrap_or_default(),
        explain_headers: spec.explain_headers.is_true(),
        via: spec.via.value().and_then(|via| via.0.clone()).map(Arc::new),
        request_ids: spec.request_id.value().copied().unwrap_or_default(),
        logged_headers: logged_headers(spec),
        header_case: spec.h1_header_case.value().copied().unwrap_or_default(),
        tracing: None,
        store: None,
        keys: shown_keys(spec, workers),
    }
}

/// Returns the keys of the whole file whose values reports show.
fn shown_keys(spec: &FileSpec, workers: NonZeroUsize) -> Vec<ShownKey> {
    let timeouts = spec.timeouts.value().map(|timeouts| timeouts.shown_keys("timeouts"));
    let limits = spec.limits.value().map(|limits| limits.shown_keys("limits"));

    let mut keys = spec.shown_keys("");
    // The mark `end` is no setting, and the default of `workers` depends on the machine.
    keys.retain(|key| key.name != "end");
    for key in keys.iter_mut().filter(|key| key.name == "workers") {
        key.value = Some(workers.to_string());
    }

    keys.extend(timeouts.into_iter().chain(limits).flatten());
    keys
}

fn client_timeouts(spec: &ClientTimeoutsSpec) -> ClientTimeouts {
    let timeout = |key: &Key<Timeout>| key.duration().map(|at| at.value).unwrap_or_default();
    ClientTimeouts {
        header_read: timeout(&spec.header_read),
        keep_alive: timeout(&spec.keep_alive),
        tls_handshake: timeout(&spec.tls_handshake),
        write: timeout(&spec.write),
    }
}

fn limits(spec: &LimitsSpec) -> Limits {
    let small = |number: Option<u64>| {
        number.map_or(0, |number| usize::try_from(number).unwrap_or(usize::MAX))
    };
    Limits {
        header_bytes: small(spec.header_bytes.bytes()),
        headers: small(spec.headers.number().map(|at| at.value)),
        body: spec.body.bytes().unwrap_or_default(),
        min_body_rate: spec.min_body_rate.value().and_then(|rate| rate.0),
        connections: small(spec.connections.number().map(|at| at.value)),
        connections_per_client: spec
            .connections_per_client
            .number()
            .and_then(|at| usize::try_from(at.value).ok()),
        upload_buffers: spec.upload_buffers.bytes().unwrap_or_default(),
        peek_body: small(spec.peek_body.bytes()),
    }
}

/// Returns what to look at for changes of the configuration.
fn watched(source: &Source, spec: &FileSpec) -> Vec<Watched> {
    let named = spec.certificates().flat_map(|files| [files.cert.value, files.key.value]);
    let named = named.chain(spec.upstream_files()).chain(spec.auth_files());
    let networks = spec.network_files().into_iter().map(|at| at.value);
    let plans = spec.plan_files().into_iter().map(|at| at.value);
    let issued = spec.acme_certificates().into_iter().chain(spec.acme_files());
    let issued = issued.chain(spec.client_ca_files());
    let named = named.chain(spec.admin_files()).chain(issued).chain(networks).chain(plans);
    let large = Watched::large_files(spec.geo_files());
    let named = Watched::files(named).into_iter().chain(large);
    let mut seen = HashSet::new();
    let all = source.watched.iter().cloned().chain(named);
    all.filter(|file| seen.insert(file.clone())).collect()
}
