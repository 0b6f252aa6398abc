//! The algorithm of a rule, with numbers that can work.

use super::{
    compiler::Compiler,
    numbers::{Costs, Numbers, warm_up},
};
use crate::counted::counted;
use crate::{
    config::{
        decode::{At, Key},
        diagnostics::{Lint, Problem},
        spec::{
            AlgorithmWord, Align, PacingSpec, RuleSpec, WarmUpSpec,
            calendar::{self, Unit},
            leaf::HOUR,
            values::Limit,
        },
    },
    flow::{
        Algorithm, Rate,
        limiter::{
            concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_log, sliding_window,
            token_bucket, warm_up,
        },
        pacing,
        time::spelled,
    },
};
use std::{collections::hash_map::Entry, time::Duration};

impl Compiler {
    /// Returns what `rule` counts by, with these `numbers`.
    pub(super) fn algorithm(
        &mut self,
        rule: &RuleSpec,
        numbers: Numbers,
        costs: &Costs,
    ) -> Option<Algorithm> {
        match numbers {
            Numbers::Concurrency(limit) => {
                let limit = limit?;
                self.cost(costs, limit, "concurrency");
                Some(Algorithm::Concurrency(concurrency::Config { limit: limit.value }))
            }
            Numbers::Auto(bounds) => {
                self.cost(costs, bounds.map(|bounds| bounds.max.into()), "max");
                Some(Algorithm::AutoConcurrency(bounds.value))
            }
            Numbers::Closed => Some(Algorithm::Closed),
            Numbers::Limit { limit, burst } => self.by_limit(rule, limit?, burst, costs),
        }
    }

