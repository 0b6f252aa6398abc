//! The control thread's part of an upgrade, in the old process and in the new one.

use super::{
    End, Gateway,
    error::StartError,
    process::{Notify, PidFile},
    upgrade::{
        ClockReading, Hello, IncomingState, Job, PROTOCOL, Predecessor, Program, Successor,
        SuccessorEvent,
    },
};
use crate::{
    clock::Clock,
    config::{Live, Plan},
    flow::transfer::FORM,
    route::Seed,
};
use std::{collections::HashMap, io, process, sync::Arc, thread::JoinHandle};

/// The process itself, and its successor.
pub(super) struct UpgradeState {
    /// The program of this process, to be started anew.
    program: Program,
    pub(super) successor: Successor,
    /// The thread that follows the process before this one until that has ended.
    pub(super) late: Option<JoinHandle<()>>,
    /// The secret of the clients' fingerprints.
    pub(super) seed: Seed,
    pub(super) notify: Notify,
    pub(super) pid_file: PidFile,
}

impl UpgradeState {
    /// Begins without a successor.
    pub(super) fn new(
        program: Program,
        successor: Successor,
        seed: Seed,
        pid_file: PidFile,
    ) -> Self {
        Self { program, successor, late: None, seed, notify: Notify::from_env(), pid_file }
    }
}

impl Gateway {
    /// Starts the own program anew, to hand over to it.
    pub(super) fn begin_upgrade(&mut self) {
        if self.upgrade.successor.is_busy() {
            tracing::warn!("a new process is being started already");
            return;
        }
        match self.job() {
            Ok(job) => {
                tracing::info!(program = %job.program, "upgrading: starting the new process");
                self.upgrade.successor.begin(job);
            }
            Err(error) => {
                tracing::error!(%error, "cannot upgrade, this process continues to serve");
            }
        }
    }

    fn job(&mut self) -> io::Result<Job> {
        let mut sockets = self.serving.listeners.sockets()?;
        sockets.extend(self.serving.admin.sockets()?);
        let snapshot = self.live.load();
        let gates = snapshot.gates().map(|(name, gate)| (name, Arc::clone(gate)));
        let gates = Arc::new(gates.collect());
        let hello = Hello {
            protocol: PROTOCOL,
            form: FORM,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: process::id(),
            seed: self.upgrade.seed.secret(),
            clock: ClockReading::of(&self.clock),
        };
        let before = self.upgrade.late.take();
        Ok(Job { program: self.upgrade.program.clone(), hello, sockets, gates, before })
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
                self.upgrade.notify.main_process(pid);
                _ = done.send(());
                Some(End::HandedOver(pid))
            }
        }
    }

    /// Stops accepting on the listeners whose sockets the new process takes.
    async fn stop_accepting(&self, listeners: &[Option<String>]) {
        if listeners.contains(&None) {
            self.serving.admin.hand_over();
        }
        self.serving.listeners.hand_over(listeners).await;
    }

    /// Serves on, as the new process does not take over.
    fn resume(&mut self, why: &str) {
        tracing::error!(why, "the upgrade failed, this process continues to serve");
        self.divide();
        self.serving.listeners.resume(&self.serving.workers);
        let state = self.admin_state();
        if let Err(error) = self.serving.admin.resume(state) {
            tracing::error!(%error, "cannot accept again on the admin listener");
        }
    }
}

/// Takes over the states of the gates.
pub(super) fn take_state(
    old: &Predecessor,
    clock: &Clock,
    plan: &Plan,
) -> Result<IncomingState, StartError> {
    let state = old.take_state(clock, |name| plan.calendar(name))?;
    if let Some(unknown) = state.unknown() {
        tracing::warn!(rules = %unknown, "rules of the old process are unknown here and start again");
    }
    Ok(state)
}

/// Puts the first plan in force, with the gates of the process before if there was one.
pub(super) fn resume(plan: Plan, clock: &Clock, state: Option<&IncomingState>) -> Live {
    let gates = state.map_or_else(HashMap::new, IncomingState::gates);
    let (live, summary) = Live::resume(plan, clock.now(), clock.wall_offset(), gates);
    if let Some(state) = state {
        tracing::info!(
            states = state.states(),
            "took the state over: kept {}, converted {}, reset {}",
            summary.rules_kept,
            summary.rules_converted,
            summary.rules_reset(),
        );
        if let Some(warning) = summary.warning() {
            tracing::warn!("{warning}");
        }
    }
    live
}
