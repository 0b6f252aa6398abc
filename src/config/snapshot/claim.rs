//! What a request asks of each of its route's rules, and how its end counts: from HTTP to the
//! terms of `flow`.
//!
//! The proxy and `replay` both use it, so that one code decides live and recorded traffic.

use super::{Route, RouteRule};
use crate::{
    config::{
        plan::{BREAKER, PACING, Priority, ReservedRequest},
        spec::OnMissing,
    },
    flow::{Claim, Estimate, Instant, Key, Outcome, PlanKey, Sharer, SlotId},
    route::{KeyPart, NoKey, OnDuplicate, Seed, Target},
};
use core::{net::IpAddr, time::Duration};
use http::{Method, StatusCode};
use smallvec::SmallVec;

/// The claims of a request, in the order of the route's rules, then the breaker, pacing
/// last.
pub type Claims = SmallVec<[Claim; 4]>;

/// A request, as its route's rules see it.
#[derive(Clone, Copy, Debug)]
pub struct RequestContext<'a> {
    /// The key of fingerprints.
    pub seed: &'a Seed,
    /// The claim.
    pub target: &'a Target<'a>,
    /// The client's address.
    pub client: IpAddr,
}

/// Where a request's key in a rule comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// The request itself.
    Request,
    /// A fingerprint that was made of it already, if the rule has keys.
    Fingerprint(u128),
    /// A record of what it claimed.
    Recorded {
        /// `None`: nothing.
        key: Option<Key>,
        /// True if the rule knew it to have priority.
        priority: bool,
        /// The plan that it had.
        plan: Option<PlanKey>,
    },
}

impl Route {
    /// Adds to `claims` what a request claims. `known` says where its key comes from for a rule and
    /// the rule's identity.
    pub fn claim(
        &self,
        request: RequestContext<'_>,
        known: impl Fn(&RouteRule, &str) -> KeySource,
        claims: &mut Claims,
    ) {
        let RequestContext { seed, target, client } = request;
        if self.answers_preflight(target) {
            return;
        }

        let mut is_taken = false;

        for rule in self.rules.iter().filter(|rule| rule.is_asked_at(target.listener)) {
            let known = known(rule, &rule.identity);
            if let KeySource::Recorded { key, priority, plan } = known {
                is_taken = rule.when.is_some() && (is_taken || key.is_some());
                let priority = rule.priority.as_deref().filter(|_| priority);
                let claim = |key| Claim { plan, ..rule.claim_on(key, target.method, priority) };
                claims.extend(key.map(claim));
                continue;
            }

            // Of a rule and its alternatives, which stand before it, the first that fits is asked,
            // or the first of which servers could disagree whether it fits.
            let is_ambiguous = !is_taken
                && rule.key.on_duplicate() == OnDuplicate::Reject
                && rule.when.as_ref().is_some_and(|when| when.is_ambiguous(target, client));
            let (is_past, fits) = match &rule.when {
                Some(when) => {
                    (is_taken, !is_taken && (is_ambiguous || when.covers(target, client)))
                }
                None => (false, !is_taken),
            };
            is_taken = is_past || (fits && rule.when.is_some());

            let fingerprint = || match known {
                _ if is_ambiguous => Err(NoKey::Duplicate),
                // Nothing is made of what all requests share.
                _ if rule.key.is_shared() => Err(NoKey::Missing),
                KeySource::Fingerprint(fingerprint) => Ok(fingerprint),
                KeySource::Request | KeySource::Recorded { .. } => {
                    rule.key.fingerprint(seed, target, client)
                }
            };

            if fits && let Some(claim) = rule.claim(target, client, fingerprint) {
                claims.push(claim);
            }
        }

        for slot in self.breaker.into_iter().chain(self.pacing) {
            claims.push(Claim {
                slot,
                key: Key::Shared,
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            });
        }
        if self.settling.computes_reserves {
            let length = target.headers.get_only("content-length");
            let length = length.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
            let request = ReservedRequest { bytes: length.unwrap_or(0), body: target.body };
            self.reserve(request, claims);
        }
    }

    /// Returns the parts of a request in the order of the queues of its rules, if they differ. `known` has
    /// the part of a rule with this identity, if it is recorded.
    pub fn sharers(
        &self,
        request: RequestContext<'_>,
        known: impl Fn(&str) -> Option<Sharer>,
    ) -> Vec<(SlotId, Sharer)> {
        let RequestContext { seed, target, client } = request;
        let sharers = self.rules.iter().filter_map(|rule| {
            let order = rule.shares.as_ref()?;
            let part = known(&rule.identity).unwrap_or_else(|| order.of(seed, target, client));
            Some((rule.slot, part))
        });
        sharers.collect()
    }

