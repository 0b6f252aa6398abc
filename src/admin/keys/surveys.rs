//! The fullest keys of rules, found by a walk through all of them.
//!
//! A walk takes a gate's lock for about a microsecond at a time and lets other tasks of the thread
//! run in between. Its result is used again for 50 times as long as it took, so that walks take 2 %
//! of a core at most, however many pages are read.

use crate::{
    clock::Clock,
    config::{GateRules, RouteRule},
    flow::{Fullest, Instant, KeyUsage, SlotId},
};
use core::time::Duration;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// Keys that a walk finds.
pub(crate) const FOUND: usize = 20;

/// How long a result is used again, in durations of its walk.
const REUSE: u32 = 50;

/// Steps of a walk before other tasks run: some ten microseconds.
const STEPS: usize = 16;

/// Results that are not asked for are forgotten after this time.
const FORGET: Duration = Duration::from_mins(1);

/// The results of walks.
#[derive(Debug, Default)]
pub(crate) struct Surveys {
    /// By the words of the rule's owner, and its slot.
    known: Mutex<HashMap<(String, SlotId), Survey>>,
    /// Held during a walk: one at a time.
    walk: tokio::sync::Mutex<()>,
}

#[derive(Clone, Debug)]
struct Survey {
    at: Instant,
    took: Duration,
    fullest: Arc<[KeyUsage]>,
}

impl Surveys {
    /// Brings the fullest keys of a gate's rules up to date.
    pub(crate) async fn refresh(&self, rules: GateRules<'_>, clock: &Clock) {
        let counted_here = |rule: &&RouteRule| !rule.key.is_shared() && rule.in_store().is_none();
        for rule in rules.rules.iter().filter(counted_here) {
            if self.is_due(rules, rule.slot, clock.now()) {
                let _walk = self.walk.lock().await;
                // Another client may have had it done meanwhile.
                if self.is_due(rules, rule.slot, clock.now()) {
                    self.survey(rules, rule.slot, clock).await;
                }
            }
        }
    }

    /// Returns the fullest keys of a rule, as of the latest walk.
    pub(crate) fn fullest(&self, rules: GateRules<'_>, slot: SlotId) -> Arc<[KeyUsage]> {
        let known = self.known();
        let survey = known.get(&(rules.owner.to_string(), slot));
        survey.map_or_else(Arc::default, |survey| Arc::clone(&survey.fullest))
    }

    fn is_due(&self, rules: GateRules<'_>, slot: SlotId, now: Instant) -> bool {
        let known = self.known();
        let survey = known.get(&(rules.owner.to_string(), slot));
        survey.is_none_or(|survey| now.since(survey.at) >= survey.took * REUSE)
    }

    async fn survey(&self, rules: GateRules<'_>, slot: SlotId, clock: &Clock) {
        let began = clock.now();
        let mut fullest = Fullest::new(FOUND);
        let mut next = Some(u32::MAX);
        let mut steps = 0;
        while let Some(before) = next {
            next = rules.gate.find_fullest(slot, began, before, &mut fullest);
            steps += 1;
            if steps % STEPS == 0 {
                tokio::task::yield_now().await;
            }
        }
        let at = clock.now();
        let fullest = rules.gate.usages(slot, at, fullest).into();
        let took = at.since(began);
        let mut known = self.known();
        known.retain(|_, survey| at.since(survey.at) < FORGET);
        known.insert((rules.owner.to_string(), slot), Survey { at, took, fullest });
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(String, SlotId), Survey>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
