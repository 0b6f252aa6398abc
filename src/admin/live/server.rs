//! What is remembered of one server between two samples.

use super::route::Window;
use crate::meter::ServerMeter;
use core::sync::atomic::Ordering::Relaxed;

/// From this share of failed requests on, a server is shown as failing.
const FAILING: f64 = 0.5;

/// The requests that a server got, and how many of them failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerTrack {
    is_known: bool,
    last: ServerCounts,
    /// In the latest second.
    pub latest: ServerCounts,
    /// In the latest seconds that had requests, so that an idle server keeps its remark.
    requests: Window,
    bad: Window,
}

/// The counts of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerCounts {
    pub requests: u64,
    /// Requests without a complete response.
    pub failures: u64,
    /// Responses with a status of 500 to 599.
    pub server_errors: u64,
}

impl ServerTrack {
    /// Takes the sample of a second.
    pub(super) fn sample(&mut self, meter: &ServerMeter) {
        let now = ServerCounts {
            requests: meter.requests.load(Relaxed),
            failures: meter.failures.load(Relaxed),
            server_errors: meter.server_errors.load(Relaxed),
        };
        if self.is_known {
            self.latest = ServerCounts {
                requests: now.requests.saturating_sub(self.last.requests),
                failures: now.failures.saturating_sub(self.last.failures),
                server_errors: now.server_errors.saturating_sub(self.last.server_errors),
            };
        } else {
            // What it did before the first sample is its latest, too.
            self.latest = ServerCounts::default();
            self.remember(now);
        }
        self.is_known = true;
        self.last = now;
        self.remember(self.latest);
    }

    fn remember(&mut self, counts: ServerCounts) {
        let ServerCounts { requests, failures, server_errors } = counts;
        let bad = failures + server_errors;
        // A request may fail in another second than the one in which it came.
        if requests + bad > 0 {
            self.requests.push(requests);
            self.bad.push(bad);
        }
    }

    /// Returns the share of its latest requests that failed, by a status of 500 to 599 or without a
    /// complete response, if at least half of them did.
    #[expect(clippy::cast_precision_loss, reason = "a share is read, not counted with")]
    pub(super) fn failing(&self) -> Option<f64> {
        let bad = self.bad.sum();
        let share = bad as f64 / self.requests.sum().max(bad).max(1) as f64;
        (share >= FAILING).then_some(share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts some requests in a second, and returns the share that is shown then.
    fn second(track: &mut ServerTrack, meter: &ServerMeter, counts: [u64; 3]) -> Option<f64> {
        let [requests, failures, server_errors] = counts;
        meter.requests.fetch_add(requests, Relaxed);
        meter.failures.fetch_add(failures, Relaxed);
        meter.server_errors.fetch_add(server_errors, Relaxed);
        track.sample(meter);
        track.failing()
    }

    #[test]
    fn a_server_is_failing_while_half_of_its_latest_requests_fail() {
        let meter = ServerMeter::default();
        let mut track = ServerTrack::default();
        assert_eq!(second(&mut track, &meter, [0, 0, 0]), None);
        assert_eq!(second(&mut track, &meter, [4, 0, 1]), None);
        assert_eq!(second(&mut track, &meter, [4, 1, 2]), Some(0.5));
        // It stays so while there are no requests.
        for _ in 0..60 {
            assert_eq!(second(&mut track, &meter, [0, 0, 0]), Some(0.5));
        }
        assert_eq!(track.latest.requests, 0);
        // Ten seconds of good responses end it.
        for _ in 0..10 {
            second(&mut track, &meter, [1, 0, 0]);
        }
        assert_eq!(track.failing(), None);
    }

    #[test]
    fn what_a_server_did_before_the_first_sample_counts() {
        let meter = ServerMeter::default();
        assert_eq!(second(&mut ServerTrack::default(), &meter, [3, 0, 3]), Some(1.0));
    }
}
