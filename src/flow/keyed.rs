//! A state for each client, in bounded memory.
//!
//! At most `max_keys` states are kept. When all are taken and a new client comes, of a few states
//! that a hand goes round, the one with the least to lose goes to the new client. What its former
//! client had used is kept in a [`summary`] of a size of its own. Who comes back, or was never
//! here, begins with what the summary holds of it, which is never less than it had used. So
//!
//! - no client gains by losing a place: whatever passes would have passed with room for all, after
//!   the same requests;
//! - a new client gets a place whoever else comes. Its first request is refused only if it would
//!   be refused by itself, or if others that lost their places used up all of its four cells:
//!   with a chance of `(J / (N·w))^4` at most, where `J` was charged to such clients in the time
//!   that a usage counts (two windows; a bucket's time to drain), and `w` is `2·max_keys`, at
//!   least 1024.
//!
//! A state stays where it is as long as it is **held**: while requests of its client are in
//! flight or have borrowed, or gateways are yet to be told what it was charged. If the hand finds
//! none but those among [`SEARCH`], the new client shares one of a few **overflow** states, chosen
//! by its key, with others like it, and brings along what it has used. Who gets a state of its own
//! after that starts with the overflow state's use.
//!
//! An edit of the numbers puts every client's own state out of date, and the summary, and converts
//! none. A decision first converts what it looks at; the rest is converted a few at
//! a time ([`Table::catch_up`]), so that no request waits for all of them.

mod index;
mod judge;
mod summary;
mod usage;

use super::shared::Whose;
use core::{fmt, ops::AddAssign};
use index::{Fingerprint, Index};
pub(super) use judge::{Conversion, Judge};
use std::sync::Arc;
use summary::Summary;
pub(super) use usage::{PastUsage, Scale};

/// What distinguishes a rule's clients, and how many it can count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keyed {
    /// The text that names the key, as `client_ip/64`: its identity over an edit.
    pub by: Arc<str>,
    /// The most clients that have a state of their own.
    pub max_keys: u32,
}

/// The number of keys in a rule's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Clients with a state of their own, those included whose state has become
    /// fresh and waits to be given to another.
    pub live: u32,
    /// The most there may be.
    pub max: u32,
    /// What happened for want of room, since the rule had this table; a rule's
    /// [`Counts`](super::Counts) have all.
    pub churn: Churn,
}

/// What happens in a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Churn {
    /// Clients that had used something and lost their place to a new one.
    pub evicted: u64,
    /// Clients that got a place and began with what was remembered, of them or of others.
    pub restored: u64,
    /// Decisions about clients that shared an overflow state.
    pub overflowed: u64,
}

impl AddAssign for Churn {
    fn add_assign(&mut self, other: Self) {
        self.evicted += other.evicted;
        self.restored += other.restored;
        self.overflowed += other.overflowed;
    }
}

/// Where a charged state lies. It stays there as long as it is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeySlot {
    /// The state that all share, or all without a key of their own.
    Shared,
    /// A client's own.
    Own(u32),
    /// One that several share for want of room.
    Overflow(u32),
}

/// Where the state lies that a decision rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    /// There.
    At(KeySlot),
    /// Nowhere yet: the client is new here.
    New {
        print: Fingerprint,
        /// Where its state will lie: in another's place, or one past the last.
        at: u32,
    },
}

/// The states of a rule's clients.
#[derive(Debug)]
pub(super) struct Table<S> {
    own: Index<S>,
    max: u32,
    /// Where the search for a place goes on.
    hand: u32,
    /// States before this one are up to date.
    caught_up: u32,
    /// For requests without a key of their own.
    shared: S,
    /// What a client never seen has.
    fresh: S,
    guest: Guest<S>,
    summary: Summary,
    /// Empty until the first is needed.
    overflow: Vec<S>,
    churn: Churn,
}

/// The client that is decided about, if it has no place: see [`Table::prepare`].
struct Guest<S> {
    /// What it has.
    state: S,
    /// Whether that is more than nothing.
    is_known: bool,
    /// What the summary holds of it.
    recalled: PastUsage,
}

