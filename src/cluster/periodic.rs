//! Exchanges the states of rules, now and then: tells the store what was charged here, and has the
//! gates take over what all have charged.
//!
//! What was told and is not confirmed is kept, and told again under the same number, so that the
//! store counts it once; until then no other state of that rule is taken from its gate, or taken
//! over. So nothing is lost while the store is: what is charged meanwhile adds up beside the states.
//! Nor is anything lost to an edit: a slot that is used no more is kept until it has told all.

use super::{Client, MOST_STATES, Page, Push, StoreError, exchange::line, store::Store};
use crate::{
    clock::Clock,
    config::{Exchange, Live, Shared, Snapshot},
    flow::{Delta, Gate, Instant, RoundTrip, SlotId, Told},
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

/// How soon rules that an edit has added are seen, and a store that is back.
const GLANCE: Duration = Duration::from_millis(100);

/// The most calls of one round trip: how much each is told shows only in its answer.
const MOST_CALLS: usize = 32;

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
}

/// A rule whose states are exchanged.
#[derive(Debug)]
struct Rule {
    shared: Shared,
    exchange: Arc<Exchange>,
    source: Source,
    /// Slots that an edit has removed or reset, and that have not told all yet.
    former: Vec<Source>,
    /// Whether it is in force no more, so that only its former slots have anything to tell.
    is_gone: bool,
    /// When it is exchanged next.
    due: Instant,
    /// Whether it is being exchanged.
    is_under_way: bool,
    /// Of the last call that told anything.
    number: u64,
    /// The latest version that is known.
    known: u64,
    /// What is told and not confirmed, and since when.
    deltas: Vec<String>,
    since: Instant,
    /// When it was answered last, or removed.
    heard: Instant,
    /// How many states it was told then, or may be told if a call has failed since.
    told: usize,
    /// The most that was told of one state, in this exchange and in the one before.
    most: [u64; 2],
}

/// A slot that counts for a rule.
#[derive(Clone, Debug)]
struct Source {
    gate: Arc<Gate>,
    slot: SlotId,
    /// Whether it has heard of the store's clock, by which what is told must be counted.
    has_clock: bool,
    /// Where to go on with what is to be told; `None` at the end.
    from: Option<u32>,
}

impl Periodic {
    /// Returns what exchanges them, without a connection yet. To be called on its runtime.
    pub fn new(store: Arc<Store>, live: Arc<Live>, clock: Clock) -> Self {
        let client = Client::start_patient(Arc::clone(&store), clock.clone());
        Self { store, client, live, clock, version: 0, rules: HashMap::new(), calls: 0 }
    }

    /// Exchanges, until `end` is there; then tells the rest.
    pub async fn run(mut self, end: impl Future<Output = ()>) {
        tokio::pin!(end);
        loop {
            self.look();
            if self.client.link().is_none() {
                self.lose();
            }
            let now = self.clock.now();
            let names = self.under_way(now);
            let due = self.rules.values().map(|rule| rule.due).min();
            let next = due.unwrap_or(now + GLANCE).min(now + GLANCE);
            let pause = self.clock.timer(next);
            // A call that is given up here is made again.
            tokio::select! {
                biased;
                () = &mut end => break,
                result = self.round(&names), if !names.is_empty() => match result {
                    Ok(()) => self.store.set_cut_off(false),
                    Err(_) => self.lose(),
                },
                () = pause, if names.is_empty() => {}
            }
        }
        self.tell_rest().await;
    }

    /// Tells what is left.
    async fn tell_rest(&mut self) {
        let now = self.clock.now();
        self.rules.values_mut().for_each(|rule| rule.begin(now));
        loop {
            let left = self.rules.iter().filter(|(_, rule)| rule.has_to_tell());
            let names: Vec<_> = left.map(|(name, _)| Arc::clone(name)).collect();
            if names.is_empty() || self.round(&names).await.is_err() {
                return;
            }
        }
    }

