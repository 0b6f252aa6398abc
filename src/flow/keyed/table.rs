//! The table of a keyed rule: clients' states, and the usage of evicted clients.

use super::{
    Churn, Conversion, KeySlot, Keys, Lookup, PastUsage, Scale, StatePolicy,
    index::{self, Fingerprint, Index},
    summary::{self, Summary},
};
use crate::flow::shared::StateName;
use core::fmt;

#[derive(Debug)]
pub(in crate::flow) struct Table<S> {
    own: Index<S>,
    max: u32,
    /// Where the search for a place continues.
    hand: u32,
    /// States before this one are up to date.
    caught_up: u32,
    /// For requests without a key of their own.
    shared: S,
    /// The state of a client never seen.
    fresh: S,
    newcomer: Newcomer<S>,
    summary: Summary,
    /// Allocated on first use.
    overflow: Vec<S>,
    churn: Churn,
}

/// The client of the current decision, if it has no place: see [`Table::prepare`].
struct Newcomer<S> {
    state: S,
    /// True if it has any usage.
    is_known: bool,
    recalled: PastUsage,
}

/// No later decision depends on it.
impl<S> fmt::Debug for Newcomer<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Newcomer(..)")
    }
}

/// States to look at for a new client in a full table. At 2 to 3 ns each they cost less than the
/// rest of the decision.
pub(in crate::flow) const SEARCH: u32 = 32;

/// Evictable states to choose the one with the least to lose from.
const CANDIDATES: u32 = 8;

/// States to look at while there is room: more than one, so that the table shrinks to the live
/// clients.
const SEARCH_GROWING: u32 = 4;

/// States that [`Table::catch_up`] converts per call: 16 µs for the slowest.
const STEP: u32 = 32;

/// Overflow states, a few KB. One busy client in them disturbs few others.
pub(in crate::flow) const OVERFLOWS: u32 = 64;

/// Returns the bytes of a client's state in a table, its bucket included.
pub(in crate::flow) const fn entry_bytes<S>() -> usize {
    index::entry_bytes::<S>()
}

/// Returns the bytes of the summary of evicted clients.
pub(in crate::flow) fn summary_bytes(max_keys: u32) -> usize {
    summary::bytes(max_keys.min(index::MAX))
}

/// States of a table beside those of `max_keys` clients.
pub(in crate::flow) const OTHERS: u32 = OVERFLOWS + 3;

impl<S: Clone> Table<S> {
    /// Returns an empty table, which grows with its clients.
    pub(in crate::flow) fn new(fresh: S, max_keys: u32) -> Self {
        Self {
            own: Index::new(),
            max: max_keys.min(index::MAX),
            hand: 0,
            caught_up: 0,
            shared: fresh.clone(),
            newcomer: Newcomer { state: fresh.clone(), is_known: false, recalled: PastUsage::NONE },
            fresh,
            summary: Summary::default(),
            overflow: Vec::new(),
            churn: Churn::default(),
        }
    }

    pub(in crate::flow) const fn keys(&self) -> Keys {
        Keys { live: self.own.len(), max: self.max, churn: self.churn }
    }

    /// Prepares a check with `key`: converts the states that it reads, and recalls the usage of a
    /// client without a place. Returns the place of a client that has one.
    pub(in crate::flow) fn prepare(
        &mut self,
        key: u128,
        policy: &impl StatePolicy<S>,
        edit: Option<&Conversion<'_, S>>,
    ) -> Option<KeySlot> {
        let fingerprint = Fingerprint::of(key);
        let found = self.own.find(fingerprint);
        // The check reads the client's own state, or the candidates for its place.
        if let Some(edit) = edit {
            match found {
                Some(at) => self.own.refresh(at, edit.state),
                None => self.candidates().for_each(|at| self.own.refresh(at, edit.state)),
            }
        }

        if let Some(at) = found {
            return Some(KeySlot::Own(at));
        }
        // A client without a place begins with what the summary and its overflow state have of it.
        let scale = policy.scale();
        let convert = |usage| edit.map_or(usage, |edit| (edit.usage)(usage));
        let recalled = self.summary.recall(fingerprint, scale, convert);
        let shared = self.overflow.get(overflow_of(fingerprint) as usize);
        let usage = shared.map_or(recalled, |state| scale.join(recalled, policy.past_usage(state)));

        let Newcomer { state, is_known, recalled: kept } = &mut self.newcomer;
        *is_known = scale.weight(usage) > 0;
        *kept = recalled;
        policy.renew(state);
        if *is_known {
            policy.absorb(state, usage);
        }
        None
    }

