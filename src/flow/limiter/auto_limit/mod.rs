//! A limit on requests in flight that finds itself.
//!
//! Time is cut into slots. In odd slots the limit is a step higher than in even ones. By what share
//! the throughput follows the limit from one slot to the next, its elasticity, says whether more places
//! are worth having. Response times never decide: a service that became slower and one that is too
//! full have the same times. They only say where to look.
//!
//! - **Slots** last about 6 unloaded response times and at least 24 responses. Their length is a power
//!   of two of nanoseconds, and they begin at its multiples: so gateways in front of one service raise and
//!   lower their limits together. Otherwise each would gain by taking the others' share.
//! - **Learning** is only from slots in which requests waited for places most of the time. While they do
//!   not, the higher level holds. The step is `sqrt(0.64 × limit)`. The limit changes by
//!   `gained × max(|trend|, 0.2)² / 2`, where `gained` is the elasticity less 0.07, and `trend` its mean
//!   over some 10 comparisons; less a part of what response times are above 1.5 times the unloaded one.
//! - **The unloaded response time** follows the mean of slots, by 1/16 downward and 1/256 upward.
//! - **Without a queue**, a rejection counts as a wait for the time of a response. If fewer requests are
//!   rejected than it takes to learn, and responses are not slow, the limit rises by a place.
//! - **A dive** looks far below, when two slots in a row have response times of more than twice the
//!   unloaded one, whether requests waited or not: see `dive.rs`.
//! - **At the start** the limit doubles while the elasticity is above 0.47; it forgives two shortfalls
//!   in a row.
//!
//! Worst case: the limit is always within `min` and `max`. With service times that do not depend on the
//! load, it lets a service of `c` places have about `c + sqrt(c)` in flight.

mod dive;
mod numbers;
mod sample;

#[cfg(test)]
mod tests;

use crate::flow::{
    limit_change::{AutoStats, ChangeReason, LimitChange},
    time::{Instant, nanos},
};
use core::{fmt, time::Duration};
use dive::{Dive, Recheck};
use sample::{Sample, Tally};
use serde::{Deserialize, Serialize};

/// A number in 65,536ths.
type Fixed = i64;

/// 1 as a [`Fixed`].
const ONE: Fixed = 1 << 16;

/// The bounds of a limit that finds itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The lowest limit, at least 1.
    pub min: u32,
    /// The highest limit, at least `min`.
    pub max: u32,
}

/// As `check` says it: `4 to 500`.
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// The limit of a service of which nothing is known, unless `min` is more.
const INITIAL: u32 = 2;

/// The length of the first slot, in nanoseconds: 67 ms.
const FIRST_SLOT: u64 = 1 << 26;

/// The least length of a slot, in nanoseconds: 1 ms.
const SHORTEST_SLOT: u64 = 1 << 20;

/// The greatest length of a slot, in nanoseconds: 18 minutes.
const LONGEST_SLOT: u64 = 1 << 40;

/// A slot lasts about so many unloaded response times,
const TURNS: u64 = 6;

/// and at least as long as so many responses take.
const RESPONSES: u64 = 24;

/// Nothing is learned from a slot in which requests wait for a lower percentage of the time.
const BOUND_PERCENT: u64 = 75;

/// Two samples are compared if not more slots are between them.
const FRESH_SLOTS: u64 = 16;

/// The higher level is `sqrt(STEP × limit)` above the lower one.
const STEP: Fixed = ONE * 64 / 100;

/// The elasticity at which another place is worth having.
const WORTH: Fixed = ONE * 7 / 100;

/// The comparisons over which the trend is a mean.
const MEMORY: Fixed = 10;

/// The least trend that counts for the size of a change.
const CALM: Fixed = ONE / 5;

/// Response times press the limit down from so many times the unloaded one on.
const PATIENCE: Fixed = ONE * 3 / 2;

/// The part of the excess by which they do.
const PRESS: Fixed = 6;

/// The slots over which the unloaded response time follows the measured one, downward.
const DOWN: i64 = 16;

/// The same, upward.
const UP: i64 = 256;

/// Response times are slow from so many times the unloaded one on.
const SLOW: u64 = 2;

/// The limit doubles at the start if the elasticity is above this.
const FOLLOW: Fixed = ONE * 47 / 100;

/// So many doublings in a row may fall short before the start ends.
const DOUBTS: u8 = 2;

/// The size of a limit that finds itself.
pub(super) const BYTES: usize = size_of::<AutoLimit>();

