//! Clients' connections: accepted, read, and answered.

pub(crate) mod connection;
mod http1;
mod http2;
pub(crate) mod listener;
mod protocol;
mod proxy_protocol;
pub(crate) mod tls;
mod unreadable;
