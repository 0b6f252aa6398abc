//! Sliding window: a count over the latest buckets.
//!
//! `b` buckets of length `L = W/b` follow the clock. A bucket counts while it begins after `t − W`;
//! with `strict`, while any part of it is younger, which takes one more bucket. A request of cost
//! `n` passes iff their sum `+ n ≤ N`.
//!
//! Worst case: `N` in any `W·(1 − 1/b)`, and up to `2N` in a whole `W`, since a bucket expires up
//! to `W/b` early. With `strict`, `N` in any `W`; it may reject for up to `W/b` longer, about
//! `1/(2b)` below the limit in steady traffic. `b = 1` is a fixed window.
//!
//! A request with priority may borrow from coming buckets: it waits until the first in which it
//! fits, at most a window away, and is counted there. Other requests pass only if the loan still
//! fits when it starts. Until then loans are kept beside the ring.
//!
//! An edit of the count keeps the buckets. If their length changes, each counts in the new bucket
//! of its last instant, not in the future: nothing expires early except by a shorter window. A loan
//! keeps its start.
//!
//! Source: Sentinel `LeapArray` and `DefaultController`, with equal decisions while the clock does
//! not step back.

use super::{
    Evictable, GivenBack, Lends, Limiter, Times, Transfer, Usage, algorithm::allocated,
    loans::Loans,
};
use crate::flow::{
    decision::{Decision, Reason},
    keyed::{PastUsage, Scale},
    rate::Rate,
    shared::Numbers,
    time::Instant,
    window::{Grid, Ring},
};
use core::{num::NonZeroU32, time::Duration};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// `rate.count()` in the latest buckets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The count and the window.
    pub rate: Rate,
    /// The number of buckets; zero stands for one.
    pub buckets: u32,
    /// True if the expiring bucket counts in full, for a hard bound.
    pub strict: bool,
}

#[derive(Debug)]
pub(in crate::flow) struct SlidingWindow {
    limit: u64,
    grid: Grid,
    /// Buckets that count.
    span: u32,
}

/// A client's usage.
#[derive(Clone, Debug)]
pub(in crate::flow) struct State {
    /// By bucket.
    ring: Ring<u64>,
    /// The ring's sum at its latest bucket.
    sum: u64,
    /// Loans that start after the latest charge.
    loans: Loans,
}

/// A part of what is in a bucket.
#[derive(Clone, Copy, Debug)]
pub(in crate::flow) struct BucketPart {
    pub(in crate::flow) index: u64,
    pub(in crate::flow) count: u64,
}

/// Loans by bucket, in order. The default number of buckets needs no allocation.
type Lent = SmallVec<[(u64, u64); 10]>;

impl Config {
    pub(in crate::flow) fn build(&self) -> SlidingWindow {
        let buckets = NonZeroU32::new(self.buckets).unwrap_or(NonZeroU32::MIN);
        SlidingWindow {
            limit: self.rate.count(),
            grid: Grid::new(self.rate.window, buckets.into()),
            span: buckets.get().saturating_add(self.strict.into()),
        }
    }
}

impl State {
    pub(in crate::flow) fn clear(&mut self) {
        self.ring.clear();
        self.sum = 0;
        self.loans = Loans::default();
    }
}

impl SlidingWindow {
    /// Returns the state of buckets `head`, `head − 1`, ….
    pub(in crate::flow) fn stored(&self, head: u64, counts: &[u64]) -> State {
        let mut state = self.fresh();
        for (age, count) in counts.iter().enumerate().take(self.span as usize).rev() {
            if let Some(index) = head.checked_sub(age as u64) {
                self.add(&mut state, index, *count);
            }
        }
        state
    }

    /// Inverts [`Self::stored`]: the latest bucket's number, then the counts from it backwards.
    pub(in crate::flow) fn numbers(&self, state: &State) -> Numbers {
        let head = state.ring.head();
        let count = |age| head.checked_sub(age).map_or(0, |at| state.ring.get(at));
        let counts = (0..u64::from(self.span)).map(count);
        [head].into_iter().chain(counts).collect()
    }

    pub(in crate::flow) fn add_all(&self, state: &mut State, other: &State) {
        for (index, count) in other.ring.live(other.ring.head()).filter(|(_, count)| **count > 0) {
            self.add(state, index, *count);
        }
    }

    /// Returns the part of a cost that is given back of what bucket of `state` it was charged to at `at`.
    pub(in crate::flow) fn part_of(&self, state: &State, at: Instant, cost: u64) -> BucketPart {
        let index = self.grid.index(at);
        BucketPart { index, count: cost.min(state.ring.get(index)) }
    }

