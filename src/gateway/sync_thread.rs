//! The thread that syncs states with other gateways. The control thread may be busy with an edit,
//! and late syncs let too much pass.

use super::error::{StartError, cannot};
use crate::{
    clock::Clock,
    cluster::{Store, SyncTask},
    config::Live,
};
use core::time::Duration;
use std::{io, sync::Arc, thread};
use tokio::sync::oneshot;

/// How often to look for the first synced rule.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

pub(super) struct SyncThread {
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

/// Waits for a synced rule: without one no connection is needed.
async fn cause(live: &Live, clock: &Clock) {
    while !live.load_full().has_synced_rules() {
        clock.timer(clock.now() + POLL_INTERVAL).await;
    }
}

impl SyncThread {
    pub(super) fn start(
        store: &Arc<Store>,
        live: &Arc<Live>,
        clock: &Clock,
    ) -> Result<Self, StartError> {
        Self::spawn(store, live, clock).map_err(cannot("start the thread that syncs states"))
    }

    fn spawn(store: &Arc<Store>, live: &Arc<Live>, clock: &Clock) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let store = Arc::clone(store);
        let live = Arc::clone(live);
        let clock = clock.clone();
        let (end, ended) = oneshot::channel();
        if live.load().has_synced_rules() {
            // Before the first call to the store, so that no failure is missed.
            store.want_states();
        }
        let thread = thread::Builder::new().name("sync".to_owned()).spawn(move || {
            runtime.block_on(async {
                // A dropped sender ends the thread too.
                let end = async { drop(ended.await) };
                tokio::pin!(end);
                tokio::select! {
                    biased;
                    () = &mut end => return,
                    () = cause(&live, &clock) => {}
                }
                store.want_states();
                SyncTask::new(store, live, clock).run(end).await;
            });
        })?;
        Ok(Self { end, thread })
    }

    /// Waits until the thread has sent the remaining charges, or a call fails.
    pub(super) fn end(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            tracing::error!("the thread that syncs states with other gateways panicked");
        }
    }
}
