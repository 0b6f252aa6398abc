//! The breaker: no request goes to a service that fails or is slow.
//!
//! ```text
//!            too many of the latest answers were bad
//!   closed ───────────────────────────────────────────▶ open, for `open_for`
//!      ▲                                                  │ ▲
//!      │ all `probes` were good                           │ │ one was bad
//!      └──────────────────────────── half-open ◀──────────┘ │
//!                                        └──────────────────┘
//! ```
//!
//! Answers count for `window`, in buckets that follow the clock (`window.rs`). On each answer, if
//! there are at least `min_requests`, a closed breaker opens iff
//!
//! ```text
//! failed / all > error_ratio    or    slow / all > slow_ratio    or    failed ≥ errors
//! ```
//!
//! A ratio of 1 counts as exceeded by all. An answer is slow if its head came later than
//! `slow.after` from the request's start. A wait for the start does not count, and neither does
//! the time that the request's body takes.
//!
//! If another slot rejects a probe, nothing is charged and it leaves no trace. Each transition
//! begins a **generation**, and a request counts only in the one that admitted it: only probes
//! decide a half-open breaker, and requests older than its opening change nothing. A probe without
//! an answer frees its place.
//!
//! Worst case: closed, all pass; open, none; half-open, `probes` run at a time, each as long as its
//! request may wait for an answer.
//!
//! An edit keeps the state: an open breaker stays open until the time already set.
//!
//! Source: Sentinel `ResponseTimeCircuitBreaker` and `ExceptionCircuitBreaker`, which
//! count in one aligned bucket, let any completion decide a half-open breaker, probe
//! with one request, and never open at an error ratio of 1.

use super::{Breaks, End, EndOfRequest, Evictable, Limiter, Times, Token, Transfer, Until, Usage};
pub use crate::flow::decision::{AnswerCounts, BreakerStats, Phase, Transition};
use crate::flow::{
    decision::{Decision, Outcome, Reason},
    time::{Instant, nanos},
    window::{Grid, Ring},
};
use core::{fmt, num::NonZeroU64, time::Duration};
use serde::{Deserialize, Serialize};

/// The conditions under which a breaker opens, and closes again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// Opens when a larger part of the answers are failures.
    pub error_ratio: Option<Ratio>,
    /// Opens when too many answers are slow.
    pub slow: Option<Slow>,
    /// Opens at this many failures.
    pub errors: Option<u64>,
    /// The fewest answers that it opens on.
    pub min_requests: u64,
    /// The time for which answers count; zero stands for a nanosecond.
    pub window: Duration,
    /// In how many buckets they are counted; zero stands for one.
    pub buckets: u32,
    /// The time for which it stays open.
    pub open_for: Duration,
    /// The number of probes that pass when it is half-open; zero stands for one.
    pub probes: u32,
    /// True for a dry run: it only counts what it would reject.
    pub dry_run: bool,
}

/// The definition of a slow answer, and the share of them that is too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow {
    /// The longest time from a request's start that is not slow, without the time that its body
    /// takes.
    pub after: Duration,
    /// The largest part that may be slow.
    pub ratio: Ratio,
}

/// A part of a whole, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "u32", try_from = "u32")]
pub struct Ratio(u32);

impl Ratio {
    /// The whole.
    pub const ONE: Self = Self(1_000_000);

    /// Returns `millionths` of a whole, or `None` if that is more than all of it.
    pub fn new(millionths: u32) -> Option<Self> {
        (millionths <= Self::ONE.0).then_some(Self(millionths))
    }

    /// Returns whether `part` of `whole` exceeds this. All exceeds [`Self::ONE`], which nothing
    /// could exceed otherwise.
    fn is_exceeded(self, part: u64, whole: u64) -> bool {
        let one = u128::from(Self::ONE.0);
        let ratio = u128::from(self.0);
        u128::from(part) * one > ratio * u128::from(whole)
            || (self == Self::ONE && part == whole && part > 0)
    }
}

impl From<Ratio> for u32 {
    fn from(ratio: Ratio) -> Self {
        ratio.0
    }
}

impl TryFrom<u32> for Ratio {
    type Error = &'static str;

    fn try_from(millionths: u32) -> Result<Self, Self::Error> {
        Self::new(millionths).ok_or("more than the whole")
    }
}

/// Writes a percentage.
impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{:04}", self.0 / 10_000, self.0 % 10_000);
        write!(f, "{} %", text.trim_end_matches('0').trim_end_matches('.'))
    }
}

#[derive(Debug)]
pub(in crate::flow) struct Breaker {
    config: Config,
    grid: Grid,
    probes: u32,
}

#[derive(Clone, Debug)]
pub(in crate::flow) struct State {
    mode: Mode,
    generation: Token,
    /// The answers of this generation while it is closed.
    ring: Ring<AnswerCounts>,
    turned: Option<Transition>,
    opened: u64,
    half_opened: u64,
    closed: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Closed,
    Open { until: Instant },
    HalfOpen { free: u32, good: u32 },
}

