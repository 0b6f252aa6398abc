//! Syncs the states of rules with `sync_interval`: sends what was charged here, and has the gates
//! take over what all gateways have charged.
//!
//! Deltas that are sent and not confirmed are kept, and sent again under the same number, so that
//! the store counts them once. Until then no other delta of that rule is taken from its gate, and
//! no state is taken over. So nothing is lost while the store fails: what is charged meanwhile adds
//! up beside the states. Nor does an edit lose anything: a slot that is not used any more is kept
//! until it has sent all.

use super::{
    call::{MOST_STATES, Question},
    pace::Lane,
    push::SyncResult,
    rule::{CHECK_PERIOD, Rule, STALE, rules},
};
use crate::{
    clock::Clock,
    cluster::{
        client::StoreClient, error::StoreError, health::SyncOutcome, redis::StoreConnection,
        store::Store,
    },
    config::Live,
    flow::{Instant, RoundTrip},
};
use core::time::Duration;
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};
use tokio::task::{JoinError, JoinSet};

/// Syncs the states of all rules with `sync_interval`.
#[derive(Debug)]
pub struct SyncTask {
    store: Arc<Store>,
    client: StoreClient,
    live: Arc<Live>,
    clock: Clock,
    /// The version of the snapshot that has `rules`.
    version: u64,
    rules: HashMap<Arc<str>, Rule>,
    /// The number of calls with deltas, of all rules together: a rule that an edit removes and adds
    /// again must not use a number twice.
    calls: u64,
    /// The part of an interval after which this gateway syncs.
    phase: f64,
    /// The time at which the next rule is due.
    due: Instant,
    /// The rules that wait, by node.
    lanes: BTreeMap<Option<usize>, Lane>,
    /// The round trips without an answer, by number.
    asked: BTreeMap<u64, Asked>,
    answers: JoinSet<Answered>,
    /// The number of the last round trip.
    round_trips: u64,
    /// True at the end, while only the rest is sent.
    is_ending: bool,
}

/// A round trip.
#[derive(Debug)]
struct Asked {
    node: Option<usize>,
    names: Vec<Arc<str>>,
    at: Instant,
    /// The store's time for it.
    cost: Duration,
}

/// The answer to a round trip.
struct Answered {
    number: u64,
    came: Instant,
    answers: Result<Vec<SyncResult>, StoreError>,
}

impl SyncTask {
    /// Returns a task without a connection. To be called on its runtime.
    pub fn new(store: Arc<Store>, live: Arc<Live>, clock: Clock) -> Self {
        let client = StoreClient::start_patient(Arc::clone(&store), clock.clone());
        Self {
            store,
            client,
            live,
            clock,
            version: 0,
            rules: HashMap::new(),
            calls: 0,
            phase: fastrand::f64(),
            due: Instant::EPOCH,
            lanes: BTreeMap::new(),
            asked: BTreeMap::new(),
            answers: JoinSet::new(),
            round_trips: 0,
            is_ending: false,
        }
    }

    /// Syncs until `end`, and then sends the rest.
    pub async fn run(mut self, end: impl Future<Output = ()>) {
        tokio::pin!(end);

        loop {
            self.look();
            let connection = self.client.connection();
            // Before the first answer nothing is lost, unless the store has failed.
            if connection.is_none() && !self.store.is_asking() {
                self.lose();
            }

            let mut next = self.clock.now() + CHECK_PERIOD;
            if let Some(connection) = &connection {
                self.begin(connection);
                // An edit waits for the answers that are under way.
                if self.live.load().version == self.version {
                    next = self.ask(connection).map_or(next, |soonest| soonest.min(next));
                }
                next = next.min(self.due);
            }

            let pause = self.clock.timer(next);
            let connected = self.client.connected();
            tokio::select! {
                biased;
                () = &mut end => break,
                Some(answered) = self.answers.join_next() => { self.hear(answered); }
                () = connected, if connection.is_none() => {}
                () = pause => {}
            }
        }

        self.send_rest().await;
        // The last of the gateway's clients to end has it forgotten.
        self.client.leave().await;
    }