    /// Finds the state of `key`, or the place that it would get, after [`prepare`](Self::prepare).
    ///
    /// A client whose overflow state may be `holding` something until a request ends stays there,
    /// since it is released where it was charged.
    pub(in crate::flow) fn find(
        &self,
        key: u128,
        holding: bool,
        policy: &impl StatePolicy<S>,
    ) -> Lookup {
        let fingerprint = Fingerprint::of(key);
        if let Some(at) = self.own.find(fingerprint) {
            return Lookup::At(KeySlot::Own(at));
        }
        let overflow = overflow_of(fingerprint);
        let is_held = |state| holding && policy.is_held(state);
        let room = if self.overflow.get(overflow as usize).is_some_and(is_held) {
            None
        } else {
            self.find_place(policy)
        };
        room.map_or(Lookup::At(KeySlot::Overflow(overflow)), |at| Lookup::New { fingerprint, at })
    }

    pub(in crate::flow) fn get(&self, lookup: Lookup) -> &S {
        match lookup {
            Lookup::At(KeySlot::Shared) => &self.shared,
            Lookup::At(KeySlot::Own(at)) => self.own.get(at),
            Lookup::At(KeySlot::Overflow(at)) => {
                self.overflow.get(at as usize).unwrap_or(&self.fresh)
            }
            Lookup::New { .. } => &self.newcomer.state,
        }
    }

    /// Returns the own usage of a client in an overflow state, which must agree too.
    pub(in crate::flow) fn beside(&self, lookup: Lookup) -> Option<&S> {
        let shares = matches!(lookup, Lookup::At(KeySlot::Overflow(_)));
        (shares && self.newcomer.is_known).then_some(&self.newcomer.state)
    }

    /// Returns the overflow state that a client without a place may share, if it is in use.
    pub(in crate::flow) fn overflow_mut(&mut self, key: u128) -> Option<&mut S> {
        self.overflow.get_mut(overflow_of(Fingerprint::of(key)) as usize)
    }

    /// Returns a copy of the state that a charge of the client just found would change.
    pub(in crate::flow) fn copy_to_charge(
        &self,
        lookup: Lookup,
        policy: &impl StatePolicy<S>,
    ) -> S {
        let mut state = self.get(lookup).clone();
        let recalled = self.newcomer.recalled;
        if matches!(lookup, Lookup::At(KeySlot::Overflow(_))) && policy.scale().weight(recalled) > 0
        {
            policy.absorb(&mut state, recalled);
        }
        state
    }

    /// Gives the client just found its place.
    pub(in crate::flow) fn occupy(
        &mut self,
        lookup: Lookup,
        policy: &impl StatePolicy<S>,
    ) -> KeySlot {
        match lookup {
            Lookup::At(key_slot) => {
                if let KeySlot::Overflow(_) = key_slot {
                    self.count_overflow();
                    let recalled = self.newcomer.recalled;
                    if policy.scale().weight(recalled) > 0 {
                        policy.absorb(self.get_mut(key_slot), recalled);
                    }
                }
                key_slot
            }
            Lookup::New { fingerprint, at } => {
                if at == self.own.len() {
                    self.own.push(fingerprint, self.newcomer.state.clone(), self.max);
                } else {
                    self.remember_evicted(at, policy);
                    self.own.give(at, fingerprint);
                    core::mem::swap(self.own.get_mut(at), &mut self.newcomer.state);
                }

                self.churn.restored += u64::from(self.newcomer.is_known);
                self.hand = at + 1;
                KeySlot::Own(at)
            }
        }
    }

