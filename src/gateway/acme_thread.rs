//! The thread that gets and renews certificates. It starts with the first configuration that has `acme`.

use super::{
    Gateway,
    error::{StartError, cannot},
};
use crate::{
    acme::{Status, Task, over_network},
    clock::Clock,
    config::Live,
};
use std::{io, sync::Arc, thread};
use tokio::sync::{mpsc, oneshot};

/// The control thread's side of certificates by ACME.
pub(super) struct AcmeThread {
    /// The state of each certificate.
    pub(super) status: Arc<Status>,
    /// Gets a message when a certificate was written.
    changed: mpsc::Receiver<()>,
    sender: mpsc::Sender<()>,
    running: Option<Running>,
}

struct Running {
    end: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Default for AcmeThread {
    fn default() -> Self {
        let (sender, changed) = mpsc::channel(1);
        Self { status: Arc::default(), changed, sender, running: None }
    }
}

impl AcmeThread {
    /// Waits until a certificate was written.
    pub(super) async fn changed(&mut self) {
        if self.changed.recv().await.is_none() {
            core::future::pending::<()>().await;
        }
    }

    /// Starts the thread if the configuration in force needs it and it does not run.
    fn start(&mut self, live: &Arc<Live>, clock: &Clock) -> Result<(), StartError> {
        let is_needed = live.load().settings.acme.is_some();
        if is_needed && self.running.is_none() {
            let running = self.spawn(live, clock);
            self.running = Some(running.map_err(cannot("start the thread for certificates"))?);
        }
        Ok(())
    }

    fn spawn(&self, live: &Arc<Live>, clock: &Clock) -> io::Result<Running> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (end, ended) = oneshot::channel();
        let live = Arc::clone(live);
        let clock = clock.clone();
        let status = Arc::clone(&self.status);
        let sender = self.sender.clone();

        let thread = thread::Builder::new().name("acme".to_owned()).spawn(move || {
            runtime.block_on(async {
                let task = Task::new(live, clock, status, over_network(), sender);
                tokio::select! {
                    biased;
                    _ended = ended => {}
                    () = task.run() => {}
                }
            });
            // A lookup of the authority's name may take longer than anything waits.
            runtime.shutdown_background();
        })?;
        Ok(Running { end, thread })
    }

    /// Ends the thread. An order that is not finished is placed again by the next process.
    pub(super) fn end(&mut self) {
        let Some(Running { end, thread }) = self.running.take() else { return };
        drop(end);
        if thread.join().is_err() {
            tracing::error!("the thread that renews certificates panicked");
        }
    }
}

impl Gateway {
    /// Has certificates renewed as the configuration in force says.
    pub(super) fn follow_acme(&mut self) {
        if let Err(error) = self.acme.start(&self.live, &self.clock) {
            tracing::error!(error = %error.summary(), "no certificate is requested or renewed");
        }
    }
}