impl Config {
    pub(in crate::flow) fn build(&self) -> Breaker {
        let buckets = NonZeroU64::new(self.buckets.into()).unwrap_or(NonZeroU64::MIN);
        let window = NonZeroU64::new(nanos(self.window)).unwrap_or(NonZeroU64::MIN);
        let grid = Grid::new(window, buckets);
        Breaker { config: self.clone(), grid, probes: self.probes.max(1) }
    }
}

impl Breaker {
    fn ring(&self) -> Ring<AnswerCounts> {
        Ring::new(self.config.buckets)
    }

    fn answers(&self, state: &State, now: Instant) -> AnswerCounts {
        let live = state.ring.live(self.grid.index(now));
        live.fold(AnswerCounts::default(), |sum, (_, bucket)| sum.plus(bucket))
    }

    /// Returns what an end counts as: one answer, or nothing.
    fn classify(&self, end: &End) -> Option<AnswerCounts> {
        let (failed, at) = match end.outcome {
            Outcome::Success { at } => (0, at),
            Outcome::Failure { at } => (1, at),
            Outcome::Cancelled => return None,
        };
        let is_slow = |slow: Slow| at.since(end.start) > slow.after;
        Some(AnswerCounts { all: 1, failed, slow: self.config.slow.is_some_and(is_slow).into() })
    }

    /// Returns whether this breaker opens at such answers.
    const fn is_bad(&self, answer: AnswerCounts) -> bool {
        let Config { error_ratio, errors, .. } = &self.config;
        answer.slow > 0 || (answer.failed > 0 && (error_ratio.is_some() || errors.is_some()))
    }

    fn is_too_bad(&self, seen: AnswerCounts) -> bool {
        let Config { error_ratio, slow, errors, min_requests, .. } = &self.config;
        seen.all >= *min_requests
            && (error_ratio.is_some_and(|ratio| ratio.is_exceeded(seen.failed, seen.all))
                || slow.is_some_and(|slow| slow.ratio.is_exceeded(seen.slow, seen.all))
                || errors.is_some_and(|errors| seen.failed >= errors))
    }

    fn open(&self, state: &mut State, now: Instant, on: AnswerCounts) {
        let until = now + self.config.open_for;
        state.turn(Mode::Open { until }, Transition { to: Phase::Open, on });
    }

    fn close(&self, state: &mut State, good: u32) {
        let on = AnswerCounts { all: good.into(), ..AnswerCounts::default() };
        state.ring = self.ring();
        state.turn(Mode::Closed, Transition { to: Phase::Closed, on });
    }
}

impl State {
    const fn turn(&mut self, mode: Mode, turn: Transition) {
        self.mode = mode;
        self.generation = self.generation.wrapping_add(1);
        self.turned = Some(turn);
        *match turn.to {
            Phase::Closed => &mut self.closed,
            Phase::Open => &mut self.opened,
            Phase::HalfOpen => &mut self.half_opened,
        } += 1;
    }
}

impl AnswerCounts {
    const fn plus(self, other: &Self) -> Self {
        Self {
            all: self.all + other.all,
            failed: self.failed + other.failed,
            slow: self.slow + other.slow,
        }
    }
}

impl Limiter for Breaker {
    type State = State;

    /// A breaker has no number to limit.
    fn limit(&self) -> u64 {
        0
    }

    fn fresh(&self) -> State {
        let ring = self.ring();
        let generation = 0;
        let turned = None;
        let opened = 0;
        let half_opened = 0;
        let closed = 0;
        State { mode: Mode::Closed, generation, ring, turned, opened, half_opened, closed }
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        state.mode == Mode::Closed && self.answers(state, now) == AnswerCounts::default()
    }

    fn check(&self, state: &State, now: Instant, _cost: u64) -> Decision {
        let retry_after = match state.mode {
            Mode::Open { until } if now < until => Some(until.since(now)),
            Mode::HalfOpen { free: 0, .. } => None,
            Mode::Closed | Mode::Open { .. } | Mode::HalfOpen { .. } => return Decision::Pass,
        };
        Decision::Reject(Reason::BreakerOpen { retry_after })
    }

    fn usage(&self, _state: &State, _now: Instant) -> Usage {
        Usage::default()
    }