    /// Adds a part to its bucket.
    pub(in crate::flow) fn add_to(&self, state: &mut State, part: BucketPart) {
        if part.count > 0 {
            self.add(state, part.index, part.count);
        }
    }

    /// Takes what is in the buckets of `other` from those of `state`.
    pub(in crate::flow) fn take_all(&self, state: &mut State, other: &State) {
        for (index, count) in other.ring.live(other.ring.head()).filter(|(_, count)| **count > 0) {
            self.take(state, index, *count);
        }
    }

    fn take(&self, state: &mut State, index: u64, cost: u64) {
        let head = state.ring.head();
        let Some(bucket) = state.ring.get_mut(index) else { return };
        let cost = cost.min(*bucket);
        *bucket -= cost;
        if index + u64::from(self.span) > head {
            state.sum = state.sum.saturating_sub(cost);
        }
    }

    /// Returns the beginning of bucket `index` if an instant can express it.
    pub(in crate::flow) fn start(&self, index: u64) -> Option<Instant> {
        let start = self.grid.start(index);
        (self.grid.index(start) == index).then_some(start)
    }

    /// Returns a state's heap bytes, with or without loans.
    pub(in crate::flow) const fn heap_bytes(&self, lent: bool) -> usize {
        let loans = if lent { Loans::bytes(self.span as usize) } else { 0 };
        allocated(self.span as usize * size_of::<u64>()) + loans
    }

    #[inline]
    fn lent(&self, state: &State) -> Lent {
        // Usual, and the rest takes time.
        if state.loans.is_empty() {
            return Lent::new();
        }
        state
            .loans
            .as_slice()
            .iter()
            .map(|loan| (self.grid.index(loan.start), loan.count))
            .collect()
    }

    #[inline]
    fn used(&self, state: &State, index: u64, lent: &[(u64, u64)]) -> u64 {
        let ring = &state.ring;
        let span = u64::from(self.span);
        let counts = |at: u64| at <= index && at + span > index;
        let used = match index.saturating_sub(ring.head()) {
            0 if index == ring.head() => state.sum,
            age if age >= span => 0,
            // Later buckets may remain from a clock that was ahead.
            _ => ring
                .live(index)
                .filter(|(at, _)| counts(*at))
                .map(|(_, count)| *count)
                .fold(0, u64::saturating_add),
        };
        let lent = lent.iter().filter(|(at, _)| counts(*at));
        lent.fold(used, |sum, (_, count)| sum.saturating_add(*count))
    }

    fn generation(&self, index: u64) -> u64 {
        index / u64::from(self.span)
    }

    /// Returns the usage up to bucket `index` in its generation.
    fn current(&self, state: &State, index: u64, lent: &[(u64, u64)]) -> u64 {
        let is_current = |at: u64| at <= index && self.generation(at) == self.generation(index);
        let counted = state.ring.live(index).filter(|(at, _)| is_current(*at));
        let counted = counted.map(|(_, count)| *count).fold(0, u64::saturating_add);
        let lent = lent.iter().filter(|(at, _)| is_current(*at));
        lent.fold(counted, |sum, (_, count)| sum.saturating_add(*count))
    }

    fn add(&self, state: &mut State, index: u64, count: u64) {
        let head = state.ring.head();
        if index >= head {
            state.sum = self.used(state, index, &[]).saturating_add(count);
            let bucket = state.ring.advance(index);
            *bucket = bucket.saturating_add(count);
        } else if let Some(bucket) = state.ring.get_mut(index) {
            *bucket = bucket.saturating_add(count);
            if index + u64::from(self.span) > head {
                state.sum = state.sum.saturating_add(count);
            }
        }
    }

    /// Moves the loans started by `now` into their buckets.
    #[inline]
    fn settle(&self, state: &mut State, now: Instant) {
        if state.loans.is_empty() {
            return;
        }
        let mut loans = core::mem::take(&mut state.loans);
        loans.settle(now, |loan| self.add(state, self.grid.index(loan.start), loan.count));
        state.loans = loans;
    }

    /// Returns the first bucket from `index` on in which `cost` fits for as long as it counts,
    /// beside the loans of coming buckets.
    fn opening(&self, state: &State, index: u64, cost: u64) -> u64 {
        if !state.loans.is_empty() {
            return self.opening_beside_loans(state, index, cost);
        }
        let mut sum = self.used(state, index, &[]);
        let last = state.ring.head().max(index);
        let mut opening = index;
        let mut at = index;
        loop {
            if sum.saturating_add(cost) > self.limit {
                opening = at + 1;
            } else if at >= last || at - opening + 1 >= self.span.into() {
                // From here on nothing is added, or `cost` expires.
                return opening;
            }
            at += 1;
            let expired = at.checked_sub(self.span.into()).map_or(0, |at| state.ring.get(at));
            sum = sum.saturating_sub(expired).saturating_add(state.ring.get(at));
        }
    }

