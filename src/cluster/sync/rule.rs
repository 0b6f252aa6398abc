//! One rule whose states are exchanged: what it has to tell, what it has told and what it knows.

use super::call::{GLANCE_COST, MOST_STATES, Page, Push, Question, line, most_deltas};
use crate::{
    cluster::store::Store,
    config::{RuleSync, Shared, Snapshot},
    flow::{Delta, Gate, Instant, RemoteState, RoundTrip, SlotId},
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use std::{collections::HashSet, sync::Arc};

/// How soon rules that an edit has added are seen, and a store that is back.
pub(super) const GLANCE: Duration = Duration::from_millis(100);

/// What is not confirmed for so long decides nothing any more, and is forgotten before the store
/// forgets the numbers of calls, after a day.
pub(super) const STALE: Duration = Duration::from_hours(12);

/// A rule whose states are exchanged.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) shared: Shared,
    pub(super) sync: Arc<RuleSync>,
    pub(super) source: Source,
    /// Slots that an edit has removed or reset, and that have not told all yet.
    pub(super) former: Vec<Source>,
    /// Whether it is in force no more, so that only its former slots have anything to tell.
    pub(super) is_gone: bool,
    /// When it is exchanged next.
    pub(super) due: Instant,
    /// Whether it is being exchanged.
    pub(super) is_under_way: bool,
    /// Whether all that there was has been taken over once.
    pub(super) has_learned: bool,
    /// Of the last call that told anything.
    pub(super) number: u64,
    /// The latest version that is known.
    pub(super) known: u64,
    /// What is told and not confirmed, and since when.
    pub(super) deltas: Vec<String>,
    pub(super) since: Instant,
    /// When it was answered last, or removed.
    pub(super) heard: Instant,
    /// When the latest question about it was asked that was answered, or that others waited behind
    /// in vain.
    pub(super) called: Instant,
    /// How many states it was told then, or as many as may be if a call has failed since; at least
    /// one if there was something new at a glance.
    pub(super) told: usize,
    /// The most that was told of one state, in this exchange and in the one before.
    pub(super) most: [u64; 2],
}

/// A slot that counts for a rule.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) gate: Arc<Gate>,
    pub(super) slot: SlotId,
    /// Whether it has heard of the store's clock, by which what is told must be counted.
    pub(super) has_clock: bool,
    /// Where to go on with what is to be told; `None` at the end.
    pub(super) from: Option<u32>,
}

