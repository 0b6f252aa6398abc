//! Rules whose states a store keeps for several gateways.
//!
//! The store decides by a script that only adds and compares, with the numbers of
//! [`Stored::terms`]. From the state that it returns, [`Stored::judge`] computes the decision,
//! reason, wait and usage with the rule's own limiter.
//!
//! **Exact in doubles.** The script's numbers are doubles, exact below `2^53`. Instants are whole
//! microseconds (`1.8·10^15` today) and a rest in units of `Interval`, below `1000·q ≤ 10^15`; so a
//! sum of two of either is exact. Rules beyond that are [not accepted](Unstorable).

use super::{
    Algorithm, Limiter, QuotaUsage, Times, Usage,
    concurrency::{self, Concurrency},
    fixed_window::{self, Align, FixedWindow},
    pacing::{self, Pacing},
    sliding_counter::{self, SlidingCounter},
    sliding_window::SlidingWindow,
    token_bucket::TokenBucket,
};
use crate::flow::{
    calendar::Calendar,
    decision::Decision,
    rate::{Interval, Rate},
    shared::Numbers,
    time::Instant,
};
use core::time::Duration;
use smallvec::SmallVec;

/// The longest time in microseconds that may be added to an instant.
const LONGEST: u64 = 1 << 52;

/// A rule whose states a store keeps.
#[derive(Debug)]
pub struct Stored {
    limiter: Shape,
}

#[derive(Debug)]
enum Shape {
    Bucket(TokenBucket),
    /// The window in microseconds.
    Fixed(FixedWindow, Align, u64),
    Counter(SlidingCounter, u64),
    Sliding(SlidingWindow, Buckets),
    Leases(Concurrency),
    Pacing(Pacing, Paced),
}

/// A sliding window for the script.
#[derive(Clone, Copy, Debug)]
struct Buckets {
    /// In microseconds.
    window: u64,
    in_window: u64,
    /// Buckets that count.
    span: u64,
}

#[derive(Clone, Copy, Debug)]
struct Paced {
    interval: Interval,
    max_wait: Duration,
    max_queue: u64,
}

/// The script's arguments for a rule and a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The script's word for the algorithm.
    pub word: &'static str,
    /// The cost, at most one more than can ever pass.
    pub cost: u64,
    /// Further numbers, each below `2^53`.
    pub numbers: SmallVec<[u64; 8]>,
}

/// The decision that follows from the store's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// The rule's decision.
    pub decision: Decision,
    /// The most that `used` may be.
    pub limit: u64,
    /// The used part, including the request if it was charged.
    pub used: u64,
    /// Time until nothing is used.
    pub reset: Duration,
    /// As in [`Quota`](crate::flow::Quota).
    pub growth: Option<Duration>,
}

/// Why a store cannot decide about a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unstorable {
    /// It would store a stamp per request.
    #[error("a log of every request cannot be kept in a store")]
    Log,
    /// Its waiting requests may cost more than 1, unlike those of a route's
    /// [`paced`](Stored::paced).
    #[error("`algorithm: pacing` cannot be shared; a route's `pacing` can")]
    Pacing,
    /// Its curve needs more digits than a double has.
    #[error("a warm-up cannot be shared")]
    WarmUp,
    /// It follows what one gateway sees.
    #[error("its limit finds itself, by what one gateway sees")]
    Auto,
    /// It counts nothing.
    #[error("a limit of 0 counts nothing")]
    Closed,
    /// The script computes in microseconds.
    #[error("the window is not a whole number of microseconds")]
    Fraction,
    /// A number would lose digits.
    #[error("the numbers are too large to be exact in a store")]
    TooLarge,
}

impl Stored {
    /// Returns the rule of an algorithm.
    ///
    /// # Errors
    ///
    /// It cannot be stored.
    pub fn new(algorithm: &Algorithm) -> Result<Self, Unstorable> {
        let limiter = match algorithm {
            Algorithm::TokenBucket(config) => bucket(config.build())?,
            Algorithm::LeakyBucket(config) => bucket(config.build())?,
            Algorithm::SlidingLog(_) => return Err(Unstorable::Log),
            Algorithm::WarmUp(_) => return Err(Unstorable::WarmUp),
            Algorithm::Planned(config) => return Self::new(config.own()),
            Algorithm::Synced(config) => return Self::new(config.whole()),
            Algorithm::SlidingWindow(config) => {
                let window = micros(config.rate)?;
                let in_window = u64::from(config.buckets.max(1));
                // A bucket's number, and a window of them, must be exact.
                if in_window > window || in_window.saturating_mul(window) > LONGEST {
                    return Err(Unstorable::TooLarge);
                }

                let span = in_window + u64::from(config.strict);
                Shape::Sliding(config.build(), Buckets { window, in_window, span })
            }
            Algorithm::SlidingCounter(config) => {
                Shape::Counter(config.build(), micros(config.rate)?)
            }
            Algorithm::FixedWindow(config) => {
                let window = micros(config.rate)?;
                Shape::Fixed(config.build(), config.align.clone(), window)
            }
            Algorithm::Concurrency(config) if config.limit > LONGEST => {
                return Err(Unstorable::TooLarge);
            }
            Algorithm::Concurrency(config) => Shape::Leases(config.build()),
            Algorithm::AutoConcurrency(_) => return Err(Unstorable::Auto),
            Algorithm::Pacing(_) => return Err(Unstorable::Pacing),
            Algorithm::Closed => return Err(Unstorable::Closed),
        };

        Ok(Self { limiter })
    }