/// A limit that finds itself, with what it has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AutoLimit {
    /// The limit at the lower level.
    limit: Fixed,
    phase: Phase,
    /// The length of a slot in nanoseconds, a power of two.
    length: u64,
    /// The number of the current slot: its begin by its length.
    slot: u64,
    /// True if requests hardly waited in the last slot: the higher level holds until they do.
    is_unbound: bool,
    /// The latest slots at the lower and at the higher level.
    latest: [Option<Sample>; 2],
    /// The response time of a service that is not full, in nanoseconds; 0 before the first sample.
    unloaded: u64,
    elasticity: Fixed,
    trend: Fixed,
    /// Slots in a row with slow responses.
    slow_slots: u8,
    /// Doublings in a row that fell short.
    doubts: u8,
    /// The next check of a dive that was refuted.
    recheck: Option<Recheck>,
    /// Since the slot or the measurement began.
    tally: Tally,
    /// True if requests wait in the queue.
    waits: bool,
    /// The end of the time in which a request counts as waiting that was rejected for want of a place.
    wanted_until: Instant,
    /// The latest event.
    seen: Instant,
    /// The latest change that no request has reported yet.
    unreported: Option<LimitChange>,
    latest_change: Option<LimitChange>,
    changes: [u64; ChangeReason::ALL.len()],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It doubles from the initial limit. The slot to compare the next one with.
    Start(Option<Sample>),
    /// One slot low, one high.
    Steady,
    /// It tries far fewer places.
    Dive(Dive),
    /// It follows recorded decisions, and learns nothing.
    Recorded,
}

impl AutoLimit {
    /// Returns the limit of a service of which nothing is known but that so many requests in flight
    /// are no harm.
    pub(super) fn new(config: Config, initial: Option<u32>) -> Self {
        let initial = initial.unwrap_or(INITIAL).clamp(config.min, config.max);
        Self {
            limit: Fixed::from(initial) * ONE,
            phase: Phase::Start(None),
            length: FIRST_SLOT,
            slot: 0,
            is_unbound: false,
            latest: [None; 2],
            unloaded: 0,
            elasticity: 0,
            trend: 0,
            slow_slots: 0,
            doubts: 0,
            recheck: None,
            tally: Tally::default(),
            waits: false,
            wanted_until: Instant::EPOCH,
            seen: Instant::EPOCH,
            unreported: None,
            latest_change: None,
            changes: [0; ChangeReason::ALL.len()],
        }
    }

    /// Returns the cost that may be in flight now, after [`Self::tick`].
    pub(super) fn level(&self, config: Config) -> u32 {
        let low = self.low();
        match self.phase {
            Phase::Dive(dive) => dive.level,
            Phase::Start(Some(_)) => low.saturating_mul(2).min(config.max),
            Phase::Steady if self.is_high() => {
                rounded(self.limit + self.step()).max(low.saturating_add(1)).min(config.max)
            }
            Phase::Start(None) | Phase::Steady | Phase::Recorded => low,
        }
    }

    /// Notes the time, and begins the next slot if it is due. `in_flight` is the cost in flight.
    #[inline]
    pub(super) fn tick(&mut self, config: Config, now: Instant, in_flight: u64) {
        self.pass_time(now);
        match self.phase {
            Phase::Dive(dive) => self.go_on_with(dive, config, now, in_flight),
            Phase::Recorded => {}
            Phase::Start(_) | Phase::Steady => {
                if now.as_nanos() / self.length != self.slot {
                    self.end_slot(config, now);
                }
            }
        }
    }

    /// Records the response to a request. The caller ticks then.
    pub(super) fn on_response(&mut self, now: Instant, time: Duration, cost: u64, is_good: bool) {
        self.pass_time(now);
        self.tally.add(time, cost, is_good);
    }

    /// Records whether requests wait in the queue from now on.
    pub(super) fn set_waiting(&mut self, now: Instant, waits: bool) {
        self.pass_time(now);
        self.waits = waits;
    }

    /// Records the rejection of a request that found no place. It counts as if it had waited for as long
    /// as a response takes: without a queue, only rejections say that places are scarce.
    pub(super) fn on_full(&mut self, now: Instant) {
        self.pass_time(now);
        let time = self.tally.mean().unwrap_or(0).max(self.unloaded);
        let wait = if time > 0 { time } else { self.length / 4 };
        self.wanted_until = now + Duration::from_nanos(wait);
        self.tally.rejected += 1;
    }

    /// Takes the latest change that no request has reported yet.
    #[inline]
    pub(super) const fn take_change(&mut self) -> Option<LimitChange> {
        self.unreported.take()
    }

    /// Keeps the limit within bounds that an edit has changed.
    pub(super) fn fit(&mut self, config: Config) {
        self.set(config, self.limit);
        if let Phase::Dive(dive) = &mut self.phase {
            dive.level = dive.level.clamp(config.min, config.max);
        }
    }

    /// Takes over the limit of a recorded decision. It learns nothing any more.
    pub(super) fn follow(&mut self, config: Config, limit: u32) {
        self.set(config, Fixed::from(limit) * ONE);
        self.phase = Phase::Recorded;
    }

