//! Signals of the operating system.

use core::{future::poll_fn, task::Poll};
use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The request of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SignalEvent {
    /// HUP: reload the configuration.
    Reload,
    /// USR1: reopen the access log.
    Reopen,
    /// USR2: start the program anew and hand over to it.
    Upgrade,
    /// TERM, INT or QUIT: drain and end; the second time end at once.
    End,
}

/// The signals that the gateway listens to.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    user: Signal,
    user_2: Signal,
    /// TERM, INT and QUIT.
    ends: [Signal; 3],
}

impl Signals {
    /// Installs the handlers; needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
            user_2: signal(SignalKind::user_defined2())?,
            ends: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::quit())?,
            ],
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalEvent {
        tokio::select! {
            _ = self.hangup.recv() => SignalEvent::Reload,
            _ = self.user.recv() => SignalEvent::Reopen,
            _ = self.user_2.recv() => SignalEvent::Upgrade,
            () = any(&mut self.ends) => SignalEvent::End,
        }
    }

    /// Waits for a signal to end. Other signals stay pending.
    pub async fn end(&mut self) {
        any(&mut self.ends).await;
    }
}

async fn any(signals: &mut [Signal]) {
    poll_fn(|context| {
        let has_come = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
        if has_come { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Blocks until a signal ends the process.
///
/// # Errors
///
/// The runtime or a handler cannot be created.
pub fn wait_for_end() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        Signals::listen()?.end().await;
        Ok(())
    })
}
