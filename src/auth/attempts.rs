//! The memory for passwords: those that were right, and clients that guess.

use crate::{flow::Instant, route::client_network};
use ahash::AHashMap;
use core::{net::IpAddr, time::Duration};

/// The time for which a right password is remembered that is not used.
const VERIFIED_FOR: Duration = Duration::from_mins(5);

/// The period by which a client's attempts are counted.
const GUESSING: Duration = Duration::from_mins(1);

/// The most attempts that a client may have failed, or have under way, in a period.
const MOST_ATTEMPTS: u32 = 20;

/// The most passwords and clients that are remembered, each in two generations.
const MOST_REMEMBERED: usize = 10_000;

/// The failures of a client in a period, and in the one before.
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

/// A bounded map from fingerprints to values. One that is not used is forgotten after one to two periods, or earlier if
/// there are too many.
#[derive(Debug)]
pub(super) struct Recent<V> {
    current: AHashMap<u128, V>,
    previous: AHashMap<u128, V>,
    since: Instant,
    period: Duration,
    /// The most values of a generation.
    most: usize,
}

impl<V> Recent<V> {
    pub(super) fn new(period: Duration, most: usize) -> Self {
        let since = Instant::EPOCH;
        Self { current: AHashMap::new(), previous: AHashMap::new(), since, period, most }
    }

    /// Returns a value, which is used thereby.
    pub(super) fn get(&mut self, key: u128, now: Instant) -> Option<&mut V> {
        self.turn(now, false);
        if let Some(value) = self.previous.remove(&key) {
            self.insert(key, value, now);
        }
        self.current.get_mut(&key)
    }

    pub(super) fn insert(&mut self, key: u128, value: V, now: Instant) {
        let is_full = self.current.len() >= self.most && !self.current.contains_key(&key);
        self.turn(now, is_full);
        self.current.insert(key, value);
    }

    /// Begins a new generation if it is time.
    fn turn(&mut self, now: Instant, is_full: bool) {
        let age = now.since(self.since);
        if age < self.period && !is_full {
            return;
        }
        self.previous = core::mem::take(&mut self.current);
        if age >= 2 * self.period {
            self.previous = AHashMap::new();
        }
        self.since = now;
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

#[cfg(test)]
mod recent_tests {
    use super::*;

    const PERIOD: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Instant {
        Instant::EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn what_is_not_used_for_two_periods_is_forgotten() {
        let mut recent = Recent::new(PERIOD, 100);
        recent.insert(1, 'a', at(100));
        recent.insert(2, 'b', at(100));
        for seconds in [109, 111, 119, 123, 132] {
            assert_eq!(recent.get(1, at(seconds)), Some(&mut 'a'), "{seconds}");
        }
        assert_eq!(recent.get(2, at(132)), None);
        assert_eq!(recent.get(1, at(152)), None);
    }

    #[test]
    fn it_never_holds_more_than_two_generations() {
        let mut recent = Recent::new(PERIOD, 3);
        for key in 0..100 {
            recent.insert(key, (), at(100));
            assert!(recent.current.len() + recent.previous.len() <= 6);
        }
        assert!(recent.get(99, at(100)).is_some());
        assert!(recent.get(0, at(100)).is_none());
    }
}
