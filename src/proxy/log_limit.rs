//! Limits log lines of one kind to one per second: a flood of requests must not become one of lines.

use crate::flow::Instant;
use core::time::Duration;

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
