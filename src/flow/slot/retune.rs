//! How a slot follows an edit of its rule.

use super::{
    Retune, Slot,
    limiter_slot::{LimiterSlot, Previous, States},
};
use crate::flow::{decision::Key, keyed::KeySlot, limiter::Evictable, time::Instant};
use core::any::Any;

impl<F: Evictable> Retune for LimiterSlot<F> {
    fn retune(&mut self, wanted: Box<dyn Slot>, now: Instant) -> bool {
        let Ok(wanted) = (wanted as Box<dyn Any>).downcast::<Self>() else { return false };
        // After this one previous limiter is enough.
        while self.catch_up(now) {}
        let Self { mut limiter, states, .. } = *wanted;
        if let (Some(wanted), Some(previous)) = (limiter.syncs_mut(), self.limiter.syncs()) {
            wanted.set_clock(previous.clock());
        }
        let convert = |state: &mut F::State| limiter.convert(&self.limiter, state, now);
        match (&mut self.states, states) {
            (States::One(state), States::One(_)) => convert(state),
            (States::Keyed { by, table }, States::Keyed { by: same, table: wanted })
                if *by == same =>
            {
                table.retune(&wanted, convert);
            }
            (States::One(_) | States::Keyed { .. }, _) => return false,
        }
        let previous = core::mem::replace(&mut self.limiter, limiter);
        self.previous = Some(Previous { limiter: previous, edited: now });
        true
    }

    fn prepare(&mut self, now: Instant, key: Key) -> Option<KeySlot> {
        let Key::Of(key) = key else { return None };
        self.on_table(now, |table, policy, stale| table.prepare(key, policy, stale))?
    }

    fn catch_up(&mut self, now: Instant) -> bool {
        let more = self.on_table(now, |table, policy, stale| {
            stale.is_some_and(|stale| table.catch_up(policy, stale))
        });
        let more = more.unwrap_or(false);
        if !more {
            self.previous = None;
        }
        more
    }
}
