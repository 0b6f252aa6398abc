//! Charging what a response has cost so far, for rules with `settle_while_streaming`.
//!
//! The cost so far is what the request would cost if its client left now. It is charged before the
//! part of the body that makes it is handed to the client's connection.

use super::{
    Completion,
    settlement::{Numbers, rule_of},
};
use crate::{
    config::ResponseEnd,
    flow::{Permit, Reserve},
    usage::is_due,
};

impl Completion {
    /// Begins to charge what the response costs, if a rule that has admitted the request asks for it.
    #[inline(never)]
    pub(super) fn begin_charges(&mut self) {
        let Some(route) = &self.route else { return };
        let permits = [&self.decision.permit, &self.decision.early_permit];
        let mut reserves = permits.into_iter().flatten().flat_map(Permit::reserves);
        self.response.charges_so_far = reserves.any(|reserve| {
            rule_of(route, reserve.slot()).is_some_and(|rule| rule.cost.settles_while_streaming())
        });
    }

    /// Charges what the response has cost so far.
    #[inline(never)]
    pub(super) fn charge_so_far(&mut self) {
        let Some(route) = self.route.clone() else { return };
        let now = self.peer.now();
        let so_far = ResponseEnd {
            passed: self.passed(self.response.usage.as_deref()),
            status: self.sent_status().map(|status| status.as_u16()),
            ..ResponseEnd::default()
        };

        let Self { decision, response, .. } = self;
        let numbers = Numbers { fields: &response.numbers, usage: response.usage.as_deref() };
        for permit in [&mut decision.permit, &mut decision.early_permit].into_iter().flatten() {
            let end = ResponseEnd { time: now.since(permit.start()), ..so_far };
            permit.charge_so_far(now, |reserve: &Reserve| {
                let rule = rule_of(&route, reserve.slot())?;
                if !rule.cost.settles_while_streaming() {
                    return None;
                }
                let charged = reserve.total();
                let cost = numbers.cost(rule, &end, charged)?.cost;
                is_due(cost, charged, reserve.later_charges().len()).then_some(cost)
            });
        }
    }
}
