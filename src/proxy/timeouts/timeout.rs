//! Which setting ended a request that took too long, and how the log says so.

use crate::flow::Instant;
use core::time::Duration;
use std::sync::{Mutex, PoisonError};

/// How often the log names one setting at most: many clients that stop at once must not
/// become as many lines.
const LOG_INTERVAL: Duration = Duration::from_secs(1);

/// A setting that bounds the time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timeout {
    Connect,
    FirstByte,
    Idle,
    EventStream,
    Tunnel,
    Request,
    Write,
    BodyRate,
}

impl Timeout {
    const COUNT: usize = 8;

    /// Returns its name in the configuration.
    pub(crate) const fn setting(self) -> &'static str {
        match self {
            Self::Connect => "connect_timeout",
            Self::FirstByte => "timeouts.first_byte",
            Self::Idle => "timeouts.idle",
            Self::EventStream => "timeouts.event_stream",
            Self::Tunnel => "timeouts.tunnel",
            Self::Request => "timeouts.request",
            Self::Write => "timeouts.write",
            Self::BodyRate => "min_body_rate",
        }
    }
}

/// Counts timed-out requests between two lines of one worker's log.
#[derive(Debug, Default)]
pub struct TimeoutLog([Mutex<Unlogged>; Timeout::COUNT]);

#[derive(Debug, Default)]
struct Unlogged {
    count: u64,
    logged: Option<Instant>,
}

impl TimeoutLog {
    /// Logs that `timeout` ended a request, or counts it for the next line.
    pub(crate) fn log(&self, timeout: Timeout, route: &str, now: Instant) {
        if let Some(requests) = self.due(timeout, now) {
            let timeout = timeout.setting();
            tracing::info!(%route, timeout, requests, "request timed out");
        }
    }

    /// Returns how many requests the next line is about, if it is due at `now`.
    fn due(&self, timeout: Timeout, now: Instant) -> Option<u64> {
        let unlogged = self.0.get(timeout as usize)?;
        let mut unlogged = unlogged.lock().unwrap_or_else(PoisonError::into_inner);
        unlogged.count += 1;
        if unlogged.logged.is_some_and(|logged| now.since(logged) < LOG_INTERVAL) {
            return None;
        }
        unlogged.logged = Some(now);
        Some(core::mem::take(&mut unlogged.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_logged_once_a_second_with_the_count_of_requests() {
        let log = TimeoutLog::default();
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        assert_eq!(log.due(Timeout::Idle, at(5000)), Some(1));
        assert_eq!(log.due(Timeout::Idle, at(5400)), None);
        assert_eq!(log.due(Timeout::Write, at(5400)), Some(1), "another setting");
        assert_eq!(log.due(Timeout::Idle, at(5999)), None);
        assert_eq!(log.due(Timeout::Idle, at(6000)), Some(3));
    }
}
