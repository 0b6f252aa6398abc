//! A table's states for another process.

use super::{Fingerprint, StatePolicy, Table, index};

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
