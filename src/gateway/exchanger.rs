//! The thread that exchanges states with other gateways. It has its own, since what is sent late
//! lets too much pass, and the control thread may be busy with an edit.

use super::error::{StartError, cannot};
use crate::{
    clock::Clock,
    cluster::{Store, SyncTask},
    config::Live,
};
use core::time::Duration;
use std::{io, sync::Arc, thread};
use tokio::sync::oneshot;

/// How soon the first rule that wants an exchange is seen.
const GLANCE: Duration = Duration::from_millis(100);

/// The hold on that thread.
pub(super) struct Exchanger {
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

/// Waits for a rule whose states are exchanged: without one there is no need of a connection.
async fn wanted(live: &Live, clock: &Clock) {
    while !live.load_full().exchanges() {
        clock.timer(clock.now() + GLANCE).await;
    }
}

impl Exchanger {
    /// Starts it.
    pub(super) fn start(
        store: &Arc<Store>,
        live: &Arc<Live>,
        clock: &Clock,
    ) -> Result<Self, StartError> {
        Self::spawn(store, live, clock).map_err(cannot("start the thread that exchanges states"))
    }

    fn spawn(store: &Arc<Store>, live: &Arc<Live>, clock: &Clock) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (store, live, clock) = (Arc::clone(store), Arc::clone(live), clock.clone());
        let (end, ended) = oneshot::channel();
        if live.load().exchanges() {
            // Before anybody asks the store, so that no failure of the start is missed.
            store.want_states();
        }
        let thread = thread::Builder::new().name("exchange".to_owned()).spawn(move || {
            runtime.block_on(async {
                // Its loss is an end, too.
                let end = async { drop(ended.await) };
                tokio::pin!(end);
                tokio::select! {
                    biased;
                    () = &mut end => return,
                    () = wanted(&live, &clock) => {}
                }
                store.want_states();
                SyncTask::new(store, live, clock).run(end).await;
            });
        })?;
        Ok(Self { end, thread })
    }

    /// Has it send what is left, and waits for that: until all is sent, or a call fails.
    pub(super) fn end(self) {
        drop(self.end);
        if self.thread.join().is_err() {
            tracing::error!("the thread that syncs states with other gateways panicked");
        }
    }
}
