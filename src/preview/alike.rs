//! Requests about which the new file needs to know no more than the file in force has found out: the
//! route, the client's address and most claims.

use super::{
    running::Preview,
    trial::{Asked, Here, There, Trial, ask},
};
use crate::{
    config::{ClaimSource, Claims, Route, RouteRule, Snapshot},
    flow::{Claim, Instant, Key},
};
use core::{net::IpAddr, time::Duration};
use std::sync::Arc;

/// A request about which the new file needs to know no more.
#[derive(Clone, Copy, Debug)]
pub struct Alike<'a> {
    preview: &'a Preview,
    index: usize,
    route: &'a AlikeRoute,
    /// The client's address.
    pub client: IpAddr,
}

/// The request as the file in force has decided about it.
#[derive(Clone, Copy, Debug)]
pub struct LiveRequest<'a> {
    /// The claims of the request there.
    pub claims: &'a [Claim],
    /// Its treatment.
    pub here: Here<'a>,
    /// True if the decision is logged.
    pub is_logged: bool,
    /// The time when it came, by the wall's clock.
    pub wall: Instant,
    /// The number of the worker that serves it.
    pub worker: usize,
}

impl Preview {
    /// Returns the request with this route in force, path as it was received, and client, if the new
    /// file needs to know no more about it.
    pub fn alike(&self, here: &Arc<Route>, path: &str, client: IpAddr) -> Option<Alike<'_>> {
        let here = self.index_of(here)?;
        let index = self.index_without_search(Some(here), path)?;
        Some(Alike { preview: self, index, route: self.alike_route(index)?, client })
    }
}

impl Alike<'_> {
    /// Decides about the request at `now`, charges the new file's rules, and compares with what
    /// became of it. `by_client` says what it claims on a rule that looks only at the client's address
    /// and the method, and `show` what the key of a rule is.
    pub fn decide(
        &self,
        live: &LiveRequest<'_>,
        by_client: impl Fn(&RouteRule) -> Option<Claim>,
        show: impl FnOnce(&RouteRule) -> Option<String>,
        now: Instant,
    ) -> Option<Box<Trial>> {
        let Self { preview, index, route: AlikeRoute { sources, are_same }, client } = *self;
        let LiveRequest { claims, here, is_logged, wall, worker } = *live;
        let route = &preview.snapshot().routes[index];
        let mut own = Claims::new();
        let claims = if *are_same {
            claims
        } else {
            for source in sources {
                let claim = match *source {
                    ClaimSource::Other { from, to } => {
                        let claim = claims.iter().find(|claim| claim.slot == from);
                        claim.map(|claim| Claim { slot: to, ..*claim })
                    }
                    ClaimSource::Client(index) => route.rules.get(index).and_then(&by_client),
                    ClaimSource::Always(slot) => Some(Claim {
                        slot,
                        key: Key::Shared,
                        cost: 1,
                        patience: Duration::ZERO,
                        plan: None,
                    }),
                };
                if let Some(claim) = claim {
                    own.push(claim);
                }
            }
            &own
        };

        let mut permit = None;
        // Its queues have no order that needs the request: see `alike_routes`.
        let Asked { treatment, wait, record } =
            ask(route, claims, Vec::new, is_logged, now, &mut permit);
        let index = u32::try_from(index).ok();
        let there = There { here: index, route: index, treatment, wait, client };
        let name = |slot| {
            let mut rules = route.rules.iter();
            let rule = rules.find(|rule| rule.slot == slot && !rule.key.is_address());
            rule.filter(|_| preview.shows_keys).and_then(show)
        };
        preview.note(there, &here, (claims, name), (wall, worker));
        if !here.treatment.is_let_through() {
            permit = None;
        }
        let is_kept = permit.is_some() || record.is_some();
        is_kept.then(|| Box::new(Trial { waiting: None, permit, record }))
    }
}

/// A route of the new file that gets the requests of a route in force.
#[derive(Debug)]
pub(super) struct AlikeRoute {
    /// Where the claims on its rules come from.
    pub(super) sources: Box<[ClaimSource]>,
    /// True if they are those on the rules in force.
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
        let are_shown = || there.rules.iter().all(|rule| rule.key.is_shown_by_head());
        let is_alike = trust_alike
            && !here.is_shared
            && !there.shares_queues
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

/// Returns whether the client of each request has the same address by both, and is in the same place.
fn trust_alike(base: &Snapshot, new: &Snapshot) -> bool {
    if base.settings.geo != new.settings.geo {
        return false;
    }
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