    /// [`Self::opening`] with loans, which may start many windows apart: steps through the buckets
    /// in which the sum changes. The list of them may allocate.
    fn opening_beside_loans(&self, state: &State, index: u64, cost: u64) -> u64 {
        let lent = self.lent(state);
        let span = u64::from(self.span);
        let last = latest(state, &lent).max(index);
        let mut sum = self.used(state, index, &lent);

        let buckets = state.ring.live(index).filter(|(_, count)| **count > 0);
        let mut counted: Lent = buckets.map(|(at, count)| (at, *count)).chain(lent).collect();
        counted.sort_unstable_by_key(|(at, _)| *at);

        let mut added = counted.partition_point(|(at, _)| *at <= index);
        let mut dropped = counted.partition_point(|(at, _)| at.saturating_add(span) <= index);
        let mut opening = index;
        let mut at = index;

        loop {
            let adds = counted.get(added).map(|(at, _)| *at);
            let drops = counted.get(dropped).map(|(at, _)| at.saturating_add(span));
            let next = adds.into_iter().chain(drops).min();
            if sum.saturating_add(cost) > self.limit {
                opening = next.unwrap_or(at + 1);
            } else if at >= last || next.is_none_or(|next| next - opening >= span) {
                return opening;
            }

            let Some(next) = next else { return opening };
            at = next;

            while let Some((_, count)) =
                counted.get(dropped).filter(|(counted_at, _)| counted_at.saturating_add(span) == at)
            {
                sum = sum.saturating_sub(*count);
                dropped += 1;
            }
            while let Some((_, count)) =
                counted.get(added).filter(|(counted_at, _)| *counted_at == at)
            {
                sum = sum.saturating_add(*count);
                added += 1;
            }
        }
    }

    /// Returns the time until bucket `index` expires.
    fn expiry(&self, index: u64, now: Instant) -> Duration {
        self.grid.start(index.saturating_add(u64::from(self.span))).since(now)
    }
}

/// Returns the last bucket with usage or loans.
fn latest(state: &State, lent: &[(u64, u64)]) -> u64 {
    lent.last().map_or(0, |(at, _)| *at).max(latest_charged(state))
}

/// Returns the last bucket with usage. It is the ring's latest, unless all of that was given back.
fn latest_charged(state: &State) -> u64 {
    let head = state.ring.head();
    if state.ring.get(head) > 0 {
        return head;
    }
    let charged = state.ring.live(head).filter(|(_, count)| **count > 0);
    charged.last().map_or(head, |(at, _)| at)
}

impl Limiter for SlidingWindow {
    type State = State;

    fn limit(&self) -> u64 {
        self.limit
    }

    fn fresh(&self) -> State {
        State { ring: Ring::new(self.span), sum: 0, loans: Loans::default() }
    }

    fn is_fresh(&self, state: &State, now: Instant) -> bool {
        let index = self.grid.index(now);
        let lent = self.lent(state);
        latest(state, &lent) <= index && self.used(state, index, &lent) == 0
    }

    fn check(&self, state: &State, now: Instant, cost: u64) -> Decision {
        if cost > self.limit {
            return Decision::too_costly(self.limit);
        }
        let index = self.grid.index(now);
        match self.opening(state, index, cost) {
            opening if opening == index => Decision::Pass,
            opening => {
                let retry_after = self.grid.start(opening).since(now);
                Decision::Reject(Reason::Rate { retry_after })
            }
        }
    }

    fn usage(&self, state: &State, now: Instant) -> Usage {
        let index = self.grid.index(now);
        let (used, latest) = if state.loans.is_empty() {
            (self.used(state, index, &[]), latest_charged(state))
        } else {
            let lent = self.lent(state);
            (self.used(state, index, &lent), latest(state, &lent))
        };
        match used {
            0 => Usage::default(),
            used => Usage { used, reset: self.expiry(latest, now) },
        }
    }

    fn most_rank(&self, state: &State) -> u128 {
        // The sum as of the latest bucket; older ones only expire.
        if state.loans.is_empty() { state.sum.into() } else { u128::MAX }
    }

    fn charge(&self, state: &mut State, times: Times, cost: u64) {
        self.settle(state, times.now);
        if times.own > times.now {
            state.loans.add(times.own, cost);
        } else {
            self.add(state, self.grid.index(times.now), cost);
        }
    }