    /// Returns the rule of a route's pacing, for waiting requests of cost 1.
    ///
    /// # Errors
    ///
    /// It cannot be stored.
    pub fn paced(config: &pacing::Config) -> Result<Self, Unstorable> {
        let pacing::Config { rate, max_wait, max_queue, warm_up } = *config;
        if warm_up.is_some() {
            return Err(Unstorable::WarmUp);
        }
        let paced = Paced { interval: Interval::of(rate), max_wait, max_queue };
        Ok(Self { limiter: Shape::Pacing(config.build(), paced) })
    }

    /// Returns a text that is equal for rules with compatible states. They may differ in their
    /// limit, but not in how they count.
    pub fn shape(&self) -> String {
        match &self.limiter {
            // The number is the version of the state's form, which older scripts would misread.
            Shape::Bucket(it) => format!("bucket2/{}", ratio(it.interval())),
            Shape::Fixed(_, Align::Clock, window) => format!("fixed/{window}"),
            Shape::Fixed(_, Align::FirstRequest, window) => format!("fixed/{window}/first"),
            Shape::Fixed(_, Align::Calendar(it), _) => format!("fixed/{}", it.name()),
            Shape::Counter(_, window) => format!("counter/{window}"),
            Shape::Sliding(_, it) => format!("sliding/{}/{}", it.window, it.in_window),
            Shape::Leases(_) => "leases".to_owned(),
            Shape::Pacing(_, it) => format!("pacing2/{}", ratio(it.interval)),
        }
    }

    /// Returns the arguments of the script that merges states; `None` if the rule cannot sync.
    pub fn sync_terms(&self) -> Option<(&'static str, Numbers)> {
        let (word, numbers): (_, &[u64]) = match &self.limiter {
            Shape::Bucket(it) => {
                let [micros, rest] = size(it);
                ("bucket", &[1000 * it.interval().parts(), micros, rest])
            }
            Shape::Fixed(_, align, window) => {
                ("fixed", &[*window, u64::from(*align == Align::FirstRequest)])
            }
            Shape::Counter(_, window) => ("counter", &[*window]),
            Shape::Sliding(_, of) => ("sliding", &[of.window, of.in_window, of.span]),
            Shape::Leases(_) | Shape::Pacing(..) => return None,
        };
        Some((word, Numbers::from_slice(numbers)))
    }

    /// Returns the most numbers of a state or delta.
    pub fn max_sync_numbers(&self) -> usize {
        match &self.limiter {
            Shape::Bucket(_) => 6,
            Shape::Fixed(..) | Shape::Counter(..) => 3,
            Shape::Sliding(_, of) => {
                usize::try_from(of.span).unwrap_or(usize::MAX).saturating_add(1)
            }
            Shape::Leases(_) | Shape::Pacing(..) => 0,
        }
    }

    /// Returns whether a request holds its charge until it ends.
    pub const fn holds(&self) -> bool {
        matches!(self.limiter, Shape::Leases(_))
    }

    /// Returns whether it delays requests.
    pub const fn paces(&self) -> bool {
        matches!(self.limiter, Shape::Pacing(..))
    }

