//! No request is held until there is no time left for its response: it has `timeouts.request` in
//! all, half of which is for the response.

use super::compiler::Compiler;
use crate::{
    config::{
        decode::Key,
        diagnostics::{Lint, Problem},
        spec::{RouteSpec, leaf::Period},
    },
    flow::time::spelled,
};
use std::time::Duration;

impl Compiler {
    /// Shortens each `max_wait` of a route to half of its `timeouts.request`, so that what would
    /// wait longer is rejected at once; warns of those that are written. Without that timeout, only
    /// the bound of `max_wait` itself holds.
    pub(super) fn shorten_waits(&mut self, route: &mut RouteSpec, request: Option<Duration>) {
        let most = request.map_or(Duration::MAX, |request| request / 2);
        self.longest_wait = most;
        self.has_short_timeout = route.timeout.is_written();
        self.shortened_waits.clear();
        if let Some(pacing) = &mut route.pacing.at {
            self.shorten(&mut pacing.value.max_wait, most);
        }
        for rule in route.flow.at.iter_mut().flat_map(|flow| &mut flow.value.0) {
            self.shorten(&mut rule.value.max_wait, most);
            if let Some(priority) = &mut rule.value.priority.at {
                self.shorten(&mut priority.value.max_wait, most);
            }
        }
    }

    fn shorten<const MIN: u64, const MAX: u64>(
        &mut self,
        key: &mut Key<Period<MIN, MAX>>,
        most: Duration,
    ) {
        let Some(max_wait) = key.at.as_mut().filter(|at| at.value.0 > most) else { return };
        max_wait.value = Period(most);
        if max_wait.written {
            self.shortened_waits.push(max_wait.span);
            let message = "such a wait leaves too little time for the response";
            let timeout = if self.has_short_timeout { "timeout" } else { "timeouts.request" };
            self.warn(
                Problem::warning(Lint::WaitAboveTimeout, max_wait.span, message)
                    .label(format!("longer than half of the route's `{timeout}`"))
                    .help(format!(
                        "write at most `max_wait: {}`, or a longer `{timeout}`",
                        spelled(most).replace(' ', "")
                    )),
            );
        }
    }
}
