//! Requests about which the new file needs to know no more than the file in force has found out: the
//! route, the client's address and most claims.

use super::{
    alike_routes::AlikeRoute,
    ask::{Asked, ask},
    running::Preview,
    trial::{Here, There, Trial},
};
use crate::{
    config::{ClaimSource, Claims, Route, RouteRule},
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
    /// What the request claims there.
    pub claims: &'a [Claim],
    /// What became of it.
    pub here: Here<'a>,
    /// Whether the decision is logged.
    pub is_logged: bool,
    /// When it came, by the wall's clock.
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
                    ClaimSource::Always(slot) => {
                        Some(Claim { slot, key: Key::Shared, cost: 1, patience: Duration::ZERO })
                    }
                };
                if let Some(claim) = claim {
                    own.push(claim);
                }
            }
            &own
        };
        let mut permit = None;
        let Asked { treatment, wait, record } = ask(route, claims, is_logged, now, &mut permit);
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
