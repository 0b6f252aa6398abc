//! `/routes` and `/paths`.

use crate::admin::{
    context::Admin,
    endpoint::{Access, Answer, Ask, Endpoint, Pending},
    reply::{Reply, json, large},
    routes,
};
use http::StatusCode;
use std::sync::Arc;

pub(super) const ENDPOINTS: [Endpoint; 2] = [
    Endpoint {
        path: "/routes",
        methods: "GET, HEAD",
        about: "the routes as they match, their rules and what they have seen, as JSON",
        access: Access::Operators,
        most_body: 0,
        answer: Answer::Later(show),
    },
    Endpoint::get(
        "/paths",
        "the paths with the most failed and slow requests of the last two minutes, as JSON",
        paths,
    ),
];

fn paths(admin: &Admin, _: &Ask) -> Reply {
    json(StatusCode::OK, &admin.state.worst_paths.list(admin.state.clock.now()))
}

fn show(admin: Arc<Admin>, _: Ask) -> Pending {
    Box::pin(async move {
        let state = &admin.state;
        let snapshot = state.live.load_full();
        for route in &snapshot.routes {
            admin.surveys.refresh(route.gate_rules(), &state.clock).await;
        }
        large(&admin, "application/json", || {
            routes::write(&snapshot, &admin, state.clock.now()).ok()
        })
    })
}
