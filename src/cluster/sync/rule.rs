//! A rule with `sync_interval`: the charges that it has to send, those that it has sent, and the
//! states that it knows.

use super::call::{MOST_STATES, Push, Question, SyncReply, VERSION_CHECK_COST, line, most_deltas};
use crate::{
    cluster::store::Store,
    config::{RuleSync, Shared, Snapshot},
    flow::{Delta, Gate, Instant, RemoteState, RoundTrip, SlotId},
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use std::{collections::HashSet, sync::Arc};

/// The longest time until the sync notices an edit, or that the store is back.
pub(super) const CHECK_PERIOD: Duration = Duration::from_millis(100);

/// Deltas that are not confirmed for so long decide nothing any more. They are dropped before the
/// store forgets the numbers of calls, after a day.
pub(super) const STALE: Duration = Duration::from_hours(12);

/// A rule with `sync_interval`.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) shared: Shared,
    pub(super) sync: Arc<RuleSync>,
    pub(super) source: SyncedSlot,
    /// Slots that an edit has removed or reset, and whose deltas are not all sent.
    pub(super) former: Vec<SyncedSlot>,
    /// True if an edit has removed the rule, so that only its former slots have deltas.
    pub(super) is_gone: bool,
    /// The time of the next sync.
    pub(super) due: Instant,
    /// True while a sync is running.
    pub(super) is_under_way: bool,
    /// True if all states have arrived once.
    pub(super) has_learned: bool,
    /// The number of the last call with deltas.
    pub(super) number: u64,
    /// The latest known version.
    pub(super) known: u64,
    /// Deltas that are sent and not confirmed, and since when.
    pub(super) deltas: Vec<String>,
    pub(super) since: Instant,
    /// The time at which the last answer came, or an edit removed the rule.
    pub(super) heard: Instant,
    /// The time of the latest question that was answered, or that made others wait in vain.
    pub(super) called: Instant,
    /// The number of states in the answer; the most possible after a failure, and at least one if a
    /// version check found something new.
    pub(super) received: usize,
    /// The largest delta of one state, in this sync and in the one before.
    pub(super) most: [u64; 2],
}

/// A slot that counts for a rule.
#[derive(Clone, Debug)]
pub(super) struct SyncedSlot {
    pub(super) gate: Arc<Gate>,
    pub(super) slot: SlotId,
    /// True if it knows the store's clock, which deltas need.
    pub(super) has_clock: bool,
    /// Where the deltas to send go on; `None` at the end.
    pub(super) from: Option<u32>,
}

/// Returns the rules with `sync_interval`, due at `now`.
pub(super) fn rules(snapshot: &Snapshot, now: Instant) -> impl Iterator<Item = Rule> {
    let routes = snapshot.routes.iter().map(|route| (&route.gate, route.own_rules()));
    let groups = snapshot.groups.iter().map(|group| (&group.gate, &*group.rules));
    routes.chain(groups).flat_map(move |(gate, rules)| {
        rules.iter().filter_map(move |rule| {
            Some(Rule {
                shared: rule.shared.clone()?,
                sync: Arc::clone(rule.sync()?),
                source: SyncedSlot {
                    gate: Arc::clone(gate),
                    slot: rule.slot,
                    has_clock: false,
                    from: None,
                },
                former: Vec::new(),
                is_gone: false,
                due: now,
                is_under_way: false,
                has_learned: false,
                number: 0,
                known: 0,
                deltas: Vec::new(),
                since: now,
                heard: now,
                called: now,
                received: 0,
                most: [0; 2],
            })
        })
    })
}

/// Returns how late a delta of a rule with this interval may arrive: see [`Push::late`].
pub(in crate::cluster) fn late(interval: Duration) -> Duration {
    4 * interval.max(Duration::from_secs(1))
}

/// Returns the first instant after `now` at which this part of an interval, from 0 to 1, has
/// passed since a whole number of intervals: one for all rules with this interval, and for each
/// gateway another, even after a failure that all have met at once.
pub(super) fn after(now: Instant, interval: Duration, part: f64) -> Instant {
    let length = interval.as_nanos().max(1);
    let begun = u128::from(now.as_nanos()) + length - interval.mul_f64(part).as_nanos();
    let left = length - begun % length;
    now + Duration::from_nanos(u64::try_from(left).unwrap_or(u64::MAX))
}

impl Rule {
    /// Goes on from the rule before an edit.
    pub(super) fn resume(&mut self, old: Self) {
        let Self { due, number, known, deltas, since, heard, .. } = old;
        let Self { most, source, former, is_gone, is_under_way, called, .. } = old;

        self.sync.is_rejected.store(old.sync.is_rejected.load(Relaxed), Relaxed);

        self.former = former;
        if is_gone || source.id() != self.source.id() {
            // The slot begins afresh, and needs all states.
            self.former.extend((!is_gone).then(|| source.retired()));
        } else {
            self.known = known;
            self.source = source;
            self.has_learned = old.has_learned;
            if self.shared.rule.sync_terms() != old.shared.rule.sync_terms() {
                // The store resizes a bucket and returns it again.
                self.known = 0;
            }
            if !is_under_way {
                self.due = due.min(self.due + self.sync.interval);
            }
        }

        self.number = number;
        self.deltas = deltas;
        self.since = since;
        self.heard = heard;
        self.called = called;
        self.most = most;
    }

