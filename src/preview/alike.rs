//! Requests on routes on which both files differ in the numbers of rules only.
//!
//! For these, the new file needs no search, no client and no keys of its own: it decides by what
//! the file in force has found out about the request.

use super::{
    ask::{Asked, ask},
    running::Preview,
    trial::{Here, There, Trial},
};
use crate::{
    config::{Claims, Route},
    flow::{Claim, Instant, SlotId},
};
use core::net::IpAddr;
use std::sync::Arc;

/// A request on a route on which both files differ in the numbers of rules only.
#[derive(Clone, Copy, Debug)]
pub struct Alike<'a> {
    preview: &'a Preview,
    index: usize,
    slots: &'a [(SlotId, SlotId)],
    client: IpAddr,
}

impl Preview {
    /// Returns the request with this route in force, path as it was received, and client, if it is on
    /// a route on which both files differ in the numbers of rules only.
    pub fn alike(&self, here: &Arc<Route>, path: &str, client: IpAddr) -> Option<Alike<'_>> {
        let here = self.index_of(here)?;
        let index = self.index_without_search(Some(here), path)?;
        let slots = self.alike_slots(index)?;
        Some(Alike { preview: self, index, slots, client })
    }
}

impl Alike<'_> {
    /// Decides about a request with these claims on the rules in force at `now`, charges the new
    /// file's rules, and compares with what became of it.
    pub fn decide(
        &self,
        claims: &[Claim],
        here: &Here<'_>,
        is_logged: bool,
        (now, wall): (Instant, Instant),
        worker: usize,
    ) -> Option<Box<Trial>> {
        let Self { preview, index, slots, client } = *self;
        let own;
        let claims = if slots.is_empty() {
            claims
        } else {
            own = on_slots(claims, slots);
            &own
        };
        let route = &preview.snapshot().routes[index];
        let Asked { treatment, wait, permit, record } = ask(route, claims, is_logged, now);
        let index = u32::try_from(index).ok();
        let there = There { here: index, route: index, treatment, wait, client };
        preview.note(there, here, (claims, &mut Vec::new()), wall, worker);
        let permit = permit.filter(|_| here.treatment.is_let_through());
        Trial::compared(permit, record)
    }
}

/// Returns the same claims on the new file's rules.
fn on_slots(claims: &[Claim], slots: &[(SlotId, SlotId)]) -> Claims {
    let slot = |claim: &Claim| slots.iter().find(|(here, _)| *here == claim.slot);
    claims.iter().filter_map(|claim| Some(Claim { slot: slot(claim)?.1, ..*claim })).collect()
}
