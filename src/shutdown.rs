//! What the operating system asks of the gateway.

use core::{future::poll_fn, task::Poll};
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
    /// TERM, INT and QUIT.
    ends: [Signal; 3],
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
            ends: [
                signal(SignalKind::terminate())?,
                signal(SignalKind::interrupt())?,
                signal(SignalKind::quit())?,
            ],
        })
    }

    /// Waits for the next.
    pub async fn next(&mut self) -> Wish {
        tokio::select! {
            _ = self.hangup.recv() => Wish::Reload,
            _ = self.user.recv() => Wish::Reopen,
            () = any(&mut self.ends) => Wish::End,
        }
    }

    /// Waits until the process is asked to end. Other wishes stay to be heard.
    pub async fn end(&mut self) {
        any(&mut self.ends).await;
    }
}

/// Waits for one of these.
async fn any(signals: &mut [Signal]) {
    poll_fn(|context| {
        let has_come = signals.iter_mut().any(|it| it.poll_recv(context).is_ready());
        if has_come { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

/// Blocks until the process is asked to end.
///
/// # Errors
///
/// No runtime or handler can be had.
pub fn wait_for_end() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        Signals::listen()?.end().await;
        Ok(())
    })
}
