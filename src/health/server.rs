//! The health of one server.

use super::{Check, Ejection};
use crate::flow::{Instant, time::spelled};
use core::{fmt, time::Duration};
use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
};

/// The time for the one request by which an ejected server is tried again, before another one may
/// try.
const TRIAL: Duration = Duration::from_secs(10);

/// The time for which a connection may be opening before other requests are sent elsewhere.
const SLOW_CONNECT: Duration = Duration::from_millis(250);

/// A server that failed nothing for so long begins with the first period again.
const FORGET: Duration = Duration::from_mins(5);

/// The least part of its share, in percent, that a server gets as it returns.
const LEAST_SHARE: u32 = 10;

/// The health of a server. While it is well, a request reads one flag.
#[derive(Debug, Default)]
pub struct ServerHealth {
    /// True if `state` is any other than that of a server that is well.
    is_suspect: AtomicBool,
    /// True if it gets no requests: ejected, unreachable, or failing its checks.
    is_out: AtomicBool,
    ejections: AtomicU64,
    /// The time that its last connection took to open, in nanoseconds; 0: none was opened.
    connect_time: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Failed requests in a row.
    failures: u32,
    ejected: Option<Ejected>,
    /// Ejections in a row.
    ejections: u32,
    /// The time at which it was last tried again.
    returned: Option<Instant>,
    /// True while its share still grows after that.
    is_starting: bool,
    /// Since when a connection is opening.
    connecting: Option<Instant>,
    /// The number of connections that are opening.
    openings: u32,
    /// True if no connection could be opened, and no request or check has succeeded since.
    is_unreachable: bool,
    is_failing_checks: bool,
    /// The number of checks that passed.
    passed_checks: u64,
    /// Checks in a row that speak against `is_failing_checks`.
    checks: u32,
    window: FailureWindow,
}

#[derive(Clone, Copy, Debug)]
struct Ejected {
    since: Instant,
    until: Instant,
    /// True if it cannot be reached, and as many servers were ejected as may be.
    is_beyond: bool,
    /// The start of the one request that tries it again.
    trial: Option<Instant>,
}

/// The kind of a request's failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerFailure {
    /// No connection could be opened.
    Connect,
    /// The server gave no valid response in time.
    Response,
}

/// A change of a server's health, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthChange {
    /// It gets no requests for this long.
    Ejected(Duration),
    /// It cannot be reached, and gets no requests for this long while another server may. As many are
    /// ejected as may be.
    Unreachable(Duration),
    /// It is asked again, after this long.
    Returned(Duration),
    /// It fails its checks.
    Failing,
    /// It passes its checks again.
    Passing,
}

impl HealthChange {
    /// Returns whether requests go to the server again.
    pub const fn is_good(self) -> bool {
        matches!(self, Self::Returned(_) | Self::Passing)
    }
}

impl fmt::Display for HealthChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ejected(period) => write!(f, "server ejected for {}", spelled(*period)),
            Self::Unreachable(period) => {
                write!(
                    f,
                    "server cannot be reached: others get its requests for {}",
                    spelled(*period)
                )
            }
            Self::Returned(after) => {
                let secs = Duration::from_secs(after.as_secs());
                write!(f, "server asked again after {}", spelled(secs))
            }
            Self::Failing => f.write_str("server fails its health checks"),
            Self::Passing => f.write_str("server passes its health checks and is asked again"),
        }
    }
}

impl ServerHealth {
    /// Returns whether the server may get the request at hand at `now`. Its share grows for
    /// `slow_start` after it returns; `random` returns a number below its argument.
    ///
    /// After an ejection, the first request for which this is `true` tries the server: the
    /// others go elsewhere until that one is answered, for 10 s at most.
    pub fn admits(
        &self,
        now: Instant,
        slow_start: Duration,
        random: impl FnOnce(usize) -> usize,
    ) -> bool {
        if !self.is_suspect() {
            return true;
        }
        let mut state = self.lock();
        let admits = state.admits(now, slow_start, random);
        self.publish(&state);
        admits
    }

