//! The trace that a request belongs to.

use crate::proxy::message::request::Request;
use crate::proxy::peer::Peer;
use crate::{
    config::{Snapshot, Tracing},
    traces::{Client, Trace},
};

/// Returns the trace of a request that has arrived.
pub(crate) fn begin<B>(
    peer: &Peer,
    tracing: &Tracing,
    request: &Request<B>,
    snapshot: &Snapshot,
) -> Trace {
    let is_secured = peer.scheme.as_bytes() == b"https";
    let client = Client {
        address: peer.address,
        scheme: if is_secured { "https" } else { "http" },
        version: request.version(),
    };
    let is_trusted = || peer.is_trusted(snapshot);
    peer.worker.traces.begin(tracing, request.headers().into(), client, is_trusted)
}
