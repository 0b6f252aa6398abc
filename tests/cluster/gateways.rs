//! Gateways that sync states through a store, in virtual time.

use crate::server::Server;
use core::time::Duration;
use flowgate::{
    cluster::{MOST_STATES, Push, RecordedCalls, SyncReply, line, most_deltas},
    flow::{
        Algorithm, Claim, Gate, Instant, Key, Keyed, Permit, RoundTrip, Rule, Rules, SlotId,
        StateName, Stored, limiter::SyncedConfig,
    },
};
use redis::Commands as _;
use std::{collections::BTreeSet, sync::Arc};

/// The lateness of a rule with a sync interval of up to a second: see [`Push::late`].
const LATE: Duration = Duration::from_secs(4);

/// A store, and what calls it.
pub(crate) struct Store {
    connection: redis::Connection,
    recorded: RecordedCalls,
    _server: Server,
    /// How many calls it took.
    pub(crate) calls: u64,
    /// How far its clock is behind that of the gateways.
    pub(crate) behind: Duration,
    /// Whether it has said that its clock was set back.
    pub(crate) was_set_back: bool,
}

/// One rule behind several gateways.
pub(crate) struct Gateways {
    name: String,
    whole: Algorithm,
    stored: Stored,
    all: Vec<Gateway>,
    made: usize,
}

struct Gateway {
    name: String,
    gate: Arc<Gate>,
    slot: SlotId,
    number: u64,
    known: u64,
    /// What was sent and not confirmed.
    deltas: Vec<String>,
}

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Answered,
    /// It does not reach the store.
    Lost,
    /// The store's answer does not come back.
    AnswerLost,
}

impl Store {
    pub(crate) fn start() -> Self {
        let server = Server::start();
        let mut connection = server.connection();
        let recorded = RecordedCalls::new();
        recorded.load().exec(&mut connection).expect("the scripts are in order");
        let behind = Duration::ZERO;
        Self { connection, recorded, _server: server, calls: 0, behind, was_set_back: false }
    }

    /// Has it take a call at `now`.
    pub(crate) fn sync(&mut self, push: &Push<'_>, now: Instant) -> SyncReply {
        let call = self.recorded.sync(push, now - self.behind);
        self.calls += 1;
        let answer = call.query(&mut self.connection).expect("an answer");
        let reply = SyncReply::read(&answer).expect("a reply");
        self.was_set_back |= reply.is_set_back;
        reply
    }
}

impl Store {
    /// Returns the keys of states, one for each client.
    pub(crate) fn states(&mut self) -> BTreeSet<String> {
        let keys: BTreeSet<String> = self.connection.keys("*").expect("keys");
        keys.into_iter()
            .filter(|key| !key.contains(":changed") && !key.contains(":from:"))
            .collect()
    }

    /// Has states expire.
    pub(crate) fn expire(&mut self, states: &BTreeSet<String>) {
        for state in states {
            self.connection.del::<_, ()>(state).expect("deleted");
        }
    }

    /// Returns how many states the list of what has changed names.
    pub(crate) fn listed(&mut self, rule: &Gateways) -> usize {
        self.connection.zcard(format!("{}:changed", rule.name)).expect("a list")
    }
}

impl Gateways {
    /// Starts so many gateways with a rule, which has a state for each client.
    pub(crate) fn start(name: &str, algorithm: &Algorithm, count: usize) -> Self {
        let stored = Stored::new(algorithm).expect("a store can decide about it");
        let name = format!("{{{name}}}:rule");
        let whole = algorithm.clone();
        let mut it = Self { name, whole, stored, all: Vec::new(), made: 0 };
        (0..count).for_each(|_| it.join());
        it
    }

    /// Adds one that knows nothing.
    pub(crate) fn join(&mut self) {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let slot = gate.install(&self.rules(), Instant::EPOCH).flow[0];
        self.made += 1;
        let name = self.made.to_string();
        self.all.push(Gateway { name, gate, slot, number: 0, known: 0, deltas: Vec::new() });
    }

    fn rules(&self) -> Rules {
        let config = SyncedConfig::new(self.whole.clone(), 1).expect("states are merged");
        let rule = Rule {
            name: "rule".into(),
            algorithm: Algorithm::Synced(config),
            keyed: Some(Keyed { by: "client".into(), max_keys: 100_000 }),
            dry_run: false,
            settles: true,
            queue: None,
            reject_for: None,
        };
        Rules { flow: vec![rule], ..Rules::default() }
    }

