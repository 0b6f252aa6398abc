//! Carries requests and responses: from a client's connection (`downstream`) by a decision
//! (`request`) to a server (`upstream`) and back (`response`). Imports go in this direction.

mod body;
mod completion;
mod connections;
mod downstream;
mod io;
mod log_entry;
mod log_limit;
mod message;
mod peer;
mod placeholders;
mod request;
mod request_log;
mod response;
mod shown_keys;
mod timeouts;
mod upstream;
mod url_group;
mod worker;

#[cfg(test)]
mod tests;

pub(crate) use connections::registry::GRACE;
pub use connections::{
    limits::{ClientConnections, Descriptors},
    registry::Connections,
};
pub(crate) use downstream::{listener::accept, tls::certificates};
pub use downstream::{
    listener::{Bound, ListenerConfig, bind},
    tls::Acceptor,
};
pub use message::{date::DateCache, request_id::RequestIdMaker};
pub use request::auth::Passwords;
pub(crate) use request::auth::by_token;
pub use request_log::RequestLog;
pub use response::body_memory::BodyMemory;
pub use timeouts::timeout::TimeoutLog;
pub(crate) use upstream::balance::owner;
pub use upstream::{
    checks::HealthWatch, connect::Connector, names::NameWatch, pool::Pools, resolver::Resolver,
};
pub use worker::Worker;
