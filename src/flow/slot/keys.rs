//! What operators see and change of single clients' states.

use super::{
    KeyStates, Renewed, Retune as _,
    limiter_slot::{LimiterSlot, States},
};
use crate::flow::{
    decision::Key,
    keyed::{Fullest, KeySlot, Lookup},
    limiter::{Evictable, Usage},
    time::Instant,
};

/// States to look at under one lock: about a microsecond.
const STEP: u32 = 128;

/// The same while states are converted that an edit left.
const STEP_CONVERTING: u32 = 32;

impl<F: Evictable> KeyStates for LimiterSlot<F> {
    fn find_fullest(&mut self, now: Instant, before: u32, fullest: &mut Fullest) -> Option<u32> {
        let is_converting = self.previous.is_some();
        let States::Keyed { table, .. } = &self.states else { return None };
        // From the last one: what came late is often fuller, and each key that is fuller than those
        // before it takes a place among the fullest.
        let end = table.len().min(before);
        let start = end.saturating_sub(if is_converting { STEP_CONVERTING } else { STEP });
        for at in (start..end).rev() {
            if is_converting {
                self.refresh(KeySlot::Own(at));
            }
            let States::Keyed { table, .. } = &self.states else { return None };
            let (key, state) = table.client(at);
            if self.limiter.most_rank(state) > fullest.least() {
                fullest.offer(self.limiter.rank(state, now), key);
            }
        }
        (start > 0).then_some(start)
    }

    fn usage_of(&mut self, now: Instant, key: u128) -> Option<Usage> {
        self.prepare(now, Key::Of(key));
        let lookup = self.find(now, Key::Of(key));
        let is_own = matches!(lookup, Lookup::At(KeySlot::Own(_)));
        is_own.then(|| self.limiter.usage(self.states.get(lookup), now))
    }

    fn renew(&mut self, now: Instant, key: Key) -> Renewed {
        self.prepare(now, key);
        let lookup = self.find(now, key);
        match (lookup, &self.states) {
            (Lookup::At(KeySlot::Overflow(_)), _) => return Renewed::Overflowed,
            (lookup, States::Keyed { table, .. }) if table.is_unknown(lookup) => {
                return Renewed::Unused;
            }
            (Lookup::At(_) | Lookup::New { .. }, _) => {}
        }
        if self.limiter.is_fresh(self.states.get(lookup), now) {
            return Renewed::Unused;
        }
        let key_slot = self.occupy(now, lookup);
        self.limiter.renew(self.states.get_mut(key_slot));
        Renewed::Done
    }
}