    /// Gives the rule other numbers, at all of them.
    pub(crate) fn edit(&mut self, algorithm: &Algorithm, now: Instant) {
        let stored = Stored::new(algorithm).expect("a store can decide about it");
        assert_eq!(stored.shape(), self.stored.shape(), "the rule keeps its states");
        self.whole = algorithm.clone();
        self.stored = stored;
        let rules = self.rules();
        for gateway in &self.all {
            gateway.gate.install(&rules, now);
        }
    }

    /// Has a gateway decide about a request.
    pub(crate) fn passes(&self, at: usize, now: Instant, client: u64, cost: u64) -> bool {
        let Gateway { gate, slot, .. } = &self.all[at];
        let claim =
            Claim { slot: *slot, key: key(client), cost, patience: Duration::ZERO, plan: None };
        gate.enter(now, &[claim]).is_ok()
    }

    /// Has a gateway reserve a cost for a request. Returns it if it passes.
    pub(crate) fn enter(&self, at: usize, now: Instant, client: u64, cost: u64) -> Option<Permit> {
        let Gateway { gate, slot, .. } = &self.all[at];
        let claim =
            Claim { slot: *slot, key: key(client), cost, patience: Duration::ZERO, plan: None };
        gate.enter(now, &[claim]).ok().map(|admission| admission.permit)
    }

    /// Returns what a gateway says that a client has used.
    pub(crate) fn used(&self, at: usize, now: Instant, client: u64) -> (u64, Duration) {
        let Gateway { gate, slot, .. } = &self.all[at];
        used(gate, *slot, now, client)
    }

    /// Has an operator reset a client at a gateway, which has the store do it first.
    pub(crate) fn reset(&self, store: &mut Store, at: usize, now: Instant, client: u64) {
        let key = key(client);
        let Key::Of(fingerprint) = key else { return };
        let states = [StateName::Key(fingerprint).to_string()];
        store.sync(&Push::reset(&self.name, &self.stored, LATE, &states), now);
        let Gateway { gate, slot, .. } = &self.all[at];
        gate.reset_key(*slot, now, key).expect("it can be reset");
    }

    /// Has a gateway send and ask, until it has sent and knows all or a call fails.
    pub(crate) fn sync(
        &mut self,
        store: &mut Store,
        at: usize,
        now: Instant,
        outcome: CallOutcome,
    ) {
        let it = &mut self.all[at];
        let mut from = Some(0);
        loop {
            if it.deltas.is_empty() {
                let mut deltas = Vec::new();
                let most = most_deltas(&self.stored);
                from = from.and_then(|from| it.gate.collect(it.slot, from, most, &mut deltas));
                it.number += u64::from(!deltas.is_empty());
                it.deltas = deltas.iter().map(line).collect();
            }
            if outcome == CallOutcome::Lost {
                return;
            }
            let push = Push {
                name: &self.name,
                rule: &self.stored,
                gateway: &it.name,
                number: it.number,
                known: it.known,
                late: LATE,
                most: MOST_STATES,
                deltas: &it.deltas,
            };
            let reply = store.sync(&push, now);
            if outcome == CallOutcome::AnswerLost {
                return;
            }
            assert_eq!(reply.now, now - store.behind);
            it.deltas.clear();
            it.known = reply.known;
            let way = RoundTrip { asked: now, given: reply.now, came: now };
            if it.gate.adopt(it.slot, way, &reply.states) {
                it.known = 0;
                continue;
            }
            if !reply.is_full && from.is_none() {
                return;
            }
        }
    }
}

/// Returns what a gate says that a client has used.
pub(crate) fn used(gate: &Arc<Gate>, slot: SlotId, now: Instant, client: u64) -> (u64, Duration) {
    // What costs nothing passes, and is not charged.
    let claim = Claim { slot, key: key(client), cost: 0, patience: Duration::ZERO, plan: None };
    let report = gate.enter(now, &[claim]).expect("it passes").report;
    (report.quotas[0].used, report.quotas[0].reset)
}

pub(crate) fn key(client: u64) -> Key {
    Key::Of(u128::from(client).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
}