/// Hides what no later decision depends on.
impl<S> fmt::Debug for Guest<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Guest(..)")
    }
}

/// States to look at for a new client when there is no room, if most are held: at 2 to 3 ns each
/// this costs less than the rest of the decision.
pub(super) const SEARCH: u32 = 32;

/// States to choose one from that has the least to lose.
const CHOICE: u32 = 8;

/// States to look at while there is room: more than one, so that the table shrinks
/// towards what is live; few, since growing costs little.
const GLANCE: u32 = 4;

/// States that [`Table::catch_up`] converts at a time: 16 µs for the slowest.
const STEP: u32 = 32;

/// Overflow states. Enough that one busy client among those without room
/// disturbs few others; a matter of a few KB.
pub(super) const OVERFLOWS: u32 = 64;

/// Returns the memory that a client's state takes in a table, its bucket included.
pub(super) const fn entry_bytes<S>() -> usize {
    index::entry_bytes::<S>()
}

/// Returns the memory that is taken to remember clients which lost their places among so many.
pub(super) fn summary_bytes(max_keys: u32) -> usize {
    summary::bytes(max_keys.min(index::MAX))
}

/// States of a rule's table beside those of `max_keys` clients.
pub(super) const OTHERS: u32 = OVERFLOWS + 3;

impl<S: Clone> Table<S> {
    /// Returns an empty table, which grows as clients come.
    pub(super) fn new(fresh: S, max_keys: u32) -> Self {
        Self {
            own: Index::new(),
            max: max_keys.min(index::MAX),
            hand: 0,
            caught_up: 0,
            shared: fresh.clone(),
            guest: Guest { state: fresh.clone(), is_known: false, recalled: PastUsage::NONE },
            fresh,
            summary: Summary::default(),
            overflow: Vec::new(),
            churn: Churn::default(),
        }
    }

    /// Returns the counts.
    pub(super) const fn keys(&self) -> Keys {
        Keys { live: self.own.len(), max: self.max, churn: self.churn }
    }

    /// Makes ready to decide about `key`: what that looks at is converted, as far as it is out of
    /// date, and if the client has no place, what it has used is recalled.
    pub(super) fn prepare(
        &mut self,
        key: u128,
        judge: &impl Judge<S>,
        edit: Option<&Conversion<'_, S>>,
    ) {
        let print = Fingerprint::of(key);
        let found = self.own.find(print);
        if let Some(edit) = edit {
            match found {
                Some(at) => self.own.refresh(at, edit.state),
                None => self.looks().for_each(|at| self.own.refresh(at, edit.state)),
            }
        }
        if found.is_some() {
            return;
        }
        let scale = judge.scale();
        let convert = |usage| edit.map_or(usage, |edit| (edit.usage)(usage));
        let recalled = self.summary.recall(print, scale, convert);
        let shared = self.overflow.get(overflow_of(print) as usize);
        let usage = shared.map_or(recalled, |it| scale.join(recalled, judge.past_usage(it)));
        let Guest { state, is_known, recalled: kept } = &mut self.guest;
        (*is_known, *kept) = (scale.weight(usage) > 0, recalled);
        judge.renew(state);
        if *is_known {
            judge.absorb(state, usage);
        }
    }

    /// Finds the state of `key`, or where it would lie, just after it was
    /// [prepared](Self::prepare).
    ///
    /// A client for whom an overflow state may be `holding` something back until
    /// it ends stays there, since what is held is released where it was charged.
    pub(super) fn find(&self, key: u128, holding: bool, judge: &impl Judge<S>) -> Lookup {
        let print = Fingerprint::of(key);
        if let Some(at) = self.own.find(print) {
            return Lookup::At(KeySlot::Own(at));
        }
        let overflow = overflow_of(print);
        let is_held = |state| holding && judge.is_held(state);
        let room = if self.overflow.get(overflow as usize).is_some_and(is_held) {
            None
        } else {
            self.room(judge)
        };
        room.map_or(Lookup::At(KeySlot::Overflow(overflow)), |at| Lookup::New { print, at })
    }

