//! A limit of 0, which admits nothing.
//!
//! Every request is rejected, whatever it costs, and no wait helps. Nothing is counted, so an edit to
//! another algorithm and back starts again.

use super::{Evictable, Limiter, Times, Transfer, Usage};
use crate::flow::{
    decision::{Decision, Reason},
    time::Instant,
};

#[derive(Debug)]
pub(in crate::flow) struct Closed;

/// The state of a client, of which nothing is counted.
#[derive(Clone, Debug)]
pub(in crate::flow) struct State;

impl Limiter for Closed {
    type State = State;

    fn limit(&self) -> u64 {
        0
    }

    fn fresh(&self) -> State {
        State
    }

    fn is_fresh(&self, _state: &State, _now: Instant) -> bool {
        true
    }

    fn check(&self, _state: &State, _now: Instant, _cost: u64) -> Decision {
        Decision::Reject(Reason::Closed)
    }

    fn usage(&self, _state: &State, _now: Instant) -> Usage {
        Usage::default()
    }

    fn charge(&self, _state: &mut State, _times: Times, _cost: u64) {}

    fn convert(&self, _old: &Self, _state: &mut State, _now: Instant) {}
}

impl Evictable for Closed {}

impl Transfer for Closed {
    fn export(&self, _state: &State) -> Vec<u64> {
        Vec::new()
    }

    fn import(&self, numbers: &[u64]) -> Option<State> {
        numbers.is_empty().then_some(State)
    }
}

#[cfg(test)]
mod tests {
    use crate::flow::{
        Algorithm, Change, Rules,
        limiter::token_bucket,
        timeline::{Timeline, keyed, one, rate, rule},
    };

    #[test]
    fn nothing_passes_until_an_edit_opens_the_rule() {
        let bucket = Algorithm::TokenBucket(token_bucket::Config { rate: rate(1, 1000), burst: 2 });
        for (open, closed) in [
            (one(bucket.clone()), one(Algorithm::Closed)),
            (keyed(bucket.clone(), 9), keyed(Algorithm::Closed, 9)),
        ] {
            Timeline::new(&open)
                .check("0 key=a pass")
                .edit(&closed, &[Change::Reset])
                .check(
                    "
                    1          key=a block closed
                    1          key=b cost=7 block closed
                    1000000000 key=a block closed
                    ",
                )
                .edit(&open, &[Change::Reset])
                .check("1000000000 x2 key=a pass");
        }
    }

    #[test]
    fn a_closed_rule_prevails_over_one_that_a_wait_helps_against() {
        let bucket = Algorithm::TokenBucket(token_bucket::Config { rate: rate(1, 1000), burst: 1 });
        let closed = rule("closed", Algorithm::Closed);
        let rate = rule("rate", bucket);
        for flow in [vec![rate.clone(), closed.clone()], vec![closed, rate]] {
            let rules = Rules { flow, ..Rules::default() };
            Timeline::new(&rules).check("0 block closed");
        }
    }
}
