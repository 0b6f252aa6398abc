//! Clients' connections: accepted, read, and answered.

pub(crate) mod accept;
pub(crate) mod begin;
pub(crate) mod bind;
mod http1;
mod http2;
mod proxy_protocol;
pub(crate) mod tls;
mod unreadable;

#[cfg(test)]
pub(crate) use proxy_protocol::read as read_proxy_header;

use crate::flow::Instant;
use crate::proxy::{
    connections::registry::{ConnectionOptions, Protocol},
    io::ClientIo,
    peer::Peer,
};
use bytes::Bytes;
use core::pin::Pin;
use std::sync::Arc;

/// The bytes of a connection that came before its protocol was known.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    pub(crate) ahead: Bytes,
    /// The time when the first byte came.
    pub(crate) since: Option<Instant>,
}

/// The service of a connection until that ends, is idle for too long or is drained.
pub(crate) type Serving = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Returns what serves a connection.
pub(crate) fn serve<T>(
    io: T,
    read_ahead: ReadAhead,
    protocol: Protocol,
    peer: Arc<Peer>,
    options: ConnectionOptions,
) -> Serving
where
    T: ClientIo + 'static,
{
    let ReadAhead { ahead, since } = read_ahead;
    match protocol {
        Protocol::Http1 => Box::pin(http1::serve(io, ahead, since, peer, options)),
        Protocol::Http2 => Box::pin(http2::serve(io, ahead, peer, options)),
    }
}
