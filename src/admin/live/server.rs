//! What is remembered of one server between two samples.

/// What a server was asked, and how often it failed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServerTrack {
    is_known: bool,
    requests: u64,
    failures: u64,
    /// In the latest second.
    pub requested: u64,
    pub failed: u64,
}

impl ServerTrack {
    pub(super) fn sample(&mut self, requests: u64, failures: u64) {
        if self.is_known {
            self.requested = requests.saturating_sub(self.requests);
            self.failed = failures.saturating_sub(self.failures);
        }
        self.is_known = true;
        self.requests = requests;
        self.failures = failures;
    }
}