    /// Returns what `rule` counts by, with this `limit` over time.
    fn by_limit(
        &mut self,
        rule: &RuleSpec,
        limit: At<Limit>,
        burst: Option<At<u64>>,
        costs: &Costs,
    ) -> Option<Algorithm> {
        let word = *rule.algorithm.value()?;
        if word == AlgorithmWord::FixedWindow {
            return self.fixed_window(rule, limit, costs);
        }
        let rate = self.keep(limit.value.steady(), limit.span)?;

        if !matches!(
            word,
            AlgorithmWord::TokenBucket | AlgorithmWord::LeakyBucket | AlgorithmWord::Pacing
        ) {
            self.cost(costs, rate.map(Rate::count), "limit");
        }

        Some(match word {
            AlgorithmWord::TokenBucket => {
                let burst = self.bucket(rate, burst, costs);
                self.cold(rate, &rule.warm_up);
                let rate = rate.value;
                match warm_up(&rule.warm_up) {
                    None => Algorithm::TokenBucket(token_bucket::Config { rate, burst }),
                    Some(warm_up) => Algorithm::WarmUp(warm_up::Config { rate, burst, warm_up }),
                }
            }
            AlgorithmWord::LeakyBucket => {
                let capacity = self.bucket(rate, burst, costs);
                Algorithm::LeakyBucket(leaky_bucket::Config { rate: rate.value, capacity })
            }
            AlgorithmWord::SlidingLog => {
                Algorithm::SlidingLog(sliding_log::Config { rate: rate.value })
            }
            AlgorithmWord::SlidingWindow => {
                let strict = rule.strict.is_true();
                let buckets = self.buckets(rate.value, rule.buckets.number()?)?;
                let rate = rate.value;
                Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict })
            }
            AlgorithmWord::SlidingCounter => {
                Algorithm::SlidingCounter(sliding_counter::Config { rate: rate.value })
            }
            AlgorithmWord::FixedWindow => return None,
            // A pace has no largest cost.
            AlgorithmWord::Pacing => {
                let max_wait = rule.max_wait.duration()?;
                let max_queue = rule.max_queue.number();
                let methods = costs.by_method.iter().map(|(_, cost)| cost.value);
                let cost = methods.fold(costs.default.value, u64::min);
                self.far_apart(rate, max_wait, cost);
                Algorithm::Pacing(self.pacing(rate, max_wait, max_queue, &rule.warm_up))
            }
        })
    }

    fn fixed_window(
        &mut self,
        rule: &RuleSpec,
        limit: At<Limit>,
        costs: &Costs,
    ) -> Option<Algorithm> {
        let align = self.align(rule, limit.value.unit)?;
        let rate = if align.calendar().is_some() {
            limit.map(|limit| limit.rate)
        } else {
            self.keep(limit.value.steady(), limit.span)?
        };
        self.cost(costs, rate.map(Rate::count), "limit");
        Some(Algorithm::FixedWindow(fixed_window::Config { rate: rate.value, align }))
    }

    /// Returns when windows begin, of a limit whose window may be a calendar's `unit`.
    fn align(&mut self, rule: &RuleSpec, unit: Option<Unit>) -> Option<fixed_window::Align> {
        let follows_clock = rule.align.as_ref()?.value == Align::Clock;
        let zone = rule.tz.as_ref()?;
        if let Some(unit) = unit.filter(|_| follows_clock) {
            let name = &zone.value.0;
            // It takes a millisecond to make one, and a file may ask for the same often.
            let calendar = match self.calendars.entry((unit, name.clone())) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(new) => new.insert(calendar::calendar(unit, name)?).clone(),
            };
            return Some(fixed_window::Align::Calendar(calendar));
        }
        if zone.written {
            self.error(Problem::error(zone.span, "`tz` without windows of a calendar").help(
                "write `limit: 100/day`, `/week` or `/month` with `align: clock`, or remove it",
            ));
            return None;
        }
        let first_request = fixed_window::Align::FirstRequest;
        Some(if follows_clock { fixed_window::Align::Clock } else { first_request })
    }

    /// Returns the size of a bucket, and reports a cost that is larger.
    fn bucket(&mut self, rate: At<Rate>, burst: Option<At<u64>>, cost: &Costs) -> u64 {
        let (size, what) = match burst {
            Some(burst) => (burst, "burst"),
            // A smaller bucket would reject what the limit allows.
            None => (rate.map(Rate::count), "limit"),
        };
        self.cost(cost, size, what);
        if let Some(burst) = burst {
            self.outweighs(rate, burst);
        }
        size.value
    }

    /// Warns of a burst beside which the limit hardly matters: the bucket, which is full at first,
    /// holds more than the limit lets pass in a day.
    fn outweighs(&mut self, rate: At<Rate>, burst: At<u64>) {
        const DAY: Duration = Duration::from_hours(24);
        let count = rate.value.count();
        let windows = u32::try_from(burst.value / count).unwrap_or(u32::MAX);
        let filled_in = rate.value.window().saturating_mul(windows);
        if windows > 10 && filled_in > DAY {
            let message = format!(
                "a burst of {} outweighs the limit, which lets as many pass in {}",
                burst.value,
                spelled(filled_in)
            );
            let problem = Problem::warning(Lint::BurstOutweighsLimit, burst.span, message)
                .also(rate.span, "the limit");
            self.warn(problem.help("write a smaller burst: all of it can be used at once"));
        }
    }

    /// Reports more buckets than the window has nanoseconds.
    fn buckets(&mut self, rate: Rate, buckets: At<u64>) -> Option<u32> {
        let nanos = rate.window_nanos();
        if buckets.value > nanos {
            let shown = spelled(rate.window());
            let message = format!("{} buckets of {shown} are shorter than 1ns", buckets.value);
            let help = format!("write `buckets: {nanos}`, or fewer");
            self.error(Problem::error(buckets.span, message).help(help));
        }
        u32::try_from(buckets.value.min(nanos)).ok()
    }

    /// Reports a cost that can never pass, and warns where only some methods never can.
    fn cost(&mut self, cost: &Costs, limit: At<u64>, what: &str) {
        let never = |at: At<u64>, who: &str| {
            (at, format!("{who} costs {} of {what} {}", at.value, limit.value))
        };
        let help = format!("write a cost of at most {}, or a larger {what}", limit.value);
        if cost.default.value > limit.value {
            let (at, message) = never(cost.default, "a request");
            let problem = Problem::error(at.span, format!("nothing can ever pass: {message}"));
            self.error(problem.also(limit.span, "the bound").help(help));
            return;
        }
        for (method, at) in &cost.by_method {
            if at.value > limit.value {
                let (at, message) = never(*at, method.as_str());
                if cost.settled.is_some() {
                    let problem =
                        Problem::error(at.span, format!("no {method} can ever pass: {message}"));
                    self.error(problem.also(limit.span, "the bound").help(help.clone()));
                    continue;
                }
                let problem = Problem::warning(
                    Lint::CostAboveLimit,
                    at.span,
                    format!("no {method} can ever pass: {message}"),
                );
                self.warn(problem.also(limit.span, "the bound").help(help.clone()));
            }
        }
    }

    pub(super) fn route_pacing(&mut self, spec: &PacingSpec) -> Option<pacing::Config> {
        let limit = self.limit(&spec.rate)?;
        let rate = self.keep(limit.value.steady(), limit.span)?;
        let max_wait = spec.max_wait.duration()?;
        self.far_apart(rate, max_wait, 1);
        Some(self.pacing(rate, max_wait, spec.max_queue.number(), &spec.warm_up))
    }

    /// Warns of starts so far apart that of two requests at once the second never waits. With a
    /// `max_wait` of 0 this is what is meant.
    fn far_apart(&mut self, rate: At<Rate>, max_wait: At<Duration>, cost: u64) {
        let apart = u128::from(rate.value.window_nanos()) * u128::from(cost);
        let apart = (apart / u128::from(rate.value.count())).try_into().unwrap_or(u64::MAX);
        let apart = Duration::from_nanos(apart);

        let is_warned_of = self.shortened_waits.contains(&max_wait.span);
        if max_wait.value.is_zero() || apart <= max_wait.value || is_warned_of {
            return;
        }

        let shown = spelled(apart).replace(' ', "");
        let longest = spelled(max_wait.value).replace(' ', "");
        let longest_max_wait = Duration::from_nanos(HOUR);
        let allowed = if apart > self.longest_wait {
            let request = spelled(apart * 2).replace(' ', "");
            if self.has_short_timeout {
                format!(" and `timeout: {request}`")
            } else {
                format!(" and `timeouts: {{ request: {request} }}`")
            }
        } else {
            String::new()
        };

        let message =
            format!("starts are {shown} apart, and no request waits longer than {longest}");
        self.warn(
            Problem::warning(Lint::PacingAboveMaxWait, rate.span, message)
                .label("of two requests at once the second is rejected")
                .help(if apart > longest_max_wait {
                    "no request may wait longer than an hour: write `max_wait: 0s` to space starts \
                     by rejecting"
                        .to_owned()
                } else {
                    format!(
                        "write at least `max_wait: {shown}`{allowed}, or `max_wait: 0s` to space \
                         starts by rejecting"
                    )
                }),
        );
    }

    /// Warns of a warm-up after which a cold service gets less than one request in a second, or in
    /// the limit's window if that is longer.
    fn cold(&mut self, rate: At<Rate>, key: &Key<Box<WarmUpSpec>>) {
        const SECOND: u64 = 1_000_000_000;
        let Some((span, warm_up)) = key.span.zip(warm_up(key)) else { return };
        let window = rate.value.window_nanos();
        let count = u128::from(rate.value.count());
        let in_window = count * u128::from(window.max(SECOND)) / u128::from(window);
        let factor = u128::from(warm_up.cold_factor);
        if in_window >= factor {
            return;
        }
        let cold = u64::try_from(u128::from(window) * factor / count).unwrap_or(u64::MAX);
        let cold = spelled(Duration::from_nanos(cold)).replace(' ', "");
        let message = format!("a cold service gets one request every {cold}");
        self.warn(
            Problem::warning(Lint::WarmUpBelowFactor, span, message)
                .label(format!("the limit is divided by {factor} at first"))
                .also(rate.span, "the limit")
                .help("write a smaller `cold_factor`, or a higher limit"),
        );
    }

    fn pacing(
        &mut self,
        rate: At<Rate>,
        max_wait: At<Duration>,
        max_queue: Option<At<u64>>,
        key: &Key<Box<WarmUpSpec>>,
    ) -> pacing::Config {
        self.cold(rate, key);
        let rate = rate.value;
        let warm_up = warm_up(key);
        let fitting = pacing::fitting(rate, max_wait.value);
        let most = fitting.max(1);
        let max_queue = max_queue.map_or(most, |at| {
            if at.value > most {
                let message = format!("no more than {} can ever wait", counted(fitting, "request"));
                self.warn(
                    Problem::warning(Lint::QueueNeverFull, at.span, message)
                        .also(max_wait.span, "what would wait longer is rejected")
                        .help("remove it, or write a longer `max_wait`"),
                );
            }
            at.value
        });
        pacing::Config { rate, max_wait: max_wait.value, max_queue, warm_up }
    }
}
