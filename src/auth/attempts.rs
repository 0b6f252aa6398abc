//! What the process remembers of passwords: those that were right, and clients that guess.

use super::recent::Recent;
use crate::{flow::Instant, route::client_network};
use core::{net::IpAddr, time::Duration};

/// How long a right password is remembered that is not used.
const VERIFIED_FOR: Duration = Duration::from_mins(5);

/// The period by which a client's attempts are counted.
const GUESSING: Duration = Duration::from_mins(1);

/// The most attempts that a client may have failed, or have under way, in a period.
const MOST_ATTEMPTS: u32 = 20;

/// The most passwords and clients that are remembered, each in two generations.
const MOST_REMEMBERED: usize = 10_000;

/// How often a client has failed in a period, and in the one before.
#[derive(Clone, Copy, Debug)]
struct Failed {
    period: u64,
    now: u32,
    before: u32,
}

/// Right passwords by fingerprint, and failed attempts by client.
#[derive(Debug)]
pub struct Attempts {
    verified: Recent<()>,
    failed: Recent<Failed>,
}

impl Default for Attempts {
    fn default() -> Self {
        let verified = Recent::new(VERIFIED_FOR, MOST_REMEMBERED);
        Self { verified, failed: Recent::new(2 * GUESSING, MOST_REMEMBERED) }
    }
}

impl Attempts {
    /// Reports whether a check with this fingerprint has succeeded lately.
    pub fn is_verified(&mut self, print: u128, now: Instant) -> bool {
        self.verified.get(print, now).is_some()
    }

    /// Counts an attempt of `client`.
    ///
    /// # Errors
    /// It has failed too often. Returns how long it must wait.
    pub fn begin(&mut self, client: IpAddr, now: Instant) -> Result<(), Duration> {
        let key = client_network(client);
        let nanos = u64::try_from(GUESSING.as_nanos()).unwrap_or(u64::MAX);
        let period = now.as_nanos() / nanos;
        let mut failed =
            self.failed.get(key, now).copied().unwrap_or(Failed { period, now: 0, before: 0 });
        if failed.period != period {
            let before = if failed.period + 1 == period { failed.now } else { 0 };
            failed = Failed { period, now: 0, before };
        }
        if failed.now + failed.before >= MOST_ATTEMPTS {
            let periods = if failed.now >= MOST_ATTEMPTS { 2 } else { 1 };
            let end = Instant::from_nanos((period + periods).saturating_mul(nanos));
            return Err(end.since(now));
        }
        failed.now += 1;
        self.failed.insert(key, failed, now);
        Ok(())
    }

    /// Remembers that an attempt of `client` was right.
    pub fn succeed(&mut self, client: IpAddr, print: u128, now: Instant) {
        self.verified.insert(print, (), now);
        if let Some(failed) = self.failed.get(client_network(client), now) {
            // It may have begun in the period before.
            match failed.now.checked_sub(1) {
                Some(less) => failed.now = less,
                None => failed.before = failed.before.saturating_sub(1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_that_guesses_has_to_wait_and_others_do_not() {
        let mut attempts = Attempts::default();
        let client = ip("2001:db8::1");
        for _ in 0..MOST_ATTEMPTS {
            assert_eq!(attempts.begin(client, at(130)), Ok(()));
        }
        // They count in this minute and in the next one.
        let wait = Err(Duration::from_secs(110));
        assert_eq!(attempts.begin(ip("2001:db8::ffff"), at(130)), wait);
        assert_eq!(attempts.begin(ip("2001:db8:0:1::1"), at(130)), Ok(()));
        assert_eq!(attempts.begin(client, at(239)), Err(Duration::from_secs(1)));
        assert_eq!(attempts.begin(client, at(240)), Ok(()));
    }

    #[test]
    fn half_of_the_attempts_may_be_made_in_each_minute() {
        let mut attempts = Attempts::default();
        let client = ip("192.0.2.1");
        for minute in 0..10 {
            for _ in 0..MOST_ATTEMPTS / 2 {
                assert_eq!(attempts.begin(client, at(60 * minute + 30)), Ok(()));
            }
        }
        assert_eq!(attempts.begin(client, at(9 * 60 + 45)), Err(Duration::from_secs(15)));
    }

    #[test]
    fn a_right_password_is_remembered_while_it_is_used_and_is_no_failure() {
        let mut attempts = Attempts::default();
        let client = ip("192.0.2.1");
        for print in 0..1000 {
            assert_eq!(attempts.begin(client, at(60)), Ok(()));
            attempts.succeed(client, print, at(61));
        }
        for minute in 1..60 {
            assert!(attempts.is_verified(7, at(60 * minute + 61)));
        }
        assert!(!attempts.is_verified(8, at(3600)));
        assert!(!attempts.is_verified(1001, at(61)));
    }
}
