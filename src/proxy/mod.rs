//! The journey of a request over the wire: accepted, decided, forwarded, answered.

mod activity;
mod asleep;
mod balance;
mod body;
mod complaints;
mod connection;
mod connections;
mod descriptors;
mod entry;
mod exchange;
mod fields;
mod gather;
mod headers;
mod http1_stream;
mod http2_stream;
mod io;
mod journey;
mod keep_alive;
mod lingering;
mod listener;
mod listening;
mod peer;
mod pool;
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
mod wire;

#[cfg(test)]
mod tests;

pub use complaints::RequestLog;
pub use connections::Connections;
pub(crate) use connections::GRACE;
pub use descriptors::Descriptors;
pub(crate) use listener::accept;
pub use listener::{Bound, Face, bind};
pub use pool::Pools;
pub use service::Worker;
pub use timeout::TimeoutLog;
pub use tls::Acceptor;
pub(crate) use tls::certificates;
pub use wire::Connector;
