//! Leaky bucket as a meter: it rejects, and never delays.
//!
//! Every request adds its cost to a bucket of `capacity`, which leaks `N` per `W`. A request of
//! cost `n` passes iff it does not overflow:
//!
//! ```text
//! water + n ≤ capacity         then  water = water + n
//! ```
//!
//! This is [`token_bucket`] from the other side: water is what the token bucket lacks, with the
//! same arithmetic and state, so that an edit from one to the other keeps it. (The queue that is
//! also called a leaky bucket is [`pacing`](crate::flow::pacing).)
//!
//! Worst case: `capacity` at once, and `capacity + ⌊D·N/W⌋` in any duration `D`; exact.
//!
//! Source: J. Turner, "New directions in communications", IEEE Communications Magazine 24(10),
//! 1986. Some listings test `water + 1 < capacity`, which admits one less.

use super::token_bucket::{self, TokenBucket};
use crate::flow::rate::Rate;
use serde::{Deserialize, Serialize};

/// Up to `capacity` at once, leaking at `rate`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// The rate at which the bucket leaks.
    pub rate: Rate,
    /// The cost that it holds.
    pub capacity: u64,
}

impl Config {
    pub(in crate::flow) fn build(&self) -> TokenBucket {
        token_bucket::Config { rate: self.rate, burst: self.capacity }.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Change, Rules,
        timeline::{Timeline, check, one, rate},
    };

    fn bucket(count: u64, window: u64, capacity: u64) -> Rules {
        one(Algorithm::LeakyBucket(Config { rate: rate(count, window), capacity }))
    }

    #[test]
    fn a_bucket_of_three_takes_exactly_three_at_once() {
        check(
            &bucket(10, 1000, 3),
            "
            0   x3     pass
            0          block rate 100
            99         block rate 1
            100        pass
            100 cost=4 block costly 3
            250 cost=2 block rate 50
            300 cost=2 pass
            300        block rate 100
            ",
        );
    }

    #[test]
    fn it_leaks_parts_of_a_nanosecond() {
        check(
            &bucket(3, 1000, 1),
            "
            0          pass
            333.333333 block rate 0.000001
            333.333334 pass
            666.666668 pass
            ",
        );
    }

    #[test]
    fn a_token_bucket_goes_on_as_a_leaky_one() {
        let tokens = token_bucket::Config { rate: rate(10, 1000), burst: 4 };
        Timeline::new(&one(Algorithm::TokenBucket(tokens)))
            .check("0 x4 pass")
            .edit(&bucket(10, 1000, 4), &[Change::Converted])
            .check("0   block rate 100")
            .check("200 x2 pass")
            .edit(&bucket(10, 1000, 2), &[Change::Converted])
            .check("200 block rate 100");
    }
}
