//! HTTP/2 to servers: one connection carries the requests of many clients.
//!
//! The h2 crate reads and writes the frames, in a task for each connection. The task of a request
//! sends its body and takes its response.

mod connection;
mod sending;
mod stream;

pub(crate) use connection::{Connection, STREAMS_MAX};
pub(crate) use stream::Stream;