    /// Gives a request with these claims the priority that any of its rules knows.
    pub fn prioritize(&self, claims: &mut Claims) {
        for claim in claims {
            let rule = self.rules.iter().find(|rule| rule.slot == claim.slot);
            if let Some(priority) = rule.and_then(|rule| rule.priority.as_ref()) {
                claim.patience = priority.max_wait;
            }
        }
    }

    /// Computes the reserves of a request with these claims.
    pub fn reserve(&self, request: ReservedRequest<'_>, claims: &mut Claims) {
        if !self.settling.computes_reserves {
            return;
        }
        for claim in claims {
            let Some(rule) = self.rules.iter().find(|rule| rule.slot == claim.slot) else {
                continue;
            };
            let settle = rule.cost.settle.as_deref();
            if let Some(reserve) = settle.and_then(|settle| settle.reserve.as_ref()) {
                let learned = rule.learned.as_ref().map_or(1, Estimate::get);
                let plan = rule.plans.as_deref().zip(claim.plan);
                let plan = plan.and_then(|(plans, plan)| plans.level(plan));
                claim.cost = reserve.of(request, learned, plan);
            }
        }
    }

    /// Sets the cost of a request with these claims, but for the breaker.
    pub fn charge(&self, cost: u64, claims: &mut Claims) {
        for claim in claims.iter_mut().filter(|claim| self.breaker != Some(claim.slot)) {
            claim.cost = cost;
        }
    }

    /// Returns the rules whose claims cannot be derived from a request's address,
    /// host, path and method: each with its claim, or `None` if it was not asked.
    pub fn hidden_claims<'a>(
        &'a self,
        claims: &'a Claims,
    ) -> impl Iterator<Item = (&'a RouteRule, Option<&'a Claim>)> {
        let hidden = self.rules.iter().filter(|rule| {
            // Of a rule and its alternatives one is asked, so that none is known alone.
            self.rules.iter().any(|other| other.name == rule.name && other.looks_at_fields())
        });
        hidden.map(|rule| (rule, claims.iter().find(|claim| claim.slot == rule.slot)))
    }

    /// Returns whether the rule behind `slot` is in dry run.
    pub fn is_dry_run(&self, slot: SlotId) -> bool {
        self.rules.iter().any(|rule| rule.slot == slot && rule.dry_run)
    }

    /// Returns whether the rule behind `slot` decides before the auth service is asked.
    pub fn is_before_auth(&self, slot: SlotId) -> bool {
        self.rules.iter().any(|rule| rule.slot == slot && rule.before_auth)
    }

    /// Returns the name of the rule behind `slot`.
    pub fn rule_name(&self, slot: SlotId) -> &str {
        let other = if self.breaker == Some(slot) { BREAKER } else { PACING };
        self.rules.iter().find(|rule| rule.slot == slot).map_or(other, |rule| &rule.name)
    }
}

impl RouteRule {
    /// `None` if the rule leaves the request alone.
    fn claim(
        &self,
        target: &Target<'_>,
        client: IpAddr,
        fingerprint: impl FnOnce() -> Result<u128, NoKey>,
    ) -> Option<Claim> {
        if self.except.as_ref().is_some_and(|except| except.covers(target, client)) {
            return None;
        }
        let key = match (fingerprint(), self.on_missing) {
            (Err(NoKey::Duplicate), _) => Key::Duplicate,
            _ if self.key.is_shared() => Key::Shared,
            (Ok(fingerprint), _) => Key::Of(fingerprint),
            (Err(NoKey::Missing), OnMissing::Shared) => Key::Shared,
            (Err(NoKey::Missing), OnMissing::Skip) => return None,
            (Err(NoKey::Missing), OnMissing::Reject) => Key::Missing,
        };
        let priority = self.priority.as_deref().filter(|priority| priority.covers(target));
        let plan = self.plans.as_deref().and_then(|plans| plans.of(target, client));
        Some(Claim { plan, ..self.claim_on(key, target.method, priority) })
    }

    /// Returns what a request claims, if that depends on its client's address and method only.
    pub fn claim_by_client(&self, request: RequestContext<'_>, known: KeySource) -> Option<Claim> {
        let RequestContext { seed, target, client } = request;
        let fingerprint = || match known {
            KeySource::Fingerprint(fingerprint) => Ok(fingerprint),
            KeySource::Request | KeySource::Recorded { .. } if self.key.is_shared() => {
                Err(NoKey::Missing)
            }
            KeySource::Request | KeySource::Recorded { .. } => {
                self.key.fingerprint(seed, target, client)
            }
        };
        self.claim(target, client, fingerprint)
    }