    /// Returns the script's arguments for a request of `cost`. Only calendars look at `now`.
    pub fn terms(&self, cost: u64, now: Instant) -> Terms {
        let cost = cost.min(self.limit().saturating_add(1));
        let (word, numbers) = match &self.limiter {
            Shape::Bucket(it) => ("bucket", bucket_numbers(it, cost)),
            Shape::Fixed(it, align, window) => {
                let begins = u64::from(*align == Align::FirstRequest);
                let mut numbers = SmallVec::from_slice(&[it.limit(), *window, begins]);
                numbers
                    .extend(align.calendar().into_iter().flat_map(|calendar| ends(calendar, now)));
                ("fixed", numbers)
            }
            Shape::Counter(it, window) => ("counter", SmallVec::from_slice(&[it.limit(), *window])),
            Shape::Sliding(it, of) => {
                let numbers = [it.limit(), of.window, of.in_window, of.span];
                ("sliding", SmallVec::from_slice(&numbers))
            }
            Shape::Leases(it) => ("leases", SmallVec::from_slice(&[it.limit()])),
            Shape::Pacing(_, it) => ("pacing", it.numbers(cost)),
        };
        Terms { word, cost, numbers }
    }

    /// Returns the script's arguments to charge what a request cost more than was reserved: any
    /// cost. Only calendars look at `now`.
    pub fn terms_of_excess(&self, cost: u64, now: Instant) -> Terms {
        let terms = self.terms(0, now);
        let numbers = match &self.limiter {
            Shape::Bucket(it) => bucket_numbers(it, cost),
            Shape::Fixed(..)
            | Shape::Counter(..)
            | Shape::Sliding(..)
            | Shape::Leases(_)
            | Shape::Pacing(..) => terms.numbers,
        };
        Terms { cost: cost.min(LONGEST), numbers, ..terms }
    }

    /// Returns the script's arguments to give back a part of what a request was charged at `at`.
    pub fn terms_to_give_back(&self, cost: u64, at: Instant) -> Terms {
        let mut terms = self.terms_of_excess(cost, at);
        if let Shape::Fixed(_, align, _) = &self.limiter {
            let ends = align.calendar().map(|calendar| ends(calendar, at));
            terms.numbers.extend(ends.map(|[end, _]| end));
        }
        terms
    }

    /// Returns the decision for a request of `cost` from the store's `state` at `now` by the
    /// store's clock, and charges it if the store has. `None` if the numbers are no state of this
    /// rule.
    pub fn judge(
        &self,
        state: &[u64],
        now: Instant,
        cost: u64,
        is_charged: bool,
    ) -> Option<Judgement> {
        // A script has no larger exact numbers; smaller ones cannot overflow below.
        if state.iter().any(|number| *number >= 1 << 53) {
            return None;
        }

        let request = Request { now, cost, is_charged };
        Some(match (&self.limiter, state) {
            (Shape::Bucket(it), []) => request.judge(it, it.fresh()),
            (Shape::Bucket(it), &[micros, rest]) => {
                request.judge(it, it.interval().join(micros, rest))
            }
            (Shape::Fixed(it, ..), []) => request.judge(it, it.fresh()),
            (Shape::Fixed(it, ..), &[micros, nanos, used]) => {
                let end = instant(micros) + Duration::from_nanos(nanos);
                request.judge(it, fixed_window::State::stored(end, used))
            }
            (Shape::Counter(it, _), []) => request.judge(it, it.fresh()),
            (Shape::Counter(it, window), &[index, prev, curr]) => {
                let state = sliding_counter::State::stored(index, prev, curr);
                request.not_before(instant(index.saturating_mul(*window))).judge(it, state)
            }
            (Shape::Sliding(it, _), []) => request.judge(it, it.fresh()),
            (Shape::Sliding(it, _), [head, counts @ ..]) => {
                let request = request.not_before(it.start(*head)?);
                request.judge(it, it.stored(*head, counts))
            }
            (Shape::Leases(it), &[held]) => request.judge(it, concurrency::State::stored(held)),
            (Shape::Pacing(it, _), []) => request.paced(it, 0),
            (Shape::Pacing(it, of), &[micros, rest]) => {
                request.paced(it, of.interval.join(micros, rest))
            }
            (
                Shape::Bucket(_)
                | Shape::Fixed(..)
                | Shape::Counter(..)
                | Shape::Leases(_)
                | Shape::Pacing(..),
                _,
            ) => return None,
        })
    }

    fn limit(&self) -> u64 {
        match &self.limiter {
            Shape::Bucket(it) => it.limit(),
            Shape::Fixed(it, ..) => it.limit(),
            Shape::Counter(it, _) => it.limit(),
            Shape::Sliding(it, _) => it.limit(),
            Shape::Leases(it) => it.limit(),
            // Its limit is a length and no cost.
            Shape::Pacing(..) => 1 << 20,
        }
    }
}

