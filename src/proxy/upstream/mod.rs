//! Servers, and the connections to them: one exchange at a time over HTTP/1.1, many over HTTP/2.

pub(in crate::proxy) mod cause;
pub(in crate::proxy) mod connect;
pub(in crate::proxy) mod copied;
pub(in crate::proxy) mod error;
mod http1;
pub(in crate::proxy) mod http2_client;
mod http2_pool;
mod io;
pub(in crate::proxy) mod keep_alive;
pub(in crate::proxy) mod lease;
pub(in crate::proxy) mod pool;
mod shared_body;
mod terms;
pub(in crate::proxy) mod wire;

pub(in crate::proxy) use http1::Connection as Http1Connection;
