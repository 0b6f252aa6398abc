//! The times of a certificate: its renewal, and the next attempt after a failure. Pure.
//!
//! A certificate is renewed after two thirds of its lifetime, less up to 1/24 of it, so that certificates
//! of one day are not all renewed in one second. If the authority suggests a window (ARI, RFC 9773), it
//! is renewed at a time in that window. Both points of time depend on the certificate alone, so that they
//! are the same after a restart and for each gateway that shares the folder.

use crate::flow::Instant;
use core::time::Duration;
use serde::{Deserialize, Serialize};
use std::time::UNIX_EPOCH;

const SECOND: u64 = 1_000_000_000;
const DAY: Duration = Duration::from_hours(24);

/// The wait after the first failure; each further one is four times as long. Let's Encrypt permits five
/// failed authorizations of a name in an hour: the sixth attempt comes after 85 minutes.
const FIRST_WAIT: Duration = Duration::from_secs(15);

/// The shortest wait, for certificates of a very short lifetime.
const LEAST_WAIT: Duration = Duration::from_secs(1);

/// The longest wait that flowgate chooses.
const LONGEST_WAIT: Duration = Duration::from_hours(6);

/// The shortest time from a success to the next order, however short the lifetime is: authorities limit the
/// orders of a name, and each one makes files and a new configuration.
const LEAST_INTERVAL: Duration = Duration::from_secs(15);

/// The longest wait that an authority can demand.
const LONGEST_DEMAND: Duration = DAY;

/// The bounds of the time between two requests for renewal information, and the usual one.
const LEAST_CHECK: Duration = Duration::from_mins(1);
const USUAL_CHECK: Duration = Duration::from_hours(6);

/// The longest time before its beginning at which a new certificate is kept until it is valid: the
/// authority's clock may be a little ahead, and not each authority dates its certificates back.
const LONGEST_AHEAD: Duration = Duration::from_mins(5);

/// The time in which a certificate is valid, by the authority's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) not_before: Instant,
    pub(super) not_after: Instant,
}

impl Validity {
    pub(super) fn lifetime(self) -> Duration {
        self.not_after.since(self.not_before)
    }

    /// Returns whether it is valid at this time. The end is the last second in which it is.
    fn contains(self, now: Instant) -> bool {
        self.not_before <= now && seconds(now) <= seconds(self.not_after)
    }
}

/// A certificate that an authority has issued.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Issued {
    pub(super) validity: Validity,
    /// Its identifier for renewal information (RFC 9773, section 4.1), if it has one.
    pub(super) id: Option<String>,
    /// A number from 0 to 1 that its contents give, for times that are spread.
    pub(super) share: f64,
}

/// The facts about a certificate that a restart must not lose. Times are seconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Record {
    /// The time by this machine's clock when it was issued.
    pub(super) issued_at: Option<u64>,
    /// The failures since then.
    pub(super) failures: u32,
    /// The time of the last one.
    pub(super) failed_at: u64,
    /// The time of the next attempt.
    pub(super) retry_at: u64,
    /// The last failure in words.
    pub(super) error: String,
    pub(super) renewal: Option<RenewalInfo>,
}

/// The renewal information of an authority about a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RenewalInfo {
    /// The certificate's identifier.
    pub(super) certificate: String,
    /// The beginning and the end of the window, if the authority suggests one.
    pub(super) window: Option<[u64; 2]>,
    /// The time of the next request.
    pub(super) check_at: u64,
}

impl Record {
    /// Notes that an attempt begins. Unless its end is noted, it counts as a failure: a process that
    /// crashes again and again must not use up the authority's limits.
    pub(super) fn begin(&mut self, lifetime: Option<Duration>, now: Instant, random: f64) {
        self.failures = self.failures.saturating_add(1);
        self.failed_at = seconds(now);
        self.retry_at = seconds(now + backoff(self.failures, lifetime, random));
        "the attempt has not ended".clone_into(&mut self.error);
    }