    /// Returns the initial state of a client that would take another's place, to be changed and
    /// [remembered](Self::remember).
    pub(in crate::flow) fn newcomer_mut(
        &mut self,
        lookup: Lookup,
        policy: &impl StatePolicy<S>,
    ) -> Option<&mut S> {
        let Lookup::New { at, .. } = lookup else { return None };
        let takes = at < self.own.len() && policy.loss(self.own.get(at)) > 0;
        takes.then_some(&mut self.newcomer.state)
    }

    /// Remembers the usage of [the newcomer](Self::newcomer_mut) without giving it a place.
    pub(in crate::flow) fn remember(&mut self, lookup: Lookup, policy: &impl StatePolicy<S>) {
        if let Lookup::New { fingerprint, .. } = lookup {
            self.record(fingerprint, policy.past_usage(&self.newcomer.state), policy.scale());
        }
    }

    /// Returns whether the client of the current decision has no place and no usage.
    pub(in crate::flow) const fn is_unknown(&self, lookup: Lookup) -> bool {
        matches!(lookup, Lookup::New { .. }) && !self.newcomer.is_known
    }

    /// Records a rejected request.
    pub(in crate::flow) fn on_reject(&mut self, lookup: Lookup) {
        if let Lookup::At(KeySlot::Overflow(_)) = lookup {
            self.count_overflow();
        }
    }

