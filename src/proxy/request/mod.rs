//! The road of a request, from its head to the response.
//!
//! Each stage owns what is known by then, and is consumed by the next one:
//!
//! 1. [`Received`]: the head is there. A challenge of an authority of certificates gets its response
//!    (`challenge.rs`). The route and the client are found (`received.rs`). A password is
//!    checked, or an auth service decides (`forward_auth.rs`, `auth_request.rs`).
//!    If rules look at members of the body, it is held back until these are known (`peek.rs`).
//! 2. [`Routed`](routed::Routed): the rules of the route decide (`routed.rs`, and `shared.rs` for rules that
//!    gateways share).
//!    A request that finds no free place waits in a queue (`queued.rs`).
//! 3. [`Admitted`]: the request waits for its start, and is sent to a server (`admitted.rs`, `attempt.rs`,
//!    `failure.rs`, `forward.rs`). A copy of it may go to a mirror (`mirror.rs`).
//! 4. [`Forwarded`](forwarded::Forwarded): the head of the server's response is there, and becomes the
//!    client's (`forwarded.rs`).
//!
//! A stage that cannot go on ends in a [`Response`]. Its body holds the [`Completion`], as each stage does:
//! dropping it records the end of the request.

mod admitted;
mod attempt;
mod auth_request;
mod challenge;
mod dropped_body;
mod failure;
mod forward;
mod forward_auth;
mod forwarded;
mod mirror;
mod peek;
mod queued;
mod received;
mod routed;
mod shared;

use crate::proxy::{
    body::ClientBody,
    message::{Request, Response},
    record::Completion,
    response::response_body::ResponseBody,
};
use admitted::Admitted;
use challenge::Challenged;
use forward_auth::Undetermined;
use peek::Peeking;
use queued::Queued;
use received::{Received, Unverified};
use routed::Undecided;

/// A request about which there is a decision, or which must wait for one.
pub(crate) enum Decided {
    /// The client gets this response.
    Responded(Response<ResponseBody>),
    Admitted(Admitted),
    /// It waits for a place.
    Queued(Box<Queued>),
    /// The store must decide.
    Undecided(Box<Undecided>),
    /// A password must be checked before the rules decide.
    Unverified(Box<Unverified>),
    /// An authority of certificates may have sent it.
    Challenged(Box<Challenged>),
    /// An auth service must decide before the rules.
    Undetermined(Box<Undetermined>),
    /// Its body must be there before the rules decide.
    Peeking(Box<Peeking>),
}

/// Begins a request: finds its route, and has the rules decide. `completion` is not in use.
pub(crate) fn begin(completion: Box<Completion>, request: Request<ClientBody>) -> Decided {
    let peer = &completion.peer;
    let worker = &peer.worker;
    if worker.connections.are_retiring() {
        peer.handle.drain();
    }

    // Everything about one request is decided by one configuration, at one time.
    let now = peer.read_clock();
    let snapshot = worker.live.load();
    Received::new(&snapshot, request, now, completion).decide()
}

impl Decided {
    /// Serves the request.
    ///
    /// Dropping the future at any point ends the request as cancelled: the permit, the
    /// upstream connection and the notes are all held by values that it owns.
    pub(crate) async fn serve(self) -> Response<ResponseBody> {
        let mut decided = self;
        loop {
            // In boxes because they are rare, and would make every request's future larger. Neither
            // happens twice, but a wait after another one.
            decided = match decided {
                Self::Responded(response) => return response,
                Self::Admitted(admitted) => return admitted.serve().await,
                Self::Queued(queued) => Box::pin(queued.wait()).await,
                Self::Unverified(unverified) => Box::pin(unverified.verify()).await,
                Self::Challenged(challenged) => Box::pin(challenged.respond()).await,
                Self::Undetermined(undetermined) => Box::pin(undetermined.ask()).await,
                Self::Peeking(peeking) => Box::pin(peeking.read()).await,
                Self::Undecided(undecided) => Box::pin(undecided.decide()).await,
            };
        }
    }
}
