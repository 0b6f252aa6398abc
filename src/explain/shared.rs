//! The rules that this gateway decides alone, and the notes about those that gateways share.

use crate::{
    config::{Claims, OnStoreError, Route, Shared},
    flow::{Key, SlotId},
    route::Seed,
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};

/// The secrets of fingerprints.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    /// This gateway's.
    pub own: Seed,
    /// The store, if there is one.
    pub store: Option<StoreState>,
}

/// The known state of the store. It is not asked.
#[derive(Clone, Copy, Debug)]
pub struct StoreState {
    /// The secret that all gateways have.
    pub seed: Seed,
    /// True if it answers.
    pub is_up: bool,
    /// True if the sync fails.
    pub is_cut_off: bool,
}

/// The part of the decision that this gateway makes by itself.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// The claims for its gate.
    pub(super) claims: Claims,
    /// The note about shared rules.
    pub(super) notes: Vec<(SlotId, &'static str)>,
    /// The rule that rejects everything while the store is down.
    pub(super) denied: Option<SlotId>,
    /// True if the store would be asked.
    pub(super) asks: bool,
}

impl Local {
    /// Sorts the claims of a request as the proxy does.
    pub(super) fn of(route: &Route, claims: &Claims, store: Option<StoreState>) -> Self {
        let mut local = Self::default();
        for claim in claims {
            let shared = route.shared(claim.slot);
            let shared = shared.filter(|_| !matches!(claim.key, Key::Missing | Key::Duplicate));
            let Some((shared, is_dry_run)) = shared else {
                local.claims.push(*claim);
                continue;
            };
            let (is_decided_here, note) = match (state(shared, store), shared.on_error) {
                (State::Asked, _) => (false, "the store decides, which was not asked"),
                (State::Synced, _) => {
                    (true, "by what this gateway knows of all gateways; the store was not asked")
                }
                (State::Lost, OnStoreError::Local) => {
                    (true, "the store fails: this gateway decides by its part of the limit")
                }
                (State::Lost, OnStoreError::Allow) => (false, "the store fails: all requests pass"),
                (State::Lost, OnStoreError::Deny) => {
                    if !is_dry_run {
                        local.denied = local.denied.or(Some(claim.slot));
                    }
                    (false, "the store fails: all requests are rejected")
                }
            };
            local.asks |= matches!(state(shared, store), State::Asked);
            local.notes.push((claim.slot, note));
            if is_decided_here {
                local.claims.push(*claim);
            }
        }

        if local.asks || local.denied.is_some() {
            // Such a request borrows nothing.
            local.claims.iter_mut().for_each(|claim| claim.patience = Duration::ZERO);
        }
        local
    }

    pub(super) fn note(&self, slot: SlotId) -> Option<&'static str> {
        self.notes.iter().find(|(of, _)| *of == slot).map(|(_, note)| *note)
    }
}

/// The way in which gateways share a rule at the moment.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The store decides about each request.
    Asked,
    /// Each gateway decides, and they sync.
    Synced,
    /// The store fails.
    Lost,
}

fn state(shared: &Shared, store: Option<StoreState>) -> State {
    match (&shared.sync, store) {
        (Some(sync), Some(store)) if !store.is_cut_off && !sync.is_rejected.load(Relaxed) => {
            State::Synced
        }
        (None, Some(store)) if store.is_up => State::Asked,
        (Some(_) | None, _) => State::Lost,
    }
}