    /// Returns whether anything but success is known of it.
    pub fn is_suspect(&self) -> bool {
        self.is_suspect.load(Relaxed)
    }

    /// Returns whether it gets no requests: ejected, unreachable, or failing its checks.
    pub fn is_out(&self) -> bool {
        self.is_out.load(Relaxed)
    }

    /// Returns how often it was ejected since the process started.
    pub fn ejections(&self) -> u64 {
        self.ejections.load(Relaxed)
    }

    /// Returns whether it is shown as `healthy`. Another may get requests all the same, if it is the
    /// only one or none is ever ejected.
    pub fn is_healthy(&self) -> bool {
        self.lock().is_healthy()
    }

    /// Returns its state in one word: `healthy`, `ejected`, `unreachable`, or `unhealthy` if it fails
    /// its checks.
    pub fn word(&self) -> &'static str {
        let state = self.lock();
        match (state.is_failing_checks, state.ejected) {
            (true, _) => "unhealthy",
            (false, Some(Ejected { is_beyond: true, .. })) => "unreachable",
            (false, Some(_)) => "ejected",
            (false, None) if state.is_unreachable => "unreachable",
            (false, None) => "healthy",
        }
    }

    /// Notes that a connection is being opened at `now`. Returns after how long it should be given up
    /// if another server is left; `None`: not before the server's own limit. One request waits that
    /// long, the others only for longer than the server usually takes.
    pub fn connecting(&self, now: Instant) -> Option<Duration> {
        let mut state = self.lock();
        let is_first = state.connecting.is_none();
        state.connecting.get_or_insert(now);
        state.openings += 1;
        self.publish(&state);
        drop(state);
        self.patience().filter(|_| !is_first)
    }

    /// Returns how long a connection may take that another request opens.
    pub fn patience(&self) -> Option<Duration> {
        let usual = self.connect_time.load(Relaxed);
        (usual > 0).then(|| Duration::from_nanos(usual).saturating_mul(3).max(SLOW_CONNECT))
    }

    /// Notes that a connection was opened within `took`, or is no longer awaited.
    pub fn connected(&self, took: Option<Duration>) {
        if let Some(took) = took {
            let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
            self.connect_time.store(nanos.max(1), Relaxed);
        }
        let mut state = self.lock();
        state.openings = state.openings.saturating_sub(1);
        // Others may wait longer than the one that gives up.
        if took.is_some() || state.openings == 0 {
            state.connecting = None;
        }
        self.publish(&state);
    }

    /// Notes that the server answered a request.
    pub fn succeeded(&self, now: Instant) -> Option<HealthChange> {
        let mut state = self.lock();
        state.failures = 0;
        state.is_unreachable = false;
        // One that was sent before the ejection says nothing about the time after it.
        let is_over = |ejected: Ejected| ejected.trial.is_some() || now >= ejected.until;
        let is_trial = state.ejected.is_some_and(is_over);
        let change = if is_trial { state.readmit(now) } else { None };
        self.publish(&state);
        change
    }

    /// Notes that a request failed and that it was not for the client's doing. `out` counts the
    /// servers of the upstream that get no requests now, and all of them.
    pub fn failed(
        &self,
        now: Instant,
        failure: ServerFailure,
        ejection: &Ejection,
        out: impl FnOnce() -> (usize, usize),
    ) -> Option<HealthChange> {
        let mut state = self.lock();
        state.failures = state.failures.saturating_add(1);
        if failure == ServerFailure::Connect {
            state.connecting = None;
            state.is_unreachable = true;
        }
        let is_enough = failure == ServerFailure::Connect || state.failures >= ejection.failures;

        let change = match state.ejected {
            Some(Ejected { trial: Some(_), is_beyond, .. }) => {
                Some(state.eject(now, ejection, is_beyond))
            }
            // It was sent before the ejection.
            Some(_) => None,
            None => {
                let (out, all) = if is_enough { out() } else { (0, 0) };
                let is_beyond = !ejection.allows(out, all);
                let is_passed_over = failure == ServerFailure::Connect && ejection.passes_over(all);
                (!is_beyond || is_passed_over).then(|| state.eject(now, ejection, is_beyond))
            }
        };

        self.after(&state, change)
    }

    /// Looks at the share of failures among the requests that were ever sent. To be called about
    /// once a second; `out` as for [`Self::failed`].
    pub fn observe(
        &self,
        now: Instant,
        totals: RequestTotals,
        ejection: &Ejection,
        out: impl FnOnce() -> (usize, usize),
    ) -> Option<HealthChange> {
        let mut state = self.lock();
        let percent = state.window.percent(now, totals);
        let is_enough = percent.is_some_and(|percent| percent >= ejection.failure_percent);
        let (out, all) = if is_enough && state.ejected.is_none() { out() } else { (0, 0) };
        let change = ejection.allows(out, all).then(|| state.eject(now, ejection, false));
        self.after(&state, change)
    }

    /// Notes the result of an active check.
    pub fn checked(&self, now: Instant, passed: bool, check: &Check) -> Option<HealthChange> {
        let mut state = self.lock();
        let change = state.checked(now, passed, check);
        self.after(&state, change)
    }

    /// Forgets the checks, which are made no more.
    pub fn forget_checks(&self) {
        let mut state = self.lock();
        state.is_failing_checks = false;
        state.passed_checks = 0;
        state.checks = 0;
        self.publish(&state);
    }

    /// Returns whether it is healthy only because nothing speaks against it: no check has passed.
    pub fn is_unchecked(&self) -> bool {
        let state = self.lock();
        state.is_healthy() && state.passed_checks == 0
    }

    fn after(&self, state: &State, change: Option<HealthChange>) -> Option<HealthChange> {
        if matches!(change, Some(HealthChange::Ejected(_))) {
            self.ejections.fetch_add(1, Relaxed);
        }
        self.publish(state);
        change
    }

    fn publish(&self, state: &State) {
        self.is_suspect.store(!state.is_well(), Relaxed);
        self.is_out.store(state.is_out(), Relaxed);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn is_well(&self) -> bool {
        self.failures == 0 && self.connecting.is_none() && !self.is_starting && self.is_healthy()
    }

    fn is_healthy(&self) -> bool {
        !self.is_unreachable && !self.is_out()
    }

    fn is_out(&self) -> bool {
        self.is_failing_checks || self.ejected.is_some()
    }

    fn admits(
        &mut self,
        now: Instant,
        slow_start: Duration,
        random: impl FnOnce(usize) -> usize,
    ) -> bool {
        if self.is_failing_checks {
            return false;
        }
        if let Some(ejected) = &mut self.ejected {
            let is_tried = ejected.trial.is_some_and(|trial| now.since(trial) < TRIAL);
            if now < ejected.until || is_tried {
                return false;
            }
            ejected.trial = Some(now);
            return true;
        }
        if self.connecting.is_some_and(|since| now.since(since) >= SLOW_CONNECT) {
            return false;
        }
        let share = self.share(now, slow_start);
        share >= 100 || random(100) < share as usize
    }

    /// Returns which part of its share it gets at `now`, in percent.
    fn share(&mut self, now: Instant, slow_start: Duration) -> u32 {
        let Some(returned) = self.returned.filter(|_| self.is_starting) else { return 100 };
        let elapsed = now.since(returned);
        if elapsed >= slow_start {
            self.is_starting = false;
            return 100;
        }
        let percent = elapsed.as_nanos().saturating_mul(100) / slow_start.as_nanos().max(1);
        u32::try_from(percent).unwrap_or(100).max(LEAST_SHARE)
    }

    fn eject(&mut self, now: Instant, ejection: &Ejection, is_beyond: bool) -> HealthChange {
        if self.returned.is_some_and(|returned| now.since(returned) >= FORGET) {
            self.ejections = 0;
        }
        let period = ejection.period(self.ejections);
        self.ejections = self.ejections.saturating_add(1);
        self.failures = 0;
        let since = self.ejected.map_or(now, |ejected| ejected.since);
        self.ejected = Some(Ejected { since, until: now + period, is_beyond, trial: None });
        if is_beyond { HealthChange::Unreachable(period) } else { HealthChange::Ejected(period) }
    }

    /// Ends an ejection.
    fn readmit(&mut self, now: Instant) -> Option<HealthChange> {
        let ejected = self.ejected.take()?;
        self.start(now);
        Some(HealthChange::Returned(now.since(ejected.since)))
    }

    fn start(&mut self, now: Instant) {
        self.returned = Some(now);
        self.is_starting = true;
        self.failures = 0;
    }

    fn checked(&mut self, now: Instant, passed: bool, check: &Check) -> Option<HealthChange> {
        self.is_unreachable &= !passed;
        self.passed_checks = self.passed_checks.saturating_add(u64::from(passed));
        if passed != self.is_failing_checks {
            self.checks = 0;
            return None;
        }
        self.checks += 1;
        let enough = if passed { check.healthy_after } else { check.unhealthy_after };
        if self.checks < enough {
            return None;
        }
        self.checks = 0;
        self.is_failing_checks = !passed;
        if passed {
            self.start(now);
        }
        Some(if passed { HealthChange::Passing } else { HealthChange::Failing })
    }
}

