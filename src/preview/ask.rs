//! What the rules of one route of the new file decide.

use super::treatment::{OwnRejection, Treatment};
use crate::{
    access_log::{DecisionRecord, PreviewRecord},
    config::Route,
    flow::{Claim, Instant, Permit, Report},
};
use core::time::Duration;
use std::sync::Arc;

/// The decision of the new file, for the access log.
#[derive(Debug)]
pub struct TrialRecord {
    pub(super) route: Option<Arc<Route>>,
    pub(super) decided: Result<DecisionRecord, OwnRejection>,
}

/// What the rules of a route say about a request.
pub(super) struct Asked {
    pub(super) treatment: Treatment,
    pub(super) wait: Duration,
    pub(super) record: Option<Box<TrialRecord>>,
}

/// Asks the rules of `route`. Writes into `permit` what the request holds until its end: it is large,
/// and need not be moved.
#[inline]
pub(super) fn ask(
    route: &Arc<Route>,
    claims: &[Claim],
    is_logged: bool,
    now: Instant,
    permit: &mut Option<Permit>,
) -> Asked {
    // Only the access log needs the numbers of a request that passes.
    if !is_logged && route.gates.pass_uncounted(now, claims, permit) {
        return Asked { treatment: Treatment::Passed, wait: Duration::ZERO, record: None };
    }
    ask_in_full(route, claims, is_logged, now, permit)
}

/// Asks the rules of `route`, with a report.
#[inline(never)]
fn ask_in_full(
    route: &Arc<Route>,
    claims: &[Claim],
    is_logged: bool,
    now: Instant,
    permit: &mut Option<Permit>,
) -> Asked {
    let record = |decided| {
        let route = Some(Arc::clone(route));
        Box::new(TrialRecord { route, decided: Ok(decided) })
    };
    let mut report = Report::default();
    match route.gates.decide_uncounted(now, claims, &mut report) {
        Ok(admitted) => {
            *permit = admitted;
            Asked {
                treatment: Treatment::admitted(&report),
                wait: report.wait(),
                record: is_logged.then(|| record(DecisionRecord::admitted(&report, route))),
            }
        }
        Err(rejected) => {
            let rejection = rejected.with(report);
            Asked {
                treatment: Treatment::Rejected(rejection.slot, rejection.reason.kind()),
                wait: Duration::ZERO,
                record: is_logged.then(|| record(DecisionRecord::rejected(&rejection))),
            }
        }
    }
}

impl TrialRecord {
    /// Returns what the rules said.
    ///
    /// # Errors
    ///
    /// Why none was asked.
    pub const fn decided(&self) -> Result<DecisionRecord, OwnRejection> {
        self.decided
    }

    /// Returns what the access log shows.
    pub fn record(&self) -> PreviewRecord<'_> {
        let route = self.route.as_deref();
        PreviewRecord {
            route: route.map(|route| &*route.name),
            status: self.decided.err().map(OwnRejection::status),
            flow: self.decided.ok().map(|decided| decided.record(route, &[])),
        }
    }
}