/// Returns the rules whose states are exchanged, from `now` on.
pub(super) fn rules(snapshot: &Snapshot, now: Instant) -> impl Iterator<Item = Rule> {
    snapshot.routes.iter().flat_map(move |route| {
        route.rules.iter().filter_map(move |rule| {
            Some(Rule {
                shared: rule.shared.clone()?,
                sync: Arc::clone(rule.sync()?),
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
                has_learned: false,
                number: 0,
                known: 0,
                deltas: Vec::new(),
                since: now,
                heard: now,
                called: now,
                told: 0,
                most: [0; 2],
            })
        })
    })
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
    /// Goes on from what it was before an edit.
    pub(super) fn resume(&mut self, old: Self) {
        let Self { due, number, known, deltas, since, heard, .. } = old;
        let Self { most, source, former, is_gone, is_under_way, called, .. } = old;
        self.sync.is_refused.store(old.sync.is_refused.load(Relaxed), Relaxed);
        self.former = former;
        if is_gone || source.id() != self.source.id() {
            // The slot begins afresh and must learn all.
            self.former.extend((!is_gone).then(|| source.retired()));
        } else {
            (self.known, self.source, self.has_learned) = (known, source, old.has_learned);
            if self.shared.rule.sync_terms() != old.shared.rule.sync_terms() {
                // The store resizes a bucket when it is told.
                self.known = 0;
            }
            if !is_under_way {
                self.due = due.min(self.due + self.sync.interval);
            }
        }
        (self.number, self.deltas, self.since) = (number, deltas, since);
        (self.heard, self.called, self.most) = (heard, called, most);
    }

    /// Notes that an edit has removed it. What was let pass under it is told all the same, once
    /// no request under the former rules is being decided; unless its slot is among `others`.
    pub(super) fn leave(&mut self, now: Instant, others: &HashSet<(*const Gate, SlotId)>) {
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
    pub(super) fn begin(&mut self, now: Instant, phase: f64) {
        self.source.from = (self.source.has_clock && !self.is_gone).then_some(0);
        self.is_under_way = true;
        self.due = after(now, self.sync.interval, phase);
        self.most = [0, self.most[0]];
    }

    /// Takes from a gate what is to be told, unless there is something that is not confirmed.
    /// Of one slot at a time: a call tells of a state once.
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
            late: 4 * self.sync.interval.max(Duration::from_secs(1)),
            // Twice as many as the last time, so that who has much to learn soon has large pages.
            most: (2 * self.told + 4).min(MOST_STATES),
            deltas: &self.deltas,
        }
    }

    /// Returns what the store is to be asked, and what that takes of it.
    pub(super) fn question(&self, store: &Store) -> (Question, usize) {
        let (push, prefix) = (self.push(store), &store.settings.prefix);
        if self.is_quiet() {
            (push.glance(prefix), GLANCE_COST)
        } else {
            (push.question(prefix), push.cost())
        }
    }

    /// Whether nothing has happened to it lately, here or elsewhere, that is known.
    fn is_quiet(&self) -> bool {
        let is_settled = self.source.has_clock && !self.is_gone && !self.is_refused();
        is_settled && self.told == 0 && !self.has_to_tell()
    }

    /// Notes that there is something new.
    pub(super) fn look_closer(&mut self) {
        self.told = self.told.max(1);
    }

    /// Takes over what the store has told, which confirms what it was told.
    pub(super) fn take_over(&mut self, way: RoundTrip, page: &Page) {
        self.sync.is_refused.store(false, Relaxed);
        self.deltas.clear();
        self.known = page.known;
        self.heard = way.came;
        // Of a list that goes on, many may have expired: the next page is a whole one.
        self.told = if page.is_full { MOST_STATES } else { page.told.len() };
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
        self.has_learned |= !has_to_ask;
    }

    /// Notes that the store has answered with an error about this rule alone. What was told is
    /// kept, and told again in the next exchange.
    pub(super) fn refuse(&mut self) {
        self.sync.is_refused.store(true, Relaxed);
        self.is_under_way = false;
        self.told = 0;
    }

    /// Returns whether the store has refused it in the latest call.
    pub(super) fn is_refused(&self) -> bool {
        self.sync.is_refused.load(Relaxed)
    }

    pub(super) const fn has_to_tell(&self) -> bool {
        self.source.from.is_some() || !self.former.is_empty() || !self.deltas.is_empty()
    }
}

impl Source {
    /// Returns what tells it from other slots.
    pub(super) fn id(&self) -> (*const Gate, SlotId) {
        (Arc::as_ptr(&self.gate), self.slot)
    }

    /// Returns it as one that is used no more, and has all to tell.
    fn retired(&self) -> Self {
        Self { from: self.has_clock.then_some(0), ..self.clone() }
    }

    fn collect(&mut self, most: usize, into: &mut Vec<Delta>) {
        let from = self.from.take();
        self.from = from.and_then(|from| self.gate.collect(self.slot, from, most, into));
    }

    /// Takes over what is `told`, after which one that has not heard of the clock before has all
    /// to tell. Returns whether it has forgotten all others.
    fn adopt(&mut self, way: RoundTrip, told: &[RemoteState]) -> bool {
        let has_forgotten = self.gate.adopt(self.slot, way, told);
        if !core::mem::replace(&mut self.has_clock, true) {
            self.from = Some(0);
        }
        has_forgotten
    }
}
