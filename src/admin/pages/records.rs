//! `/routes`, `/paths`, `/rejections` and `/metrics`: the records of the gateway.

use crate::{
    admin::{
        context::{Admin, State},
        endpoint::{Access, Answer, Ask, Endpoint, Pending},
        exposition::Format,
        live_keys::Names,
        metrics::Metrics,
        reply::{Reply, json, large, plain},
        routes::write as json_of_routes,
    },
    rejections::Filter,
};
use http::StatusCode;
use std::{borrow::Cow, sync::Arc};

pub(super) const STATE: [Endpoint; 3] = [
    Endpoint::get("/metrics", "every counter, for Prometheus", metrics),
    Endpoint {
        path: "/routes",
        methods: "GET, HEAD",
        about: "the routes as they match, their rules and what they have seen, as JSON",
        access: Access::Operators,
        most_body: 0,
        answer: Answer::Later(routes),
    },
    Endpoint::get(
        "/paths",
        "the paths with the most failed and slow requests of the last two minutes, as JSON",
        paths,
    ),
];

pub(super) const REJECTIONS: [Endpoint; 1] = [Endpoint::get(
    "/rejections",
    "the last 1,000 rejections with their numbers, as JSON; ?route= &rule= &limit=",
    rejections,
)];

fn paths(admin: &Admin, _: &Ask) -> Reply {
    json(StatusCode::OK, &admin.state.worst_paths.list(admin.state.clock.now()))
}

fn routes(admin: Arc<Admin>, _: Ask) -> Pending {
    Box::pin(async move {
        let state = &admin.state;
        let snapshot = state.live.load_full();
        for route in &snapshot.routes {
            admin.surveys.refresh(route.gate_rules(), &state.clock).await;
        }
        large(&admin, "application/json", || {
            json_of_routes(&snapshot, &admin, state.clock.now()).ok()
        })
    })
}

fn rejections(admin: &Admin, ask: &Ask) -> Reply {
    let field = |name| ask.query(name).next().map(Cow::into_owned);
    let limit = field("limit").map(|limit| limit.parse());
    let Ok(limit) = limit.transpose() else {
        return plain(StatusCode::BAD_REQUEST, "`limit` is a number\n");
    };
    let filter = Filter { route: field("route"), rule: field("rule"), limit };
    let state = &admin.state;
    let names = Names::of(&state.live.load(), &state.key_names).known;
    json(StatusCode::OK, &state.rejections.list(&filter, names))
}

fn metrics(admin: &Admin, ask: &Ask) -> Reply {
    let format = Format::negotiate(&ask.head.headers);
    large(admin, format.content_type(), || {
        let State { live, counters, clock, store, .. } = &admin.state;
        let snapshot = Arc::clone(&live.load());
        let counters = Arc::clone(counters);
        let store = store.as_ref().map(|store| store.read());
        let page = Metrics::read(snapshot, counters, store, admin.state.started, clock.now());
        let page = page.with_acme(&admin.state.acme);
        page.write(format).ok().map(String::into_bytes)
    })
}
