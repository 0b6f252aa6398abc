//! The server that a key belongs to: rendezvous hashing with bounded loads. Pure.
//!
//! Each server has a score for each key, and the lowest one wins. A server that comes or goes
//! changes nothing between the others: it takes or leaves its own keys only. A server that has more
//! than its share of the requests in flight is passed over, so that one hot key cannot overload it.
//!
//! Sources: Thaler and Ravishankar, "Using name-based mappings to increase hit rates" (1998), with
//! weights by −ln(u)/w; Mirrokni, Thorup and Zadimoghaddam, "Consistent Hashing with Bounded Loads"
//! (2016).

/// The percentage by which a server may exceed its share of the requests in flight.
const BOUND: u64 = 125;

/// A server that may get the request at hand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Candidate {
    pub(crate) place: usize,
    /// Stands for its address.
    pub(crate) id: u64,
    pub(crate) weight: u32,
    pub(crate) in_flight: u32,
}

/// Returns the place of the candidate that the key belongs to; `None` if there is none.
pub(crate) fn choose<I>(key: u64, candidates: I) -> Option<usize>
where
    I: Iterator<Item = Candidate> + Clone,
{
    let mut requests = 1;
    let mut weights = 0;
    for candidate in candidates.clone() {
        requests += u64::from(candidate.in_flight);
        weights += u64::from(candidate.weight);
    }
    let has_room = |candidate: &Candidate| {
        let room = BOUND * requests * u64::from(candidate.weight);
        100 * weights * u64::from(candidate.in_flight) < room
    };
    let scored =
        candidates.filter(has_room).map(|candidate| (score(key, candidate), candidate.place));
    scored.min_by(|(one, _), (other, _)| one.total_cmp(other)).map(|(_, place)| place)
}

/// Returns the score of a server for a key: the lowest one wins, with a chance proportional to its
/// weight.
#[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
fn score(key: u64, candidate: Candidate) -> f64 {
    const UNIT: f64 = 1.0 / (1_u64 << 53) as f64;
    let uniform = ((mixed(key ^ mixed(candidate.id)) >> 11) as f64 + 0.5) * UNIT;
    -uniform.ln() / f64::from(candidate.weight.max(1))
}

/// Spreads a number over all others, one to one. Source: splitmix64, Steele, Lea and Flood (2014).
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn idle(servers: &[(u64, u32)]) -> Vec<Candidate> {
        let candidate = |(place, &(id, weight))| Candidate { place, id, weight, in_flight: 0 };
        servers.iter().enumerate().map(candidate).collect()
    }

    /// The owners of many keys, by the ids of the servers.
    fn owners(servers: &[(u64, u32)]) -> Vec<u64> {
        let candidates = idle(servers);
        let owner = |key| choose(mixed(key), candidates.iter().copied()).expect("a server");
        (0..4000).map(|key| servers[owner(key)].0).collect()
    }

    /// How many of a thousand keys a server has.
    fn share(owners: &[u64], id: u64) -> usize {
        owners.iter().filter(|owner| **owner == id).count() * 1000 / owners.len()
    }

    #[test]
    fn each_server_has_its_share_of_the_keys() {
        let owners = owners(&[(1, 1), (2, 2), (3, 5)]);
        for (id, expected) in [(1, 125), (2, 250), (3, 625)] {
            let share = share(&owners, id);
            assert!(share.abs_diff(expected) < 30, "{id}: {share}");
        }
    }

    #[test]
    fn a_change_moves_only_the_keys_of_the_server_that_changed() {
        let before = owners(&[(1, 1), (2, 1), (3, 1), (4, 1)]);
        for (servers, changed) in [
            (&[(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)][..], 5),
            (&[(1, 1), (2, 1), (4, 1)][..], 3),
            (&[(1, 1), (2, 3), (3, 1), (4, 1)][..], 2),
            (&[(4, 1), (3, 1), (2, 1), (1, 1)][..], 0),
        ] {
            let after = owners(servers);
            let moved: Vec<_> = before.iter().zip(&after).filter(|(old, new)| old != new).collect();
            assert!(moved.iter().all(|(old, new)| **old == changed || **new == changed));
            assert_eq!(moved.is_empty(), changed == 0, "{servers:?}");
            assert!(moved.len() < before.len() * 2 / 5, "{} keys moved", moved.len());
        }
    }

    /// Whether a server has less than 1.25 times its share of `requests`.
    fn has_room(it: &Candidate, requests: u64, weights: u64) -> bool {
        4 * u64::from(it.in_flight) * weights < 5 * requests * u64::from(it.weight)
    }

    /// Goes through the servers in the order of their scores, and takes the first with room.
    fn naive(key: u64, candidates: &[Candidate]) -> Option<usize> {
        let requests: u64 =
            candidates.iter().map(|candidate| u64::from(candidate.in_flight)).sum::<u64>() + 1;
        let weights: u64 = candidates.iter().map(|candidate| u64::from(candidate.weight)).sum();
        let mut order = candidates.to_vec();
        order.sort_by(|one, other| score(key, *one).total_cmp(&score(key, *other)));
        order
            .into_iter()
            .find(|candidate| has_room(candidate, requests, weights))
            .map(|candidate| candidate.place)
    }

    proptest! {
        #[test]
        fn the_first_server_with_room_gets_the_request(
            key in any::<u64>(),
            servers in vec((any::<u64>(), 1_u32..20, 0_u32..50), 1..12),
        ) {
            let candidates: Vec<_> = servers
                .iter()
                .enumerate()
                .map(|(place, &(id, weight, in_flight))| Candidate { place, id, weight, in_flight })
                .collect();
            let chosen = choose(key, candidates.iter().copied());
            prop_assert_eq!(chosen, naive(key, &candidates));
            prop_assert!(chosen.is_some(), "someone always has room");
        }

        #[test]
        fn no_server_gets_more_than_its_bound(
            keys in vec(0_u64..3, 1..200),
            weights in vec(1_u32..5, 1..6),
        ) {
            let mut candidates =
                idle(&weights.iter().enumerate().map(|(id, weight)| (id as u64, *weight)).collect::<Vec<_>>());
            let sum: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
            // Requests of three hot keys that never end.
            for (count, key) in (1..).zip(keys) {
                let place = choose(mixed(key), candidates.iter().copied()).expect("a server");
                prop_assert!(has_room(&candidates[place], count, sum));
                candidates[place].in_flight += 1;
                for candidate in candidates.iter().filter(|candidate| candidate.in_flight > 0) {
                    let without_last = Candidate { in_flight: candidate.in_flight - 1, ..*candidate };
                    prop_assert!(has_room(&without_last, count, sum));
                }
            }
        }
    }
}
