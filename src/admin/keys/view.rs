//! Keys as JSON.

use super::{names::Names, surveys::Surveys};
use crate::{
    config::{GateRules, RouteRule},
    flow::{Gate, Grant, Instant, Key, KeyUsage, RejectedKeys, RuleObservation, rule_of},
    route::fingerprint_text,
};
use serde::Serialize;
use std::sync::Arc;

/// The keys of rules.
#[derive(Debug, Serialize)]
pub(crate) struct KeysView {
    /// Whether keys have names.
    shows_keys: bool,
    /// While the store fails: since when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store_failure: Option<String>,
    rules: Vec<RuleKeys>,
}

#[derive(Debug, Serialize)]
struct RuleKeys {
    #[serde(skip_serializing_if = "Option::is_none")]
    route: Option<String>,
    /// The budget; of another shared rule, the place in the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    budget: Option<String>,
    rule: String,
    /// The condition of an override.
    #[serde(skip_serializing_if = "Option::is_none")]
    when: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    algorithm: &'static str,
    /// Whether it rejects nothing.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    dry_run: bool,
    limit: u64,
    /// By the shared state, if the rule has no key.
    #[serde(skip_serializing_if = "Option::is_none")]
    used: Option<u64>,
    /// Whether the store counts, which is not asked.
    in_store: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    live: Option<u32>,
    fullest: Vec<KeyView>,
    rejected: RejectedKeysView,
    grants: Vec<GrantView>,
}

/// What a key has used.
#[derive(Debug, Serialize)]
pub(crate) struct KeyView {
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    used: u64,
    /// Until nothing is used, if it sends no more.
    reset_ms: u64,
}

/// The keys that a rule rejects most.
#[derive(Debug, Default, Serialize)]
pub(crate) struct RejectedKeysView {
    /// Over how many seconds.
    seconds: u64,
    /// Rejections of all keys.
    total: u64,
    keys: Vec<RejectedKey>,
}

#[derive(Debug, Serialize)]
struct RejectedKey {
    fingerprint: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    rejected: u64,
    /// By how much `rejected` may be too high.
    error: u64,
}

#[derive(Debug, Serialize)]
struct GrantView {
    /// `None`: the state of all.
    #[serde(skip_serializing_if = "Option::is_none")]
    fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Arc<str>>,
    count: u64,
    left: u64,
    seconds: u64,
}

impl KeyView {
    pub(crate) fn of(usage: &KeyUsage, names: Names<'_>) -> Self {
        Self {
            fingerprint: fingerprint_text(usage.key),
            name: names.find(usage.key),
            used: usage.used,
            reset_ms: u64::try_from(usage.reset.as_millis()).unwrap_or(u64::MAX),
        }
    }
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

/// Returns the keys that a rule has rejected most, at most this many; `None` if it has rejected
/// none lately.
pub(crate) fn rejected(
    gate: &Gate,
    seen: &RuleObservation,
    (now, most): (Instant, usize),
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
    (now, most): (Instant, usize),
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
            let fullest = fullest.iter().take(most).map(|usage| KeyView::of(usage, names));
            let grants = own.gate.grants(seen.slot, now);
            let fullest = fullest.collect();
            let rejected = rejected(own.gate, seen, (now, most), names).unwrap_or_default();
            let grants = grants.iter().map(|grant| GrantView::of(grant, now, names)).collect();
            rules.push(RuleKeys { fullest, rejected, grants, ..RuleKeys::of(*own, known, seen) });
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
            algorithm: seen.algorithm,
            dry_run: seen.dry_run,
            limit: seen.limit,
            used: (!is_keyed).then_some(seen.used),
            in_store: rule.in_store().is_some(),
            live: seen.keys.map(|keys| keys.live),
            fullest: Vec::new(),
            rejected: RejectedKeysView::default(),
            grants: Vec::new(),
        }
    }
}