    /// Returns what logs and metrics show.
    pub(super) fn stats(&self, config: Config) -> AutoStats {
        AutoStats {
            limit: self.low(),
            level: self.level(config),
            slot: Duration::from_nanos(self.length),
            elasticity: thousandths(self.elasticity),
            trend: thousandths(self.trend),
            unloaded: Duration::from_nanos(self.unloaded),
            latest: self.latest_change,
            changes: self.changes,
        }
    }

    /// Counts the time since the latest event, if requests waited.
    fn pass_time(&mut self, now: Instant) {
        let waited = if self.waits { now } else { self.wanted_until.min(now) };
        self.tally.waited += nanos(waited.since(self.seen));
        self.seen = self.seen.max(now);
    }

    fn low(&self) -> u32 {
        rounded(self.limit)
    }

    fn step(&self) -> Fixed {
        Fixed::try_from((STEP * self.limit).unsigned_abs().isqrt()).unwrap_or(ONE)
    }

    const fn is_high(&self) -> bool {
        self.slot & 1 == 1 || self.is_unbound
    }

    fn set(&mut self, config: Config, limit: Fixed) {
        self.limit = limit.clamp(Fixed::from(config.min) * ONE, Fixed::from(config.max) * ONE);
    }

    /// Changes the limit, and records why if it is another number of places.
    fn change(&mut self, config: Config, now: Instant, limit: Fixed, reason: ChangeReason) {
        let from = self.low();
        self.set(config, limit);
        self.record(now, reason, from, self.low());
    }

    fn record(&mut self, now: Instant, reason: ChangeReason, from: u32, to: u32) {
        if from == to {
            return;
        }
        let change = LimitChange {
            at: now,
            reason,
            from,
            to,
            elasticity: thousandths(self.elasticity),
            trend: thousandths(self.trend),
            unloaded: Duration::from_nanos(self.unloaded),
            slot: Duration::from_nanos(self.length),
        };
        self.unreported = Some(change);
        self.latest_change = Some(change);
        let count = &mut self.changes[reason as usize];
        *count = count.saturating_add(1);
    }
}

/// Slots.
impl AutoLimit {
    fn end_slot(&mut self, config: Config, now: Instant) {
        let length = self.tally.length(now);
        let is_bound = self.tally.waited >= length / 100 * BOUND_PERCENT;
        let is_enough = self.tally.responses * 2 >= RESPONSES;
        if is_bound {
            if is_enough {
                self.learn(config, now);
            }
        } else {
            self.make_room(config, now);
            if is_enough {
                self.look_below(config, now);
            }
        }
        self.fit_length(length);
        self.is_unbound = !is_bound;
        self.open_slot(now);
    }

    fn open_slot(&mut self, now: Instant) {
        self.slot = now.as_nanos() / self.length;
        self.tally = Tally::new(now);
    }

    /// Fits the length of slots to the responses of the last one, which took so long.
    fn fit_length(&mut self, length: u64) {
        let Some(apart) = length.checked_div(self.tally.responses) else { return };
        let mean = self.tally.mean().unwrap_or(0);
        let time = mean.clamp(self.unloaded, self.unloaded.saturating_mul(2));
        let wish = time.saturating_mul(TURNS).max(apart.saturating_mul(RESPONSES));

        let parts = wish.saturating_mul(5);
        if parts > 7 * self.length && self.length < LONGEST_SLOT {
            self.length *= 2;
        } else if parts < 3 * self.length && self.length > SHORTEST_SLOT {
            self.length /= 2;
        }
    }

    /// Rises by a place if a few requests were rejected though the service was not full. Without a queue,
    /// such a load would be rejected for ever: it is too low to learn from.
    fn make_room(&mut self, config: Config, now: Instant) {
        let Some(mean) = self.tally.mean().filter(|_| self.tally.rejected > 0) else { return };
        if self.unloaded == 0 {
            self.unloaded = mean;
        }
        if mean <= self.unloaded / 4 * 5 {
            self.change(config, now, self.limit + ONE, ChangeReason::HasRoom);
        }
    }

    /// Learns from a slot in which requests waited.
    fn learn(&mut self, config: Config, now: Instant) {
        let Some(mean) = self.tally.mean() else {
            self.latest = [None; 2];
            self.phase = Phase::Start(None);
            return self.change(config, now, self.limit / 2, ChangeReason::AllFailed);
        };
        let sample = self.tally.sample(self.level(config), now);
        self.follow_unloaded(mean);

        let surely = self.tally.surely(mean);
        if self.note_slow(surely) && self.begin_dive(config, now, &sample) {
            return;
        }

        match self.phase {
            Phase::Start(before) => {
                self.start(config, now, before, sample);
            }
            Phase::Steady | Phase::Dive(_) | Phase::Recorded => {
                self.compare(config, now, sample, surely);
            }
        }
    }

