//! The new process's side of an upgrade.

use super::{
    channel::{Channel, ChannelError},
    inherited::Inherited,
    message::{Answer, Handover, Hello, PROTOCOL, Sockets},
};
use crate::{clock::Clock, route::Seed};
use rustix::stdio::dup2_stdin;
use std::{env, fs::File, io, os::fd::AsFd, time::Duration};

/// The variable that says that the standard input is a [`Channel`] to the old process.
pub(super) const VARIABLE: &str = "FLOWGATE_UPGRADE";

/// How long one answer of the old process may take.
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

    /// Tells the old process why this one does not take over, so that it logs it and serves on.
    pub(crate) fn fail(&self, why: &str) {
        // The reader logs one line.
        let why: String = why.chars().take(1000).collect();
        if let Err(error) = self.channel.send(&Answer::Failed { why }) {
            tracing::debug!(%error, "the old process is gone");
        }
    }

    /// Tells it that this process could serve.
    pub(crate) fn ready(&self) -> Result<(), TakeoverError> {
        Ok(self.channel.send(&Answer::Ready)?)
    }

    /// Waits until the old process accepts no connections any more, of these listeners.
    pub(crate) fn stop(&self, listeners: Vec<Option<String>>) -> Result<(), TakeoverError> {
        self.channel.send(&Answer::Imported { listeners })?;
        match self.channel.receive()? {
            Handover::Stopped => Ok(()),
            Handover::Released => Err(ChannelError::Closed.into()),
        }
    }

    /// Tells it that this process serves, and waits until it is released.
    pub(crate) fn release(&self) -> Result<(), TakeoverError> {
        self.channel.send(&Answer::Serving)?;
        match self.channel.receive()? {
            Handover::Released => Ok(()),
            Handover::Stopped => Err(ChannelError::Closed.into()),
        }
    }
}
