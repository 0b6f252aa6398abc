//! Log lines about requests, limited to one per second and kind.

use crate::{
    config::Server,
    flow::Instant,
    meter::{self, Counters},
};
use core::time::Duration;
use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

/// Of so many servers the failures are counted, and of more only those of the last second.
const SERVERS_MAX: usize = 1000;

/// An attempt at a request that a server failed.
pub(crate) struct FailedAttempt<'a> {
    pub(crate) route: &'a str,
    pub(crate) upstream: &'a Arc<str>,
    pub(crate) server: &'a Server,
    /// Counted from 1 for each request.
    pub(crate) number: u32,
    pub(crate) cause: &'a str,
}

/// What one worker logs of requests that could not be served: of each reason once a second
/// at most.
#[derive(Debug, Default)]
pub struct RequestLog {
    by_reason: Mutex<[LogLimit; meter::HttpRejection::ALL.len()]>,
    upstream: Mutex<LogLimit>,
    clients: Mutex<LogLimit>,
    handshakes: Mutex<LogLimit>,
    /// By the upstream's name and the server's id.
    attempts: Mutex<HashMap<(Arc<str>, usize), LogLimit>>,
}

impl RequestLog {
    /// Counts a rejection. Returns how many to log, if it is time.
    pub(crate) fn count(
        &self,
        counters: &Counters,
        now: Instant,
        reason: meter::HttpRejection,
    ) -> Option<u64> {
        counters.count_rejection(reason);
        let mut by_reason = self.by_reason.lock().unwrap_or_else(PoisonError::into_inner);
        by_reason[reason as usize].due(now)
    }

    /// Logs an attempt at a request that a server failed: of each server of an
    /// upstream once a second at most.
    pub(crate) fn attempt_failed(&self, now: Instant, failed: &FailedAttempt<'_>) {
        let FailedAttempt { route, upstream, server, number, cause } = failed;
        let mut attempts = self.attempts.lock().unwrap_or_else(PoisonError::into_inner);
        if attempts.len() >= SERVERS_MAX {
            attempts.retain(|_, server| server.is_recent(now));
        }
        let limit = attempts.entry((Arc::clone(upstream), server.id)).or_default();
        if let Some(count) = limit.due(now) {
            let server = server.address();
            tracing::warn!(route, server, attempt = number, count, "upstream failed: {cause}");
        }
    }

    /// Counts a request whose client is not known. Returns how many to log, if it is time.
    pub(crate) fn unread_client(&self, now: Instant) -> Option<u64> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).due(now)
    }

    /// Counts a failed handshake of TLS. Returns how many to log, if it is time.
    pub(crate) fn failed_handshake(&self, now: Instant) -> Option<u64> {
        self.handshakes.lock().unwrap_or_else(PoisonError::into_inner).due(now)
    }

    /// Logs an upstream's response that could not be taken.
    pub(crate) fn answer_rejected(&self, now: Instant, route: &str, server: &str, why: &str) {
        let mut upstream = self.upstream.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = upstream.due(now) {
            tracing::warn!(route, server, count, "answer rejected: {why}");
        }
    }
}

/// The shortest time between two lines of one kind.
const INTERVAL: Duration = Duration::from_secs(1);

/// Counts events of one kind, and says when the next line about them is due.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    unlogged: u64,
    logged_at: Option<Instant>,
}

impl LogLimit {
    /// Counts an event. Returns how many to log at `now`, if a line is due.
    pub(crate) fn due(&mut self, now: Instant) -> Option<u64> {
        self.unlogged += 1;
        if self.is_recent(now) {
            return None;
        }
        self.logged_at = Some(now);
        Some(core::mem::take(&mut self.unlogged))
    }

    /// Returns whether the last line is less than a second old.
    pub(crate) fn is_recent(&self, now: Instant) -> bool {
        self.logged_at.is_some_and(|logged_at| now.since(logged_at) < INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_logged_once_a_second() {
        let mut log_limit = LogLimit::default();
        let logged: Vec<_> = [0, 20, 999, 1000, 1020, 5000]
            .map(|ms| log_limit.due(Instant::from_nanos(ms * 1_000_000)))
            .into();
        assert_eq!(logged, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
