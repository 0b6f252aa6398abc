//! The control thread's part of an upgrade, in the old process.

use super::{
    End, Gateway,
    upgrade::{ClockReading, Hello, Job, PROTOCOL, SuccessorEvent},
};
use crate::flow::transfer::FORM;
use std::{io, process, sync::Arc};

impl Gateway {
    /// Starts the own program anew, to hand over to it.
    pub(super) fn begin_upgrade(&mut self) {
        if self.successor.is_busy() {
            tracing::warn!("a new process is being started already");
            return;
        }
        match self.job() {
            Ok(job) => {
                tracing::info!(program = %job.program, "upgrading: starting the new process");
                self.successor.begin(job);
            }
            Err(error) => {
                tracing::error!(%error, "cannot upgrade, this process continues to serve");
            }
        }
    }

    fn job(&mut self) -> io::Result<Job> {
        let mut sockets = self.listeners.sockets()?;
        sockets.extend(self.admin.sockets()?);
        let snapshot = self.live.load();
        let gates = snapshot.gates().map(|(name, gate)| (name, Arc::clone(gate)));
        let gates = Arc::new(gates.collect());
        let hello = Hello {
            protocol: PROTOCOL,
            form: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            seed: self.seed.secret(),
            clock: ClockReading::of(&self.clock),
        };
        let before = self.late.take();
        Ok(Job { program: self.program.clone(), hello, sockets, gates, before })
    }

    /// Does the part of the control thread. Returns the end if the new process serves.
    pub(super) async fn on_upgrade(&mut self, event: SuccessorEvent) -> Option<End> {
        match event {
            SuccessorEvent::Stop(listeners, done) => {
                self.stop_accepting(&listeners).await;
                // It may have given up, which the next event says.
                _ = done.send(());
                None
            }
            SuccessorEvent::Failed(why) => {
                self.resume(&why);
                None
            }
            SuccessorEvent::Serves(pid, done) => {
                self.notify.main_process(pid);
                _ = done.send(());
                Some(End::HandedOver(pid))
            }
        }
    }

    /// Stops accepting on the listeners whose sockets the new process takes.
    async fn stop_accepting(&self, listeners: &[Option<String>]) {
        if listeners.contains(&None) {
            self.admin.hand_over();
        }
        self.listeners.hand_over(listeners).await;
    }

    /// Serves on, as the new process does not take over.
    fn resume(&mut self, why: &str) {
        tracing::error!(why, "the upgrade failed, this process continues to serve");
        self.divide();
        self.listeners.resume(&self.workers);
        let state = self.admin_state();
        if let Err(error) = self.admin.resume(state) {
            tracing::error!(%error, "cannot accept again on the admin listener");
        }
    }
}
