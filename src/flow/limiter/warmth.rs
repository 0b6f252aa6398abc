//! The warmth of a service: requests warm it, silence cools it.
//!
//! Each start warms by `T` on the curve of [`ramp`](super::ramp). Silence cools. Traffic as dense
//! as a cold service admits is not silence, even if single gaps look like it. Therefore `due` is
//! kept: the time at which all started requests would have ended at the cold interval `f·T` each:
//!
//! ```text
//! due     = min(max(due, t) + n·f·T, t + max(n·f·T, H))      at a start at t, H = 1 s
//! silence = min(t − last, 2·(t − due)), or 0 until due       X(t) = min(M, X + silence)
//! ```
//!
//! At the cold rate or more, with gaps up to `H`, a service has no silence and warms up; below
//! `1/(f + ½)` of the rate it does not get warmer. After dense traffic more may come until `due`;
//! the factor of two makes up for that wait. A cold bucket admits the next `n` requests `(n−1)·T`
//! after these intervals; where that exceeds `H`, `n·f·T` is extended by it, as otherwise a service
//! used at its admitted rate would seem silent.
//!
//! For the same reason a rhythm that misses the curve must not cost a cold service requests that
//! the curve allows. Passed time is **saved up**: at most the latest pause, which counts up to
//! `max(H, 2·f·T)`, and never so that `n` requests take less than a warm service's `n·T`.
//!
//! Source: Sentinel `WarmUpController.coolDownTokens`, which stores tokens for a second only if
//! less than `count / coldFactor` passed in the one before, in steps of a second. `H` is that step.

use super::ramp::{Cold, Ramp};
use crate::flow::time::Instant;
use core::time::Duration;

/// `H`: shorter pauses count as even traffic.
const HORIZON: Duration = Duration::from_secs(1);

/// A service's warmth at its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::flow) struct Warmth {
    cold: Cold,
    last: Instant,
    /// Until when more requests may come; the epoch if nothing is saved up.
    due: Instant,
}

/// A request on the curve.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Step {
    /// From when its cost counts, in units of the interval.
    pub(in crate::flow) from: u128,
    /// The coldness.
    pub(in crate::flow) cold: Cold,
}

/// A request's budget, in units of the interval.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct Budget {
    pub(in crate::flow) start: u128,
    /// The time at which the budget is `slack` again.
    pub(in crate::flow) tat: u128,
    /// The most time that a warm service may save up.
    pub(in crate::flow) slack: u128,
}

impl Warmth {
    /// Returns the warmth of a service never called.
    pub(in crate::flow) const fn coldest(ramp: &Ramp) -> Self {
        Self { cold: ramp.coldest(), last: Instant::EPOCH, due: Instant::EPOCH }
    }

    /// Returns the warmth of a service that had no warm-up before.
    pub(in crate::flow) const fn warm(now: Instant) -> Self {
        Self { cold: 0, last: now, due: Instant::EPOCH }
    }

    /// Returns its numbers, for [`Self::of_numbers`].
    pub(in crate::flow) const fn numbers(&self) -> [u64; 3] {
        [self.cold, self.last.as_nanos(), self.due.as_nanos()]
    }

    /// Inverts [`Self::numbers`].
    pub(in crate::flow) fn of_numbers(ramp: &Ramp, [cold, last, due]: [u64; 3]) -> Self {
        let cold = cold.min(ramp.coldest());
        Self { cold, last: Instant::from_nanos(last), due: Instant::from_nanos(due) }
    }

    /// Returns whether it equals that of a service never called from `now` on.
    pub(in crate::flow) fn is_coldest(&self, ramp: &Ramp, now: Instant) -> bool {
        self.due <= now && self.pause(ramp, now).is_none() && self.cold(ramp, now) == ramp.coldest()
    }

    pub(in crate::flow) fn cold(&self, ramp: &Ramp, now: Instant) -> Cold {
        let silence = now.since(self.last).min(now.since(self.due).saturating_mul(2));
        if silence.is_zero() { self.cold } else { ramp.after_silence(self.cold, silence) }
    }

    /// Returns the step of `n` requests that start at `now`.
    pub(in crate::flow) fn step(&self, ramp: &Ramp, now: Instant, budget: Budget, n: u64) -> Step {
        let Budget { start, tat, slack } = budget;
        let cold = self.cold(ramp, now);
        let warm = slack - ramp.share(cold, slack);
        let saved = self.pause(ramp, now).map_or(0, |pause| {
            let left = (ramp.units(self.last) + slack).saturating_sub(tat);
            left.max(ramp.units(Instant::EPOCH + pause)).min(slack + ramp.extra(cold, n))
        });
        Step { from: tat.max((start + slack).saturating_sub(warm.max(saved))), cold }
    }

    /// Records the start of `n` requests at `now`, and returns their step.
    pub(in crate::flow) fn on_start(
        &mut self,
        ramp: &Ramp,
        now: Instant,
        budget: Budget,
        n: u64,
    ) -> Step {
        let step = self.step(ramp, now, budget, n);
        let paced = ramp.cold_interval(n);
        // Requests as early as a bucket admits them are not silence; a shorter wait is saved up.
        let spaced = paced.saturating_add(ramp.apart(n, budget.slack));
        let paced = if spaced > HORIZON { spaced } else { paced };
        let due = (self.due.max(now) + paced).min(now + paced.max(HORIZON));
        *self = Self { cold: ramp.after(step.cold, n), last: now, due };
        step
    }

    /// Converts from the curve `old` to `ramp` at `now`. Returns whether time may be saved up.
    pub(in crate::flow) fn convert(&mut self, ramp: &Ramp, old: &Ramp, now: Instant) -> bool {
        let saves = self.pause(old, now).is_some();
        let last = self.last.max(now);
        let latest = last + ramp.cold_interval(1).max(HORIZON);
        let due = if saves { self.due.clamp(last, latest) } else { Instant::EPOCH };
        *self = Self { cold: ramp.convert(self.cold(old, now), old), last, due };
        saves
    }

    /// Returns the time since the last start, if saved time is still kept.
    fn pause(&self, ramp: &Ramp, now: Instant) -> Option<Duration> {
        let pause = now.since(self.last);
        let longest = ramp.cold_interval(2).max(HORIZON);
        (self.due != Instant::EPOCH && pause <= longest).then_some(pause)
    }
}