    fn give_back(&self, state: &mut State, part: &GivenBack) {
        let Some(at) = part.receipt.at else { return };
        self.take(state, self.grid.index(at), part.cost);
    }

    fn moves_charges(&self, old: &Self) -> bool {
        (self.grid, self.span) != (old.grid, old.span)
    }

    fn convert(&self, old: &Self, state: &mut State, now: Instant) {
        if (self.grid, self.span) == (old.grid, old.span) {
            return;
        }
        old.settle(state, now);
        let mut converted = State { loans: core::mem::take(&mut state.loans), ..self.fresh() };
        let before = old.grid.index(now);
        let current = self.grid.index(now);
        let counted = state
            .ring
            .live(before)
            .filter(|(at, count)| **count > 0 && at + u64::from(old.span) > before);
        for (at, count) in counted {
            let end = old.grid.start(at + 1) - Duration::from_nanos(1);
            self.add(&mut converted, self.grid.index(end.min(now)).min(current), *count);
        }
        *state = converted;
    }

    fn lends(&self) -> Option<&dyn Lends<Self::State>> {
        Some(self)
    }
}

impl Evictable for SlidingWindow {
    fn is_held(&self, state: &State, now: Instant) -> bool {
        !state.loans.split(now).1.is_empty()
    }

    /// A generation is as many buckets long as count.
    fn scale(&self, now: Instant) -> Scale {
        Scale::Counts(self.generation(self.grid.index(now)))
    }

    fn past_usage(&self, state: &State, now: Instant) -> PastUsage {
        let index = self.grid.index(now);
        let lent = self.lent(state);
        let used = self.used(state, index, &lent);
        let generation = self.generation(index);
        let current = self.current(state, index, &lent);
        PastUsage::counted(generation, [current, used.saturating_sub(current)])
    }

    fn renew(&self, state: &mut State) {
        state.clear();
    }

    /// Adds the missing usage as late as possible.
    fn absorb(&self, state: &mut State, usage: PastUsage, now: Instant) {
        let index = self.grid.index(now);
        let generation = self.generation(index);
        let known = self.past_usage(state, now).counts(generation);
        let [current, last] = usage.counts(generation);
        let before = (generation * u64::from(self.span)).checked_sub(1);
        for (at, count) in [
            (before, last.saturating_sub(known[1])),
            (Some(index), current.saturating_sub(known[0])),
        ] {
            if let Some(at) = at.filter(|_| count > 0) {
                self.add(state, at, count);
            }
        }
    }
}

impl Transfer for SlidingWindow {
    fn export(&self, state: &State) -> Vec<u64> {
        let mut numbers = self.numbers(state).into_vec();
        numbers.extend(state.loans.numbers());
        numbers
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        let (&head, rest) = numbers.split_first()?;
        let (counts, loans) = rest.split_at_checked(self.span as usize)?;
        self.start(head)?;
        let loans = Loans::of_numbers(loans)?;
        Some(State { loans, ..self.stored(head, counts) })
    }
}

