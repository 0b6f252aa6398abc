//! The state of the process before this one.

use super::{
    error::StartError,
    upgrade::{IncomingState, Predecessor},
};
use crate::{
    clock::Clock,
    config::{Live, Plan},
};
use std::collections::HashMap;

/// Takes over the states of the gates.
pub(super) fn take_state(
    old: &Predecessor,
    clock: &Clock,
    plan: &Plan,
) -> Result<IncomingState, StartError> {
    let state = old.take_state(clock, |name| plan.calendar(name))?;
    if let Some(unknown) = state.unknown() {
        tracing::warn!(rules = %unknown, "rules of the old process are unknown here and start again");
    }
    Ok(state)
}

/// Puts the first plan in force, with the gates of the process before if there was one.
pub(super) fn resume(plan: Plan, clock: &Clock, state: Option<&IncomingState>) -> Live {
    let gates = state.map_or_else(HashMap::new, IncomingState::gates);
    let (live, summary) = Live::resume(plan, clock.now(), clock.wall_offset(), gates);
    if let Some(state) = state {
        tracing::info!(
            states = state.states(),
            "took the state over: kept {}, converted {}, reset {}",
            summary.rules_kept,
            summary.rules_converted,
            summary.rules_reset(),
        );
        if let Some(warning) = summary.warning() {
            tracing::warn!("{warning}");
        }
    }
    live
}
