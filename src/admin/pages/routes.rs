//! `/routes`.

use crate::admin::{
    context::Admin,
    endpoint::{Access, Answer, Ask, Endpoint, Pending},
    reply::large,
    routes,
};
use std::sync::Arc;

pub(super) const ENDPOINTS: [Endpoint; 1] = [Endpoint {
    path: "/routes",
    methods: "GET, HEAD",
    about: "the routes as they match, their rules and what they have seen, as JSON",
    access: Access::Operators,
    most_body: 0,
    answer: Answer::Later(show),
}];

fn show(admin: Arc<Admin>, _: Ask) -> Pending {
    Box::pin(async move {
        let state = &admin.state;
        let snapshot = state.live.load_full();
        for route in &snapshot.routes {
            admin.surveys.refresh(route, &state.clock).await;
        }
        large(&admin, "application/json", || {
            routes::write(&snapshot, &admin.surveys, state.clock.now()).ok()
        })
    })
}
