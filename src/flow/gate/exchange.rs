//! What gateways tell each other of a gate's states.

use super::Gate;
use crate::flow::{
    exchange::{Delta, Told},
    slot::SlotId,
    time::Instant,
};

/// States to take over under one lock: some microseconds.
const STEP: usize = 32;

impl Gate {
    /// Takes from the rule behind `slot` what other gateways are to be told, until `into` has
    /// `most`: `from` zero or where the last call has ended. Returns where to go on, if there may
    /// be more. What is taken must be told, and nothing be [adopted](Self::adopt) before.
    pub fn collect(
        &self,
        slot: SlotId,
        mut from: u32,
        most: usize,
        into: &mut Vec<Delta>,
    ) -> Option<u32> {
        while into.len() < most {
            // Bounded, with pauses between, since no request is decided meanwhile.
            from = self.lock().collect(slot, from, most, into)?;
        }
        Some(from)
    }

    /// Has the rule behind `slot` take over the states that a store has `told`, whose clock
    /// said `store` not later than `now`.
    pub fn adopt(&self, slot: SlotId, now: Instant, store: Instant, told: &[Told]) {
        // The time is told even where nothing else is.
        let (first, rest) = told.split_at(told.len().min(STEP));
        self.lock().adopt(slot, now, store, first);
        for some in rest.chunks(STEP) {
            self.lock().adopt(slot, now, store, some);
        }
    }
}