    /// Begins with the rules that are due, and returns all that are not done, first who has waited
    /// longest: where the store fails again and again, each has its turn. None waits for another
    /// to be done.
    fn under_way(&mut self, now: Instant) -> Vec<Arc<str>> {
        let mut names = Vec::new();
        for (name, rule) in &mut self.rules {
            if rule.due <= now && !rule.is_under_way {
                rule.begin(now);
            }
            if rule.is_under_way {
                names.push((rule.heard, Arc::clone(name)));
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
            }
            self.rules.insert(Arc::clone(&rule.shared.name), rule);
        }
        // A slot may go on under another name, with what it has to tell.
        let slots: HashSet<_> = self.rules.values().map(|rule| rule.source.id()).collect();
        for rule in before.values_mut() {
            rule.leave(now, &slots);
        }
        before.retain(|_, rule| rule.has_to_tell());
        self.rules.extend(before);
    }

    /// Has rules do as they say while the store fails, and all be exchanged when it is back.
    fn lose(&mut self) {
        self.store.set_cut_off(true);
        let now = self.clock.now();
        self.rules.retain(|_, rule| !rule.is_gone || now.since(rule.heard) < STALE);
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
        self.rules.retain(|_, rule| !rule.is_gone || rule.has_to_tell());
        Ok(())
    }

    /// Collects from the first of these rules, and returns how many go in one round trip.
    fn portion(&mut self, names: &[Arc<str>]) -> usize {
        let Self { clock, rules, calls, .. } = self;
        let now = clock.now();
        portion(names.iter().map(|name| {
            rules.get_mut(name).map_or(0, |rule| {
                rule.collect(now, calls);
                1 + rule.deltas.len() + rule.told
            })
        }))
    }

    /// Makes one call for each of these rules, in one round trip.
    async fn exchange(&mut self, names: &[Arc<str>]) -> Result<(), StoreError> {
        let link = self.client.link().ok_or(StoreError::Down)?;
        let rules = names.iter().filter_map(|name| self.rules.get(name));
        let pushes: Vec<Push<'_>> = rules.map(|rule| rule.push(&self.store)).collect();
        let asked = self.clock.now();
        let pages = link.exchange(&pushes).await?;
        let came = self.clock.now();
        for (name, page) in names.iter().zip(&pages) {
            if let Some(rule) = self.rules.get_mut(name) {
                self.store.on_exchange(rule.deltas.len(), page.told.len());
                rule.take_over(RoundTrip { asked, given: page.now, came }, page);
            }
        }
        Ok(())
    }
}

/// Returns how many calls go in one round trip, given how many states each is likely to concern:
/// one, or as many as stay below what one may.
fn portion(states: impl Iterator<Item = usize>) -> usize {
    let mut sum = 0;
    let calls = states.take(MOST_CALLS).enumerate();
    let fitting = calls.take_while(|(at, states)| {
        sum += states;
        *at == 0 || sum <= MOST_STATES
    });
    fitting.count()
}

/// Returns the rules whose states are exchanged, from `now` on.
fn rules(snapshot: &Snapshot, now: Instant) -> impl Iterator<Item = Rule> {
    snapshot.routes.iter().flat_map(move |route| {
        route.rules.iter().filter_map(move |rule| {
            Some(Rule {
                shared: rule.shared.clone()?,
                exchange: Arc::clone(rule.exchange()?),
                source: Source {
                    gate: Arc::clone(&route.gate),
                    slot: rule.slot,
                    has_clock: false,
                    from: None,
                },
                former: Vec::new(),
                is_gone: false,
                due: now,
                is_under_way: false,
                number: 0,
                known: 0,
                deltas: Vec::new(),
                since: now,
                heard: now,
                told: 0,
                most: [0; 2],
            })
        })
    })
}

impl Rule {
    /// Goes on from what it was before an edit.
    fn resume(&mut self, old: Self) {
        let Self { due, number, known, deltas, since, heard, .. } = old;
        let Self { most, source, former, is_gone, .. } = old;
        self.former = former;
        if is_gone || source.id() != self.source.id() {
            // The slot begins afresh and must learn all.
            self.former.extend((!is_gone).then(|| source.retired()));
        } else {
            (self.known, self.source) = (known, source);
            self.due = due.min(self.due + self.exchange.interval);
        }
        (self.number, self.deltas, self.since) = (number, deltas, since);
        (self.heard, self.most) = (heard, most);
    }

