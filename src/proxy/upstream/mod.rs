//! Servers, and the connections to them: one request at a time over HTTP/1.1, many over HTTP/2.

pub(crate) mod balance;
pub(crate) mod checks;
pub(crate) mod connect;
pub(crate) mod connection;
pub(crate) mod error;
pub(crate) mod health;
mod http1;
pub(crate) mod http2;
pub(crate) mod keep_alive;
pub(crate) mod lease;
pub(crate) mod names;
pub(crate) mod pool;
pub(crate) mod proxy_header;
mod rendezvous;
pub(crate) mod reservation;
pub(crate) mod resolver;
pub(crate) mod retry;
pub(crate) mod sticky;
mod transport;
mod watched_name;

pub(crate) use http1::Connection as Http1Connection;
