//! Costs that are settled at the ends of recorded requests.

use super::event::{Arrival, Ending, RecordedCost};
use crate::{
    config::{Claims, ReservedRequest, ResponseEnd, Route, RouteRule},
    flow::{Instant, Permit, SlotId},
    route::BodyMembers,
    usage::Passed,
};
use core::cmp::Reverse;
use std::sync::Arc;

/// The facts about an admitted request by which its costs are settled.
#[derive(Debug)]
pub(super) struct Unsettled {
    route: Arc<Route>,
    /// The cost in the end for every rule, if the event has it.
    settled: Option<u64>,
    recorded: Vec<RecordedCost>,
    /// The charges while the response passed that are still to be made, the latest first.
    charges: Vec<Charge>,
    request_bytes: u64,
    response_bytes: u64,
}

/// A charge while the response passed.
#[derive(Debug)]
struct Charge {
    at: Instant,
    slot: SlotId,
    /// Everything that is charged by then.
    total: u64,
}

impl Unsettled {
    /// Returns those of an arrival; `None` if none of its charges is to be settled.
    pub(super) fn of(arrival: &Arrival, permit: &Permit, route: &Arc<Route>) -> Option<Box<Self>> {
        if permit.reserves().is_empty() {
            return None;
        }
        let recorded = arrival.recorded.as_ref();
        let known = recorded.map(|recorded| recorded.settling).unwrap_or_default();
        Some(Box::new(Self {
            charges: charges(recorded.map_or(&[], |recorded| &recorded.costs), permit, route),
            route: Arc::clone(route),
            settled: known.settled,
            recorded: recorded.map_or_else(Vec::new, |recorded| recorded.costs.clone()),
            request_bytes: known.request_bytes.unwrap_or(0),
            response_bytes: known.response_bytes.unwrap_or(0),
        }))
    }

    /// Returns the time of the next charge while the response passes.
    pub(super) fn next_charge(&self) -> Option<Instant> {
        self.charges.last().map(|charge| charge.at)
    }

    /// Makes at `now` the charges of up to `until`.
    pub(super) fn charge(&mut self, permit: &mut Permit, now: Instant, until: Instant) {
        while let Some(charge) = self.charges.pop_if(|charge| charge.at <= until) {
            permit.charge_so_far(now, |reserve| {
                (reserve.slot() == charge.slot).then_some(charge.total)
            });
        }
    }

    /// Settles the costs of a request that ends like this: as recorded, or else as its end says.
    pub(super) fn settle(&self, permit: &mut Permit, ending: Ending, at: Instant) {
        let status = match ending {
            Ending::Responded(status) => Some(status.unwrap_or(200)),
            Ending::Failed | Ending::Cancelled(_) => None,
        };
        let end = ResponseEnd {
            status,
            is_failure: false,
            passed: Passed {
                request_bytes: self.request_bytes,
                response_bytes: self.response_bytes,
                events: 0,
                is_whole: status.is_some(),
            },
            time: at.since(permit.start()),
            field: None,
        };
        permit.settle(at, |reserve| {
            let rule = self.route.rules.iter().find(|rule| rule.slot == reserve.slot())?;
            let settle = rule.cost.settle.as_ref()?;
            let recorded = self.recorded.iter().find(|cost| *cost.rule == *rule.identity);
            match (recorded, self.settled) {
                (Some(cost), _) => cost.settled.map(|cost| settle.known_cost(cost, &end)),
                (None, Some(cost)) => Some(settle.known_cost(cost, &end)),
                (None, None) => settle.cost(&end, reserve.total(), None),
            }
        });
    }
}

/// Returns the recorded charges of rules that charge while a response passes, the latest first.
fn charges(costs: &[RecordedCost], permit: &Permit, route: &Route) -> Vec<Charge> {
    let mut charges: Vec<Charge> = Vec::new();
    for cost in costs.iter().filter(|cost| !cost.charges.is_empty()) {
        let is_it = |rule: &&RouteRule| *rule.identity == *cost.rule;
        let rule = route.rules.iter().find(is_it);
        let Some(rule) = rule.filter(|rule| rule.cost.settles_while_streaming()) else { continue };
        charges.extend(cost.charges.iter().map(|&(after, total)| Charge {
            at: permit.start() + after,
            slot: rule.slot,
            total,
        }));
    }
    charges.sort_by_key(|charge| Reverse(charge.at));
    charges
}

/// Computes the reserves of an arrival. Those that the log has are taken from it: they depend on what
/// the recording gateway had learned.
pub(super) fn reserve(
    arrival: &Arrival,
    body: Option<&BodyMembers>,
    route: &Route,
    claims: &mut Claims,
) {
    if !route.settling.computes_reserves {
        return;
    }
    let known = arrival.recorded.as_ref().and_then(|recorded| recorded.settling.request_bytes);
    if let Some(bytes) = known {
        route.reserve(ReservedRequest { bytes, body }, claims);
    }
    let recorded = arrival.recorded.iter().flat_map(|recorded| &recorded.costs);
    for cost in recorded {
        let is_it = |rule: &&RouteRule| *rule.identity == *cost.rule;
        let Some(rule) = route.rules.iter().find(is_it) else { continue };
        let computes = rule.cost.settle.as_ref().is_some_and(|settle| settle.reserve.is_some());
        for claim in claims.iter_mut().filter(|claim| computes && claim.slot == rule.slot) {
            claim.cost = cost.reserved;
        }
    }
}
