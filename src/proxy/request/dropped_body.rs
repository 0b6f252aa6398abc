//! The body of a response that nothing needs: it is read and dropped, so that its connection can be used
//! again.

use crate::clock::Clock;
use crate::proxy::{
    peer::Peer,
    upstream::{connection::UpstreamConnection, lease::Lease},
};
use bytes::Bytes;
use core::{
    future::poll_fn,
    task::{Context, Poll, Waker},
    time::Duration,
};
use std::sync::Arc;

/// The most bytes of a body that nothing needs, and the time that it may take, for its connection to be
/// kept.
const DROPPED_BYTES: usize = 64 * 1024;
const DROPPED_WITHIN: Duration = Duration::from_secs(1);

/// Gives the connection of a response back whose body nothing needs. What has come of the body is dropped
/// at once, and the rest in a task, if it is small.
pub(super) fn release(lease: Option<Lease>, peer: &Arc<Peer>) {
    let Some(mut lease) = lease else { return };
    let mut left = DROPPED_BYTES;
    let mut context = Context::from_waker(Waker::noop());
    let is_over = match lease.connection_mut() {
        Some(connection) => poll_drop(connection, &mut left, &mut context).is_ready(),
        None => return,
    };
    if is_over {
        lease.give_back(peer.worker.clock.now(), &peer.reservation);
        return;
    }

    let peer = Arc::clone(peer);
    let tasks = peer.worker.tasks.clone();
    tasks.spawn(async move {
        let clock: &Clock = &peer.worker.clock;
        let dropping = poll_fn(|context| match lease.connection_mut() {
            Some(connection) => poll_drop(connection, &mut left, context),
            None => Poll::Ready(()),
        });
        if clock.timeout(DROPPED_WITHIN, dropping).await.is_ok() {
            lease.give_back(clock.now(), &peer.reservation);
        }
    });
}

/// Drops what comes of a body, until it ends, or is longer than `left`.
pub(super) fn poll_drop(
    connection: &mut UpstreamConnection,
    left: &mut usize,
    context: &mut Context<'_>,
) -> Poll<()> {
    while !connection.is_end() {
        match connection.poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, Bytes::len);
                match left.checked_sub(length) {
                    Some(rest) => *left = rest,
                    None => return Poll::Ready(()),
                }
            }
            Poll::Ready(None | Some(Err(_))) => return Poll::Ready(()),
            Poll::Pending => return Poll::Pending,
        }
    }
    Poll::Ready(())
}
