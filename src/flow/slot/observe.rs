//! What logs, metrics and `/routes` show of a slot.

use super::{
    Observe,
    limiter_slot::{LimiterSlot, States},
};
use crate::flow::{
    keyed::Keys,
    limiter::{Evictable, Usage, breaker},
    time::Instant,
};

impl<F: Evictable> Observe for LimiterSlot<F> {
    fn limit(&self) -> u64 {
        self.limiter.limit()
    }

    fn shared(&self, now: Instant) -> Usage {
        self.limiter.usage(self.states.shared(), now)
    }

    fn breaker(&self, now: Instant) -> Option<breaker::BreakerStats> {
        Some(self.limiter.breaks()?.seen(self.states.shared(), now))
    }

    fn keys(&self) -> Option<Keys> {
        match &self.states {
            States::One(_) => None,
            States::Keyed { table, .. } => Some(table.keys()),
        }
    }
}
