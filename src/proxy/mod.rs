//! Carries requests and responses: from a client's connection (`downstream`) by a decision
//! (`request`) to a server (`upstream`) and back (`response`). Imports go in this direction.

mod body;
mod connections;
mod downstream;
mod gateway_error;
mod io;
mod message;
mod passwords;
mod peer;
mod placeholders;
mod rate_limit_headers;
mod record;
mod request;
mod request_log;
mod response;
mod timeouts;
mod upstream;
mod worker;

#[cfg(test)]
mod tests;

pub(crate) use connections::registry::GRACE;
pub use connections::{
    copies::CopyPlaces,
    limits::{ClientConnections, Descriptors},
    registry::Connections,
};
pub(crate) use downstream::{accept::accept, tls::certificates};
pub use downstream::{
    accept::{Bound, ListenerConfig},
    bind::{ListenSocket, bind, bind_unix, set_mode},
    tls::Acceptor,
};
pub use message::{date::DateCache, request_id::RequestIdMaker};
pub use passwords::Passwords;
pub(crate) use passwords::by_token;
pub use request_log::RequestLog;
pub use timeouts::timeout::TimeoutLog;
pub(crate) use upstream::balance::owner;
pub use upstream::{
    checks::HealthWatch, connect::Connector, lease::ServerConnections, names::NameWatch,
    pool::Pools, resolver::Resolver,
};
pub use worker::{BodyMemory, EncoderPlaces, Records, Worker};