    /// Notes the failure of the attempt that has begun. The authority may demand a longer wait.
    pub(super) fn fail(&mut self, now: Instant, error: &str, demanded: Option<Duration>) {
        let chosen = self.retry_at.saturating_sub(self.failed_at);
        let demanded = demanded.unwrap_or_default().min(LONGEST_DEMAND).as_secs();
        self.failed_at = seconds(now);
        self.retry_at = self.failed_at.saturating_add(chosen.max(demanded));
        error.clone_into(&mut self.error);
    }

    /// Notes that a certificate was issued.
    pub(super) fn succeed(&mut self, now: Instant) {
        *self = Self { issued_at: Some(seconds(now)), ..Self::default() };
    }

    /// Returns when to use a certificate that was just issued; `None` if it must not replace those in
    /// use. `issued` is the order's own among these.
    ///
    /// One that is not valid by this clock replaces none that is. If none is valid by this clock, clients
    /// decide by theirs, as this clock may be wrong.
    pub(super) fn use_at(
        &self,
        new: Validity,
        in_use: &[Validity],
        issued: Option<&Issued>,
        now: Instant,
    ) -> Option<Instant> {
        let valid = in_use.iter().filter(|one| one.contains(now));
        let Some(valid_until) = valid.map(|one| one.not_after).max() else { return Some(now) };
        if new.contains(now) {
            return Some(now);
        }
        if new.not_before <= now {
            return None;
        }

        // This clock was behind when the one in use was issued, so it may be behind now.
        if issued.is_some_and(|issued| self.was_behind(issued)) {
            return Some(now);
        }
        let is_soon = new.not_before.since(now) <= LONGEST_AHEAD;
        is_soon.then(|| new.not_before.min(valid_until))
    }

    /// Returns whether this machine's clock was behind the authority's when the certificate was issued.
    fn was_behind(&self, issued: &Issued) -> bool {
        self.issued_at.is_some_and(|at| instant(at) < issued.validity.not_before)
    }

    /// Returns the time of the next attempt after a failure.
    pub(super) fn retry_at(&self, now: Instant) -> Instant {
        // A clock that was set back must not prolong the wait.
        if self.failures == 0 || self.failed_at > seconds(now) {
            return Instant::EPOCH;
        }
        let latest = self.failed_at.saturating_add(LONGEST_DEMAND.as_secs());
        instant(self.retry_at.min(latest))
    }

    /// Returns when to request renewal information.
    pub(super) fn check_at(&self, issued: &Issued, now: Instant) -> Instant {
        let known = self.renewal.as_ref();
        let known = known.filter(|known| Some(&known.certificate) == issued.id.as_ref());
        let latest = now + LONGEST_DEMAND;
        known.map(|known| instant(known.check_at)).filter(|at| *at <= latest).unwrap_or(now)
    }

    /// Returns when to order a certificate. `issued` is the one in use.
    pub(super) fn order_at(&self, issued: Option<&Issued>, now: Instant) -> Instant {
        let renewal = issued.map_or(Instant::EPOCH, |issued| self.renew_at(issued, now));
        renewal.max(self.retry_at(now))
    }

    fn renew_at(&self, issued: &Issued, now: Instant) -> Instant {
        let Validity { not_before, not_after } = issued.validity;
        let lifetime = issued.validity.lifetime();
        let early = (lifetime / 24).mul_f64(issued.share);
        let wait = (lifetime * 2 / 3).saturating_sub(early);
        let usual = not_before + wait;

        let known = self.renewal.as_ref();
        let window = known
            .filter(|known| Some(&known.certificate) == issued.id.as_ref())
            .and_then(|known| known.window)
            .map(|window| window.map(instant))
            .filter(|[start, end]| start <= end && *start < not_after);
        let suggested =
            window.map_or(usual, |[start, end]| start + end.since(start).mul_f64(issued.share));

        // What follows needs to know when it was issued by the clock of this machine.
        let Some(issued_at) = self.issued_at.map(instant).filter(|at| *at <= now) else {
            return suggested;
        };

        // An authority that suggests `now` again and again must not be obeyed each second.
        let earliest = issued_at + (lifetime / 10).clamp(LEAST_INTERVAL, DAY);
        let is_ahead = issued_at >= suggested;
        if is_ahead || self.was_behind(issued) {
            // This clock differs from the authority's by so much that the certificate looks old, or
            // not valid yet. Its lifetime is right all the same.
            return (issued_at + wait).max(earliest);
        }
        suggested.max(earliest)
    }
}

