//! The failure ratio of a server, over windows of 10 s.

use crate::flow::Instant;
use core::time::Duration;

const WINDOW: Duration = Duration::from_secs(10);

/// The fewest requests in a window of which a ratio says anything.
const FEWEST: u64 = 20;

/// Requests that were sent to a server since the process started, and how many failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestTotals {
    pub requests: u64,
    pub failures: u64,
}

/// Compares what is counted now with what was counted when the window began.
#[derive(Debug, Default)]
pub(super) struct FailureWindow {
    began: Option<(Instant, RequestTotals)>,
}

impl FailureWindow {
    /// Returns the percentage of failures in the window that ends at `now`, if one does and had
    /// enough requests.
    pub(super) fn percent(&mut self, now: Instant, totals: RequestTotals) -> Option<u32> {
        let Some((began, before)) = self.began else {
            self.began = Some((now, totals));
            return None;
        };
        if now.since(began) < WINDOW {
            return None;
        }
        self.began = Some((now, totals));
        let requests = totals.requests.saturating_sub(before.requests);
        let failures = totals.failures.saturating_sub(before.failures).min(requests);
        let percent = failures.saturating_mul(100).checked_div(requests)?;
        (requests >= FEWEST).then(|| u32::try_from(percent).unwrap_or(100))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: u64) -> Instant {
        Instant::from_nanos(secs * 1_000_000_000)
    }

    #[test]
    fn each_window_counts_its_own_requests() {
        let mut window = FailureWindow::default();
        let mut percent = |secs, requests, failures| {
            window.percent(at(secs), RequestTotals { requests, failures })
        };
        assert_eq!(percent(0, 1000, 1000), None, "what was before counts for nothing");
        assert_eq!(percent(9, 1100, 1100), None);
        assert_eq!(percent(10, 1100, 1050), Some(50));
        assert_eq!(percent(20, 1119, 1069), None, "19 requests are too few");
        assert_eq!(percent(30, 1139, 1069), Some(0));
        assert_eq!(percent(40, 1139, 1069), None);
    }
}
