//! What the operating system asks of the gateway.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// A wish, by signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// HUP: read the configuration again.
    Reload,
    /// USR1: open the log files again.
    Reopen,
    /// TERM, INT or QUIT: end in good order; a second time: at once.
    End,
}

/// The signals that the gateway listens to.
#[derive(Debug)]
pub struct Signals {
    hangup: Signal,
    user: Signal,
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
}

impl Signals {
    /// Begins to listen; needs a tokio runtime.
    ///
    /// # Errors
    ///
    /// A handler cannot be installed.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            user: signal(SignalKind::user_defined1())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Waits for the next.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.user.recv() => Wish::Reopen,
            _ = self.terminate.recv() => Wish::End,
            _ = self.interrupt.recv() => Wish::End,
            _ = self.quit.recv() => Wish::End,
        }
    }
}

/// Blocks until the process is asked to end.
///
/// # Errors
///
/// No runtime or handler can be had.
pub fn wait_for_end() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut signals = Signals::listen()?;
        while signals.next().await != Wish::End {}
        Ok(())
    })
}