    /// Sends the rest.
    async fn send_rest(&mut self) {
        // What was asked and is not answered is asked again.
        self.give_up();
        self.is_ending = true;
        let Some(connection) = self.client.connection() else { return };

        let now = self.clock.now();
        self.rules.values_mut().for_each(|rule| rule.is_under_way = false);
        self.rules.values_mut().for_each(|rule| rule.due = now);
        self.due = now;
        self.begin(&connection);

        loop {
            let next = self.ask(&connection);
            if next.is_none() && self.asked.is_empty() {
                return;
            }

            let pause = self.clock.timer(next.unwrap_or(now + STALE));
            tokio::select! {
                biased;
                Some(answered) = self.answers.join_next() => {
                    if !self.hear(answered) {
                        return;
                    }
                }
                () = pause => {}
            }
        }
    }

    /// Begins with the rules that are due.
    fn begin(&mut self, connection: &StoreConnection) {
        let now = self.clock.now();
        if self.due <= now {
            self.begin_with(now, |name| connection.node_of_rule(name));
        }
    }

    /// Begins with the rules that are due at `now`, given the node of each rule.
    fn begin_with(&mut self, now: Instant, node_of: impl Fn(&str) -> Option<usize>) {
        let mut due = now + CHECK_PERIOD;
        for (name, rule) in &mut self.rules {
            if rule.is_under_way {
                continue;
            }
            if rule.due <= now {
                rule.begin(now, self.phase);
                let lane = self.lanes.entry(node_of(name)).or_default();
                lane.add(rule.called, Arc::clone(name));
            } else {
                due = due.min(rule.due);
            }
        }
        self.due = due;
    }

    /// Begins the round trips that may begin now. Returns when the next may, unless after an
    /// answer.
    fn ask(&mut self, connection: &StoreConnection) -> Option<Instant> {
        let now = self.clock.now();
        let gateways = self.store.local_share().gateways;

        let Self { store, rules, calls, lanes, asked, answers, round_trips, .. } = self;
        let mut soonest: Option<Instant> = None;
        for (&node, lane) in lanes {
            while !lane.is_empty()
                && let Some(next) = lane.pace.next(gateways)
            {
                if next > now {
                    soonest = Some(soonest.map_or(next, |soonest| soonest.min(next)));
                    break;
                }

                let (taken, cost) = lane.take(|name| {
                    let rule = rules.get_mut(name)?;
                    rule.collect(now, calls);
                    let is_left = !self.is_ending || rule.has_unsent();
                    is_left.then(|| rule.question(store))
                });

                if taken.is_empty() {
                    break;
                }
                let cost = Duration::from_micros(u64::try_from(cost).unwrap_or(u64::MAX));
                lane.pace.begin(now, cost);

                *round_trips += 1;
                let number = *round_trips;
                let (names, questions): (_, Vec<Question>) = taken.into_iter().unzip();
                asked.insert(number, Asked { node, names, at: now, cost });

                let connection = connection.clone();
                let clock = self.clock.clone();
                answers.spawn(async move {
                    let answers = connection.sync(node, &questions).await;
                    Answered { number, came: clock.now(), answers }
                });
            }
        }
        soonest
    }