impl Algorithm {
    /// Returns this algorithm with its share of the numbers among `gateways` that decide by
    /// themselves. Together they pass at most what it does, or one each if that is more.
    #[must_use]
    pub fn among(&self, gateways: u32) -> Self {
        let part = |count: u64| part(count, gateways);
        let mut it = self.clone();

        match &mut it {
            Self::TokenBucket(it) => {
                it.rate = slice(it.rate, gateways);
                it.burst = part(it.burst);
            }
            Self::WarmUp(it) => {
                it.rate = slice(it.rate, gateways);
                it.burst = part(it.burst);
            }
            Self::LeakyBucket(it) => {
                it.rate = slice(it.rate, gateways);
                it.capacity = part(it.capacity);
            }
            Self::SlidingLog(it) => it.rate = slice(it.rate, gateways),
            Self::SlidingWindow(it) => it.rate = slice(it.rate, gateways),
            Self::SlidingCounter(it) => it.rate = slice(it.rate, gateways),
            Self::FixedWindow(it) => it.rate = slice(it.rate, gateways),
            Self::Concurrency(it) => it.limit = part(it.limit),
            // Each gateway finds its own limit, and none admits anything.
            Self::AutoConcurrency(_) | Self::Closed => {}
            Self::Pacing(it) => *it = it.among(gateways),
            Self::Planned(it) => *it = it.among(gateways),
            Self::Synced(it) => *it = it.among(gateways),
        }
        it
    }
}

impl pacing::Config {
    /// Returns this pacing with its share of the rate: see [`Algorithm::among`].
    #[must_use]
    pub fn among(&self, gateways: u32) -> Self {
        Self { rate: slice(self.rate, gateways), ..self.clone() }
    }
}

fn part(count: u64, gateways: u32) -> u64 {
    (count / u64::from(gateways.max(1))).max(1)
}

fn slice(rate: Rate, gateways: u32) -> Rate {
    Rate::new(part(rate.count(), gateways), rate.window()).unwrap_or(rate)
}

impl Paced {
    fn numbers(&self, cost: u64) -> SmallVec<[u64; 8]> {
        let Self { interval, max_wait, max_queue } = *self;
        let wait = interval.at(Instant::EPOCH + max_wait);
        let [wait, queue, cost] = [wait, interval.times(max_queue), interval.times(cost)]
            .map(|units| span(interval, units));
        [[1000 * interval.parts(), interval.parts()], wait, queue, cost].concat().into()
    }
}

/// A request at the store's time.
#[derive(Clone, Copy)]
struct Request {
    now: Instant,
    cost: u64,
    is_charged: bool,
}

impl Request {
    /// Moves the request to `least` if that is later: a clock that stepped back stands still.
    fn not_before(self, least: Instant) -> Self {
        Self { now: self.now.max(least), ..self }
    }

    fn judge<F: Limiter>(self, limiter: &F, mut state: F::State) -> Judgement {
        let Self { now, cost, is_charged } = self;
        let decision = match cost {
            0 => Decision::Pass,
            cost => limiter.check(&state, now, cost),
        };
        if is_charged {
            limiter.charge(&mut state, Times { now, own: now, start: now }, cost);
        }
        let QuotaUsage { usage: Usage { used, reset }, growth } = match decision {
            Decision::Reject(_) => QuotaUsage { usage: limiter.usage(&state, now), growth: None },
            Decision::Pass | Decision::Delay(_) => limiter.usage_and_growth(&state, now, cost),
        };
        Judgement { decision, limit: limiter.limit(), used, reset, growth }
    }

    fn paced(self, pacing: &Pacing, next: u128) -> Judgement {
        let Self { now, cost, is_charged } = self;
        let after = if is_charged { pacing.charge_next(next, now, cost) } else { next };
        let Usage { used, reset } = pacing.usage_next(after, now);
        let decision = pacing.check_next(next, now);
        Judgement { decision, limit: pacing.limit(), used, reset, growth: None }
    }
}

fn bucket(limiter: TokenBucket) -> Result<Shape, Unstorable> {
    let capacity = limiter.interval().times(limiter.limit());
    let (micros, _) = limiter.interval().split(capacity);
    if micros > LONGEST { Err(Unstorable::TooLarge) } else { Ok(Shape::Bucket(limiter)) }
}

fn bucket_numbers(limiter: &TokenBucket, cost: u64) -> SmallVec<[u64; 8]> {
    let interval = limiter.interval();
    let cost = span(interval, interval.times(cost));
    [[1000 * interval.parts(), interval.parts()], size(limiter), cost].concat().into()
}

/// Returns the time to fill an empty bucket, for the script.
pub(in crate::flow) fn size(bucket: &TokenBucket) -> [u64; 2] {
    span(bucket.interval(), bucket.interval().times(bucket.limit()))
}