    /// Begins a dive from a slot in which requests hardly waited, if responses are slow. The places are
    /// those that requests held: clients that wait for responses may all be inside, so that none waits
    /// here, whatever the limit is.
    fn look_below(&mut self, config: Config, now: Instant) {
        let Some(mean) = self.tally.mean().filter(|_| self.unloaded > 0) else { return };
        let surely = self.tally.surely(mean);
        if !self.note_slow(surely) {
            return;
        }
        let held = self.tally.held(mean, now).clamp(1, self.level(config));
        let sample = self.tally.sample(held, now);
        self.begin_dive(config, now, &sample);
    }

    /// Counts slots in a row with slow responses. Returns true at the second.
    fn note_slow(&mut self, surely: u64) -> bool {
        if self.recheck_is_due(surely) {
            self.slow_slots = 0;
            return true;
        }

        let is_slow = surely > self.unloaded.saturating_mul(SLOW);
        self.slow_slots = if is_slow { self.slow_slots + 1 } else { 0 };
        let is_second = self.slow_slots >= 2;
        if is_second {
            self.slow_slots = 0;
        }
        is_second
    }

    fn follow_unloaded(&mut self, mean: u64) {
        if self.unloaded == 0 {
            self.unloaded = mean;
            return;
        }
        let memory = if mean < self.unloaded { DOWN } else { UP };
        let apart = i64::try_from(mean).unwrap_or(i64::MAX)
            - i64::try_from(self.unloaded).unwrap_or(i64::MAX);
        self.unloaded = self.unloaded.saturating_add_signed(apart / memory);
    }

    /// Doubles the limit while the throughput follows.
    fn start(&mut self, config: Config, now: Instant, before: Option<Sample>, sample: Sample) {
        let Some(before) = before.filter(|before| self.is_fresh(before, now)) else {
            self.phase = Phase::Start(Some(sample));
            return;
        };

        let is_higher = sample.level > before.level;
        if is_higher {
            self.elasticity = sample.elasticity(&before);
        }
        if is_higher && self.elasticity > FOLLOW {
            let level = Fixed::from(sample.level) * ONE;
            self.change(config, now, level, ChangeReason::Start);
            self.doubts = 0;
            self.phase = Phase::Start(Some(sample));
        } else if self.doubts < DOUBTS {
            self.doubts += 1;
            self.phase = Phase::Start(None);
        } else {
            self.phase = Phase::Steady;
            self.latest = [Some(before), Some(sample)];
        }
    }

    /// Compares a slot with the latest one at the other level.
    fn compare(&mut self, config: Config, now: Instant, sample: Sample, surely: u64) {
        let at = usize::from(self.is_high());
        let other = self.latest[1 - at].filter(|other| self.is_fresh(other, now));
        self.latest[at] = Some(sample);
        let Some(other) = other else { return };

        let apart = Fixed::from(sample.level.abs_diff(other.level)) * ONE;
        if apart * 2 >= self.step() {
            self.elasticity = sample.elasticity(&other);
            let gained = (self.elasticity - WORTH).clamp(-ONE, ONE);
            self.trend += (gained - self.trend) / MEMORY;
            let size = self.trend.abs().max(CALM);
            let gain = size * size / ONE / 2;
            self.change_by(config, now, gain * gained / ONE - self.press(surely));
        } else if self.limit + self.step() >= Fixed::from(config.max) * ONE {
            // Both levels are at `max`, so that they cannot be compared.
            self.change_by(config, now, -self.press(surely));
        }
    }

    /// Changes the limit by this part of it.
    fn change_by(&mut self, config: Config, now: Instant, part: Fixed) {
        let part = part.clamp(-ONE / 2, ONE);
        let reason = if part > 0 { ChangeReason::MorePays } else { ChangeReason::NobodyGains };
        self.change(config, now, self.limit + self.limit * part / ONE, reason);
    }

    /// Returns the part of the limit by which response times of at least `surely` press it down.
    fn press(&self, surely: u64) -> Fixed {
        let patience = i128::from(PATIENCE) * i128::from(self.unloaded);
        let ratio = patience / i128::from(surely.max(1));
        let ratio = Fixed::try_from(ratio).unwrap_or(ONE);
        (ONE - ratio).clamp(0, ONE / 2) / PRESS
    }

    const fn is_fresh(&self, sample: &Sample, now: Instant) -> bool {
        now.as_nanos().saturating_sub(sample.end) < FRESH_SLOTS * self.length
    }
}

/// Returns a number rounded, at least 0.
fn rounded(number: Fixed) -> u32 {
    u32::try_from((number + ONE / 2) / ONE).unwrap_or(0)
}

fn thousandths(number: Fixed) -> i32 {
    i32::try_from(number * 1_000 / ONE).unwrap_or(i32::MAX)
}
