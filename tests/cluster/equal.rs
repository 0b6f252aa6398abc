//! Whether the store decides as a gate does, about the same arrivals at the same times.

use crate::server::Server;
use core::{
    mem::{Discriminant, discriminant},
    time::Duration,
};
use flowgate::{
    cluster::{Ask, Lease, RecordedCalls, Verdicts},
    flow::{
        Claim, Decision, Gate, Instant, Key, Permit, Quota, Reason, Rules, SlotId, Stored,
        Unstorable, Verdict,
    },
};
use redis::Value;
use std::{collections::HashMap, sync::Arc};

/// What happens in a trace.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// A request comes: its number, and what it costs of each rule, under which key.
    Arrival { id: u64, now: Instant, asks: Vec<Option<(Key, u64)>> },
    /// The request of this number ends, if it was admitted.
    End { of: u64 },
}

/// A store, to be asked about traces, each under a name of its own.
pub(crate) struct Store {
    pub(crate) connection: redis::Connection,
    pub(crate) recorded: RecordedCalls,
    _server: Server,
}

/// Events in one sync.
const BATCH: usize = 500;

/// A lease that outlasts every trace, in microseconds.
const LONG: u64 = 1 << 50;

impl Store {
    pub(crate) fn start() -> Self {
        let server = Server::start();
        let mut connection = server.connection();
        let recorded = RecordedCalls::new();
        recorded.load().exec(&mut connection).expect("the scripts are in order");
        Self { connection, recorded, _server: server }
    }

    /// Plays `events` under `rules` on a gate and in the store, and compares every word.
    pub(crate) fn compare(&mut self, name: &str, rules: &Rules, events: &[Event]) {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let installed = gate.install(rules, Instant::EPOCH);
        let slots: Vec<SlotId> = installed.flow.into_iter().chain(installed.pacing).collect();
        let rules = Rule::all(name, rules);
        let mut permits: HashMap<u64, Permit> = HashMap::new();
        let mut leases: HashMap<u64, Vec<(String, String)>> = HashMap::new();
        for batch in events.chunks(BATCH) {
            let mut pipe = redis::pipe();
            let mut expected = Vec::new();
            for event in batch {
                match event {
                    Event::Arrival { id, now, asks } => {
                        expected.push(enter(&gate, &slots, event, &mut permits));
                        let asks = ask(&rules, asks);
                        let lease = Lease { name: &id.to_string(), micros: LONG };
                        pipe.add_command(self.recorded.call(&asks, lease, *now));
                        leases.insert(*id, RecordedCalls::leases(&asks, lease));
                    }
                    Event::End { of } => {
                        permits.remove(of);
                        let held = leases.remove(of).unwrap_or_default();
                        pipe.add_command(self.recorded.release(&held)).ignore();
                    }
                }
            }
            let answers: Vec<Value> = pipe.query(&mut self.connection).expect("an answer each");
            let arrivals = batch.iter().filter_map(|event| match event {
                Event::Arrival { asks, .. } => Some((event, ask(&rules, asks))),
                Event::End { .. } => None,
            });
            assert_eq!(answers.len(), expected.len());
            for (((event, asks), expected), answer) in arrivals.zip(expected).zip(&answers) {
                let verdicts = RecordedCalls::read(&asks, answer);
                assert!(verdicts.is_ok(), "{name}: {event:?}: {verdicts:?}: {answer:?}");
                let verdicts = verdicts.expect("just asserted");
                assert_eq!(compared(&asks, &verdicts), expected, "{name}: {event:?}: {answer:?}");
            }
        }
    }
}

/// A rule as the store has it.
pub(crate) struct Rule {
    name: String,
    stored: Arc<Stored>,
    is_keyed: bool,
    is_dry_run: bool,
}

impl Rule {
    pub(crate) fn all(trace: &str, rules: &Rules) -> Vec<Self> {
        let rule = |(at, (stored, is_keyed, is_dry_run)): (
            usize,
            (Result<Stored, Unstorable>, bool, bool),
        )| {
            let stored = Arc::new(stored.expect("a store can decide about it"));
            let name = format!("{{{trace}}}:{at}:{}", stored.shape());
            Self { name, stored, is_keyed, is_dry_run }
        };
        let flow = rules.flow.iter();
        let flow =
            flow.map(|rule| (Stored::new(&rule.algorithm), rule.keyed.is_some(), rule.dry_run));
        let pacing = rules.pacing.iter().map(|pacing| (Stored::paced(pacing), false, false));
        flow.chain(pacing).enumerate().map(rule).collect()
    }
}