    /// Returns the state at `place`.
    pub(super) fn get(&self, place: Lookup) -> &S {
        match place {
            Lookup::At(KeySlot::Shared) => &self.shared,
            Lookup::At(KeySlot::Own(at)) => self.own.get(at),
            Lookup::At(KeySlot::Overflow(at)) => {
                self.overflow.get(at as usize).unwrap_or(&self.fresh)
            }
            Lookup::New { .. } => &self.guest.state,
        }
    }

    /// Returns the state that must agree, too, with a request to be charged at `place`: where a
    /// client shares a state, what it has used by itself.
    pub(super) fn beside(&self, place: Lookup) -> Option<&S> {
        let shares = matches!(place, Lookup::At(KeySlot::Overflow(_)));
        (shares && self.guest.is_known).then_some(&self.guest.state)
    }

    /// Makes `place`, as found just before, the client's own.
    pub(super) fn seat(&mut self, place: Lookup, judge: &impl Judge<S>) -> KeySlot {
        match place {
            Lookup::At(seat) => {
                if let KeySlot::Overflow(_) = seat {
                    self.on_overflow();
                    let recalled = self.guest.recalled;
                    if judge.scale().weight(recalled) > 0 {
                        judge.absorb(self.get_mut(seat), recalled);
                    }
                }
                seat
            }
            Lookup::New { print, at } => {
                if at == self.own.len() {
                    self.own.push(print, self.guest.state.clone(), self.max);
                } else {
                    self.note_loss(at, judge);
                    self.own.give(at, print);
                    core::mem::swap(self.own.get_mut(at), &mut self.guest.state);
                }
                self.churn.restored += u64::from(self.guest.is_known);
                self.hand = at + 1;
                KeySlot::Own(at)
            }
        }
    }

    /// Returns the state that the client at `place` begins with, to be changed and
    /// [remembered](Self::remember), if it would take a place from another.
    pub(super) fn guest_mut(&mut self, place: Lookup, judge: &impl Judge<S>) -> Option<&mut S> {
        let Lookup::New { at, .. } = place else { return None };
        let takes = at < self.own.len() && judge.loss(self.own.get(at)) > 0;
        takes.then_some(&mut self.guest.state)
    }

    /// Remembers what [the guest](Self::guest_mut) has used, and gives it no place.
    pub(super) fn remember(&mut self, place: Lookup, judge: &impl Judge<S>) {
        if let Lookup::New { print, .. } = place {
            self.note(print, judge.past_usage(&self.guest.state), judge.scale());
        }
    }

    /// Notes that a request was refused that would have been charged at `place`.
    pub(super) fn pass_over(&mut self, place: Lookup) {
        if let Lookup::At(KeySlot::Overflow(_)) = place {
            self.on_overflow();
        }
    }

    /// Returns the state at `seat`, to be changed.
    pub(super) fn get_mut(&mut self, seat: KeySlot) -> &mut S {
        match seat {
            KeySlot::Shared => &mut self.shared,
            KeySlot::Own(at) => self.own.get_mut(at),
            KeySlot::Overflow(at) => {
                if self.overflow.is_empty() {
                    self.overflow.resize(OVERFLOWS as usize, self.fresh.clone());
                }
                &mut self.overflow[at as usize]
            }
        }
    }

    /// Makes all states fresh.
    pub(super) fn forget(&mut self) {
        let churn = self.churn;
        *self = Self { churn, ..Self::new(self.fresh.clone(), self.max) };
    }

    /// Returns the seat of this number, of all that may have been charged, and whose it is.
    pub(super) fn nth(&self, at: u32) -> Option<(KeySlot, Whose)> {
        let Some(at) = at.checked_sub(1) else { return Some((KeySlot::Shared, Whose::All)) };
        let overflows = if self.overflow.is_empty() { 0 } else { OVERFLOWS };
        match at.checked_sub(overflows) {
            None => Some((KeySlot::Overflow(at), Whose::Overflow(at))),
            Some(at) if at < self.own.len() => {
                Some((KeySlot::Own(at), Whose::Key(self.own.print(at).key())))
            }
            Some(_) => None,
        }
    }

