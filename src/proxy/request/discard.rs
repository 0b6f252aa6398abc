//! What becomes of a connection whose request is answered without its body.

use crate::http1::{FieldKind, FieldSet};
use crate::proxy::{body::drain_body::DISCARD_BYTES, completion::Completion};
use http::Version;
use http_body::Body;

/// Decides about the body of a request that is answered without it. `fields` is what the request
/// has, and `completion` its answer's, which says whether the connection ends: it stays only if the rest of
/// the body is small. Who waits for 100 need not send the body.
///
/// In HTTP/2 the stream ends, and nothing else with it: see [`drain`](crate::proxy::body::drain_body::drain).
pub(crate) fn discard<B: Body>(body: &B, fields: FieldSet, completion: &mut Completion) {
    if body.is_end_stream() || completion.version == Version::HTTP_2 {
        return;
    }
    let is_small = body.size_hint().lower() <= DISCARD_BYTES as u64;
    completion.closes |= !is_small || fields.has(FieldKind::Expect);
}
