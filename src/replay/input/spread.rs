//! Stamps of whole seconds: put at its beginning, the arrivals of a second would look like a
//! burst that never was.

use crate::{flow::Instant, replay::event::Arrival};
use core::time::Duration;

/// Spreads stamps of which only the second is known evenly over it, in their order, and puts
/// each arrival as long before its stamp as it was. Returns whether there were any.
pub(super) fn spread(arrivals: &mut [(Option<Duration>, Arrival)]) -> bool {
    const SECOND: u64 = 1_000_000_000;
    let coarse = arrivals.iter_mut().filter_map(|(behind, it)| Some(((*behind)?, it)));
    let mut coarse: Vec<_> = coarse.collect();
    let second =
        |(behind, arrival): &(Duration, &mut Arrival)| (arrival.at + *behind).as_nanos() / SECOND;
    coarse.sort_by_key(second);
    for of_one in coarse.chunk_by_mut(|a, b| second(a) == second(b)) {
        let count = of_one.len() as u64;
        for (place, it) in (0..).zip(of_one) {
            let stamp = Instant::from_nanos(second(it) * SECOND + SECOND / count * place);
            it.1.at = stamp - it.0;
        }
    }
    !coarse.is_empty()
}
