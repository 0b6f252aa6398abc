//! The store's decisions about recorded arrivals: by the scripts of live ones, at a given time.

use super::{
    decide::call::{self, Ask, Lease, Verdicts, key, line, tag},
    error::StoreError,
    scripts::Scripts,
    settle::call::{Numbered, Places, StoreReserve, settled_key},
    sync::call::Push,
};
use crate::flow::Instant;
use redis::{Cmd, Pipeline, Value};
use std::sync::Arc;

/// Makes calls at recorded times, and reads their answers.
#[derive(Debug)]
pub struct RecordedCalls {
    scripts: Scripts,
}

impl RecordedCalls {
    /// Returns the calls of the scripts as they are live.
    #[expect(clippy::new_without_default, reason = "nothing holds one by default")]
    pub fn new() -> Self {
        Self { scripts: Scripts::new() }
    }

    /// Returns the calls that make the store know the scripts, before all others.
    pub fn load(&self) -> Pipeline {
        let mut load = redis::pipe();
        let Scripts { decide, release, sync, settle, .. } = &self.scripts;
        for script in [decide, release, sync, settle] {
            load.add_command(script.load());
        }
        load
    }

    /// Returns the call that decides about `asks` at `now`. States outlive an hour.
    pub fn call(&self, asks: &[Ask<'_>], lease: Lease<'_>, now: Instant) -> Cmd {
        let keys: Vec<String> = asks.iter().map(|ask| key("", ask)).collect();
        let lines = asks.iter().map(|ask| line(ask, lease, now, &[]));
        self.scripts.decide.call(true, &keys, [time(now)].into_iter().chain(lines))
    }

    /// Returns the call that decides like [`Self::call`], after some settlements of states among those
    /// in question. `low` as for [`Self::settle`].
    pub fn call_after(
        &self,
        settlements: &[Numbered],
        low: u64,
        asks: &[Ask<'_>],
        now: Instant,
    ) -> Cmd {
        let mut keys: Vec<String> = asks.iter().map(|ask| key("", ask)).collect();
        let settled = keys.len() + 1;
        let lease = Lease { name: "-", micros: 0 };
        let mut lines: Vec<String> = asks.iter().map(|ask| line(ask, lease, now, &[])).collect();
        for numbered in settlements {
            let state = keys.iter().position(|key| key == numbered.settlement.key());
            let places = state.map(|at| Places { low, settled, state: at + 1 });
            lines.extend(places.map(|places| numbered.line(places, now)));
        }
        keys.extend(settlements.first().map(settled_key_of));
        self.scripts.decide.call(true, &keys, [time(now)].into_iter().chain(lines))
    }

    /// Returns the call that settles costs at `now`, of states with one hash tag. `low` is the least
    /// number that may be sent again.
    pub fn settle(&self, settlements: &[Numbered], low: u64, now: Instant) -> Cmd {
        let settled = settlements.first().map(settled_key_of);
        let states = settlements.iter().map(|numbered| numbered.settlement.key().to_owned());
        let keys: Vec<String> = settled.into_iter().chain(states).collect();
        let lines = settlements
            .iter()
            .enumerate()
            .map(|(at, numbered)| numbered.line(Places { low, settled: 1, state: at + 2 }, now));
        self.scripts.settle.call(true, &keys, [time(now)].into_iter().chain(lines))
    }

    /// Returns the record of a charge at `at`.
    pub fn reserve(ask: &Ask<'_>, at: Instant) -> StoreReserve {
        StoreReserve::new(key("", ask), Arc::clone(ask.rule), ask.cost, at)
    }

    /// Reads the answer.
    ///
    /// # Errors
    ///
    /// The answer is malformed, or contradicts the rules.
    pub fn read(asks: &[Ask<'_>], answer: &Value) -> Result<Verdicts, StoreError> {
        call::read(asks, answer)
    }

    /// Returns the call that syncs a rule's states at `now`.
    /// [`SyncReply::read`](super::SyncReply::read) reads the answer.
    pub fn sync(&self, push: &Push<'_>, now: Instant) -> Cmd {
        self.scripts.sync.call(true, &push.keys(""), push.arguments(&time(now)))
    }

    /// Returns the leases that `asks` take if they are granted: where they are kept, and under
    /// which name.
    pub fn leases(asks: &[Ask<'_>], lease: Lease<'_>) -> Vec<(String, String)> {
        call::leases("", asks, lease).collect()
    }

    /// Returns the call that gives leases back.
    pub fn release(&self, leases: &[(String, String)]) -> Cmd {
        let (keys, names): (Vec<String>, Vec<String>) = leases.iter().cloned().unzip();
        self.scripts.release.call(true, &keys, names)
    }
}

/// Returns a time in the words of the scripts.
fn time(now: Instant) -> String {
    format!("{} {}", now.as_nanos() / 1000, now.as_nanos() % 1000)
}

/// Returns the key of the set of what the only gateway has settled beside this settlement.
fn settled_key_of(numbered: &Numbered) -> String {
    settled_key("", tag(numbered.settlement.key()), "gateway")
}