    /// Takes over the bound of `wanted`, converts what clients share, and leaves their
    /// own states, which must all be up to date, to be converted, and what is remembered.
    pub(super) fn retune(&mut self, wanted: &Self, convert: impl Fn(&mut S)) {
        self.max = wanted.max;
        self.caught_up = 0;
        self.own.age();
        self.summary.age();
        let others = [&mut self.shared, &mut self.fresh, &mut self.guest.state];
        self.overflow.iter_mut().chain(others).for_each(convert);
    }

    /// Converts the state at `seat`, if it is out of date.
    pub(super) fn prepare_seat(&mut self, seat: KeySlot, convert: impl Fn(&mut S)) {
        match seat {
            KeySlot::Own(at) => self.own.refresh(at, convert),
            KeySlot::Shared | KeySlot::Overflow(_) => {}
        }
    }

    /// Goes on with converting. Then clients over `max_keys` leave, as far as the last
    /// ones are not held; the rest keep their states, which later go to other clients.
    /// Returns whether there may be more to do.
    pub(super) fn catch_up(&mut self, judge: &impl Judge<S>, stale: &Conversion<'_, S>) -> bool {
        if self.caught_up < self.own.len() {
            let to = self.own.len().min(self.caught_up.saturating_add(STEP));
            (self.caught_up..to).for_each(|at| self.own.refresh(at, stale.state));
            self.caught_up = to;
            return true;
        }
        self.summary.convert_some(judge.scale(), stale.usage)
            || (0..STEP).all(|_| self.leave(judge))
    }

    /// Has the last client leave if there are more than may be. Returns whether it did.
    fn leave(&mut self, judge: &impl Judge<S>) -> bool {
        let last = self.own.len().saturating_sub(1);
        let leaves = self.own.len() > self.max && !judge.is_held(self.own.get(last));
        if leaves {
            self.note_loss(last, judge);
            self.own.pop();
        }
        leaves
    }

    /// Remembers what the client at `at` has used, which loses its place.
    fn note_loss(&mut self, at: u32, judge: &impl Judge<S>) {
        let (usage, scale) = (judge.past_usage(self.own.get(at)), judge.scale());
        if scale.weight(usage) > 0 {
            self.churn.evicted += 1;
            self.note(self.own.print(at), usage, scale);
        }
    }

    fn note(&mut self, print: Fingerprint, usage: PastUsage, scale: Scale) {
        self.summary.note(print, usage, scale, self.max);
    }

    fn on_overflow(&mut self) {
        self.churn.overflowed += 1;
        self.hand = self.start().saturating_add(SEARCH);
    }

    /// Returns where the search starts: at the hand, unless that has gone round.
    const fn start(&self) -> u32 {
        if self.hand < self.own.len() { self.hand } else { 0 }
    }

    /// Returns whether a new client may get a state that no client had.
    const fn grows(&self) -> bool {
        self.own.len() < self.max
    }

    /// Returns where a place is looked for.
    fn looks(&self) -> impl Iterator<Item = u32> + use<S> {
        let (len, start) = (self.own.len(), self.start());
        let looks = len.min(if self.grows() { GLANCE } else { SEARCH });
        let at = move |step| if step < len - start { start + step } else { step - (len - start) };
        (0..looks).map(at)
    }

    /// Finds a place for a new client: with nothing to lose, or one more, or with the least to
    /// lose of a few.
    fn room(&self, judge: &impl Judge<S>) -> Option<u32> {
        let (mut least, mut choice) = (None, 0);
        for at in self.looks() {
            let state = self.own.get(at);
            if judge.is_held(state) {
                continue;
            }
            let loss = judge.loss(state);
            if loss == 0 {
                return Some(at);
            }
            if least.is_none_or(|(_, other)| loss < other) {
                least = Some((at, loss));
            }
            choice += 1;
            if choice == CHOICE {
                break;
            }
        }
        if self.grows() { Some(self.own.len()) } else { least.map(|(at, _)| at) }
    }
}

/// Returns the overflow state of a client for whom there is no room.
#[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
const fn overflow_of(print: Fingerprint) -> u32 {
    (print.high() % OVERFLOWS as u64) as u32
}

#[cfg(test)]
mod tests;
