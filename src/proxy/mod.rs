//! The journey of a request over the wire: accepted, decided, forwarded, answered.

mod activity;
mod asleep;
mod balance;
mod body;
mod checks;
mod complaints;
mod connection;
mod connections;
mod descriptors;
mod entry;
mod exchange;
mod fields;
mod gather;
mod grpc;
mod headers;
mod health;
mod http1_stream;
mod http2_stream;
mod io;
mod journey;
mod lingering;
mod listener;
mod peer;
mod quota;
mod readiness;
mod reply;
mod request;
mod request_line;
mod service;
mod shared;
mod sniff;
mod streams;
mod tail;
mod timeout;
mod tls;
mod trailers;
mod unread;
mod upgrade;
mod upload_buffer;
mod upstream;

#[cfg(test)]
mod tests;

pub use checks::HealthWatch;
pub use complaints::RequestLog;
pub use connections::Connections;
pub(crate) use connections::GRACE;
pub use descriptors::Descriptors;
pub(crate) use listener::accept;
pub use listener::{Bound, Face, bind};
pub use service::Worker;
pub use timeout::TimeoutLog;
pub use tls::Acceptor;
pub(crate) use tls::certificates;
pub use upstream::{connect::Connector, pool::Pools};
