//! What becomes of a connection whose request is answered without its body.

use super::{
    drain_body::DISCARD_BYTES,
    fields::{Field, Fields},
    tail::Tail,
};
use http::Version;
use http_body::Body;

/// Decides about the body of a request that is answered without it. `fields` is what the request
/// has, and `tail` its answer's, which is told if the connection ends: it stays only if the rest of
/// the body is small. Who waits for 100 need not send the body.
///
/// In HTTP/2 the stream ends, and nothing else with it: see [`drain`](super::drain_body::drain).
pub(super) fn discard<B: Body>(body: &B, fields: Fields, tail: &mut Tail) {
    if body.is_end_stream() || tail.version == Version::HTTP_2 {
        return;
    }
    let is_small = body.size_hint().lower() <= DISCARD_BYTES as u64;
    tail.closes |= !is_small || fields.has(Field::Expect);
}
