//! A breaker as written.

use crate::{
    config::{
        decode::{At, Decoder, Fields},
        problem::Problem,
    },
    flow::breaker::{Ratio, Slow},
};
use std::time::Duration;

/// A breaker.
#[derive(Debug)]
pub(in crate::config) struct BreakerSpec {
    pub error_ratio: Option<At<Ratio>>,
    pub slow: Option<Slow>,
    pub errors: Option<At<u64>>,
    pub min_requests: Option<At<u64>>,
    pub window: Option<At<Duration>>,
    pub buckets: Option<At<u64>>,
    pub open_for: Option<At<Duration>>,
    pub probes: Option<At<u64>>,
    pub dry_run: bool,
}

impl BreakerSpec {
    pub(super) fn read<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Self {
        let written = |name: &&str| f.key_place(name).is_some();
        if !["error_ratio", "slow_after", "slow_ratio", "errors"].iter().any(written) {
            let problem = Problem::error(f.place, "a breaker that nothing opens")
                .help("write `error_ratio: 0.5`, `slow_after` with `slow_ratio`, or `errors: 10`");
            d.problems.add(problem);
        }
        Self {
            error_ratio: f.ratio(d, "error_ratio"),
            slow: slow(d, f),
            errors: f.integer(d, "errors"),
            min_requests: f.integer(d, "min_requests"),
            window: f.duration(d, "window"),
            buckets: f.integer(d, "buckets"),
            open_for: f.duration(d, "open_for"),
            probes: f.integer(d, "probes"),
            dry_run: f.flag(d, "dry_run").is_some_and(|at| at.value),
        }
    }
}

/// Reads what is slow and how many may be, which mean nothing without each other.
fn slow<'s>(d: &mut Decoder<'s>, f: &Fields<'_, 's>) -> Option<Slow> {
    let (after, ratio) = (f.duration(d, "slow_after"), f.ratio(d, "slow_ratio"));
    let missing = match (f.key_place("slow_after"), f.key_place("slow_ratio")) {
        (Some(place), None) => Some((
            place,
            "`slow_after` without `slow_ratio`",
            "write how many may be slow, as in `slow_ratio: 0.5`",
        )),
        (None, Some(place)) => Some((
            place,
            "`slow_ratio` without `slow_after`",
            "write what is slow, as in `slow_after: 1s`",
        )),
        (Some(_), Some(_)) | (None, None) => None,
    };
    if let Some((place, message, help)) = missing {
        d.problems.add(Problem::error(place, message).help(help));
    }
    Some(Slow { after: after?.value, ratio: ratio?.value })
}