    /// Notes that an edit has removed it. Its deltas are sent all the same, when no request is
    /// decided by the former rules any more, unless `others` have its slot.
    pub(super) fn leave(&mut self, now: Instant, others: &HashSet<(*const Gate, SlotId)>) {
        if !core::mem::replace(&mut self.is_gone, true) {
            if !others.contains(&self.source.id()) {
                self.former.push(self.source.retired());
            }
            self.source.from = None;
            self.is_under_way = false;
            self.due = now + CHECK_PERIOD;
            self.heard = now;
        }
    }

    /// Begins a sync.
    pub(super) fn begin(&mut self, now: Instant, phase: f64) {
        self.source.from = (self.source.has_clock && !self.is_gone).then_some(0);
        self.is_under_way = true;
        self.due = after(now, self.sync.interval, phase);
        self.most = [0, self.most[0]];
    }

    /// Takes deltas from a gate, unless some are not confirmed. From one slot at a time, because a
    /// call has one delta for each state.
    pub(super) fn collect(&mut self, now: Instant, calls: &mut u64) {
        if !self.deltas.is_empty() && now.since(self.since) < STALE {
            return;
        }

        let mut deltas: Vec<Delta> = Vec::new();
        let mut sources = self.former.iter_mut().chain([&mut self.source]);
        if let Some(source) = sources.find(|source| source.from.is_some()) {
            source.collect(most_deltas(&self.shared.rule), &mut deltas);
        }

        let most = deltas.iter().map(|delta| delta.cost).max().unwrap_or(0);
        self.most[0] = self.most[0].max(most);
        self.sync.unseen.store(self.most.iter().sum(), Relaxed);

        if !deltas.is_empty() {
            *calls += 1;
            self.number = *calls;
        }

        self.deltas = deltas.iter().map(line).collect();
        self.since = now;
    }

    pub(super) fn push<'a>(&'a self, store: &'a Store) -> Push<'a> {
        Push {
            name: &self.shared.name,
            rule: &self.shared.rule,
            gateway: &store.name,
            number: self.number,
            known: self.known,
            late: late(self.sync.interval),
            // Twice as many as in the last answer, so that a long list soon has large replies.
            most: (2 * self.received + 4).min(MOST_STATES),
            deltas: &self.deltas,
        }
    }

    /// Returns the next question, and its cost.
    pub(super) fn question(&self, store: &Store) -> (Question, usize) {
        let push = self.push(store);
        let prefix = &store.settings.prefix;
        if self.is_quiet() {
            (push.version_check(prefix), VERSION_CHECK_COST)
        } else {
            (push.question(prefix), push.cost())
        }
    }

    /// Returns whether nothing is known to have changed lately.
    fn is_quiet(&self) -> bool {
        let is_settled = self.source.has_clock && !self.is_gone && !self.is_rejected();
        is_settled && self.received == 0 && !self.has_unsent()
    }

    /// Notes that a version check found something new.
    pub(super) fn look_closer(&mut self) {
        self.received = self.received.max(1);
    }

    /// Takes over the states of an answer, which confirms the deltas.
    pub(super) fn take_over(&mut self, trip: RoundTrip, reply: &SyncReply) {
        self.sync.is_rejected.store(false, Relaxed);
        self.deltas.clear();
        self.known = reply.known;
        self.heard = trip.came;
        // Many states of a long list may have expired: the next reply may be a full one.
        self.received = if reply.is_full { MOST_STATES } else { reply.states.len() };

        for source in &mut self.former {
            if !source.has_clock {
                source.adopt(trip, &[]);
            }
        }
        self.former.retain(|source| source.from.is_some());

        let has_forgotten = !self.is_gone && self.source.adopt(trip, &reply.states);
        if has_forgotten {
            self.known = 0;
        }

        let has_to_ask = has_forgotten || (reply.is_full && !self.is_gone);
        self.is_under_way = self.has_unsent() || has_to_ask;
        self.has_learned |= !has_to_ask;
    }

    /// Notes that the store has rejected this rule alone. The deltas are kept, and sent again in
    /// the next sync.
    pub(super) fn reject(&mut self) {
        self.sync.is_rejected.store(true, Relaxed);
        self.is_under_way = false;
        self.received = 0;
    }

    /// Returns whether the store has rejected it in the latest call.
    pub(super) fn is_rejected(&self) -> bool {
        self.sync.is_rejected.load(Relaxed)
    }

    pub(super) const fn has_unsent(&self) -> bool {
        self.source.from.is_some() || !self.former.is_empty() || !self.deltas.is_empty()
    }
}

impl SyncedSlot {
    /// Returns the identity of the slot.
    pub(super) fn id(&self) -> (*const Gate, SlotId) {
        (Arc::as_ptr(&self.gate), self.slot)
    }

    /// Returns a slot that is not used any more, and has to send all.
    fn retired(&self) -> Self {
        Self { from: self.has_clock.then_some(0), ..self.clone() }
    }

    fn collect(&mut self, most: usize, into: &mut Vec<Delta>) {
        let from = self.from.take();
        self.from = from.and_then(|from| self.gate.collect(self.slot, from, most, into));
    }

    /// Takes over states. A slot that did not know the store's clock has to send all then. Returns
    /// whether it has forgotten all other states.
    fn adopt(&mut self, trip: RoundTrip, states: &[RemoteState]) -> bool {
        let has_forgotten = self.gate.adopt(self.slot, trip, states);
        if !core::mem::replace(&mut self.has_clock, true) {
            self.from = Some(0);
        }
        has_forgotten
    }
}
