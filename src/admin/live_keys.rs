//! The fullest and the most rejected keys of rules.
//!
//! A [`Surveys`] finds the fullest keys by a walk through all of them.

use super::keys_view::{
    BanView, BansView, GrantView, KeyView, KeysView, RejectedKey, RejectedKeysView, RuleKeys,
};
use crate::{
    clock::Clock,
    config::{GateRules, RouteRule, Snapshot},
    flow::{
        Fullest, Gate, Grant, Instant, Key, KeyUsage, RejectedKeys, RuleObservation, SlotId,
        rule_of,
    },
    key_names::KeyNames,
    route::fingerprint_text,
};
use core::time::Duration;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

impl KeyView {
    /// Returns the view of a key; of a rule that `settles` costs, with its debt.
    pub(crate) fn of(usage: &KeyUsage, settles: bool, names: Names<'_>) -> Self {
        Self {
            fingerprint: fingerprint_text(usage.key),
            name: names.find(usage.key),
            used: usage.used,
            limit: usage.limit,
            debt: debt(usage.used, usage.limit, settles),
            reset_ms: u64::try_from(usage.reset.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

/// Returns what a client owes: what it has used beyond its limit, in a rule that settles costs.
pub(super) const fn debt(used: u64, limit: u64, settles: bool) -> u64 {
    if settles { used.saturating_sub(limit) } else { 0 }
}

impl RejectedKeysView {
    fn of(seen: &RejectedKeys, now: Instant, most: usize, names: Names<'_>) -> Self {
        let keys = seen.keys.sorted().into_iter().take(most).map(|entry| RejectedKey {
            fingerprint: fingerprint_text(entry.key),
            name: names.find(entry.key),
            rejected: entry.count,
            error: entry.error,
        });
        Self { seconds: now.since(seen.since).as_secs(), total: seen.total, keys: keys.collect() }
    }
}

impl GrantView {
    fn of(grant: &Grant, now: Instant, names: Names<'_>) -> Self {
        let key = match grant.key {
            Key::Of(key) => Some(key),
            Key::Shared | Key::Missing | Key::Duplicate => None,
        };
        Self {
            fingerprint: key.map(fingerprint_text),
            name: key.and_then(|key| names.find(key)),
            count: grant.count,
            left: grant.left,
            seconds: grant.until.since(now).as_secs(),
        }
    }
}

impl BanView {
    fn of(key: Key, end: Instant, now: Instant, names: Names<'_>) -> Self {
        let key = match key {
            Key::Of(key) => Some(key),
            Key::Shared | Key::Missing | Key::Duplicate => None,
        };
        let rest = end.since(now);
        Self {
            fingerprint: key.map(fingerprint_text),
            name: key.and_then(|key| names.find(key)),
            seconds: rest.as_secs() + u64::from(rest.subsec_nanos() > 0),
        }
    }
}

/// Returns the clients that a rule has banned, and those whose bans end last, at most this many.
pub(crate) fn bans(
    gate: &Gate,
    slot: SlotId,
    now: Instant,
    most: usize,
    names: Names<'_>,
) -> BansView {
    let (total, bans) = gate.bans(slot, now, most);
    let keys = bans.into_iter().map(|(key, end)| BanView::of(key, end, now, names)).collect();
    BansView { total, keys }
}

/// Returns the keys that a rule has rejected most, at most this many; `None` if it has rejected
/// none lately.
pub(crate) fn rejected(
    gate: &Gate,
    seen: &RuleObservation,
    now: Instant,
    most: usize,
    names: Names<'_>,
) -> Option<RejectedKeysView> {
    let seen = gate.rejected_keys(seen.slot, now).filter(|seen| seen.total > 0)?;
    Some(RejectedKeysView::of(&seen, now, most, names))
}

/// Returns the keys of these rules, or of those with this name.
pub(crate) fn list(
    owners: &[GateRules<'_>],
    rule: Option<&str>,
    surveys: &Surveys,
    now: Instant,
    most: usize,
    names: Names<'_>,
) -> KeysView {
    let mut rules = Vec::new();
    for own in owners {
        let observed = own.gate.observe(now);
        for seen in &observed.rules {
            let found = own.rules.iter().find(|known| known.slot == seen.slot);
            let found = found.filter(|known| rule.is_none_or(|rule| *known.name == *rule));
            let Some(known) = found else { continue };
            let fullest = surveys.fullest(*own, seen.slot);
            let fullest =
                fullest.iter().take(most).map(|usage| KeyView::of(usage, seen.settles, names));
            let grants = own.gate.grants(seen.slot, now);
            let fullest = fullest.collect();
            let rejected = rejected(own.gate, seen, now, most, names).unwrap_or_default();
            let grants = grants.iter().map(|grant| GrantView::of(grant, now, names)).collect();
            let bans = bans(own.gate, seen.slot, now, most, names);
            let keys = RuleKeys::of(*own, known, seen);
            rules.push(RuleKeys { fullest, rejected, grants, bans, ..keys });
        }
    }
    KeysView { shows_keys: names.known.is_some(), store_failure: None, rules }
}

impl RuleKeys {
    fn of(own: GateRules<'_>, rule: &RouteRule, seen: &RuleObservation) -> Self {
        let is_keyed = !rule.key.is_shared();
        Self {
            route: own.owner.route().map(str::to_owned),
            budget: own.owner.budget(),
            rule: rule_of(&seen.name).to_owned(),
            when: rule.when.as_ref().map(|when| when.words().to_string()),
            key: is_keyed.then(|| rule.key.to_string()),
            algorithm: seen.algorithm.into(),
            dry_run: seen.dry_run,
            limit: seen.limit,
            used: (!is_keyed).then_some(seen.used),
            debt: debt(seen.used, seen.limit, seen.settles),
            in_store: rule.in_store().is_some(),
            live: seen.keys.map(|keys| keys.live),
            fullest: Vec::new(),
            rejected: RejectedKeysView::default(),
            grants: Vec::new(),
            bans: BansView::default(),
        }
    }
}

/// Keys that a walk finds.
pub(crate) const FOUND: usize = 20;

/// The time for which a result is used again, in durations of its walk.
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

/// Names keys, if they may be shown.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names<'a> {
    /// `None`: by fingerprint only.
    pub known: Option<&'a KeyNames>,
}

impl<'a> Names<'a> {
    pub(crate) fn of(snapshot: &Snapshot, known: &'a KeyNames) -> Self {
        Self { known: Some(known).filter(|_| snapshot.settings.shows_keys()) }
    }

    pub(super) fn find(self, key: u128) -> Option<Arc<str>> {
        self.known?.find(key)
    }

    /// Returns a key as the log has it. `text` is what the operator wrote.
    pub(super) fn in_log(self, key: u128, text: &str) -> String {
        if self.known.is_some() { text.to_owned() } else { fingerprint_text(key) }
    }
}

/// Returns the rules of a gate that have this name: the rule itself and its overrides, each with
/// its identity.
pub(super) fn rules_of<'a>(
    rules: GateRules<'a>,
    name: &'a str,
) -> impl Iterator<Item = &'a RouteRule> + use<'a> {
    rules.rules.iter().filter(move |rule| *rule.name == *name)
}