/// Returns the wait after so many failures. Certificates of a short lifetime have shorter waits.
fn backoff(failures: u32, lifetime: Option<Duration>, random: f64) -> Duration {
    let longest = lifetime.map_or(LONGEST_WAIT, |lifetime| LONGEST_WAIT.min(lifetime / 12));
    let factor = 4_u32.saturating_pow(failures.saturating_sub(1));
    let wait = FIRST_WAIT.saturating_mul(factor).min(longest.max(LEAST_WAIT));
    // Gateways that failed together do not return together.
    wait + (wait / 4).mul_f64(random)
}

/// Returns when to request renewal information again.
pub(super) fn next_check(now: Instant, demanded: Option<Duration>) -> Instant {
    now + demanded.unwrap_or(USUAL_CHECK).clamp(LEAST_CHECK, LONGEST_DEMAND)
}

/// Returns a time in whole seconds since 1970.
pub(super) fn seconds(time: Instant) -> u64 {
    time.as_nanos() / SECOND
}

/// Writes a time as `2026-11-21T05:00:00Z`.
pub(super) fn shown(time: Instant) -> String {
    let time = Duration::from_secs(seconds(time));
    humantime::format_rfc3339_seconds(UNIX_EPOCH + time).to_string()
}

/// Returns the time of seconds since 1970.
pub(super) fn instant(seconds: u64) -> Instant {
    Instant::from_nanos(seconds.saturating_mul(SECOND))
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 1_800_000_000;
    const HOUR: u64 = 3600;
    const ONE_DAY: u64 = 24 * HOUR;

    fn lasting(not_before: u64, lifetime: u64, share: f64) -> Issued {
        let validity =
            Validity { not_before: instant(not_before), not_after: instant(not_before + lifetime) };
        Issued { validity, id: Some("id".to_owned()), share }
    }

    fn at(record: &Record, issued: &Issued, now: u64) -> u64 {
        seconds(record.order_at(Some(issued), instant(now)))
    }

    #[test]
    fn a_certificate_is_renewed_at_two_thirds_of_its_lifetime_or_a_little_before() {
        for lifetime in [90 * ONE_DAY, 45 * ONE_DAY, 6 * ONE_DAY, 240] {
            let record = Record { issued_at: Some(START), ..Record::default() };
            let latest = at(&record, &lasting(START, lifetime, 0.0), START);
            let earliest = at(&record, &lasting(START, lifetime, 1.0), START);
            assert_eq!(latest, START + lifetime * 2 / 3);
            assert_eq!(earliest, START + lifetime * 2 / 3 - lifetime / 24);
        }
    }

    #[test]
    fn a_certificate_of_a_lifetime_of_seconds_is_renewed_each_quarter_of_a_minute() {
        let record = Record { issued_at: Some(START), ..Record::default() };
        for (lifetime, wait) in [(1, 15), (6, 15), (22, 15), (24, 16), (60, 40)] {
            assert_eq!(at(&record, &lasting(START, lifetime, 0.0), START), START + wait);
            // By this clock it begins later, or has ended.
            for not_before in [START + HOUR, START - HOUR] {
                let issued = lasting(not_before, lifetime, 0.0);
                assert_eq!(at(&record, &issued, START), START + wait, "{lifetime} s");
            }
        }
    }

    #[test]
    fn without_a_certificate_it_is_ordered_at_once() {
        assert_eq!(Record::default().order_at(None, instant(START)), Instant::EPOCH);
    }

    #[test]
    fn failures_are_repeated_ever_later_and_no_later_than_a_twelfth_of_the_lifetime() {
        for (lifetime, waits) in [
            (None, [15, 60, 240, 960, 3840, 15_360, 21_600, 21_600]),
            (Some(6 * ONE_DAY), [15, 60, 240, 960, 3840, 15_360, 21_600, 21_600]),
            (Some(HOUR), [15, 60, 240, 300, 300, 300, 300, 300]),
            (Some(60), [5; 8]),
            (Some(6), [1; 8]),
        ] {
            let lifetime = lifetime.map(Duration::from_secs);
            let mut record = Record::default();
            let mut now = START;
            for wait in waits {
                record.begin(lifetime, instant(now), 0.0);
                // It took a while.
                now += 30;
                record.fail(instant(now), "no", None);
                let next = seconds(record.order_at(None, instant(now)));
                assert_eq!(next - now, wait);
                now = next;
            }
        }
        let jittered = backoff(1, None, 1.0);
        assert_eq!(jittered, FIRST_WAIT + FIRST_WAIT / 4);
        assert_eq!(backoff(u32::MAX, None, 0.0), LONGEST_WAIT);
    }

    #[test]
    fn an_authority_can_demand_a_longer_wait_of_up_to_a_day() {
        for (demanded, wait) in [(10, 15), (HOUR, HOUR), (u64::MAX, ONE_DAY)] {
            let mut record = Record::default();
            record.begin(None, instant(START), 0.0);
            record.fail(instant(START), "429", Some(Duration::from_secs(demanded)));
            assert_eq!(seconds(record.retry_at(instant(START))), START + wait);
        }
    }

    #[test]
    fn an_attempt_without_an_end_counts_as_a_failure() {
        let mut record = Record::default();
        for failures in 1..=3 {
            record.begin(None, instant(START), 0.0);
            assert_eq!(record.failures, failures);
        }
        assert_eq!(seconds(record.retry_at(instant(START))), START + 240);
        record.succeed(instant(START));
        assert_eq!(record, Record { issued_at: Some(START), ..Record::default() });
    }

    #[test]
    fn a_clock_that_is_set_back_does_not_prolong_a_wait() {
        let mut record = Record::default();
        record.begin(None, instant(START + 365 * ONE_DAY), 0.0);
        assert_eq!(record.retry_at(instant(START)), Instant::EPOCH);
        let info = RenewalInfo {
            certificate: "id".to_owned(),
            window: None,
            check_at: START + 365 * ONE_DAY,
        };
        record.renewal = Some(info);
        let issued = lasting(START, 90 * ONE_DAY, 0.0);
        assert_eq!(record.check_at(&issued, instant(START)), instant(START));
    }

    #[test]
    fn the_window_of_the_authority_decides() {
        let issued = lasting(START, 90 * ONE_DAY, 0.5);
        let suggesting = |window| Record {
            issued_at: Some(START),
            renewal: Some(RenewalInfo { certificate: "id".to_owned(), window, check_at: 0 }),
            ..Record::default()
        };
        let window = |start, end| suggesting(Some([START + start, START + end]));
        let now = START + 10 * ONE_DAY;
        let usual = at(&suggesting(None), &issued, now);

        assert_eq!(at(&window(20 * ONE_DAY, 22 * ONE_DAY), &issued, now), START + 21 * ONE_DAY);
        // One in the past is due.
        assert!(at(&window(ONE_DAY, 2 * ONE_DAY), &issued, now) <= now);
        // One that is none, or only begins when the certificate has ended, is ignored.
        assert_eq!(at(&window(22 * ONE_DAY, 20 * ONE_DAY), &issued, now), usual);
        assert_eq!(at(&window(90 * ONE_DAY, 91 * ONE_DAY), &issued, now), usual);
        // So is that of another certificate.
        let other = Issued { id: Some("other".to_owned()), ..issued.clone() };
        assert_eq!(at(&window(20 * ONE_DAY, 22 * ONE_DAY), &other, now), usual);
        // One that begins before the certificate is obeyed once a day.
        let always = window(0, 1);
        assert_eq!(at(&always, &issued, START + 1), START + ONE_DAY);
    }

    #[test]
    fn a_clock_that_is_wrong_renews_once_in_each_lifetime() {
        let issued = lasting(START, 90 * ONE_DAY, 0.0);
        let ahead = START + 365 * ONE_DAY;
        // The clock says that it has ended: it is renewed.
        let before = Record { issued_at: Some(START), ..Record::default() };
        assert!(at(&before, &issued, ahead) <= ahead);
        // The new one, too, looks as if it had ended.
        let record = Record { issued_at: Some(ahead), ..Record::default() };
        assert_eq!(at(&record, &issued, ahead), ahead + 60 * ONE_DAY);
        // Once the clock is right again, so are the times.
        assert_eq!(at(&record, &issued, START), START + 60 * ONE_DAY);

        let behind = START - 365 * ONE_DAY;
        let record = Record { issued_at: Some(behind), ..Record::default() };
        assert_eq!(at(&record, &issued, behind), behind + 60 * ONE_DAY);
    }

    #[test]
    fn a_certificate_that_is_not_valid_replaces_none_that_is() {
        let validity = |from: i64, until: i64| Validity {
            not_before: instant(START.saturating_add_signed(from)),
            not_after: instant(START.saturating_add_signed(until)),
        };
        let used = [validity(-60, 600)];
        let ended = [validity(-600, -1)];
        let later = [validity(1, 600)];
        let none: &[Validity] = &[];
        let use_at = |new, in_use: &[Validity]| {
            let at = Record::default().use_at(new, in_use, None, instant(START));
            at.map(|at| seconds(at) - START)
        };

        for in_use in [&used[..], &ended, &later, none] {
            assert_eq!(use_at(validity(0, 5), in_use), Some(0), "it is valid");
            assert_eq!(use_at(validity(-5, 0), in_use), Some(0), "its last second");
        }
        let wrong = [validity(-5, -1), validity(1, 5), validity(301, 900), validity(-900, -301)];
        for new in wrong {
            for in_use in [&ended[..], &later, none] {
                assert_eq!(use_at(new, in_use), Some(0), "clients decide");
            }
        }
        let both = [ended[0], used[0]];
        for in_use in [&used[..], &both] {
            assert_eq!(use_at(validity(-900, -1), in_use), None, "it has ended");
            assert_eq!(use_at(validity(301, 900), in_use), None, "it begins too late");
            assert_eq!(use_at(validity(300, 900), in_use), Some(300), "it begins soon");
        }
        assert_eq!(use_at(validity(300, 900), &[validity(-60, 90)]), Some(90), "without a gap");
    }

    #[test]
    fn a_clock_that_was_behind_when_the_certificate_was_issued_rejects_none_that_begins_later() {
        let issued = lasting(START, 90 * ONE_DAY, 0.0);
        let now = instant(START + 50 * ONE_DAY);
        let new = lasting(START + 60 * ONE_DAY, 90 * ONE_DAY, 0.0).validity;
        let use_at = |issued_at, new| {
            let record = Record { issued_at: Some(issued_at), ..Record::default() };
            record.use_at(new, &[issued.validity], Some(&issued), now)
        };
        assert_eq!(use_at(START - 10 * ONE_DAY, new), Some(now));
        assert_eq!(use_at(START, new), None);
        let ended = lasting(START - 50 * ONE_DAY, 90 * ONE_DAY, 0.0).validity;
        assert_eq!(use_at(START - 10 * ONE_DAY, ended), None);
    }

    #[test]
    fn an_authority_is_asked_for_its_window_between_each_minute_and_each_day() {
        let now = instant(START);
        assert_eq!(next_check(now, None), now + USUAL_CHECK);
        assert_eq!(next_check(now, Some(Duration::ZERO)), now + LEAST_CHECK);
        assert_eq!(next_check(now, Some(Duration::MAX)), now + LONGEST_DEMAND);
    }
}