/// Returns `units` as a pair, limited to what can be added to an instant.
pub(in crate::flow) fn span(interval: Interval, units: u128) -> [u64; 2] {
    let (micros, rest) = interval.split(units);
    if micros < LONGEST { [micros, rest] } else { [LONGEST, 0] }
}

/// Returns the ends of the window of `now` and of the next, in microseconds.
fn ends(calendar: &Calendar, now: Instant) -> [u64; 2] {
    let (_, end) = calendar.window(now);
    let (_, next) = calendar.window(end);
    [end, next].map(|at| (at.as_nanos() / 1000).min(LONGEST))
}

fn micros(rate: Rate) -> Result<u64, Unstorable> {
    let nanos = rate.window_nanos();
    if nanos.is_multiple_of(1000) { Ok(nanos / 1000) } else { Err(Unstorable::Fraction) }
}

fn instant(micros: u64) -> Instant {
    Instant::from_nanos(micros.saturating_mul(1000))
}

fn ratio(interval: Interval) -> String {
    format!("{}/{}", interval.units(), interval.parts())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::limiter::{fixed_window, sliding_log, sliding_window, token_bucket};

    fn rate(count: u64, micros: u64) -> Rate {
        Rate::new(count, Duration::from_micros(micros)).expect("a rate")
    }

    fn of(algorithm: &Algorithm) -> Result<String, Unstorable> {
        Stored::new(algorithm).map(|rule| rule.shape())
    }

    #[test]
    fn what_would_lose_digits_in_a_double_is_rejected() {
        let bucket = |burst, micros| {
            of(&Algorithm::TokenBucket(token_bucket::Config { rate: rate(1, micros), burst }))
        };
        assert_eq!(bucket(1 << 52, 1), Ok("bucket2/1000/1".to_owned()));
        assert_eq!(bucket((1 << 52) + 1, 1), Err(Unstorable::TooLarge));
        let window = |rate, buckets| {
            of(&Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: true }))
        };
        assert_eq!(window(rate(9, 60), 60), Ok("sliding/60/60".to_owned()));
        assert_eq!(window(rate(9, 60), 61), Err(Unstorable::TooLarge));
        let year = Rate::new(9, Rate::MAX_WINDOW).expect("a rate");
        assert!(window(year, 100).is_ok());
        assert_eq!(window(year, 1_000), Err(Unstorable::TooLarge));
        let fraction = Rate::new(1, Duration::from_nanos(1_500)).expect("a rate");
        let align = Align::Clock;
        let fixed = Algorithm::FixedWindow(fixed_window::Config { rate: fraction, align });
        assert_eq!(of(&fixed), Err(Unstorable::Fraction));
        let log = Algorithm::SlidingLog(sliding_log::Config { rate: rate(1, 1) });
        assert_eq!(of(&log), Err(Unstorable::Log));
    }

    #[test]
    fn the_parts_of_a_limit_are_together_no_more_than_it_or_one_each() {
        for (count, gateways, each) in
            [(90, 1, 90), (90, 3, 30), (91, 3, 30), (2, 3, 1), (1, 0, 1), (7, u32::MAX, 1)]
        {
            let bucket = token_bucket::Config { rate: rate(count, 60), burst: count };
            let part = token_bucket::Config { rate: rate(each, 60), burst: each };
            let divided = Algorithm::TokenBucket(bucket).among(gateways);
            assert_eq!(divided, Algorithm::TokenBucket(part), "{count} among {gateways}");
        }
    }

    #[test]
    fn numbers_of_no_rule_are_no_state() {
        let bucket = token_bucket::Config { rate: rate(1, 1), burst: 1 };
        let bucket = Stored::new(&Algorithm::TokenBucket(bucket)).expect("a bucket");
        assert_eq!(bucket.judge(&[1], Instant::EPOCH, 1, false), None);
        assert_eq!(bucket.judge(&[1, 2, 3], Instant::EPOCH, 1, false), None);
        assert_eq!(bucket.judge(&[u64::MAX; 2], Instant::EPOCH, 1, true), None);
        // Numbers that make no sense are no panic.
        assert!(bucket.judge(&[(1 << 53) - 1; 2], Instant::EPOCH, 1, true).is_some());
        let window = sliding_window::Config { rate: rate(9, 100), buckets: 2, strict: false };
        let window = Stored::new(&Algorithm::SlidingWindow(window)).expect("a window");
        assert_eq!(window.judge(&[(1 << 53) - 1, 1, 2], Instant::EPOCH, 1, true), None);
        assert!(window.judge(&[0, 1, 2, 3, 4], Instant::EPOCH, u64::MAX, true).is_some());
    }
}