impl Lends<State> for SlidingWindow {
    fn loan(&self, state: &State, now: Instant, cost: u64) -> Option<Duration> {
        let index = self.grid.index(now);
        let opening = self.opening(state, index, cost);
        (opening - index <= self.span.into()).then(|| self.grid.start(opening).since(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, one, rate},
    };

    fn per(count: u64, window: u64, buckets: u32) -> Rules {
        let rate = rate(count, window);
        one(Algorithm::SlidingWindow(Config { rate, buckets, strict: false }))
    }

    fn strict(count: u64, window: u64, buckets: u32) -> Rules {
        let rate = rate(count, window);
        one(Algorithm::SlidingWindow(Config { rate, buckets, strict: true }))
    }

    #[test]
    fn a_bucket_is_forgotten_when_it_begins_a_window_ago() {
        check(
            &per(3, 1000, 10),
            "
            50   pass
            150  pass
            250  pass
            999  block rate 1
            1000 pass
            1000 block rate 100
            1100 pass
            1199 block rate 1
            9000 x3 pass
            9000 block rate 1000
            ",
        );
    }

    #[test]
    fn a_costly_request_waits_for_as_many_buckets_as_it_needs() {
        check(
            &per(4, 1000, 10),
            "
            50         pass
            150        pass
            250 cost=2 pass
            900        block rate 100
            900 cost=2 block rate 200
            900 cost=3 block rate 300
            900 cost=4 block rate 300
            900 cost=5 block costly 4
            ",
        );
    }

    #[test]
    fn one_bucket_is_the_fixed_window() {
        check(
            &per(2, 100, 1),
            "
            99  x2 pass
            99  block rate 1
            100 x2 pass
            199 block rate 1
            ",
        );
    }

    #[test]
    fn strict_counts_the_expiring_bucket_whole() {
        check(
            &strict(2, 1000, 10),
            "
            90   x2 pass
            1000 block rate 100
            1099.999999 block rate 0.000001
            1100 pass
            ",
        );
    }

    #[test]
    fn buckets_need_not_be_whole_nanoseconds() {
        check(
            &per(1, 1000, 3),
            "
            333.333333 pass
            1333 block rate 0
            "
            .replace("1333 block rate 0", "1333 pass")
            .as_str(),
        );
        check(
            &per(1, 1000, 3),
            "
            333.333334 pass
            1333 block rate 0.333334
            1333.333333 block rate 0.000001
            1333.333334 pass
            ",
        );
    }

    #[test]
    fn one_with_priority_borrows_from_the_bucket_in_which_it_fits() {
        check(
            &per(3, 1000, 10),
            "
            50   x2         pass
            150             pass
            850             block rate 150
            850 prio=149    block rate 150
            850 prio=500    wait 150
            850 prio=500    wait 150
            850 prio=500    wait 250
            850 prio=500    block rate 1150
            850             block rate 1150
            999             block rate 1001
            1000            block rate 1000
            1100            block rate 900
            1999            block rate 1
            2000 x2         pass
            2000            block rate 100
            2100            pass
            ",
        );
        // A loan from a coming bucket is not given to others that still count in it.
        check(
            &per(3, 1000, 10),
            "
            50              pass
            850 cost=2      pass
            900 cost=2 prio=950 wait 900
            1000            pass
            1000            block rate 1000
            1799            block rate 201
            ",
        );
        // The first request expires as a loan a window later begins.
        check(
            &per(10, 1000, 10),
            "
            0               pass
            1 cost=10 prio=999  wait 999
            2 x2            pass
            99              pass
            100             block rate 1900
            ",
        );
    }

    #[test]
    fn an_edit_keeps_what_is_lent() {
        Timeline::new(&per(3, 1000, 10))
            .check("50 x3 pass\n850 prio=500 x2 wait 150")
            .edit(&per(3, 1000, 5), &[Change::Converted])
            .check("900 prio=500 wait 100\n1000 block rate 1000\n1999 block rate 1\n2000 x3 pass");
    }

    #[test]
    fn a_loan_far_ahead_of_a_shorter_window_is_counted_when_it_starts() {
        Timeline::new(&per(100, 1000, 10))
            .check("550 x100 pass\n1000 prio=999 wait 500")
            .edit(&per(10, 100, 10), &[Change::Converted])
            .check("1002 x10 pass\n1002 block rate 98\n1100 x10 pass\n1450 x9 pass")
            .check("1450 block rate 100\n1550 x9 pass\n1550 block rate 50\n1600 pass");
        let hour = 3_600_000;
        Timeline::new(&per(5, hour, 1))
            .check(&format!("1000 x5 pass\n1000 prio={hour} wait 3599000"))
            .edit(&per(5, 1000, 1), &[Change::Converted])
            .check("3000 x5 pass\n3000 block rate 1000\n3599000 x5 pass")
            .check("3600000 x4 pass\n3600000 block rate 1000");
    }

    #[test]
    fn a_loan_keeps_its_start_through_coarser_buckets() {
        Timeline::new(&strict(1, 1000, 2))
            .check("0 pass\n100 prio=1500 wait 1400")
            .edit(&strict(1, 1000, 1), &[Change::Converted])
            .edit(&strict(1, 1000, 2), &[Change::Converted])
            .check("1499 block rate 1501\n2400 block rate 600\n3000 pass");
    }

    #[test]
    fn an_edit_keeps_what_is_used() {
        Timeline::new(&per(3, 1000, 10))
            .check("50 x3 pass")
            .edit(&per(4, 1000, 10), &[Change::Converted])
            .check("500 pass")
            .check("500 block rate 500")
            .edit(&per(4, 1000, 5), &[Change::Converted])
            .check("999 block rate 1")
            .check("1000 x3 pass")
            .edit(&strict(4, 1000, 5), &[Change::Converted])
            .check("1500 block rate 100")
            .check("1600 pass");
    }

    #[test]
    fn a_shorter_window_forgets_older_buckets() {
        Timeline::new(&per(9, 1000, 10))
            .check("50 x4 pass")
            .check("850 x4 pass")
            .edit(&per(5, 200, 10), &[Change::Converted])
            .check("950 pass")
            .check("950 block rate 90");
    }
}