/// Returns what the store is asked about each rule.
pub(crate) fn ask<'a>(rules: &'a [Rule], asks: &[Option<(Key, u64)>]) -> Vec<Ask<'a>> {
    let ask = |(rule, ask): (&'a Rule, &Option<(Key, u64)>)| {
        let (key, cost) = (*ask)?;
        let key = match key {
            Key::Of(key) if rule.is_keyed => Some(key),
            Key::Of(_) | Key::Shared | Key::Missing | Key::Duplicate => None,
        };
        let Rule { name, stored, is_dry_run, .. } = rule;
        Some(Ask { name, rule: stored, key, cost, is_dry_run: *is_dry_run, settles: false })
    };
    rules.iter().zip(asks).filter_map(ask).collect()
}

/// The verdict of a rule; the limit and what is used; the wait and the reset; and when more fits.
type ComparedRule = (Verdict, [u64; 2], [Duration; 2], Option<Duration>);

/// What is compared.
#[derive(Debug, PartialEq)]
pub(crate) struct Compared {
    /// The kind of the rejection, and when to come back.
    rejection: Option<(Discriminant<Reason>, Option<Duration>)>,
    /// Of each rule that is asked: the limit, what is used, the wait, the reset, and when more
    /// fits if the request is counted.
    rules: Vec<ComparedRule>,
}

/// Decides about an arrival.
pub(crate) fn enter(
    gate: &Arc<Gate>,
    slots: &[SlotId],
    event: &Event,
    permits: &mut HashMap<u64, Permit>,
) -> Compared {
    let Event::Arrival { id, now, asks } = event else { unreachable!("no arrival") };
    let claim = |(&slot, ask): (&SlotId, &Option<(Key, u64)>)| {
        let (key, cost) = (*ask)?;
        Some(Claim { slot, key, cost, patience: Duration::ZERO, plan: None })
    };
    let claims: Vec<Claim> = slots.iter().zip(asks).filter_map(claim).collect();
    let quota = |quota: &Quota| {
        let Quota { verdict, limit, used, wait, reset, growth, .. } = *quota;
        let is_counted = matches!(verdict, Verdict::Passed | Verdict::Delayed);
        (verdict, [limit, used], [wait, reset], growth.filter(|_| is_counted))
    };
    match gate.enter(*now, &claims) {
        Ok(admission) => {
            permits.insert(*id, admission.permit);
            Compared { rejection: None, rules: admission.report.quotas.iter().map(quota).collect() }
        }
        Err(it) => Compared {
            rejection: Some((discriminant(&it.reason), it.reason.retry_after())),
            rules: it.report.quotas.iter().map(quota).collect(),
        },
    }
}

/// Returns the store's decision in the words of the gate.
pub(crate) fn compared(asks: &[Ask<'_>], verdicts: &Verdicts) -> Compared {
    let mut reasons = Vec::new();
    let mut rules = Vec::new();
    for (ask, it) in asks.iter().zip(&verdicts.answers) {
        let (verdict, wait) = match it.decision {
            Decision::Pass => (Verdict::Passed, Duration::ZERO),
            Decision::Delay(wait) => (Verdict::Delayed, wait),
            Decision::Reject(reason) if ask.is_dry_run => {
                (Verdict::DryRunRejected(reason.kind()), Duration::ZERO)
            }
            Decision::Reject(reason) => {
                reasons.push(reason);
                (Verdict::Rejected(reason.kind()), Duration::ZERO)
            }
        };
        let growth = it.growth.filter(|_| verdicts.is_admitted);
        rules.push((verdict, [it.limit, it.used], [wait, it.reset], growth));
    }
    // What never ends goes before what ends, then what ends last; of equals the first.
    let rank = |reason: &Reason| (reason.is_lasting(), reason.retry_after());
    let blamed = reasons.iter().rev().max_by_key(|reason| rank(reason));
    let latest = reasons.iter().filter_map(|reason| reason.retry_after()).max();
    let rejection =
        blamed.map(|reason| (discriminant(reason), latest.filter(|_| !reason.is_lasting())));
    assert_eq!(verdicts.is_admitted, rejection.is_none(), "{verdicts:?}");
    Compared { rejection, rules }
}
