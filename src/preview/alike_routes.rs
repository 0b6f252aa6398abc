//! Routes on which both files differ in the numbers of rules only.

use crate::{
    config::{Route, Snapshot},
    flow::SlotId,
};
use std::sync::Arc;

/// The slots of a route in force, each with that of the new file's route; empty if these are the
/// same.
pub(super) type Slots = Box<[(SlotId, SlotId)]>;

/// Returns for each route in force, by index, the slots of the new file's route with the same index,
/// if both let in the same requests, which claim the same. Both files find the same routes.
pub(super) fn alike_routes(base: &Snapshot, new: &Snapshot) -> Vec<Option<Slots>> {
    let trust_alike = trust_alike(base, new);
    let slots = |(here, there): (&Arc<Route>, &Arc<Route>)| {
        let is_alike = trust_alike && !here.is_shared && let_in_alike(here, there);
        let mut slots = here.same_claims(there).filter(|_| is_alike)?;
        if slots.iter().all(|(here, there)| here == there) {
            slots.clear();
        }
        Some(slots.into_boxed_slice())
    };
    base.routes.iter().zip(&new.routes).map(slots).collect()
}

/// Returns whether the client of each request has the same address by both.
fn trust_alike(base: &Snapshot, new: &Snapshot) -> bool {
    let mut listeners = base.listeners.iter().chain(&new.listeners);
    listeners.all(|listener| {
        let name = Some(&*listener.name);
        base.trusted_proxies(name) == new.trusted_proxies(name)
    })
}

/// Returns whether both routes let in the same requests, before any rule is asked.
fn let_in_alike(here: &Route, there: &Route) -> bool {
    let here = &here.options;
    let there = &there.options;
    here.access == there.access && here.auth == there.auth && here.body_limit == there.body_limit
}
