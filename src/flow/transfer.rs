//! A gate's state for another process, which takes over.
//!
//! The rules are exported with their numbers, and each state as a list of integers. The other
//! process installs the same rules, imports the states, and installs its own rules: what differs is
//! converted as by an edit.
//!
//! Requests go on while states are exported, a few at a time. A [`Journal`] sends every change
//! to a state that was exported already, so that no charge is lost or counted twice. It goes on
//! until the old process ends, for what its last requests change.

pub use super::rules::SlotRule;
use super::{
    calendar::Calendar,
    decision::{Key, Outcome, SlotId},
    keyed::{KeySlot, OVERFLOWS},
    limiter::{Difference, End, Receipt, Times, Token, halves, plans::Plan},
    rules::Rules,
    time::Instant,
};
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    mpsc::{Receiver, RecvError, Sender, TryRecvError, channel},
};

/// The version of the states' numbers and of the rules' form. An algorithm whose state changes its
/// form changes this number; states of another number are not imported.
pub const FORM: u32 = 1;

/// The rules of a gate, each with its slot's number.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GateExport {
    /// In the chain's order.
    pub rules: Vec<(u32, SlotRule)>,
    /// True once a request has borrowed from a coming window.
    pub has_lent: bool,
}

impl GateExport {
    /// Replaces the names of calendars, all that is exported of them, by what `find` knows.
    pub fn resolve(&mut self, find: impl Fn(&str) -> Option<Calendar>) {
        for (_, rule) in &mut self.rules {
            let SlotRule::Flow(rule) = rule else { continue };
            rule.algorithm.change_calendars(&mut |calendar| {
                if let Some(known) = find(calendar.name()) {
                    *calendar = known;
                }
            });
        }
    }

    /// Returns the rules.
    pub(in crate::flow) fn rules(&self) -> Rules {
        let mut rules = Rules::default();
        for (_, rule) in &self.rules {
            match rule {
                SlotRule::Flow(rule) => rules.flow.push(rule.clone()),
                SlotRule::Breaker(config) => rules.breaker = Some(config.clone()),
                SlotRule::Pacing(config) => rules.pacing = Some(config.clone()),
            }
        }
        rules
    }
}

/// A part of a rule's state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StatePart {
    /// A state's numbers.
    State(StateOwner, Vec<u64>),
    /// Used cells of the summary of evicted clients, with their numbers; and the number of all.
    Summary {
        /// All cells, used or not.
        cells: u64,
        /// Position and usage.
        used: Vec<(u64, u64)>,
    },
    /// The place at which the search of a full table continues.
    Hand(u32),
    /// The clock of the store that syncs the rule: its offset, and the least time.
    StoreClock(i64, Instant),
    /// The latest costs of a rule that settles them, the oldest first.
    Learned(Vec<u64>),
    /// Clients that are banned, each with the end of its ban.
    Bans(Vec<(StateOwner, Instant)>),
}

/// Whose state it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum StateOwner {
    /// Of all, or of all without a key.
    All,
    /// Of the client with this fingerprint, in halves: the high one first.
    Key(u64, u64),
    /// Of the clients that share this overflow state.
    Overflow(u32),
}

/// The progress of a slot's export. Clients come before the summary: a client that is evicted
/// meanwhile is exported as a client. Overflow states come before clients: a client that gets a
/// state of its own meanwhile starts with what the other process has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::flow) enum Exporting {
    /// It has not begun.
    #[default]
    Nothing,
    /// So many shared states are exported: that of all, then the overflow states.
    Others(u32),
    /// All of those are, and clients before this one.
    Clients(u32),
    /// All states are, and the summary's cells before this one.
    Summary(usize),
    /// Everything is.
    Done,
}

impl Exporting {
    /// Returns whether the state at this key slot is exported.
    pub(in crate::flow) const fn has(self, key_slot: KeySlot) -> bool {
        match (self, key_slot) {
            (Self::Nothing, _) | (Self::Others(_), KeySlot::Own(_)) => false,
            (Self::Others(next), KeySlot::Shared) => next > 0,
            (Self::Others(next), KeySlot::Overflow(at)) => at + 1 < next,
            (Self::Clients(next), KeySlot::Own(at)) => at < next,
            (Self::Clients(_), KeySlot::Shared | KeySlot::Overflow(_))
            | (Self::Summary(_) | Self::Done, _) => true,
        }
    }
}

impl StateOwner {
    /// Returns the client with this fingerprint.
    pub(in crate::flow) const fn of_key(key: u128) -> Self {
        let [high, low] = halves(key);
        Self::Key(high, low)
    }

