//! The gateway's end: after a drain, or at once at a second signal or the deadline.

use super::{End, Gateway};
use crate::workers::WorkerHandle;
use core::time::Duration;
use std::sync::atomic::Ordering::Relaxed;

/// The longest time for workers to cut off and log their requests. A slower one hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest time for the last traces to be sent.
const EXPORT_PATIENCE: Duration = Duration::from_secs(2);

impl Gateway {
    /// Stops listening and waits for all requests, at most `drain_timeout`.
    pub(super) async fn drain(&mut self, end: End) {
        let drain_timeout = self.live.load().settings.drain_timeout;
        match end {
            End::Signal => {
                tracing::info!(
                    ?drain_timeout,
                    "draining: accepts no new connections, and ends when all open requests have ended, after `drain_timeout` at the latest; a second signal ends it at once"
                );
                self.upgrade.notify.stopping();
                self.readiness.set_ready(false);
                self.serving.workers.iter().for_each(WorkerHandle::drain);
            }
            // Its admin pages say the same as before until their connections end.
            End::HandedOver(pid) => {
                tracing::info!(
                    ?drain_timeout,
                    pid,
                    "handed over: the new process accepts all connections; this one ends when its open requests have ended, after `drain_timeout` at the latest"
                );
                self.serving.workers.iter().for_each(WorkerHandle::retire);
            }
        }

        self.acme.end();
        self.serving.listeners.clear();
        let workers = &mut self.serving.workers;
        let admin = &self.serving.admin;
        let signals = &mut self.signals;
        let all_ended = async {
            all_ended(workers).await;
            if matches!(end, End::HandedOver(_)) {
                admin.handed_over().await;
            }
        };

        let whole = tokio::select! {
            ended = self.clock.timeout(drain_timeout, all_ended) => ended.is_ok(),
            () = signals.end() => false,
        };
        if whole {
            tracing::info!("drained");
        } else {
            self.cut_off().await;
        }

        if let Some(store) = &self.serving.store {
            store.end_settlements(&self.clock).await;
        }
        if let Some(sync_thread) = self.serving.sync_thread.take() {
            sync_thread.end();
        }
        if matches!(end, End::HandedOver(_)) {
            self.upgrade.successor.finish();
        }

        self.end_exports().await;
        self.serving.admin.close().await;

        // After a handover it is the new process's, which may be writing it just now.
        if matches!(end, End::Signal) {
            self.upgrade.pid_file.remove();
        }
    }

    /// Waits until the last traces are sent.
    async fn end_exports(&mut self) {
        if self.live.load().settings.tracing.is_none() {
            return;
        }
        if self.clock.timeout(EXPORT_PATIENCE, &mut self.serving.exporter).await.is_err() {
            tracing::warn!("the last traces could not be exported in time");
        }
    }

    /// Cuts off requests in flight, and waits until they are logged.
    async fn cut_off(&mut self) {
        self.serving.access_log.wait_for_room(&self.clock);
        for worker in &self.serving.workers {
            worker.stop();
        }
        if self.clock.timeout(PATIENCE, all_ended(&mut self.serving.workers)).await.is_err() {
            tracing::error!(
                "a worker does not stop; its requests in flight are missing in the access log"
            );
        }
        match self.counters.cut_off.load(Relaxed) {
            0 => tracing::info!("drained; idle connections were closed"),
            requests => tracing::warn!(requests, "ending with requests in flight"),
        }
    }
}

async fn all_ended(workers: &mut [WorkerHandle]) {
    for worker in workers {
        worker.ended().await;
    }
}