    /// Takes an answer. Returns whether there was one.
    fn hear(&mut self, answered: Result<Answered, JoinError>) -> bool {
        let Ok(Answered { number, came, answers: Ok(answers) }) = answered else {
            self.lose();
            return false;
        };

        let Some(asked) = self.asked.remove(&number) else { return true };

        let gateways = self.store.local_share().gateways;
        let lane = self.lanes.entry(asked.node).or_default();
        lane.pace.end();
        // A node that fails was not asked.
        if answers.iter().any(|answer| matches!(answer, Ok(Some(_)))) {
            lane.pace.learn(came, came.since(asked.at), asked.cost, gateways);
        }

        for (name, answer) in asked.names.into_iter().zip(answers) {
            let Some(rule) = self.rules.get_mut(&name) else { continue };
            let was_rejected = rule.is_rejected();
            rule.called = asked.at;

            match answer {
                Ok(Some(reply)) => {
                    self.store.on_states(rule.deltas.len(), reply.states.len());
                    if reply.is_set_back {
                        self.store.on_stale(&name, came);
                    }
                    let trip = RoundTrip { asked: asked.at, given: reply.now, came };
                    rule.take_over(trip, &reply);
                }
                Ok(None) => rule.look_closer(),
                Err(_) => rule.reject(),
            }

            if rule.is_rejected() != was_rejected {
                self.store.on_sync_rejection();
            }

            if rule.is_under_way {
                lane.add(rule.called, name);
            } else if rule.is_gone && !rule.has_unsent() {
                self.rules.remove(&name);
            } else {
                self.due = self.due.min(rule.due);
            }
        }

        self.heard();
        true
    }

    /// Notes that the store has answered.
    fn heard(&self) {
        let mut rules = self.rules.values().filter(|rule| !rule.is_gone).peekable();
        let is_rejected = rules.peek().is_some() && rules.clone().all(Rule::is_rejected);
        self.store.on_sync(if is_rejected {
            SyncOutcome::Nothing
        } else if rules.all(|rule| rule.has_learned || rule.is_rejected()) {
            SyncOutcome::All
        } else {
            SyncOutcome::Some
        });
    }

    /// Waits for no answer any more.
    fn give_up(&mut self) {
        self.answers = JoinSet::new();
        self.asked.clear();
        self.lanes.values_mut().for_each(Lane::clear);
    }

    /// Finds the rules of the configuration in force.
    fn look(&mut self) {
        let snapshot = self.live.load_full();
        if snapshot.version == self.version || !self.asked.is_empty() {
            return;
        }

        self.version = snapshot.version;
        self.give_up();
        let now = self.clock.now();
        self.due = now;

        let mut before = core::mem::take(&mut self.rules);
        for mut rule in rules(&snapshot, now) {
            if let Some(old) = before.remove(&rule.shared.name) {
                rule.resume(old);
                if rule.is_rejected() {
                    self.store.on_sync_rejection();
                }
            }
            self.rules.insert(Arc::clone(&rule.shared.name), rule);
        }

        // A slot may go on under another name, with its deltas.
        let slots: HashSet<_> = self.rules.values().map(|rule| rule.source.id()).collect();
        for rule in before.values_mut() {
            rule.leave(now, &slots);
        }

        self.rules.extend(before);
        self.forget(now);
    }

    /// Forgets removed rules that have sent all, or cannot any more.
    fn forget(&mut self, now: Instant) {
        let is_waited_for = |rule: &Rule| rule.has_unsent() && now.since(rule.heard) < STALE;
        self.rules.retain(|_, rule| !rule.is_gone || is_waited_for(rule));
    }

    /// Lets `on_store_error` decide for the rules, until the store is back and they sync again.
    fn lose(&mut self) {
        self.store.on_sync(SyncOutcome::Nothing);
        let now = self.clock.now();

        // The store may fail because of the first ones; the others were not asked about.
        if let Some((_, first)) = self.asked.first_key_value() {
            for name in &first.names {
                self.rules.entry(Arc::clone(name)).and_modify(|rule| rule.called = first.at);
            }
        }

        self.give_up();
        // The next connection may have other nodes.
        self.lanes.clear();
        self.forget(now);

        for rule in self.rules.values_mut() {
            rule.is_under_way = false;
            rule.due = rule.due.min(now + CHECK_PERIOD);
            // The answer may have been too long for one round trip.
            rule.received = MOST_STATES;
        }
        self.due = now;
    }
}

#[cfg(test)]
mod tests;
