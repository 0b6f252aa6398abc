//! The admin listener: health, metrics, and pages for operators.
//!
//! It runs on the control thread and holds a route's lock as briefly as a request does. `guard.rs`
//! decides which requests it answers. A page is a file in `pages/`.

mod auto_limits;
mod context;
mod edit;
mod endpoint;
mod exposition;
mod guard;
mod keys_view;
mod live;
mod live_keys;
mod metrics;
mod pages;
mod preview;
mod readiness;
mod reply;
mod router;
mod routes;
pub(crate) mod sample;

pub use context::State;
pub use edit::{Save, SaveError};
pub(crate) use keys_view::{BanView, GrantView, KeysView, RejectedKeysView, RuleKeys};
pub use live::RouteSort;
pub use readiness::{Edits, Readiness, RejectedReload, Reload};

use crate::small_http::{self, Limits, Socket};
use context::Admin;
use http::Request;
use hyper::body::Incoming;
use router::Router;
use std::{sync::Arc, time::Duration};
use tokio::net::TcpListener;

/// Scrapers and people are few. A client has ten seconds for a request's head and between requests,
/// and a minute in all.
const LIMITS: Limits = Limits {
    connections: 64,
    idle: Duration::from_secs(10),
    stall: Duration::from_secs(10),
    age: Duration::from_mins(1),
};

/// Serves the admin pages on `listener` until `shutdown` is ready. When `handed_over` is ready,
/// another process accepts connections.
pub async fn serve(
    listener: TcpListener,
    state: State,
    handed_over: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
) {
    let Ok(address) = listener.local_addr() else { return };
    let router = Arc::new(Router::new(Admin::new(state, address)));
    let admin = Arc::clone(&router.admin);
    let tls = || admin.settings()?.tls.map(|tls| Arc::clone(tls.config()));
    let handler = move |request: Request<Incoming>| {
        let router = Arc::clone(&router);
        async move { router.answer(request).await }
    };
    let sampling = admin.sampler.run(&admin.state.live, &admin.state.clock, || {
        if !admin.state.live.load().settings.shows_keys() {
            admin.state.key_names.clear();
        }
    });
    let socket = Socket { listener, tls };
    tokio::select! {
        () = small_http::serve(socket, LIMITS, handler, handed_over, shutdown) => {}
        () = sampling => {}
    }
}

#[cfg(test)]
mod tests;
