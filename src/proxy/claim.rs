//! What a request asks of each of its route's rules.

use crate::{
    config::{OnMissing, Route, RouteRule},
    flow::{Claim, Key},
    route::{Seed, Target},
};
use core::net::IpAddr;
use smallvec::SmallVec;

/// Returns the claims in the order of the route's rules, pacing last.
pub(super) fn claims(
    route: &Route,
    seed: &Seed,
    target: &Target<'_>,
    client: IpAddr,
) -> SmallVec<[Claim; 4]> {
    let mut claims = SmallVec::new();
    for rule in &route.rules {
        if let Some(claim) = claim(rule, seed, target, client) {
            claims.push(claim);
        }
    }
    if let Some(slot) = route.pacing {
        claims.push(Claim { slot, key: Key::Shared, cost: 1 });
    }
    claims
}

/// `None` if the rule leaves the request alone.
fn claim(rule: &RouteRule, seed: &Seed, target: &Target<'_>, client: IpAddr) -> Option<Claim> {
    if rule.except.as_ref().is_some_and(|except| except.covers(target, client)) {
        return None;
    }
    let key = if rule.key.is_shared() {
        Key::Shared
    } else {
        match (rule.key.fingerprint(seed, target, client), rule.on_missing) {
            (Some(fingerprint), _) => Key::Of(fingerprint),
            (None, OnMissing::Shared) => Key::Shared,
            (None, OnMissing::Skip) => return None,
            (None, OnMissing::Reject) => Key::Missing,
        }
    };
    Some(Claim { slot: rule.slot, key, cost: rule.cost.of(target.method) })
}