    /// Notes that an edit has removed it. What was let pass under it is told all the same, once
    /// no request under the former rules is being decided; unless its slot is among `others`.
    fn leave(&mut self, now: Instant, others: &HashSet<(*const Gate, SlotId)>) {
        if !core::mem::replace(&mut self.is_gone, true) {
            if !others.contains(&self.source.id()) {
                self.former.push(self.source.retired());
            }
            self.source.from = None;
            self.is_under_way = false;
            (self.due, self.heard) = (now + GLANCE, now);
        }
    }

    /// Begins an exchange.
    fn begin(&mut self, now: Instant) {
        self.source.from = (self.source.has_clock && !self.is_gone).then_some(0);
        self.is_under_way = true;
        self.due = (self.due + self.exchange.interval).max(now);
        self.most = [0, self.most[0]];
    }

    /// Takes from a gate what is to be told, unless there is something that is not confirmed.
    /// Of one slot at a time: a call tells of a state once.
    fn collect(&mut self, now: Instant, calls: &mut u64) {
        if !self.deltas.is_empty() && now.since(self.since) < STALE {
            return;
        }
        let mut deltas: Vec<Delta> = Vec::new();
        let mut sources = self.former.iter_mut().chain([&mut self.source]);
        if let Some(source) = sources.find(|source| source.from.is_some()) {
            source.collect(&mut deltas);
        }
        let most = deltas.iter().map(|delta| delta.cost).max().unwrap_or(0);
        self.most[0] = self.most[0].max(most);
        self.exchange.unseen.store(self.most.iter().sum(), Relaxed);
        if !deltas.is_empty() {
            *calls += 1;
            self.number = *calls;
        }
        self.deltas = deltas.iter().map(line).collect();
        self.since = now;
    }

    fn push<'a>(&'a self, store: &'a Store) -> Push<'a> {
        Push {
            name: &self.shared.name,
            rule: &self.shared.rule,
            gateway: &store.name,
            number: self.number,
            known: self.known,
            late: 4 * self.exchange.interval.max(Duration::from_secs(1)),
            deltas: &self.deltas,
        }
    }

    /// Takes over what the store has told, which confirms what it was told.
    fn take_over(&mut self, way: RoundTrip, page: &Page) {
        self.deltas.clear();
        self.known = page.known;
        self.heard = way.came;
        self.told = page.told.len();
        for source in &mut self.former {
            if !source.has_clock {
                source.adopt(way, &[]);
            }
        }
        self.former.retain(|source| source.from.is_some());
        let has_forgotten = !self.is_gone && self.source.adopt(way, &page.told);
        if has_forgotten {
            self.known = 0;
        }
        let has_to_ask = has_forgotten || (page.is_full && !self.is_gone);
        self.is_under_way = self.has_to_tell() || has_to_ask;
    }

    const fn has_to_tell(&self) -> bool {
        self.source.from.is_some() || !self.former.is_empty() || !self.deltas.is_empty()
    }
}

impl Source {
    /// Returns what tells it from other slots.
    fn id(&self) -> (*const Gate, SlotId) {
        (Arc::as_ptr(&self.gate), self.slot)
    }

    /// Returns it as one that is used no more, and has all to tell.
    fn retired(&self) -> Self {
        Self { from: self.has_clock.then_some(0), ..self.clone() }
    }

    fn collect(&mut self, into: &mut Vec<Delta>) {
        let from = self.from.take();
        self.from = from.and_then(|from| self.gate.collect(self.slot, from, MOST_STATES, into));
    }

    /// Takes over what is `told`, after which one that has not heard of the clock before has all
    /// to tell. Returns whether it has forgotten all others.
    fn adopt(&mut self, way: RoundTrip, told: &[Told]) -> bool {
        let has_forgotten = self.gate.adopt(self.slot, way, told);
        if !core::mem::replace(&mut self.has_clock, true) {
            self.from = Some(0);
        }
        has_forgotten
    }
}

#[cfg(test)]
mod tests;
