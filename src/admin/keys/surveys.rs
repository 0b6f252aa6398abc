//! The fullest keys of rules, found by a walk through all of them.
//!
//! A walk takes a gate's lock for about a microsecond at a time and lets other tasks of the thread
//! run in between. Its result is used again for 50 times as long as it took, so that walks take 2 %
//! of a core at most, however many pages are read.

use crate::{
    clock::Clock,
    config::Route,
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
    known: Mutex<HashMap<(Arc<str>, SlotId), Survey>>,
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
    /// Brings the fullest keys of a route's rules up to date.
    pub(crate) async fn refresh(&self, route: &Route, clock: &Clock) {
        for rule in
            route.rules.iter().filter(|rule| !rule.key.is_shared() && rule.in_store().is_none())
        {
            if self.is_due(route, rule.slot, clock.now()) {
                let _walk = self.walk.lock().await;
                // Another client may have had it done meanwhile.
                if self.is_due(route, rule.slot, clock.now()) {
                    self.survey(route, rule.slot, clock).await;
                }
            }
        }
    }

    /// Returns the fullest keys of a rule, as of the latest walk.
    pub(crate) fn fullest(&self, route: &Route, slot: SlotId) -> Arc<[KeyUsage]> {
        let known = self.known();
        let survey = known.get(&(Arc::clone(&route.name), slot));
        survey.map_or_else(Arc::default, |survey| Arc::clone(&survey.fullest))
    }

    fn is_due(&self, route: &Route, slot: SlotId, now: Instant) -> bool {
        let known = self.known();
        let survey = known.get(&(Arc::clone(&route.name), slot));
        survey.is_none_or(|survey| now.since(survey.at) >= survey.took * REUSE)
    }

    async fn survey(&self, route: &Route, slot: SlotId, clock: &Clock) {
        let began = clock.now();
        let mut fullest = Fullest::new(FOUND);
        let mut next = Some(u32::MAX);
        let mut steps = 0;
        while let Some(before) = next {
            next = route.gate.find_fullest(slot, began, before, &mut fullest);
            steps += 1;
            if steps % STEPS == 0 {
                tokio::task::yield_now().await;
            }
        }
        let at = clock.now();
        let fullest = route.gate.usages(slot, at, fullest).into();
        let took = at.since(began);
        let mut known = self.known();
        known.retain(|_, survey| at.since(survey.at) < FORGET);
        known.insert((Arc::clone(&route.name), slot), Survey { at, took, fullest });
    }

    fn known(&self) -> MutexGuard<'_, HashMap<(Arc<str>, SlotId), Survey>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
