//! The setting that ended a request that took too long, and the line of the log about it.

use crate::{flow::Instant, proxy::request_log::LogLimit};
use std::sync::{Mutex, PoisonError};

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
    Auth,
    /// That of a body which rules look at.
    HeaderRead,
}

impl Timeout {
    /// Every setting, in the order of their numbers.
    const ALL: [Self; 10] = [
        Self::Connect,
        Self::FirstByte,
        Self::Idle,
        Self::EventStream,
        Self::Tunnel,
        Self::Request,
        Self::Write,
        Self::BodyRate,
        Self::Auth,
        Self::HeaderRead,
    ];

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
            Self::Auth => "auth.forward.timeout",
            Self::HeaderRead => "timeouts.header_read",
        }
    }
}

/// Logs timed-out requests: at most one line a second for each setting.
#[derive(Debug, Default)]
pub struct TimeoutLog([Mutex<LogLimit>; Timeout::ALL.len()]);

impl TimeoutLog {
    /// Logs that `timeout` ended a request, or counts it for the next line.
    pub(crate) fn log(&self, timeout: Timeout, route: &str, now: Instant) {
        if let Some(requests) = self.due(timeout, now) {
            let timeout = timeout.setting();
            tracing::info!(%route, timeout, requests, "request timed out");
        }
    }

    /// Returns the number of requests that the next line is about, if it is due at `now`.
    fn due(&self, timeout: Timeout, now: Instant) -> Option<u64> {
        let limit = &self.0[timeout as usize];
        limit.lock().unwrap_or_else(PoisonError::into_inner).due(now)
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
