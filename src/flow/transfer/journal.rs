//! What changes in states that another process has already.

use super::StateOwner;
use crate::flow::{
    claim::SlotId,
    decision::Outcome,
    time::Instant,
    traits::{End, Times, Token},
};
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    mpsc::{Receiver, RecvError, Sender, TryRecvError, channel},
};

/// The most changes that may wait to be sent, some 100 MB. Beyond it they are lost:
/// see [`JournalReader::is_lost`].
const MAX_WAITING: usize = 1 << 20;

/// A change of an exported state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Late {
    /// The gate's number.
    pub gate: u32,
    /// The slot's number in the old process.
    pub slot: u32,
    /// Whose state it is.
    #[serde(rename = "place")]
    pub owner: StateOwner,
    /// The change.
    pub change: LateChange,
}

/// What changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LateChange {
    /// A request was admitted.
    Charge {
        /// When it arrived.
        now: Instant,
        /// When this rule let it start.
        own: Instant,
        /// When it may start.
        start: Instant,
        /// What it cost.
        cost: u64,
    },
    /// A request was answered, or ended.
    Release {
        /// When.
        now: Instant,
        /// When it was allowed to start.
        start: Instant,
        /// How it ended.
        outcome: Outcome,
        /// What the rule stored with it.
        token: u32,
        /// What it cost.
        cost: u64,
    },
    /// A request left while it waited in a pacing's queue.
    Leave {
        /// When.
        now: Instant,
        /// The start that it waited for.
        start: Instant,
    },
    /// A request borrowed from a coming window, for the first time.
    Lent,
    /// The other process is gone, and with it requests of this cost.
    Abandon {
        /// Their cost.
        cost: u64,
    },
}

/// Sends the changes of one gate. Nothing waits for the reader.
#[derive(Clone, Debug)]
pub struct Journal {
    gate: u32,
    changes: Sender<Late>,
    backlog: Arc<Backlog>,
}

/// Reads the changes of all gates, in order.
#[derive(Debug)]
pub struct JournalReader {
    changes: Receiver<Late>,
    backlog: Arc<Backlog>,
}

#[derive(Debug, Default)]
struct Backlog {
    waiting: AtomicUsize,
    is_lost: AtomicBool,
}

impl Journal {
    /// Returns a journal and its reader.
    pub fn new() -> (Self, JournalReader) {
        let (changes, reader) = channel();
        let backlog = Arc::<Backlog>::default();
        let read = JournalReader { changes: reader, backlog: Arc::clone(&backlog) };
        (Self { gate: 0, changes, backlog }, read)
    }

    /// Returns the journal of the gate of this number.
    #[must_use]
    pub fn of(&self, gate: u32) -> Self {
        Self { gate, ..self.clone() }
    }

    pub(in crate::flow) fn charged(
        &self,
        slot: SlotId,
        owner: StateOwner,
        times: Times,
        cost: u64,
    ) {
        let Times { now, own, start } = times;
        self.send(slot, owner, LateChange::Charge { now, own, start, cost });
    }

    pub(in crate::flow) fn released(&self, slot: SlotId, owner: StateOwner, end: &End, cost: u64) {
        let End { now, start, outcome, token } = *end;
        self.send(slot, owner, LateChange::Release { now, start, outcome, token, cost });
    }

    pub(in crate::flow) fn left(
        &self,
        slot: SlotId,
        owner: StateOwner,
        now: Instant,
        start: Instant,
    ) {
        self.send(slot, owner, LateChange::Leave { now, start });
    }

    pub(in crate::flow) fn lent(&self, slot: SlotId) {
        self.send(slot, StateOwner::All, LateChange::Lent);
    }

    fn send(&self, SlotId(slot): SlotId, owner: StateOwner, change: LateChange) {
        if self.backlog.waiting.fetch_add(1, Relaxed) >= MAX_WAITING {
            self.backlog.is_lost.store(true, Relaxed);
            return;
        }
        // Without a reader nobody needs to know.
        _ = self.changes.send(Late { gate: self.gate, slot, owner, change });
    }
}

impl JournalReader {
    /// Waits for a change; `None` when no journal is left.
    pub fn wait(&self) -> Option<Late> {
        self.changes.recv().map_err(|RecvError| ()).ok().inspect(|_| self.took())
    }

    /// Returns the next change, if there is one now.
    pub fn next(&self) -> Option<Late> {
        let next = self.changes.try_recv();
        next.map_err(|_: TryRecvError| ()).ok().inspect(|_| self.took())
    }

    /// Returns whether so many waited that some were lost.
    pub fn is_lost(&self) -> bool {
        self.backlog.is_lost.load(Relaxed)
    }

    fn took(&self) {
        self.backlog.waiting.fetch_sub(1, Relaxed);
    }
}

impl LateChange {
    /// Returns when it was.
    pub(in crate::flow) const fn now(&self) -> Instant {
        match self {
            Self::Charge { now, .. } | Self::Release { now, .. } | Self::Leave { now, .. } => *now,
            Self::Lent | Self::Abandon { .. } => Instant::EPOCH,
        }
    }

    /// Returns the end of a request that was released, at `now`.
    pub(in crate::flow) const fn end(
        now: Instant,
        start: Instant,
        outcome: Outcome,
        token: Token,
    ) -> End {
        End { now, start, outcome, token }
    }
}