    pub(in crate::flow) fn get_mut(&mut self, key_slot: KeySlot) -> &mut S {
        match key_slot {
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

    pub(in crate::flow) fn forget(&mut self) {
        let churn = self.churn;
        *self = Self { churn, ..Self::new(self.fresh.clone(), self.max) };
    }

    /// Returns the place and name of the state of this number, among all that may have been
    /// charged.
    pub(in crate::flow) fn nth(&self, at: u32) -> Option<(KeySlot, StateName)> {
        let Some(at) = at.checked_sub(1) else { return Some((KeySlot::Shared, StateName::All)) };
        let overflows = if self.overflow.is_empty() { 0 } else { OVERFLOWS };
        match at.checked_sub(overflows) {
            None => Some((KeySlot::Overflow(at), StateName::Overflow(at))),
            Some(at) if at < self.own.len() => {
                Some((KeySlot::Own(at), StateName::Key(self.own.fingerprint(at).key())))
            }
            Some(_) => None,
        }
    }

    /// Takes over the bound of `wanted`, converts the shared states, and leaves clients' own
    /// states, which must be up to date, and the summary to be converted.
    pub(in crate::flow) fn retune(&mut self, wanted: &Self, convert: impl Fn(&mut S)) {
        self.max = wanted.max;
        self.caught_up = 0;
        self.own.mark_stale();
        self.summary.mark_stale();
        let others = [&mut self.shared, &mut self.fresh, &mut self.newcomer.state];
        self.overflow.iter_mut().chain(others).for_each(convert);
    }

    /// Converts a state if it is out of date.
    pub(in crate::flow) fn refresh(&mut self, key_slot: KeySlot, convert: impl Fn(&mut S)) {
        match key_slot {
            KeySlot::Own(at) => self.own.refresh(at, convert),
            KeySlot::Shared | KeySlot::Overflow(_) => {}
        }
    }

    /// Continues the conversion. Then evicts clients beyond `max_keys` from the end while they are
    /// not held; the rest stay until other clients take their places. Returns whether there may be
    /// more to do.
    pub(in crate::flow) fn catch_up(
        &mut self,
        policy: &impl StatePolicy<S>,
        stale: &Conversion<'_, S>,
    ) -> bool {
        if self.caught_up < self.own.len() {
            let to = self.own.len().min(self.caught_up.saturating_add(STEP));
            (self.caught_up..to).for_each(|at| self.own.refresh(at, stale.state));
            self.caught_up = to;
            return true;
        }
        self.summary.convert_some(policy.scale(), stale.usage)
            || (0..STEP).all(|_| self.evict_last(policy))
    }

    /// Evicts the last client if there are too many. Returns whether it did.
    fn evict_last(&mut self, policy: &impl StatePolicy<S>) -> bool {
        let last = self.own.len().saturating_sub(1);
        let leaves = self.own.len() > self.max && !policy.is_held(self.own.get(last));
        if leaves {
            self.remember_evicted(last, policy);
            self.own.pop();
        }
        leaves
    }

    /// Remembers the usage of a client that is evicted.
    fn remember_evicted(&mut self, at: u32, policy: &impl StatePolicy<S>) {
        let usage = policy.past_usage(self.own.get(at));
        let scale = policy.scale();
        if scale.weight(usage) > 0 {
            self.churn.evicted += 1;
            self.record(self.own.fingerprint(at), usage, scale);
        }
    }

    fn record(&mut self, fingerprint: Fingerprint, usage: PastUsage, scale: Scale) {
        self.summary.record(fingerprint, usage, scale, self.max);
    }

    fn count_overflow(&mut self) {
        self.churn.overflowed += 1;
        self.hand = self.start().saturating_add(SEARCH);
    }

    const fn start(&self) -> u32 {
        if self.hand < self.own.len() { self.hand } else { 0 }
    }

    const fn grows(&self) -> bool {
        self.own.len() < self.max
    }

    /// Returns the places to look at.
    fn candidates(&self) -> impl Iterator<Item = u32> + use<S> {
        let len = self.own.len();
        let start = self.start();
        let candidates = len.min(if self.grows() { SEARCH_GROWING } else { SEARCH });
        let at = move |step| if step < len - start { start + step } else { step - (len - start) };
        (0..candidates).map(at)
    }

    /// Finds a place for a new client: one without usage, a new one, or the one with the least to
    /// lose.
    fn find_place(&self, policy: &impl StatePolicy<S>) -> Option<u32> {
        let mut least = None;
        let mut choice = 0;
        for at in self.candidates() {
            let state = self.own.get(at);
            if policy.is_held(state) {
                continue;
            }
            let loss = policy.loss(state);
            if loss == 0 {
                return Some(at);
            }
            if least.is_none_or(|(_, other)| loss < other) {
                least = Some((at, loss));
            }
            choice += 1;
            if choice == CANDIDATES {
                break;
            }
        }
        if self.grows() { Some(self.own.len()) } else { least.map(|(at, _)| at) }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
const fn overflow_of(fingerprint: Fingerprint) -> u32 {
    (fingerprint.high() % OVERFLOWS as u64) as u32
}

/// The export and import of states by another process.
impl<S: Clone> Table<S> {
    /// Returns the number of clients with a state of their own.
    pub(in crate::flow) const fn len(&self) -> u32 {
        self.own.len()
    }

    /// Returns an existing client's key and state.
    pub(in crate::flow) fn client(&self, at: u32) -> (u128, &S) {
        (self.own.fingerprint(at).key(), self.own.get(at))
    }

    /// Returns the overflow states, if there are any.
    pub(in crate::flow) fn overflows(&self) -> &[S] {
        &self.overflow
    }

    pub(in crate::flow) const fn hand(&self) -> u32 {
        self.hand
    }

    pub(in crate::flow) const fn set_hand(&mut self, hand: u32) {
        self.hand = hand;
    }

    /// Returns used cells of the summary from `from` on with their numbers, the number to continue
    /// from if there are more, and the number of all.
    pub(in crate::flow) fn summary(
        &self,
        from: usize,
        policy: &impl StatePolicy<S>,
    ) -> (Vec<(u64, u64)>, Option<usize>, u64) {
        self.summary.export(from, policy.scale())
    }

    /// Joins cells of a summary of so many cells. Returns whether it has its size.
    pub(in crate::flow) fn import_summary(
        &mut self,
        cells: u64,
        used: &[(u64, u64)],
        policy: &impl StatePolicy<S>,
    ) -> bool {
        self.summary.import(cells, used, policy.scale(), self.max)
    }

    /// Gives a client its state. Returns whether there is room.
    pub(in crate::flow) fn import_client(&mut self, key: u128, state: S) -> bool {
        let fingerprint = Fingerprint::of(key);
        match self.own.find(fingerprint) {
            Some(at) => *self.own.get_mut(at) = state,
            None if self.own.len() < index::MAX => self.own.push(fingerprint, state, self.max),
            None => return false,
        }
        true
    }

    /// Returns the key of a client's place.
    pub(in crate::flow) fn key_of(&self, at: u32) -> u128 {
        self.own.fingerprint(at).key()
    }
}

#[cfg(test)]
mod tests;
