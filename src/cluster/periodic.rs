//! Exchanges the states of rules, now and then: tells the store what was charged here, and has the
//! gates take over what all have charged.
//!
//! What was told and is not confirmed is kept, and told again under the same number, so that the
//! store counts it once; until then no other state of that rule is taken from its gate, or taken
//! over. So nothing is lost while the store is: what is charged meanwhile adds up beside the states.
//! Nor is anything lost to an edit: a slot that is used no more is kept until it has told all.

mod rest;
mod rule;

use super::{
    Client, MOST_STATES, Push, StoreError, exchange::BUDGET, health::Exchanged, store::Store,
};
use crate::{
    clock::Clock,
    config::Live,
    flow::{Instant, RoundTrip},
};
use core::time::Duration;
use rest::Rest;
use rule::{Rule, rules};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// How soon rules that an edit has added are seen, and a store that is back.
const GLANCE: Duration = Duration::from_millis(100);

/// What is not confirmed for so long decides nothing any more, and is forgotten before the store
/// forgets the numbers of calls, after a day.
const STALE: Duration = Duration::from_hours(12);

/// Exchanges the states of all rules that want it.
#[derive(Debug)]
pub struct Periodic {
    store: Arc<Store>,
    client: Client,
    live: Arc<Live>,
    clock: Clock,
    /// The snapshot that `rules` are of.
    version: u64,
    rules: HashMap<Arc<str>, Rule>,
    /// The calls that told anything, of all rules together: a rule that is removed and comes back
    /// must not begin again with numbers that the store has merged.
    calls: u64,
    /// After which part of an interval this gateway has its exchanges.
    phase: f64,
    rest: Rest,
}

impl Periodic {
    /// Returns what exchanges them, without a connection yet. To be called on its runtime.
    pub fn new(store: Arc<Store>, live: Arc<Live>, clock: Clock) -> Self {
        let client = Client::start_patient(Arc::clone(&store), clock.clone());
        let (rules, phase) = (HashMap::new(), fastrand::f64());
        Self {
            store,
            client,
            live,
            clock,
            version: 0,
            rules,
            calls: 0,
            phase,
            rest: Rest::default(),
        }
    }

    /// Exchanges, until `end` is there; then tells the rest.
    pub async fn run(mut self, end: impl Future<Output = ()>) {
        tokio::pin!(end);
        loop {
            self.look();
            let is_up = self.client.link().is_some();
            // Before the first answer nothing is lost, unless the store has failed.
            if !is_up && !self.store.is_asking() {
                self.lose();
            }
            let now = self.clock.now();
            let names = if is_up { self.under_way(now) } else { Vec::new() };
            let due = self.rules.values().map(|rule| rule.due).filter(|_| is_up).min();
            let next = due.unwrap_or(now + GLANCE).min(now + GLANCE);
            let (pause, connected) = (self.clock.timer(next), self.client.connected());
            // A call that is given up here is made again.
            tokio::select! {
                biased;
                () = &mut end => break,
                result = self.round(&names), if !names.is_empty() => match result {
                    Ok(()) => self.heard(),
                    Err(_) => self.lose(),
                },
                () = connected, if !is_up => {}
                () = pause, if names.is_empty() => {}
            }
        }
        self.tell_rest().await;
    }

    /// Notes that the store has answered.
    fn heard(&self) {
        let mut rules = self.rules.values().filter(|rule| !rule.is_gone).peekable();
        let is_refused = rules.peek().is_some() && rules.all(Rule::is_refused);
        self.store.on_exchange(if is_refused {
            Exchanged::Nothing
        } else if self.rules.values().any(|rule| rule.is_under_way) {
            Exchanged::Some
        } else {
            Exchanged::All
        });
    }

    /// Tells what is left.
    async fn tell_rest(&mut self) {
        let now = self.clock.now();
        self.rules.values_mut().for_each(|rule| rule.begin(now, self.phase));
        loop {
            // What the store refuses is under way no more.
            let is_left = |rule: &Rule| rule.is_under_way && rule.has_to_tell();
            let left = self.rules.iter().filter(|(_, rule)| is_left(rule));
            let names: Vec<_> = left.map(|(name, _)| Arc::clone(name)).collect();
            if names.is_empty() || self.round(&names).await.is_err() {
                return;
            }
        }
    }

