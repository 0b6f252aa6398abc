//! The new process's side of an upgrade.

use super::{
    channel::{Channel, ChannelError},
    inherited::Inherited,
    message::{Handover, Hello, PROTOCOL, Sockets, SuccessorReply},
    state::IncomingState,
};
use crate::{
    clock::Clock,
    flow::{calendar::Calendar, transfer::FORM},
    route::Seed,
};
use rustix::stdio::dup2_stdin;
use std::{
    env,
    fs::File,
    io,
    os::fd::AsFd,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

/// The variable that says that the standard input is a [`Channel`] to the old process.
pub(super) const VARIABLE: &str = "FLOWGATE_UPGRADE";

/// The longest time that one answer of the old process may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// The process that started this one, to be replaced by it.
#[derive(Debug)]
pub(crate) struct Predecessor {
    channel: Channel,
    hello: Hello,
}

/// Why nothing can be taken over.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TakeoverError {
    #[error("flowgate {version} hands over by protocol {protocol}, and this one by {PROTOCOL}")]
    Protocol { version: String, protocol: u32 },
    #[error("a socket of the old process cannot be used")]
    Socket(#[source] io::Error),
    #[error("the old process")]
    Channel(#[from] ChannelError),
    #[error("the old process sent a message out of turn")]
    OutOfTurn,
    #[error("the channel to the old process")]
    Io(#[from] io::Error),
}

impl Predecessor {
    /// Returns the process that started this one for an upgrade, if one did, with its sockets.
    pub(crate) fn find() -> Result<Option<(Self, Inherited)>, TakeoverError> {
        if env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }

        let Some(channel) = Channel::of(io::stdin().as_fd())? else { return Ok(None) };
        dup2_stdin(File::open("/dev/null")?).map_err(io::Error::from)?;
        channel.limit(Some(PATIENCE))?;

        let hello: Hello = channel.receive()?;
        let predecessor = Self { channel, hello };
        let Hello { protocol, version, .. } = &predecessor.hello;
        if *protocol != PROTOCOL {
            let error = TakeoverError::Protocol { version: version.clone(), protocol: *protocol };
            predecessor.fail(&error.to_string());
            return Err(error);
        }

        match predecessor.sockets() {
            Ok(inherited) => Ok(Some((predecessor, inherited))),
            Err(error) => {
                predecessor.fail(&error.to_string());
                Err(error)
            }
        }
    }

    fn sockets(&self) -> Result<Inherited, TakeoverError> {
        let mut inherited = Inherited::default();
        loop {
            let (Sockets { sockets, more }, descriptors) = self.channel.receive_with()?;
            for (name, descriptor) in sockets.into_iter().zip(descriptors) {
                inherited.add(name, descriptor).map_err(TakeoverError::Socket)?;
            }
            if !more {
                return Ok(inherited);
            }
        }
    }

    /// Returns the secret of its clients' fingerprints.
    pub(crate) const fn seed(&self) -> Seed {
        Seed::new(self.hello.seed)
    }

    /// Returns a clock that continues its clock.
    pub(crate) fn clock(&self) -> Clock {
        self.hello.clock.resume()
    }

    /// Reports to the old process why this one does not take over. It logs this, and continues to
    /// serve.
    pub(crate) fn fail(&self, why: &str) {
        // The reader logs one line.
        let why: String = why.chars().take(1000).collect();
        if let Err(error) = self.channel.send(&SuccessorReply::Failed { why }) {
            tracing::debug!(%error, "the old process is gone");
        }
    }

    /// Takes the state over. `find` knows calendars by name.
    pub(crate) fn take_state(
        &self,
        clock: &Clock,
        find: impl Fn(&str) -> Option<Calendar>,
    ) -> Result<IncomingState, TakeoverError> {
        self.channel.send(&SuccessorReply::Ready { form: FORM })?;

        let mut state = IncomingState::new(clock.now(), clock.wall_offset());
        if self.hello.form != FORM {
            tracing::warn!(
                theirs = self.hello.form,
                ours = FORM,
                "the old process keeps its state in another form: all rules start again"
            );
        }

        loop {
            match self.channel.receive()? {
                Handover::Gate { route, rules, has_lent } => {
                    state.add(&route, rules, has_lent, &find);
                }
                Handover::Parts { gate, slot, parts } => state.import(gate, slot, parts),
                Handover::Late(changes) => state.apply(changes),
                Handover::Copied => return Ok(state),
                Handover::Stopped | Handover::Released | Handover::Finished => {
                    return Err(TakeoverError::OutOfTurn);
                }
            }
        }
    }

    /// Waits until the old process accepts no connections any more, of these listeners.
    pub(crate) fn stop(
        &self,
        listeners: Vec<Option<String>>,
        state: &mut IncomingState,
    ) -> Result<(), TakeoverError> {
        self.channel.send(&SuccessorReply::Imported { listeners })?;
        self.wait_for(&Handover::Stopped, state)
    }

    /// Reports that this process serves, and waits until it is released.
    pub(crate) fn release(&self, state: &mut IncomingState) -> Result<(), TakeoverError> {
        self.channel.send(&SuccessorReply::Serving)?;
        self.wait_for(&Handover::Released, state)
    }

    /// Applies what the last requests of the old process change, on a thread of its own, until
    /// that has ended.
    pub(crate) fn follow(self: &Arc<Self>, mut state: IncomingState) -> io::Result<JoinHandle<()>> {
        let old = Arc::clone(self);
        thread::Builder::new().name("late".to_owned()).spawn(move || {
            let finished = old.channel.limit(None).map_err(TakeoverError::from);
            let finished =
                finished.and_then(|()| old.wait_for(&Handover::Finished, &mut state));
            if let Err(error) = finished {
                tracing::warn!(%error, "the old process has ended without notice: its requests no longer count");
                state.abandon();
            }
        })
    }

    /// Applies changes until the old process says `word`.
    fn wait_for(&self, word: &Handover, state: &mut IncomingState) -> Result<(), TakeoverError> {
        loop {
            match self.channel.receive()? {
                Handover::Late(changes) => state.apply(changes),
                said if core::mem::discriminant(&said) == core::mem::discriminant(word) => {
                    return Ok(());
                }
                Handover::Gate { .. }
                | Handover::Parts { .. }
                | Handover::Copied
                | Handover::Stopped
                | Handover::Released
                | Handover::Finished => return Err(TakeoverError::OutOfTurn),
            }
        }
    }
}
