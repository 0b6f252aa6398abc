//! The terminal: taken over, and given back however the program ends; and the signals that it sends.

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use std::{
    io::{self, Write},
    panic,
};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Another screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";

/// The screen that was there, with its cursor.
const LEAVE: &str = "\x1b[0m\x1b[?25h\x1b[?1049l";

/// The size of a terminal that does not know its own.
const USUAL: (u16, u16) = (80, 24);

/// A terminal that was taken over; dropping it gives it back.
#[derive(Debug)]
pub(super) struct Terminal {
    before: Termios,
}

impl Terminal {
    /// Takes the terminal over. A panic gives it back before it is reported.
    pub(super) fn take() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let terminal = Self { before };
        terminal.enter()?;
        let before = terminal.before.clone();
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            give_back(&before);
            report(info);
        }));
        Ok(terminal)
    }

    /// Takes it over, also after it was given back for a while.
    pub(super) fn enter(&self) -> io::Result<()> {
        let mut raw = self.before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        let mut out = io::stdout().lock();
        out.write_all(ENTER.as_bytes())?;
        out.flush()
    }

    /// Gives it back.
    pub(super) fn leave(&self) {
        give_back(&self.before);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.leave();
    }
}

fn give_back(before: &Termios) {
    let mut out = io::stdout().lock();
    // The terminal may be gone, and nothing else can be done about it.
    drop(out.write_all(LEAVE.as_bytes()).and_then(|()| out.flush()));
    let _gone = tcsetattr(io::stdin(), OptionalActions::Drain, before);
}

/// Returns columns and rows.
pub(super) fn size() -> (u16, u16) {
    match tcgetwinsize(io::stdout()) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        Ok(_) | Err(_) => USUAL,
    }
}

/// The request of a signal.
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