    /// Begins with the rules that are due, and returns all that are not done, first whose last call
    /// is longest ago: where the store fails again and again, each has its turn, whoever it is that
    /// it fails over. None waits for another to be done.
    fn under_way(&mut self, now: Instant) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for (name, rule) in &mut self.rules {
            if rule.due <= now && !rule.is_under_way {
                rule.begin(now, self.phase);
            }
            if rule.is_under_way {
                names.push((rule.called, Arc::clone(name)));
            }
        }
        names.sort_unstable();
        names.into_iter().map(|(_, name)| name).collect()
    }

    /// Finds the rules of the configuration in force.
    fn look(&mut self) {
        let snapshot = self.live.load_full();
        if snapshot.version == self.version {
            return;
        }
        self.version = snapshot.version;
        let now = self.clock.now();
        let mut before = core::mem::take(&mut self.rules);
        for mut rule in rules(&snapshot, now) {
            if let Some(old) = before.remove(&rule.shared.name) {
                rule.resume(old);
                if rule.is_refused() {
                    self.store.on_refusals();
                }
            }
            self.rules.insert(Arc::clone(&rule.shared.name), rule);
        }
        // A slot may go on under another name, with what it has to tell.
        let slots: HashSet<_> = self.rules.values().map(|rule| rule.source.id()).collect();
        for rule in before.values_mut() {
            rule.leave(now, &slots);
        }
        self.rules.extend(before);
        self.forget(now);
    }

    /// Forgets rules that are gone, when they have told all or cannot any more.
    fn forget(&mut self, now: Instant) {
        let is_waited_for = |rule: &Rule| rule.has_to_tell() && now.since(rule.heard) < STALE;
        self.rules.retain(|_, rule| !rule.is_gone || is_waited_for(rule));
    }

    /// Has rules do as they say while the store fails, and all be exchanged when it is back.
    fn lose(&mut self) {
        self.store.on_exchange(Exchanged::Nothing);
        let now = self.clock.now();
        self.forget(now);
        for rule in self.rules.values_mut() {
            rule.is_under_way = false;
            rule.due = rule.due.min(now + GLANCE);
            // It may have been too much for one round trip.
            rule.told = MOST_STATES;
        }
    }

    /// Makes one call for each of these rules, some in one round trip: each has a limit of its
    /// own, so that a round ends however many rules there are.
    async fn round(&mut self, names: &[Arc<str>]) -> Result<(), StoreError> {
        let mut rest = names;
        while !rest.is_empty() {
            let some = self.portion(rest);
            self.exchange(&rest[..some]).await?;
            rest = &rest[some..];
        }
        self.forget(self.clock.now());
        Ok(())
    }

    /// Collects from the first of these rules, and returns how many go in one round trip.
    fn portion(&mut self, names: &[Arc<str>]) -> usize {
        let Self { clock, rules, calls, store, .. } = self;
        let now = clock.now();
        portion(names.iter().map(|name| {
            rules.get_mut(name).map_or(0, |rule| {
                rule.collect(now, calls);
                rule.push(store).cost()
            })
        }))
    }

    /// Makes one call for each of these rules, in one round trip, and leaves the store to others
    /// for a while if that was much.
    async fn exchange(&mut self, names: &[Arc<str>]) -> Result<(), StoreError> {
        let link = self.client.link().ok_or(StoreError::Down)?;
        let asked = self.clock.now();
        for name in names {
            self.rules.entry(Arc::clone(name)).and_modify(|rule| rule.called = asked);
        }
        let rules = names.iter().filter_map(|name| self.rules.get(name));
        let pushes: Vec<Push<'_>> = rules.map(|rule| rule.push(&self.store)).collect();
        let cost: usize = pushes.iter().map(Push::cost).sum();
        let answers = link.exchange(&pushes).await?;
        let came = self.clock.now();
        for (name, answer) in names.iter().zip(&answers) {
            let Some(rule) = self.rules.get_mut(name) else { continue };
            let was_refused = rule.is_refused();
            match answer {
                Ok(page) => {
                    self.store.on_states(rule.deltas.len(), page.told.len());
                    rule.take_over(RoundTrip { asked, given: page.now, came }, page);
                }
                Err(_) => rule.refuse(),
            }
            if rule.is_refused() != was_refused {
                self.store.on_refusals();
            }
        }
        // Small ones take no more than the way.
        if cost > BUDGET / 2 {
            let cost = Duration::from_micros(u64::try_from(cost).unwrap_or(u64::MAX));
            let gateways = self.store.division().gateways;
            let rest = self.rest.after(came.since(asked), cost, gateways);
            self.clock.timer(came + rest).await;
        }
        Ok(())
    }
}

/// Returns how many calls go in one round trip, given what each may cost: one, or as many as stay
/// below what all may.
fn portion(costs: impl Iterator<Item = usize>) -> usize {
    let mut sum = 0_usize;
    let fitting = costs.enumerate().take_while(|(at, cost)| {
        sum = sum.saturating_add(*cost);
        *at == 0 || sum <= BUDGET
    });
    fitting.count()
}

#[cfg(test)]
mod tests;
