//! `/healthz` and `/readyz`.

use crate::{
    admin::{
        context::Admin,
        endpoint::{Access, Ask, Endpoint},
        readiness::Reload,
        reply::{Reply, plain},
    },
    flow::Instant,
};
use http::StatusCode;
use std::{fmt::Write, time::UNIX_EPOCH};

pub(super) const ENDPOINTS: [Endpoint; 2] = [
    Endpoint::get("/healthz", "200 as long as the process runs", |_, _| {
        plain(StatusCode::OK, "ok\n")
    })
    .for_(Access::Everyone),
    Endpoint::get(
        "/readyz",
        "200 if requests should come, 503 if not; ?verbose describes the last reload and the store",
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
