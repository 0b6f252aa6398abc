//! `/routes`.

use crate::admin::{
    context::Admin,
    endpoint::{Ask, Endpoint},
    reply::{Reply, large},
    routes,
};
use std::sync::Arc;

pub(super) const ENDPOINTS: [Endpoint; 1] = [Endpoint::get(
    "/routes",
    "the routes as they match, their rules and what they have seen, as JSON",
    show,
)];

fn show(admin: &Admin, _: &Ask) -> Reply {
    large(admin, "application/json", || {
        let snapshot = Arc::clone(&admin.state.live.load());
        routes::write(&snapshot, admin.state.clock.now()).ok()
    })
}
