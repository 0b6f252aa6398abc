//! Sending bodies over HTTP/2.

use bytes::Bytes;
use core::future::poll_fn;
use h2::SendStream;

/// The least that a body at least as long is sent in. In smaller pieces it would be a flood of small
/// frames, which ends the connection.
pub(super) const LONG_PIECE: usize = 1_000;

/// Returns the pieces, in bytes, in which a body of `length` is sent that is drawn to be sent in
/// pieces of `drawn`.
pub(super) fn piece_of(length: usize, drawn: usize) -> usize {
    if length < LONG_PIECE { drawn } else { drawn.max(LONG_PIECE) }
}

/// Sends part of a body as the other side makes room for it. `None`: it takes no more.
pub(super) async fn send_part(stream: &mut SendStream<Bytes>, mut part: Bytes) -> Option<()> {
    while !part.is_empty() {
        stream.reserve_capacity(part.len());
        if stream.capacity() == 0 {
            poll_fn(|context| stream.poll_capacity(context)).await?.ok()?;
            continue;
        }
        let some = part.split_to(part.len().min(stream.capacity()));
        stream.send_data(some, false).ok()?;
    }
    Some(())
}
