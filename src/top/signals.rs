//! What the system says to a program in a terminal.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SignalEvent {
    /// The terminal has another size.
    Resize,
    /// To stop until the shell continues the program.
    Suspend,
    /// To end.
    End,
}

/// The signals that are listened to.
#[derive(Debug)]
pub(super) struct Signals {
    resized: Signal,
    suspended: Signal,
    hung_up: Signal,
    interrupted: Signal,
    terminated: Signal,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        let suspended = SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw());
        Ok(Self {
            resized: signal(SignalKind::window_change())?,
            suspended: signal(suspended)?,
            hung_up: signal(SignalKind::hangup())?,
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next signal.
    pub(super) async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.resized.recv() => SignalEvent::Resize,
            _ = self.suspended.recv() => SignalEvent::Suspend,
            _ = self.hung_up.recv() => SignalEvent::End,
            _ = self.interrupted.recv() => SignalEvent::End,
            _ = self.terminated.recv() => SignalEvent::End,
        }
    }
}
