//! `/metrics`.

use crate::admin::{
    context::{Admin, State},
    endpoint::{Ask, Endpoint},
    exposition::Format,
    metrics::Metrics,
    reply::{Reply, large},
};
use std::sync::Arc;

pub(super) const ENDPOINTS: [Endpoint; 1] =
    [Endpoint::get("/metrics", "every counter, for Prometheus", metrics)];

fn metrics(admin: &Admin, ask: &Ask) -> Reply {
    let format = Format::negotiate(&ask.head.headers);
    large(admin, format.content_type(), || {
        let State { live, counters, clock, store, .. } = &admin.state;
        let snapshot = Arc::clone(&live.load());
        let counters = Arc::clone(counters);
        let store = store.as_ref().map(|store| store.read());
        let page = Metrics::read(snapshot, counters, store, admin.state.started, clock.now());
        page.write(format).ok().map(String::into_bytes)
    })
}
