//! The task that writes what a tunnel over HTTP/2 brings its client.
//!
//! hyper begins it, and gives nobody a handle: it ends the client's stream as if all had come, and a
//! tunnel sees no difference between a client that ends its direction and one that resets the stream.

use core::{
    future::pending,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};
use std::sync::OnceLock;
use tokio::{sync::Notify, task::AbortHandle};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct UpgradeTask {
    task: OnceLock<AbortHandle>,
    ended: Notify,
    /// Whether the gateway has ended its direction, upon which the task ends.
    is_shut: AtomicBool,
}

impl UpgradeTask {
    /// Notes that the task has begun.
    pub(crate) fn begin(&self, task: AbortHandle) {
        self.task.get_or_init(|| task);
    }

    /// Notes that the task has ended.
    pub(crate) fn end(&self) {
        self.ended.notify_one();
    }

    /// Notes that the gateway ends its direction.
    pub(crate) fn shut(&self) {
        self.is_shut.store(true, Relaxed);
    }

    /// Has the stream reset, once the client's direction is dropped too.
    pub(crate) fn abort(&self) {
        self.task.get().into_iter().for_each(AbortHandle::abort);
    }

    /// Waits until the client has reset the stream, or its connection has ended.
    pub(crate) async fn client_left(&self) {
        self.ended.notified().await;
        if self.is_shut.load(Relaxed) {
            // What the client still sends shows its end.
            pending::<()>().await;
        }
    }
}
