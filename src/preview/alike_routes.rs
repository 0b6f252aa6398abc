//! Routes for which the new file needs no more of a request than the file in force has found out.

use crate::config::{ClaimSource, Route, Snapshot};
use std::sync::Arc;

/// A route of the new file that gets the requests of a route in force.
#[derive(Debug)]
pub(super) struct AlikeRoute {
    /// Where the claims on its rules come from.
    pub(super) sources: Box<[ClaimSource]>,
    /// Whether they are those on the rules in force.
    pub(super) are_same: bool,
}

/// Returns for each route in force, by index, the route of the new file with the same index, if both
/// let in the same requests, and what these claim in the new file follows from what they claim in
/// force, their client's address and their method. Both files find the same routes. If the report
/// `shows_keys`, the request itself has what names them.
pub(super) fn alike_routes(
    base: &Snapshot,
    new: &Snapshot,
    shows_keys: bool,
) -> Vec<Option<AlikeRoute>> {
    let trust_alike = trust_alike(base, new);
    let alike = |(here, there): (&Arc<Route>, &Arc<Route>)| {
        let are_shown = || there.rules.iter().all(|rule| rule.key.is_shown_by_request());
        let is_alike = trust_alike
            && !here.is_shared
            && let_in_alike(here, there)
            && (!shows_keys || are_shown());
        let sources = there.claims_from(here).filter(|_| is_alike)?;
        let is_same = |source: &ClaimSource| match source {
            ClaimSource::Other { from, to } => from == to,
            ClaimSource::Client(_) | ClaimSource::Always(_) => false,
        };
        let are_same = here.most_claims() == sources.len() && sources.iter().all(is_same);
        Some(AlikeRoute { sources: sources.into_boxed_slice(), are_same })
    };
    base.routes.iter().zip(&new.routes).map(alike).collect()
}

/// Returns whether the client of each request has the same address by both.
fn trust_alike(base: &Snapshot, new: &Snapshot) -> bool {
    let mut listeners = base.listeners.iter().chain(&new.listeners);
    listeners.all(|listener| {
        let name = Some(&*listener.name);
        base.proxies(name) == new.proxies(name)
    })
}

/// Returns whether both routes let in the same requests, before any rule is asked.
fn let_in_alike(here: &Route, there: &Route) -> bool {
    let here = &here.options;
    let there = &there.options;
    here.access == there.access && here.auth == there.auth && here.body_limit == there.body_limit
}