const WINDOW: Duration = Duration::from_secs(10);

/// The fewest requests in a window of which a ratio says anything.
const FEWEST: u64 = 20;

/// The requests that were sent to a server since the process started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTotals {
    /// All of them.
    pub requests: u64,
    /// Those that failed.
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

    const EJECTION: Ejection = Ejection {
        failures: 3,
        failure_percent: 50,
        period: Duration::from_secs(10),
        longest: Duration::from_secs(30),
        most_percent: 50,
    };

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    /// One of two servers, of which the other one is well.
    fn failed(health: &ServerHealth, millis: u64, failure: ServerFailure) -> Option<HealthChange> {
        health.failed(at(millis), failure, &EJECTION, || (0, 2))
    }

    fn admits(health: &ServerHealth, millis: u64) -> bool {
        health.admits(at(millis), Duration::ZERO, |_| unreachable!("no slow start"))
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_ejected_at_once_and_tried_by_one_request() {
        let health = ServerHealth::default();
        assert!(admits(&health, 0) && !health.is_out());
        assert_eq!(
            failed(&health, 0, ServerFailure::Connect),
            Some(HealthChange::Ejected(secs(10)))
        );
        assert_eq!(failed(&health, 1, ServerFailure::Connect), None, "one that was under way");
        assert!(health.is_out() && !admits(&health, 9_999));
        assert_eq!(health.word(), "ejected");
        assert!(admits(&health, 10_000), "one request tries it");
        assert!(!admits(&health, 10_001) && !admits(&health, 19_999), "the others go elsewhere");
        assert!(admits(&health, 20_000), "the first one has not been answered");
        assert_eq!(
            health.succeeded(at(20_100)),
            Some(HealthChange::Returned(Duration::from_millis(20_100)))
        );
        assert!(!health.is_out() && admits(&health, 20_100) && !health.is_suspect());
        assert_eq!((health.word(), health.ejections()), ("healthy", 1));
    }

    #[test]
    fn each_further_ejection_lasts_longer_until_a_server_has_been_well() {
        let health = ServerHealth::default();
        let mut now = 0;
        for expected in [10, 20, 30, 30] {
            let ejected = failed(&health, now, ServerFailure::Connect);
            assert_eq!(ejected, Some(HealthChange::Ejected(secs(expected))));
            now += expected * 1000;
            assert!(!admits(&health, now - 1) && admits(&health, now));
        }
        health.succeeded(at(now));
        let ejected = failed(&health, now + 299_999, ServerFailure::Connect);
        assert_eq!(
            ejected,
            Some(HealthChange::Ejected(secs(30))),
            "it was back for less than 5 minutes"
        );
        assert!(admits(&health, now + 330_000));
        health.succeeded(at(now + 330_000));
        let ejected = failed(&health, now + 630_000, ServerFailure::Connect);
        assert_eq!(ejected, Some(HealthChange::Ejected(secs(10))));
    }

    #[test]
    fn only_failures_in_a_row_eject() {
        let health = ServerHealth::default();
        for millis in 0..10 {
            assert_eq!(failed(&health, millis, ServerFailure::Response), None);
            assert_eq!(failed(&health, millis, ServerFailure::Response), None);
            assert_eq!(health.succeeded(at(millis)), None);
            assert!(!health.is_suspect());
        }
        assert_eq!(failed(&health, 10, ServerFailure::Response), None);
        assert_eq!(failed(&health, 10, ServerFailure::Response), None);
        assert_eq!(
            failed(&health, 10, ServerFailure::Response),
            Some(HealthChange::Ejected(secs(10)))
        );
    }

    #[test]
    fn an_answer_to_a_request_from_before_the_ejection_does_not_end_it() {
        let health = ServerHealth::default();
        failed(&health, 0, ServerFailure::Connect);
        assert_eq!(health.succeeded(at(1)), None);
        assert!(!admits(&health, 2));
    }

    #[test]
    fn an_answer_after_an_ejection_ends_it_also_if_no_request_was_to_try_the_server() {
        // The only server of an upstream is asked whatever is known of it.
        let health = ServerHealth::default();
        failed(&health, 0, ServerFailure::Connect);
        assert_eq!(health.succeeded(at(9_999)), None);
        assert_eq!(health.succeeded(at(10_000)), Some(HealthChange::Returned(secs(10))));
        assert!(!health.is_out());
    }

    #[test]
    fn the_last_servers_are_not_ejected() {
        let health = ServerHealth::default();
        let failed = |failure, out| {
            let failed = || health.failed(at(0), failure, &EJECTION, || out);
            (0..3).find_map(|_| failed())
        };
        assert_eq!(failed(ServerFailure::Response, (1, 2)), None);
        assert_eq!(failed(ServerFailure::Response, (0, 1)), None);
        assert_eq!(failed(ServerFailure::Connect, (0, 1)), None);
        assert!(admits(&health, 0));
        assert_eq!(failed(ServerFailure::Connect, (1, 4)), Some(HealthChange::Ejected(secs(10))));
    }

    #[test]
    fn a_server_that_cannot_be_reached_is_passed_over_also_if_no_more_may_be_ejected() {
        let health = ServerHealth::default();
        let failed =
            |millis| health.failed(at(millis), ServerFailure::Connect, &EJECTION, || (1, 2));
        assert_eq!(failed(0), Some(HealthChange::Unreachable(secs(10))));
        assert_eq!((health.word(), health.is_out(), health.ejections()), ("unreachable", true, 0));
        assert!(!admits(&health, 9_999) && admits(&health, 10_000) && !admits(&health, 10_001));
        assert_eq!(failed(10_002), Some(HealthChange::Unreachable(secs(20))));
        assert!(!admits(&health, 30_001) && admits(&health, 30_002));
        let back = Duration::from_millis(30_003);
        assert_eq!(health.succeeded(at(30_003)), Some(HealthChange::Returned(back)));
        assert_eq!((health.word(), health.is_out()), ("healthy", false));
        let off = Ejection { most_percent: 0, ..EJECTION };
        assert_eq!(health.failed(at(40_000), ServerFailure::Connect, &off, || (0, 2)), None);
    }

    #[test]
    fn a_server_that_is_not_passed_over_is_shown_as_unreachable_until_it_answers() {
        let off = Ejection { most_percent: 0, ..EJECTION };
        for (ejection, servers) in [(EJECTION, 1), (off, 2)] {
            let health = ServerHealth::default();
            let failed = |failure| health.failed(at(0), failure, &ejection, || (0, servers));
            assert_eq!(failed(ServerFailure::Response), None);
            assert_eq!((health.word(), health.is_healthy()), ("healthy", true));
            assert_eq!(failed(ServerFailure::Connect), None);
            assert_eq!((health.word(), health.is_healthy()), ("unreachable", false));
            assert!(!health.is_out() && admits(&health, 0), "it gets requests");
            assert_eq!(failed(ServerFailure::Response), None);
            assert_eq!(health.word(), "unreachable", "a broken connection is no answer");
            assert_eq!(health.succeeded(at(1)), None);
            assert_eq!((health.word(), health.is_suspect()), ("healthy", false));
        }
    }

    #[test]
    fn a_server_that_fails_half_of_its_requests_is_ejected() {
        let health = ServerHealth::default();
        let observe = |secs: u64, requests, failures| {
            let totals = RequestTotals { requests, failures };
            health.observe(at(secs * 1000), totals, &EJECTION, || (0, 2))
        };
        assert_eq!(observe(0, 0, 0), None);
        assert_eq!(observe(10, 100, 49), None);
        assert_eq!(observe(20, 200, 99), Some(HealthChange::Ejected(secs(10))));
        assert_eq!(observe(30, 300, 199), None, "it is ejected already");
    }

    #[test]
    fn a_connection_that_opens_slowly_sends_others_elsewhere() {
        let health = ServerHealth::default();
        health.connecting(at(0));
        assert_eq!(health.connecting(at(200)), None, "nothing is known of how long it takes");
        assert!(admits(&health, 249) && !admits(&health, 250));
        health.connected(None);
        assert!(!admits(&health, 250), "one is still opening");
        health.connected(None);
        assert!(admits(&health, 250) && !health.is_suspect());
        health.connecting(at(300));
        health.connecting(at(300));
        health.connected(Some(Duration::from_millis(1)));
        assert!(admits(&health, 900), "it can be reached");
    }

    #[test]
    fn one_request_waits_for_a_server_that_takes_longer_than_usual() {
        for (usual, patience) in [(1, 250), (100, 300)] {
            let health = ServerHealth::default();
            assert_eq!(health.connecting(at(0)), None);
            health.connected(Some(Duration::from_millis(usual)));
            assert_eq!(health.connecting(at(0)), None, "the first");
            let patience = Some(Duration::from_millis(patience));
            assert_eq!([health.connecting(at(1)), health.connecting(at(2))], [patience; 2]);
            health.connected(None);
            assert_eq!(health.connecting(at(3)), patience, "one still waits");
            for _ in 0..3 {
                health.connected(None);
            }
            assert_eq!(health.connecting(at(4)), None, "the first again");
        }
    }

    #[test]
    fn its_share_grows_after_it_returned() {
        let health = ServerHealth::default();
        failed(&health, 0, ServerFailure::Connect);
        assert!(admits(&health, 10_000));
        health.succeeded(at(10_000));
        let share = |millis: u64| {
            let gets = |point| health.admits(at(10_000 + millis), secs(10), |_| point);
            (0..100).filter(|point| gets(*point)).count()
        };
        assert_eq!([0, 500, 5000, 9900].map(share), [10, 10, 50, 99]);
        assert!(health.is_suspect());
        assert_eq!(share(10_000), 100);
        assert!(!health.is_suspect());
    }

    #[test]
    fn checks_in_a_row_change_it() {
        let check = Check {
            path: "/".into(),
            host: None,
            interval: secs(1),
            timeout: secs(1),
            healthy_after: 2,
            unhealthy_after: 3,
            expect: Vec::new(),
        };
        let health = ServerHealth::default();
        let checked = |passed: bool| health.checked(at(0), passed, &check);
        for passed in [true, false, false, true, false, false] {
            assert_eq!(checked(passed), None);
        }
        assert_eq!(checked(false), Some(HealthChange::Failing));
        assert_eq!(
            (admits(&health, 0), health.is_out(), health.word()),
            (false, true, "unhealthy")
        );
        for passed in [false, true, false, true] {
            assert_eq!(checked(passed), None);
        }
        assert_eq!(checked(true), Some(HealthChange::Passing));
        assert!(admits(&health, 0) && !health.is_out());
        for _ in 0..3 {
            checked(false);
        }
        health.forget_checks();
        assert!(admits(&health, 0), "a server that is checked no more");
        health.failed(at(0), ServerFailure::Connect, &EJECTION, || (0, 1));
        assert_eq!((checked(false), health.word()), (None, "unreachable"));
        assert_eq!((checked(true), health.word()), (None, "healthy"));
    }
}

#[cfg(test)]
mod window_tests {
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