    /// Returns the owner of the bans of this key; `None` for a key that is rejected anyway.
    pub(in crate::flow) const fn of(key: Key) -> Option<Self> {
        match key {
            Key::Of(key) => Some(Self::of_key(key)),
            Key::Shared => Some(Self::All),
            Key::Missing | Key::Duplicate => None,
        }
    }

    /// Returns the key whose bans these are; `None` for several clients.
    pub(in crate::flow) fn key(self) -> Option<Key> {
        match self {
            Self::All => Some(Key::Shared),
            Self::Key(high, low) => Some(Key::Of(u128::from(high) << 64 | u128::from(low))),
            Self::Overflow(_) => None,
        }
    }

    /// Returns the key slot of an overflow state, if there are so many.
    pub(in crate::flow) fn overflow(at: u32) -> Option<KeySlot> {
        (at < OVERFLOWS).then_some(KeySlot::Overflow(at))
    }
}

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

/// The kind of a change, with its numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LateChange {
    /// A request was admitted.
    Charge {
        /// The time of its arrival.
        now: Instant,
        /// The start that this rule gave it.
        own: Instant,
        /// Its start by all rules.
        start: Instant,
        /// Its cost.
        cost: u64,
        /// The place of its plan in the rule's table; 0 for the rule's own numbers.
        #[serde(default, skip_serializing_if = "is_zero")]
        plan: u32,
    },
    /// A request was answered, or ended.
    Release {
        /// The time of the change.
        now: Instant,
        /// The start that it was given.
        start: Instant,
        /// Its end.
        outcome: Outcome,
        /// The number that the rule stored with it.
        token: u32,
        /// Its cost.
        cost: u64,
    },
    /// The cost of a request was settled.
    Settle {
        /// The time of the change.
        now: Instant,
        /// The time of the charge; `None` if an edit has had it count elsewhere.
        at: Option<Instant>,
        /// The limit of the state, then.
        limit: u64,
        /// The difference from what was charged.
        difference: Difference,
        /// The cost beyond what was known of the request, if it has ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unforeseen: Option<u64>,
    },
    /// A request left while it waited in a pacing's queue.
    Leave {
        /// The time of the change.
        now: Instant,
        /// The start that it waited for.
        start: Instant,
    },
    /// A client was banned.
    Ban {
        /// The time of the change.
        now: Instant,
        /// The end of the ban.
        end: Instant,
    },
    /// A request borrowed from a coming window, for the first time.
    Lent,
    /// The other process is gone, and with it requests of this cost.
    Abandon {
        /// Their cost.
        cost: u64,
    },
}

/// The settlement of a request's cost in one state.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct LateSettlement {
    pub(in crate::flow) now: Instant,
    pub(in crate::flow) receipt: Receipt,
    pub(in crate::flow) difference: Difference,
    pub(in crate::flow) unforeseen: Option<u64>,
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
        plan: Plan,
    ) {
        let Times { now, own, start } = times;
        self.send(slot, owner, LateChange::Charge { now, own, start, cost, plan });
    }

    pub(in crate::flow) fn released(&self, slot: SlotId, owner: StateOwner, end: &End, cost: u64) {
        let End { now, start, outcome, token } = *end;
        self.send(slot, owner, LateChange::Release { now, start, outcome, token, cost });
    }

    pub(in crate::flow) fn settled(
        &self,
        slot: SlotId,
        owner: StateOwner,
        settlement: LateSettlement,
    ) {
        let LateSettlement { now, receipt: Receipt { at, limit }, difference, unforeseen } =
            settlement;
        self.send(slot, owner, LateChange::Settle { now, at, limit, difference, unforeseen });
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

    pub(in crate::flow) fn banned(
        &self,
        slot: SlotId,
        owner: StateOwner,
        now: Instant,
        end: Instant,
    ) {
        self.send(slot, owner, LateChange::Ban { now, end });
    }

    pub(in crate::flow) fn lent(&self, slot: SlotId) {
        self.send(slot, StateOwner::All, LateChange::Lent);
    }

    fn send(&self, slot: SlotId, owner: StateOwner, change: LateChange) {
        if self.backlog.waiting.fetch_add(1, Relaxed) >= MAX_WAITING {
            self.backlog.is_lost.store(true, Relaxed);
            return;
        }
        // Without a reader, nothing needs the change.
        _ = self.changes.send(Late { gate: self.gate, slot: slot.number, owner, change });
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

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(plan: &u32) -> bool {
    *plan == 0
}

impl LateChange {
    /// Returns when it was.
    pub(in crate::flow) const fn now(&self) -> Instant {
        match self {
            Self::Charge { now, .. }
            | Self::Release { now, .. }
            | Self::Settle { now, .. }
            | Self::Leave { now, .. }
            | Self::Ban { now, .. } => *now,
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
