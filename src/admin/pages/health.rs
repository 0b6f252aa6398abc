//! `/healthz` and `/readyz`.

use crate::{
    admin::{
        context::Admin,
        endpoint::{Access, Ask, Endpoint},
        readiness::Reload,
        reply::{Reply, plain},
    },
    config::Upstream,
    flow::Instant,
};
use http::StatusCode;
use std::{collections::BTreeMap, fmt::Write, sync::Arc, time::UNIX_EPOCH};

/// The number of certificates that are described.
const MOST_CERTIFICATES: usize = 30;

/// The number of upstreams that are described.
const MOST_UPSTREAMS: usize = 30;

/// The state of a server that gets requests, of which at least half fail.
const FAILING: &str = "healthy, but at least half of its latest requests failed";

pub(super) const ENDPOINTS: [Endpoint; 2] = [
    Endpoint::get("/healthz", "200 as long as the process runs", |_, _| {
        plain(StatusCode::OK, "ok\n")
    })
    .for_(Access::Everyone),
    Endpoint::get(
        "/readyz",
        "200 if requests should come, 503 if not; ?verbose describes the last reload, the store, the servers and the certificates",
        readyz,
    )
    .for_(Access::EveryoneWithoutQuery),
];

fn readyz(admin: &Admin, ask: &Ask) -> Reply {
    let (status, mut page) = if admin.state.readiness.is_ready() {
        (StatusCode::OK, "ready\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or draining\n".to_owned())
    };
    if ask.query("verbose").next().is_some() {
        page.push_str(&configuration(admin));
        page.push_str(&store(admin));
        page.push_str(&upstreams(admin));
        page.push_str(&certificates(admin));
    }
    plain(status, page)
}

/// Describes the store, if there is one.
fn store(admin: &Admin) -> String {
    let Some(store) = &admin.state.store else { return String::new() };
    let read = store.read();
    match read.failure {
        Some(failure) => format!("store: {failure}; `on_store_error` decides\n"),
        None if read.is_up => "store: reached\n".to_owned(),
        None => "store: not reached by every worker\n".to_owned(),
    }
}

/// Describes the servers of each upstream, those with servers out of order first.
fn upstreams(admin: &Admin) -> String {
    let snapshot = admin.state.live.load();
    let states = |upstream: &Arc<Upstream>| {
        let mut states: BTreeMap<&str, usize> = BTreeMap::new();
        let mut healthy = 0;
        for server in upstream.servers() {
            let is_failing = admin.sampler.failing(server.id).is_some();
            let word = match server.health_word() {
                "healthy" if is_failing => FAILING,
                word => word,
            };
            healthy += usize::from(server.health.is_healthy() && word != FAILING);
            *states.entry(word).or_default() += 1;
        }
        let all: usize = states.values().sum();
        let words = states.iter().map(|(word, count)| format!("{count} {word}"));
        (healthy == all && all > 0, words.collect::<Vec<_>>().join(", "))
    };
    let mut found: Vec<_> =
        snapshot.upstreams.iter().map(|upstream| (upstream, states(upstream))).collect();
    found.sort_by_key(|(_, (is_healthy, _))| *is_healthy);
    let mut page = String::new();

    for (upstream, (_, words)) in found.iter().take(MOST_UPSTREAMS) {
        let words = if words.is_empty() { "no address of a server is known" } else { words };
        // Writing to a String cannot fail.
        _ = writeln!(page, "upstream {}: {words}", upstream.name);
    }
    if found.len() > MOST_UPSTREAMS {
        _ = writeln!(page, "and {} more upstreams", found.len() - MOST_UPSTREAMS);
    }
    page
}

/// Describes the certificates, those that end first.
fn certificates(admin: &Admin) -> String {
    let now = admin.state.clock.wall_now();
    let all = admin.state.live.load().certificates();
    let mut page = String::new();
    for certificate in all.iter().take(MOST_CERTIFICATES) {
        let until = &certificate.valid_until;
        // Writing to a String cannot fail.
        _ = match certificate.seconds_left(now) {
            Some(_) => writeln!(page, "certificate {certificate}: valid until {until}"),
            None => writeln!(page, "certificate {certificate}: expired, was valid until {until}"),
        };
    }
    if all.len() > MOST_CERTIFICATES {
        _ = writeln!(page, "and {} more certificates", all.len() - MOST_CERTIFICATES);
    }
    page.push_str(&orders(admin));
    page
}

/// Describes the certificates that are not issued yet, or whose renewal fails.
fn orders(admin: &Admin) -> String {
    let states = admin.state.acme.certificates();
    let troubled =
        states.iter().filter(|(_, state)| state.error.is_some() || state.valid_until.is_none());
    let mut page = String::new();
    for (name, state) in troubled.take(MOST_CERTIFICATES) {
        let next = humantime::format_rfc3339_seconds(
            UNIX_EPOCH + state.next_order.max(admin.state.clock.wall_now()).since(Instant::EPOCH),
        );
        let what = match state.valid_until {
            Some(_) => "cannot be renewed",
            None => "self-signed until the authority has issued it",
        };
        let error = state.error.as_deref().map_or_else(String::new, |error| format!(" ({error})"));
        _ = writeln!(page, "certificate for {name}: {what}{error}; next attempt at {next}");
    }
    page
}

/// Describes the configuration in force and the last edit.
fn configuration(admin: &Admin) -> String {
    let snapshot = admin.state.live.load();
    let mut page = format!("configuration v{}, hash {}\n", snapshot.version, snapshot.hash);
    let Some(Reload { at, outcome }) = admin.state.readiness.last_reload() else {
        page.push_str("no reload since the start\n");
        return page;
    };
    let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + at.since(Instant::EPOCH));
    _ = match outcome {
        Ok(summary) => writeln!(page, "last reload: taken at {at}\n{summary}"),
        Err(problems) => writeln!(
            page,
            "last reload: rejected at {at}; v{} stays in force\n\n{problems}",
            snapshot.version
        ),
    };
    page
}
