//! One route between two samples: its counts and rates, and its samples of the last five minutes.

use crate::{
    admin::sample::Columns,
    config::Route,
    flow::{Counts, Instant, ReasonKind, RuleObservation, Totals},
    meter::Durations,
};
use std::sync::Arc;

/// Over how many seconds the rates of rules are taken, so that a rejection now and then can be read.
const SECONDS: usize = 10;

/// A route since the sampler knows it.
#[derive(Debug, Default)]
pub(crate) struct RouteTrack {
    totals: Totals,
    failed: u64,
    durations: Durations,
    rejected: Durations,
    pub(super) latest: Second,
    /// Admitted requests, and those that failed.
    pub(super) admitted_lately: Window,
    pub(super) failed_lately: Window,
    /// While it has had traffic in the last five minutes, if there is room.
    pub(crate) history: Option<History>,
    /// From its first traffic on.
    pub(super) rules: RuleTracks,
}

/// The rates of a gate's rules.
#[derive(Debug, Default)]
pub(super) struct RuleTracks(Vec<RuleTrack>);

/// The rates of one rule.
#[derive(Debug)]
pub(super) struct RuleTrack {
    pub name: Arc<str>,
    counts: Counts,
    pub passed: Window,
    pub delayed: Window,
    pub would_reject: Window,
    /// Those that it has rejected for.
    pub reasons: Vec<(ReasonKind, Window)>,
}

/// The counts of the last seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    counts: [u32; SECONDS],
    at: usize,
}

impl Window {
    pub(super) fn push(&mut self, count: u64) {
        self.counts[self.at] = narrow(count);
        self.at = (self.at + 1) % SECONDS;
    }

    /// Returns the count of the latest second.
    pub(super) fn latest(&self) -> u32 {
        self.counts[(self.at + SECONDS - 1) % SECONDS]
    }

    /// Returns the count of all seconds.
    pub(super) fn sum(&self) -> u64 {
        self.counts.iter().map(|count| u64::from(*count)).sum()
    }

    /// Returns the rate per second.
    pub(super) fn rate(&self) -> f64 {
        let sum: u32 = self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count));
        f64::from(sum) / 10.0
    }
}

/// Returns a count as a sample has it.
pub(super) fn narrow(count: u64) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl RouteTrack {
    /// Returns a track of a route that has been counted for a while: only what comes is sampled.
    pub(super) fn new(route: &Route, now: Instant) -> Self {
        let (durations, rejected) = route.meter.durations();
        let failed = route.meter.failed();
        let totals = route.gate.totals(now);
        Self { totals, failed, durations, rejected, ..Self::default() }
    }

    /// Takes the sample of a second. Returns the durations of the admitted requests in it.
    pub(super) fn sample(&mut self, route: &Route, now: Instant, has_room: bool) -> Durations {
        let totals = route.gate.totals(now);
        let failed = route.meter.failed();
        let (durations, rejected) = route.meter.durations();
        let admitted = durations.since(&self.durations).since(&rejected.since(&self.rejected));
        self.latest = Second {
            passed: narrow(totals.passed.saturating_sub(self.totals.passed)),
            delayed: narrow(totals.delayed.saturating_sub(self.totals.delayed)),
            rejected: narrow(totals.rejected.saturating_sub(self.totals.rejected)),
            failed: narrow(failed.saturating_sub(self.failed)),
            p50: micros(&admitted, 0.5),
            p99: micros(&admitted, 0.99),
            in_flight: narrow(totals.in_flight),
            waiting: narrow(totals.waiting),
        };
        self.totals = totals;
        self.failed = failed;
        self.durations = durations;
        self.rejected = rejected;
        self.admitted_lately.push(u64::from(self.latest.passed) + u64::from(self.latest.delayed));
        self.failed_lately.push(u64::from(self.latest.failed));
        self.remember(has_room);

        if self.latest.requests() > 0 {
            self.rules.follow(&route.gate.observe(now).rules);
        } else {
            self.rules.rest();
        }
        admitted
    }

    /// Adds the latest sample to the history, which ends after five minutes without traffic.
    fn remember(&mut self, has_room: bool) {
        let is_idle = self.latest.is_idle();
        if self.history.is_none() && !is_idle && has_room {
            self.history = Some(History::default());
        }
        if let Some(history) = &mut self.history {
            history.push(self.latest);
            if is_idle && history.is_idle() {
                self.history = None;
            }
        }
    }

    /// Returns how many requests were rejected, and how many came, in the last minute.
    pub(super) fn last_minute(&self) -> (u64, u64) {
        let Some(history) = &self.history else {
            return (u64::from(self.latest.rejected), self.latest.requests());
        };
        history.latest(60).fold((0, 0), |(rejected, all), sample| {
            (rejected + u64::from(sample.rejected), all + sample.requests())
        })
    }
}

/// Returns a percentile in microseconds; 0 if nothing was counted.
pub(super) fn micros(durations: &Durations, share: f64) -> u32 {
    let found = durations.quantile(share);
    found.map_or(0, |found| u32::try_from(found.as_micros()).unwrap_or(u32::MAX).max(1))
}

impl RuleTracks {
    /// Returns tracks of rules that have been counted for a while: only what comes is sampled.
    pub(super) fn new(seen: &[RuleObservation]) -> Self {
        let track =
            |rule: &RuleObservation| RuleTrack { counts: rule.counts, ..RuleTrack::new(rule) };
        Self(seen.iter().map(track).collect())
    }

    /// Takes the sample of a second.
    pub(super) fn follow(&mut self, seen: &[RuleObservation]) {
        let mut known = core::mem::take(&mut self.0);
        for rule in seen {
            let found = known.iter().position(|track| track.name == rule.name);
            let mut track = match found {
                Some(index) => known.swap_remove(index),
                None => RuleTrack::new(rule),
            };
            track.follow(rule);
            self.0.push(track);
        }
    }

