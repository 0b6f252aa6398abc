//! What a request asks of each of its route's rules, and what its end tells them: from
//! the words of HTTP to those of `flow`.
//!
//! The proxy and `replay` both come through here, so that recorded traffic is decided
//! by the code that decides the live one.

use super::{OnMissing, Route, RouteRule, Snapshot};
use crate::{
    flow::{Claim, Instant, Key, Outcome, SlotId},
    route::{Seed, Target, dangerous_path},
};
use core::net::IpAddr;
use http::{Method, StatusCode};
use smallvec::SmallVec;
use std::sync::Arc;

/// What a request claims, in the order of the route's rules, then the breaker, pacing
/// last.
pub type Claims = SmallVec<[Claim; 4]>;

/// The name that a route's breaker goes by where a rule's name stands.
const BREAKER: &str = "breaker";

/// The name that its pacing goes by there.
const PACING: &str = "pacing";

/// Why a request reaches no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unrouted {
    /// No route matches.
    NoRoute,
    /// Different servers may understand different things by the path: why.
    Path(&'static str),
}

impl Snapshot {
    /// Finds the route of a request whose path was received as `path`.
    ///
    /// # Errors
    ///
    /// Why it reaches none.
    pub fn find(&self, target: &Target<'_>, path: &str) -> Result<&Arc<Route>, Unrouted> {
        self.find_index(target, path).map(|index| &self.routes[index])
    }

    /// The same, for the route's index.
    ///
    /// # Errors
    ///
    /// Why it reaches none.
    pub fn find_index(&self, target: &Target<'_>, path: &str) -> Result<usize, Unrouted> {
        let index = self.table.find(target);
        let route = index.and_then(|index| self.routes.get(index));
        if !route.is_some_and(|route| route.relaxed_path)
            && let Some(why) = dangerous_path(path)
        {
            return Err(Unrouted::Path(why));
        }
        index.ok_or(Unrouted::NoRoute)
    }
}

impl Route {
    /// Returns what a request claims.
    pub fn claims(&self, seed: &Seed, target: &Target<'_>, client: IpAddr) -> Claims {
        self.claims_of(target, client, |rule| rule.key.fingerprint(seed, target, client))
    }

    /// Returns what a request claims whose key for a rule `identify` knows, or that it
    /// has none.
    pub fn claims_of(
        &self,
        target: &Target<'_>,
        client: IpAddr,
        identify: impl Fn(&RouteRule) -> Option<u128>,
    ) -> Claims {
        let mut claims = Claims::new();
        let mut is_taken = false;
        for rule in &self.rules {
            // Of a rule and its alternatives, which stand before it, the first that fits is asked.
            let (is_past, fits) = match &rule.when {
                Some(when) => (is_taken, !is_taken && when.covers(target, client)),
                None => (false, !is_taken),
            };
            is_taken = is_past || (fits && rule.when.is_some());
            if fits && let Some(claim) = rule.claim(target, client, &identify) {
                claims.push(claim);
            }
        }
        let others = self.breaker.into_iter().chain(self.pacing);
        claims.extend(others.map(|slot| Claim { slot, key: Key::Shared, cost: 1 }));
        claims
    }

    /// Returns the rules whose part in a request with these claims cannot be known from
    /// its address, host, path and method: each with the key, or `None` if it left the
    /// request alone.
    pub fn hidden_keys(&self, claims: &Claims) -> impl Iterator<Item = (&Arc<str>, Option<u128>)> {
        self.rules.iter().filter_map(|rule| {
            let looks_at_fields = rule.key.looks_at_fields()
                || rule.except.as_ref().is_some_and(|except| except.looks_at_headers());
            let claim = claims.iter().find(|claim| claim.slot == rule.slot);
            match claim.map(|claim| claim.key) {
                _ if !looks_at_fields => None,
                None => Some((&rule.name, None)),
                Some(Key::Of(fingerprint)) => Some((&rule.name, Some(fingerprint))),
                // That the key is missing is seen without it.
                Some(Key::Shared | Key::Missing) => None,
            }
        })
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
        identify: impl Fn(&Self) -> Option<u128>,
    ) -> Option<Claim> {
        if self.except.as_ref().is_some_and(|except| except.covers(target, client)) {
            return None;
        }
        let key = if self.key.is_shared() {
            Key::Shared
        } else {
            match (identify(self), self.on_missing) {
                (Some(fingerprint), _) => Key::Of(fingerprint),
                (None, OnMissing::Shared) => Key::Shared,
                (None, OnMissing::Skip) => return None,
                (None, OnMissing::Reject) => Key::Missing,
            }
        };
        Some(Claim { slot: self.slot, key, cost: self.cost.of(target.method) })
    }
}

/// Returns the name of the rule that a gate knows as `identity`, which for an override says when,
/// too. A name holds no blanks.
pub fn rule_of(identity: &str) -> &str {
    identity.split_once(' ').map_or(identity, |(name, _)| name)
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