    fn charge(&self, state: &mut State, times: Times, _cost: u64) {
        match &mut state.mode {
            Mode::Closed => {}
            // It passed before the breaker opened, like others in flight.
            Mode::Open { until } if times.now < *until => {}
            Mode::Open { .. } => {
                let mode = Mode::HalfOpen { free: self.probes - 1, good: 0 };
                state.turn(mode, Transition { to: Phase::HalfOpen, on: AnswerCounts::default() });
            }
            Mode::HalfOpen { free, .. } => *free = free.saturating_sub(1),
        }
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        if let Mode::HalfOpen { free, good } = &mut state.mode {
            // Running probes keep their places.
            let taken = old.probes.saturating_sub(*free);
            *free = self.probes.saturating_sub(taken);
            let good = *good;
            if good >= self.probes {
                self.close(state, good);
            }
        }
        if (self.grid, self.config.buckets) != (old.grid, old.config.buckets) {
            let mut ring = self.ring();
            let current = self.grid.index(now);
            for (index, bucket) in state.ring.live(old.grid.index(now)) {
                // By its last instant, so that nothing expires too early.
                let end = old.grid.start(index + 1) - Duration::from_nanos(1);
                let to = ring.advance(self.grid.index(end.min(now)).min(current));
                *to = to.plus(bucket);
            }
            state.ring = ring;
        }
    }

    fn end_of_request(&self) -> Option<&dyn EndOfRequest<Self::State>> {
        Some(self)
    }

    fn breaks(&self) -> Option<&dyn Breaks<Self::State>> {
        Some(self)
    }
}

impl Evictable for Breaker {}

impl Transfer for Breaker {
    fn export(&self, state: &State) -> Vec<u64> {
        let State { mode, generation, ring, opened, half_opened, closed, turned: _ } = state;
        let mode = match *mode {
            Mode::Closed => [0, 0, 0],
            Mode::Open { until } => [1, until.as_nanos(), 0],
            Mode::HalfOpen { free, good } => [2, free.into(), good.into()],
        };
        let head = ring.head();
        let counts = (0..ring.span()).flat_map(|age| {
            let AnswerCounts { all, failed, slow } =
                head.checked_sub(age).map_or_else(AnswerCounts::default, |index| ring.get(index));
            [all, failed, slow]
        });
        let others = [u64::from(*generation), *opened, *half_opened, *closed, head];
        mode.into_iter().chain(others).chain(counts).collect()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let &[mode, first, second, generation, opened, half_opened, closed, head, ref counts @ ..] =
            numbers
        else {
            return None;
        };

        let mode = match mode {
            0 => Mode::Closed,
            1 => Mode::Open { until: Instant::from_nanos(first) },
            2 => Mode::HalfOpen { free: first.try_into().ok()?, good: second.try_into().ok()? },
            _ => return None,
        };

        let mut ring = self.ring();
        let (counts, []) = counts.as_chunks::<3>() else { return None };
        for (age, &[all, failed, slow]) in counts.iter().enumerate().rev() {
            // Sums of them do not overflow.
            if age as u64 >= ring.span() || all.max(failed).max(slow) >= 1 << 48 {
                return None;
            }
            if let Some(index) = head.checked_sub(age as u64) {
                *ring.advance(index) = AnswerCounts { all, failed, slow };
            }
        }

        let generation = generation.try_into().ok()?;
        Some(State { mode, generation, ring, turned: None, opened, half_opened, closed })
    }

    /// Frees the places of all probes: whose they were is not known.
    fn abandon(&self, state: &mut State, _cost: u64) {
        if let Mode::HalfOpen { free, good } = &mut state.mode {
            *free = self.probes.saturating_sub(*good);
        }
    }
}

impl EndOfRequest<State> for Breaker {
    fn until(&self) -> Until {
        Until::Answer
    }

    fn token(&self, state: &State) -> Token {
        state.generation
    }

    fn release(&self, state: &mut State, end: &End, _cost: u64) {
        if end.token != state.generation {
            return;
        }

        match (&mut state.mode, self.classify(end)) {
            (Mode::Closed, Some(answer)) => {
                let bucket = state.ring.advance(self.grid.index(end.now));
                *bucket = bucket.plus(&answer);
                let seen = self.answers(state, end.now);
                if self.is_too_bad(seen) {
                    self.open(state, end.now, seen);
                }
            }
            (Mode::HalfOpen { .. }, Some(answer)) if self.is_bad(answer) => {
                self.open(state, end.now, answer);
            }
            (Mode::HalfOpen { good, .. }, Some(_)) => {
                *good += 1;
                let good = *good;
                if good >= self.probes {
                    self.close(state, good);
                }
            }
            (Mode::HalfOpen { free, .. }, None) => *free += 1,
            // It was cancelled, or nothing was admitted in this generation.
            (Mode::Closed, None) | (Mode::Open { .. }, _) => {}
        }
    }
}

impl Breaks<State> for Breaker {
    fn take_transition(&self, state: &mut State) -> Option<Transition> {
        state.turned.take()
    }

    fn seen(&self, state: &State, now: Instant) -> BreakerStats {
        let &State { mode, opened, half_opened, closed, .. } = state;
        let phase = match mode {
            Mode::Closed => Phase::Closed,
            Mode::Open { .. } => Phase::Open,
            Mode::HalfOpen { .. } => Phase::HalfOpen,
        };
        BreakerStats { phase, opened, half_opened, closed, answers: self.answers(state, now) }
    }
}

#[cfg(test)]
mod tests;