    /// Adds a second without requests.
    fn rest(&mut self) {
        self.0.iter_mut().for_each(RuleTrack::rest);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &RuleTrack> {
        self.0.iter()
    }

    pub(super) fn rule(&self, name: &str) -> Option<&RuleTrack> {
        self.0.iter().find(|track| *track.name == *name)
    }

    /// Returns the rate of rejections by all of them.
    pub(super) fn rejected(&self) -> f64 {
        self.0.iter().map(RuleTrack::rejected).sum()
    }
}

impl RuleTrack {
    fn new(seen: &RuleObservation) -> Self {
        Self {
            name: Arc::clone(&seen.name),
            counts: Counts::default(),
            passed: Window::default(),
            delayed: Window::default(),
            would_reject: Window::default(),
            reasons: Vec::new(),
        }
    }

    fn follow(&mut self, seen: &RuleObservation) {
        let before = core::mem::replace(&mut self.counts, seen.counts);
        let now = &seen.counts;
        self.passed.push(now.passed.saturating_sub(before.passed));
        self.delayed.push(now.delayed.saturating_sub(before.delayed));
        let would = |counts: &Counts| counts.dry_run_rejected.total();
        self.would_reject.push(would(now).saturating_sub(would(&before)));
        for kind in ReasonKind::ALL {
            let count = now.rejected.of(kind).saturating_sub(before.rejected.of(kind));
            match self.reasons.iter_mut().find(|(known, _)| *known == kind) {
                Some((_, window)) => window.push(count),
                None if count > 0 => {
                    let mut window = Window::default();
                    window.push(count);
                    self.reasons.push((kind, window));
                }
                None => {}
            }
        }
    }

    /// Adds a second without requests.
    fn rest(&mut self) {
        let reasons = self.reasons.iter_mut().map(|(_, window)| window);
        let windows = [&mut self.passed, &mut self.delayed, &mut self.would_reject];
        windows.into_iter().chain(reasons).for_each(|window| window.push(0));
    }

    /// Returns the rate of rejections.
    pub(super) fn rejected(&self) -> f64 {
        self.reasons.iter().fold(0.0, |sum, (_, window)| sum + window.rate())
    }
}

/// The number of samples that are kept: one a second.
pub(super) const SAMPLES: usize = 300;

/// One second of a route, or of all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Second {
    pub passed: u32,
    pub delayed: u32,
    pub rejected: u32,
    /// Admitted requests that got a status of 500 to 599.
    pub failed: u32,
    /// Microseconds from arrival to the end of the answer, of admitted requests; 0: there was none.
    pub p50: u32,
    pub p99: u32,
    /// At the end of the second.
    pub in_flight: u32,
    pub waiting: u32,
}

/// The last [`SAMPLES`] samples, oldest first from `next` on.
#[derive(Clone, Debug)]
pub(crate) struct History {
    samples: Box<[Second; SAMPLES]>,
    next: usize,
}

impl Second {
    /// Returns whether nothing happened and nothing is in flight.
    pub(super) fn is_idle(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn requests(&self) -> u64 {
        u64::from(self.passed) + u64::from(self.delayed) + u64::from(self.rejected)
    }
}

/// Returns microseconds as milliseconds; `None` for 0.
pub(super) fn millis(micros: u32) -> Option<f64> {
    (micros > 0).then(|| f64::from(micros) / 1e3)
}

impl Default for History {
    fn default() -> Self {
        Self { samples: Box::new([Second::default(); SAMPLES]), next: 0 }
    }
}

impl History {
    pub(super) fn push(&mut self, sample: Second) {
        self.samples[self.next] = sample;
        self.next = (self.next + 1) % SAMPLES;
    }

    /// Returns all samples, oldest first.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = &Second> {
        let (newer, older) = self.samples.split_at(self.next);
        older.iter().chain(newer)
    }

    /// Returns the latest samples, newest first.
    pub(super) fn latest(&self, count: usize) -> impl Iterator<Item = &Second> {
        self.iter().rev().take(count)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.samples.iter().all(Second::is_idle)
    }

    pub(super) fn columns(&self) -> Columns {
        let column = |of: fn(&Second) -> u32| self.iter().map(of).collect();
        let latency = |of: fn(&Second) -> u32| self.iter().map(|at| millis(of(at))).collect();
        Columns {
            passed: column(|at| at.passed),
            delayed: column(|at| at.delayed),
            rejected: column(|at| at.rejected),
            failed: column(|at| at.failed),
            p50: latency(|at| at.p50),
            p99: latency(|at| at.p99),
            in_flight: column(|at| at.in_flight),
            waiting: column(|at| at.waiting),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(passed: u32) -> Second {
        Second { passed, ..Second::default() }
    }

    #[test]
    fn the_latest_five_minutes_are_kept_in_order() {
        let mut history = History::default();
        assert!(history.is_idle());
        for second in 1..=450 {
            history.push(sample(second));
        }
        let passed: Vec<u32> = history.iter().map(|at| at.passed).collect();
        assert_eq!(passed, (151..=450).collect::<Vec<_>>());
        assert_eq!(history.latest(2).map(|at| at.passed).collect::<Vec<_>>(), [450, 449]);
        assert_eq!(history.columns().passed.len(), SAMPLES);
        assert!(!history.is_idle());
    }

    #[test]
    fn a_second_without_answers_has_no_latency() {
        let mut history = History::default();
        history.push(Second { p50: 1_500, ..sample(1) });
        let columns = history.columns();
        assert_eq!(columns.p50[SAMPLES - 2..], [None, Some(1.5)]);
    }
}
