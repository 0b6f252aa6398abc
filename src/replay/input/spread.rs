//! Arrivals with stamps of whole seconds, which must not look like bursts.

use crate::{flow::Instant, replay::event::Arrival};
use core::time::Duration;

/// Spreads stamps of whole seconds evenly, in their order, and moves each arrival before its stamp.
/// Returns whether there were any.
pub(super) fn spread(arrivals: &mut [(Option<Duration>, Arrival)]) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let coarse = arrivals.iter_mut().filter_map(|(behind, arrival)| Some(((*behind)?, arrival)));
    let mut coarse: Vec<_> = coarse.collect();
    let second =
        |(behind, arrival): &(Duration, &mut Arrival)| (arrival.at + *behind).as_nanos() / SECOND;
    coarse.sort_by_key(second);
    for of_one in coarse.chunk_by_mut(|a, b| second(a) == second(b)) {
        let count = of_one.len() as u64;
        for (position, item) in (0..).zip(of_one) {
            let stamp = Instant::from_nanos(second(item) * SECOND + SECOND / count * position);
            item.1.at = stamp - item.0;
        }
    }
    !coarse.is_empty()
}