    /// `priority` is that of the request, if it has it.
    fn claim_on(&self, key: Key, method: &Method, priority: Option<&Priority>) -> Claim {
        let patience = priority.map_or(Duration::ZERO, |priority| priority.max_wait);
        Claim { slot: self.slot, key, cost: self.cost.of(method), patience, plan: None }
    }

    /// True if a header, a cookie, the query or what the client has proved to be has a part in what a request claims.
    fn looks_at_fields(&self) -> bool {
        self.key.looks_at_fields()
            || self.plans.is_some()
            || self.except.as_ref().is_some_and(|except| except.looks_at_fields())
            || self.priority.is_some()
            || self.when.as_ref().is_some_and(|when| when.looks_at_fields())
            || self.identity().next().is_some()
    }
}

/// Returns whether requests with this method are served at all. `CONNECT` is a tunnel to
/// anywhere, `TRACE` an echo of secrets.
pub fn is_served(method: &Method) -> bool {
    !matches!(*method, Method::CONNECT | Method::TRACE)
}

/// Returns what the rules learn of an answer with `status` that ended at `at`, if it was
/// sent in full.
pub fn outcome(status: StatusCode, at: Instant) -> Outcome {
    if status.is_server_error() { Outcome::Failure { at } } else { Outcome::Success { at } }
}

/// Where a claim comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimSource {
    /// It is the other route's claim on the slot `from`, on the slot `to`.
    Other {
        /// The other route's slot.
        from: SlotId,
        /// The slot.
        to: SlotId,
    },
    /// It is that on the rule with this index, and depends on the client's address and the method
    /// only: see [`RouteRule::claim_by_client`].
    Client(usize),
    /// Every request claims this slot, at a cost of 1.
    Always(SlotId),
}

impl Route {
    /// Returns where the claims of a request on this route come from, in their order, if it claims
    /// something on `other` too. `None` if some need more of the request.
    pub fn claims_from(&self, other: &Self) -> Option<Vec<ClaimSource>> {
        let mut sources = self.rules_from(other)?;
        for (own, others) in [(self.breaker, other.breaker), (self.pacing, other.pacing)] {
            sources.extend(own.map(|to| match others {
                Some(from) => ClaimSource::Other { from, to },
                None => ClaimSource::Always(to),
            }));
        }
        Some(sources)
    }

    /// Returns the most claims that a request may have.
    pub fn most_claims(&self) -> usize {
        self.rules.len() + usize::from(self.breaker.is_some()) + usize::from(self.pacing.is_some())
    }

    fn rules_from(&self, other: &Self) -> Option<Vec<ClaimSource>> {
        // Of a rule and its alternatives one is asked, so that none is known alone.
        if self.rules.iter().chain(&other.rules).any(|rule| rule.when.is_some()) {
            let pairs = self.rules.iter().zip(&other.rules);
            let are_same = self.rules.len() == other.rules.len()
                && pairs.clone().all(|(rule, others)| rule.claims_like(others));
            let source = |(rule, others): (&RouteRule, &RouteRule)| ClaimSource::Other {
                from: others.slot,
                to: rule.slot,
            };
            return are_same.then(|| pairs.map(source).collect());
        }
        let source = |(index, rule): (usize, &RouteRule)| {
            // That in the same place has the same slot, unless an edit has changed it.
            let in_place = other.rules.get(index).into_iter();
            let mut candidates = in_place.chain(&other.rules);
            if let Some(others) = candidates.find(|others| rule.claims_like(others)) {
                return Some(ClaimSource::Other { from: others.slot, to: rule.slot });
            }
            rule.is_by_client().then_some(ClaimSource::Client(index))
        };
        self.rules.iter().enumerate().map(source).collect()
    }
}

impl RouteRule {
    /// Returns whether a request claims the same of both.
    fn claims_like(&self, other: &Self) -> bool {
        // The store's key makes other fingerprints.
        self.shared.is_none()
            && other.shared.is_none()
            && self.listeners == other.listeners
            && self.options.claims_like(&other.options)
    }

    /// Returns whether a claim depends on the client's address and the method only.
    fn is_by_client(&self) -> bool {
        let is_client = |part: &KeyPart| matches!(part, KeyPart::ClientIp { .. });
        self.when.is_none()
            && self.listeners.is_none()
            && self.priority.is_none()
            && self.plans.is_none()
            && self.except.as_ref().is_none_or(|except| except.is_by_client())
            && (self.key.is_shared() || self.key.parts().iter().all(is_client))
    }
}
