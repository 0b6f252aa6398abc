//! How warm a service is: what warms it, and what cools it.
//!
//! Each request that starts warms, by `T` on the curve of [`ramp`](super::ramp). Silence
//! cools, and traffic as dense as a cold service would be let have is not silent,
//! whatever it looks like from one request to the next. So the time is kept at which,
//! at the cold interval `f·T` for each, all that started would have come to its end:
//!
//! ```text
//! due     = min(max(due, t) + n·f·T, t + max(n·f·T, H))      at a start at t, H = 1 s
//! silence = min(t − last, 2·(t − due)), or 0 until due       X(t) = min(M, X + silence)
//! ```
//!
//! Offered the cold rate or more, in pieces up to `H` apart, a service has no silence
//! and gets warm; offered less, it has, and at less than `1/(f + ½)` of the rate it
//! gets no warmer than it is. After dense traffic there may be more to come until
//! `due`; the factor of two makes up for that wait. A cold bucket lets the next `n`
//! start `(n−1)·T` after these intervals; where that makes more than `H`, `n·f·T` is so
//! much more, as else a service that is asked as often as it lets would be silent.
//!
//! For the same reason a beat that does not meet the curve must not cost a cold
//! service requests that the curve allows. Time that went by is **saved up**, as far as
//! it is no longer than the latest pause, nor that than `max(H, 2·f·T)`; and never so
//! that `n` requests take less than the `n·T` that they would take of a warm service.
//!
//! Source: Sentinel `WarmUpController.coolDownTokens`, by which tokens are stored in a
//! second only if what passed in the one before was less than `count / coldFactor`;
//! there in steps of a second, by the clock, from which `H` is taken.

use super::{
    ramp::{Cold, Ramp},
    time::Instant,
};
use core::time::Duration;

/// `H`: pauses up to so long count as an even flow. Sentinel's step.
const HORIZON: Duration = Duration::from_secs(1);

/// How warm a service is, as of its last request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Warmth {
    cold: Cold,
    /// When the last one started.
    last: Instant,
    /// Until when more of them may be to come; zero if nothing is saved up.
    due: Instant,
}

/// A request on the curve.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// From when on its cost counts, in units of the interval.
    pub(super) from: u128,
    /// How cold the service is.
    pub(super) cold: Cold,
}

/// What a request may be spent from, in units of the interval.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// When it starts.
    pub(super) start: u128,
    /// When nothing would be missing to `slack`.
    pub(super) tat: u128,
    /// What a warm service may save up.
    pub(super) slack: u128,
}

impl Warmth {
    /// Returns that of a service that was never asked.
    pub(super) const fn coldest(ramp: &Ramp) -> Self {
        Self { cold: ramp.coldest(), last: Instant::EPOCH, due: Instant::EPOCH }
    }

    /// Returns that of a service that was not warmed up so far.
    pub(super) const fn warm(now: Instant) -> Self {
        Self { cold: 0, last: now, due: Instant::EPOCH }
    }

    /// Returns whether it is, from `now` on, that of a service that was never asked.
    pub(super) fn is_coldest(&self, ramp: &Ramp, now: Instant) -> bool {
        self.due <= now && self.pause(ramp, now).is_none() && self.cold(ramp, now) == ramp.coldest()
    }

    /// Returns how cold the service is.
    pub(super) fn cold(&self, ramp: &Ramp, now: Instant) -> Cold {
        let silence = now.since(self.last).min(now.since(self.due).saturating_mul(2));
        if silence.is_zero() { self.cold } else { ramp.after_silence(self.cold, silence) }
    }

    /// Returns the step on the curve of `n` requests that start at `now`.
    pub(super) fn step(&self, ramp: &Ramp, now: Instant, budget: Budget, n: u64) -> Step {
        let Budget { start, tat, slack } = budget;
        let cold = self.cold(ramp, now);
        let warm = slack - ramp.share(cold, slack);
        let saved = self.pause(ramp, now).map_or(0, |pause| {
            let left = (ramp.units(self.last) + slack).saturating_sub(tat);
            left.max(ramp.units(Instant::EPOCH + pause)).min(slack + ramp.extra(cold, n))
        });
        Step { from: tat.max((start + slack).saturating_sub(warm.max(saved))), cold }
    }

    /// Notes that `n` requests start at `now`, and returns their step.
    pub(super) fn on_start(&mut self, ramp: &Ramp, now: Instant, budget: Budget, n: u64) -> Step {
        let step = self.step(ramp, now, budget, n);
        let paced = ramp.cold_interval(n);
        // Who comes as early as a bucket lets them is not silent; a shorter wait is saved up.
        let spaced = paced.saturating_add(ramp.apart(n, budget.slack));
        let paced = if spaced > HORIZON { spaced } else { paced };
        let due = (self.due.max(now) + paced).min(now + paced.max(HORIZON));
        *self = Self { cold: ramp.after(step.cold, n), last: now, due };
        step
    }

    /// Goes over to the curve of `ramp` from that of `old`, as of `now`. Returns whether
    /// there may be something saved up.
    pub(super) fn convert(&mut self, ramp: &Ramp, old: &Ramp, now: Instant) -> bool {
        let saves = self.pause(old, now).is_some();
        let last = self.last.max(now);
        let latest = last + ramp.cold_interval(1).max(HORIZON);
        let due = if saves { self.due.clamp(last, latest) } else { Instant::EPOCH };
        *self = Self { cold: ramp.convert(self.cold(old, now), old), last, due };
        saves
    }

    /// Returns the time since the last start, if what is saved up is still kept.
    fn pause(&self, ramp: &Ramp, now: Instant) -> Option<Duration> {
        let pause = now.since(self.last);
        let longest = ramp.cold_interval(2).max(HORIZON);
        (self.due != Instant::EPOCH && pause <= longest).then_some(pause)
    }
}
