//! The messages of the two processes.
//!
//! The order is: `Hello`, `Sockets` (from the old one); `Ready`; `Gate` and `Parts`, `Copied`;
//! `Imported`; `Stopped`; `Serving`; `Released`; at the end `Finished`. `Late` may come from the first
//! `Gate` on. Each may end the conversation before `Serving`, after which the old process serves on.

use crate::{
    clock::{Clock, SharedReading},
    config::ListenAddress,
    flow::{
        Instant, WallOffset,
        transfer::{Late, StatePart},
    },
};
use serde::{Deserialize, Serialize};

/// The version of the conversation. A process that speaks another one is not taken over.
pub(crate) const PROTOCOL: u32 = 1;

/// The first message of the old process. Fields that are unknown to the new one are ignored.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) protocol: u32,
    /// Of its states.
    pub(crate) form: u32,
    /// Of the program, for the log.
    pub(crate) version: String,
    pub(crate) pid: u32,
    /// The secret of the clients' fingerprints.
    pub(crate) seed: [u64; 2],
    pub(crate) clock: ClockReading,
}

/// Both clocks of the old process at one moment, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClockReading {
    /// Its instant.
    pub(crate) instant: u64,
    /// `CLOCK_MONOTONIC`, which all processes of a machine share.
    pub(crate) monotonic: u64,
    /// The time by which the wall clock is ahead of its instants.
    pub(crate) wall: i64,
}

impl ClockReading {
    pub(crate) fn of(clock: &Clock) -> Self {
        let SharedReading { instant, monotonic } = clock.share();
        let wall = clock.wall_offset().as_nanos();
        Self { instant: instant.as_nanos(), monotonic, wall }
    }

    /// Returns a clock that continues the old process's.
    pub(super) fn resume(self) -> Clock {
        let Self { instant, monotonic, wall } = self;
        let instant = Instant::from_nanos(instant);
        let clock = Clock::resume(SharedReading { instant, monotonic });
        clock.set_wall(WallOffset::from_nanos(wall));
        clock
    }
}

/// Some sockets; the descriptors come with the message, in this order.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Sockets {
    pub(super) sockets: Vec<SocketName>,
    /// True if another message with sockets follows.
    pub(super) more: bool,
}

/// The listener to which a socket belongs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SocketName {
    /// The listener's name; `None` is the admin listener.
    pub(crate) listener: Option<String>,
    /// As in the configuration, where the port may be 0.
    pub(crate) configured: ListenAddress,
    /// True if systemd has opened it.
    #[serde(default)]
    pub(crate) is_of_systemd: bool,
}

/// Answers of the new process.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum SuccessorReply {
    /// Its configuration is accepted and its listeners are open. It reads states of this form.
    Ready { form: u32 },
    /// It cannot take over.
    Failed { why: String },
    /// It has the state, and takes these listeners' sockets.
    Imported { listeners: Vec<Option<String>> },
    /// It accepts connections.
    Serving,
}

/// The old process's words after [`Sockets`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Handover {
    /// The rules of the next gate. The new process may not know the algorithm of a rule.
    Gate { route: String, rules: Vec<(u32, serde_json::Value)>, has_lent: bool },
    /// Parts of the state of the slot with this number in a gate.
    Parts { gate: u32, slot: u32, parts: Vec<StatePart> },
    /// Changes to states that were sent already.
    Late(Vec<Late>),
    /// All states were sent.
    Copied,
    /// It accepts no connections any more.
    Stopped,
    /// The new process is the service's main process.
    Released,
    /// The last request of the old process has ended.
    Finished,
}
