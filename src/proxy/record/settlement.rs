//! Settling the costs of a request that are known only after its response.
//!
//! They are settled before the last byte of the response is handed to the client's connection: a
//! request that begins later finds them charged.

use super::Completion;
use crate::{
    config::{ResponseEnd, Route},
    flow::{Instant, Permit},
};
use http::StatusCode;

impl Completion {
    /// Settles what the response has cost, if any of the request's rules settles and has not yet.
    #[inline]
    pub(super) fn settle_costs(&mut self, at: Instant) {
        let decision = &self.decision;
        let permits = [&decision.permit, &decision.early_permit];
        if permits.into_iter().flatten().any(|permit| !permit.reserves().is_empty()) {
            self.settle_all(at);
        }
    }

    #[inline(never)]
    fn settle_all(&mut self, at: Instant) {
        let end = ResponseEnd {
            status: self.sent_status().map(|status| status.as_u16()),
            is_failure: self.has_failed_before_response(),
        };
        let Some(route) = self.route.clone() else { return };
        let decision = &mut self.decision;
        for permit in [&mut decision.permit, &mut decision.early_permit].into_iter().flatten() {
            settle(permit, &route, end, at);
        }
    }

    /// Returns the status that the client got; `None` if there was no response.
    fn sent_status(&self) -> Option<StatusCode> {
        self.response.status.filter(|_| !self.response.is_closed())
    }
}

/// Settles the costs of a request at `at`.
fn settle(permit: &mut Permit, route: &Route, end: ResponseEnd, at: Instant) {
    permit.settle(at, |reserve| {
        let rule = route.rules.iter().find(|rule| rule.slot == reserve.slot())?;
        rule.cost.settle.as_ref()?.cost(end)
    });
}
