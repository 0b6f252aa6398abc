//! The sharers of a queue by the number of their waiting requests.
//!
//! [`Loads::victim`] names, for a full queue, the sharer that gives up one of its requests for a new
//! one. So a tenant that floods the queue keeps no other one out, and neither does a spike of a later class:
//!
//! - A request takes the room of a later class, of the last one first. The last class keeps its floor's
//!   share of the room, and takes that from an earlier class.
//! - Within a class, it takes the room of the sharer whose load, its requests divided by its weight, is the
//!   greatest; but only if its own load is still less afterwards.
//!
//! Each operation takes time `O(log n)` in the number of sharers that wait.
//!
//! Source: the longest queue drop of B. Suter, T. V. Lakshman, D. Stiliadis and A. Choudhury, "Design
//! considerations for supporting TCP with per-flow queueing", INFOCOM 1998.

use super::turns::{Sharer, WHOLE};
use crate::flow::keyed::KeySlot;
use core::num::NonZeroU32;
use std::collections::{BTreeMap, BTreeSet};

/// A request of weight 1 is so much load.
const UNIT: u64 = 1 << 32;

/// A sharer that waits for places of one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Waiting {
    pub(super) class: u8,
    pub(super) key_slot: KeySlot,
    pub(super) key: u64,
}

/// The requests of a sharer.
#[derive(Clone, Copy, Debug)]
struct Count {
    requests: u32,
    /// Of its latest request.
    weight: NonZeroU32,
}

impl Count {
    /// Returns the load, which is at most `u32::MAX` times [`UNIT`].
    fn load(self) -> u64 {
        u64::from(self.requests).saturating_mul(UNIT / u64::from(self.weight.get()))
    }
}

/// The requests that wait, by sharer.
#[derive(Debug)]
pub(super) struct Loads {
    counts: BTreeMap<Waiting, Count>,
    /// The first ones first; at least one.
    classes: Vec<ClassLoads>,
    /// The room of the last class, in requests.
    reserved: u32,
}

/// The requests of a class.
#[derive(Clone, Debug, Default)]
struct ClassLoads {
    requests: u32,
    /// The sharers by their load.
    order: BTreeSet<(u64, Waiting)>,
}

impl ClassLoads {
    /// Returns the sharer with the greatest load, and that.
    fn greatest(&self) -> Option<(u64, Waiting)> {
        self.order.last().copied()
    }
}

impl Loads {
    /// Returns those of an empty queue with so many classes and so much room, of which the last class has
    /// at least `floor` parts of [`WHOLE`].
    pub(super) fn new(classes: u8, floor: u16, max: u32) -> Self {
        // At least one, or the floor would be none in a small queue; the first class has room as well.
        let reserved = (u64::from(max) * u64::from(floor)).div_ceil(WHOLE);
        let reserved = reserved.min(u64::from(max.saturating_sub(1)));
        Self {
            counts: BTreeMap::new(),
            classes: vec![ClassLoads::default(); usize::from(classes.max(1))],
            reserved: u32::try_from(reserved).unwrap_or(u32::MAX),
        }
    }

    /// Adds a request.
    pub(super) fn add(&mut self, key_slot: KeySlot, sharer: Sharer) {
        let waiting = self.waiting(key_slot, sharer);
        let count = self.counts.get(&waiting).map_or(0, |count| count.requests);
        self.set(waiting, Count { requests: count.saturating_add(1), weight: sharer.weight });
    }

    /// Removes a request that was added.
    pub(super) fn remove(&mut self, key_slot: KeySlot, sharer: Sharer) {
        let waiting = self.waiting(key_slot, sharer);
        let Some(&Count { requests, weight }) = self.counts.get(&waiting) else { return };
        self.set(waiting, Count { requests: requests.saturating_sub(1), weight });
    }

    /// Returns the sharer whose request makes room for one of `sharer`; `None` if that has to go itself.
    pub(super) fn victim(&self, key_slot: KeySlot, sharer: Sharer) -> Option<Waiting> {
        let new = self.waiting(key_slot, sharer);
        let last = self.last();
        let of_last = self.classes.last().map_or(0, |class| class.requests);
        let classes = (0..=last).rev().zip(self.classes.iter().rev());
        let mut classes = classes.filter(|(_, loads)| loads.requests > 0);

        if new.class == last && last > 0 && of_last < self.reserved {
            let (_, loads) = classes.find(|(class, _)| *class != last)?;
            return loads.greatest().map(|(_, victim)| victim);
        }
        let is_kept = new.class != last && of_last <= self.reserved;
        let (class, loads) = classes.find(|(class, _)| *class != last || !is_kept)?;
        let (load, victim) = loads.greatest()?;
        if class != new.class {
            return (class > new.class).then_some(victim);
        }

        let requests = self.counts.get(&new).map_or(0, |count| count.requests);
        let count = Count { requests: requests.saturating_add(1), weight: sharer.weight };
        (count.load() < load).then_some(victim)
    }

    fn last(&self) -> u8 {
        u8::try_from(self.classes.len() - 1).unwrap_or(u8::MAX)
    }

    fn waiting(&self, key_slot: KeySlot, sharer: Sharer) -> Waiting {
        Waiting { class: sharer.class.min(self.last()), key_slot, key: sharer.key }
    }

    fn set(&mut self, waiting: Waiting, count: Count) {
        let is_there = count.requests > 0;
        let before = if is_there {
            self.counts.insert(waiting, count)
        } else {
            self.counts.remove(&waiting)
        };

        let Some(class) = self.classes.get_mut(usize::from(waiting.class)) else { return };
        if let Some(before) = before {
            class.order.remove(&(before.load(), waiting));
            class.requests = class.requests.saturating_sub(before.requests);
        }
        if is_there {
            class.order.insert((count.load(), waiting));
            class.requests = class.requests.saturating_add(count.requests);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn sharer(key: u64, weight: u32, class: u8) -> Sharer {
        Sharer { key, weight: NonZeroU32::new(weight).expect("a weight"), class }
    }

    /// Returns a queue with these requests, each given by its key and class.
    fn queue(loads: Loads, requests: &[(u64, u8, u32)]) -> Loads {
        let mut loads = loads;
        for (key, class, count) in requests {
            (0..*count).for_each(|_| loads.add(KeySlot::Shared, sharer(*key, 1, *class)));
        }
        loads
    }

    /// Returns the key of the victim for a request of this sharer.
    fn victim(loads: &Loads, sharer: Sharer) -> Option<u64> {
        loads.victim(KeySlot::Shared, sharer).map(|waiting| waiting.key)
    }

    #[test]
    fn the_sharer_with_the_most_requests_gives_up_one() {
        let loads = queue(Loads::new(1, 0, 10), &[(1, 0, 6), (2, 0, 3), (3, 0, 1)]);
        assert_eq!(victim(&loads, sharer(4, 1, 0)), Some(1), "a new one");
        assert_eq!(victim(&loads, sharer(2, 1, 0)), Some(1));
        assert_eq!(victim(&loads, sharer(1, 1, 0)), None, "the flood itself");
        let even = queue(Loads::new(1, 0, 10), &[(1, 0, 5), (2, 0, 5)]);
        assert_eq!(victim(&even, sharer(2, 1, 0)), None);
        let single = queue(Loads::new(1, 0, 3), &[(1, 0, 1), (2, 0, 1), (3, 0, 1)]);
        assert_eq!(victim(&single, sharer(4, 1, 0)), None, "none has more than one");
    }

    #[test]
    fn weights_share_the_room_too() {
        let mut loads = queue(Loads::new(1, 0, 10), &[(1, 0, 5)]);
        (0..5).for_each(|_| loads.add(KeySlot::Shared, sharer(2, 4, 0)));
        assert_eq!(victim(&loads, sharer(2, 4, 0)), Some(1));
        assert_eq!(victim(&loads, sharer(1, 1, 0)), None);
    }

    #[test]
    fn a_class_takes_the_room_of_later_ones_except_the_floor_of_the_last() {
        let full = queue(Loads::new(2, 1_000, 20), &[(1, 0, 5), (2, 1, 15)]);
        assert_eq!(victim(&full, sharer(1, 1, 0)), Some(2));
        assert_eq!(victim(&full, sharer(3, 1, 1)), Some(2));

        let at_floor = queue(Loads::new(2, 1_000, 20), &[(1, 0, 18), (2, 1, 2)]);
        assert_eq!(victim(&at_floor, sharer(1, 1, 0)), None, "it is the flood");
        assert_eq!(victim(&at_floor, sharer(3, 1, 0)), Some(1), "of its own class");
        assert_eq!(victim(&at_floor, sharer(3, 1, 1)), Some(2));

        let below = queue(Loads::new(2, 1_000, 20), &[(1, 0, 19), (2, 1, 1)]);
        assert_eq!(victim(&below, sharer(2, 1, 1)), Some(1), "the floor of the last class");
        let three = queue(Loads::new(3, 0, 9), &[(1, 0, 3), (2, 1, 3), (3, 2, 3)]);
        assert_eq!(victim(&three, sharer(1, 1, 0)), Some(3), "the last class first");
        assert_eq!(victim(&three, sharer(4, 1, 1)), Some(3));
    }

    #[test]
    fn the_floor_is_a_request_at_least_and_never_all_the_room() {
        let small = queue(Loads::new(2, 500, 10), &[(1, 0, 10)]);
        assert_eq!(victim(&small, sharer(2, 1, 1)), Some(1));
        let smallest = queue(Loads::new(2, 500, 1), &[(1, 0, 1)]);
        assert_eq!(victim(&smallest, sharer(2, 1, 1)), None);
    }

    #[test]
    fn clients_with_places_of_their_own_share_the_room() {
        let mut loads = Loads::new(1, 0, 10);
        (0..9).for_each(|_| loads.add(KeySlot::Own(1), Sharer::default()));
        loads.add(KeySlot::Own(2), Sharer::default());
        let victim = |key_slot| loads.victim(key_slot, Sharer::default());
        assert_eq!(victim(KeySlot::Own(2)).map(|waiting| waiting.key_slot), Some(KeySlot::Own(1)));
        assert_eq!(victim(KeySlot::Own(1)), None);
    }

    /// The victim by a look at every request that waits.
    fn naive(waiting: &[Sharer], new: Sharer, classes: u8, reserved: usize) -> Option<u64> {
        let class_of = |sharer: &Sharer| sharer.class.min(classes - 1);
        let of_class = |class: u8| waiting.iter().filter(move |one| class_of(one) == class);
        let load = |class: u8, key: u64, more: usize| {
            let count = of_class(class).filter(|one| one.key == key).count() + more;
            // Weights are powers of two here, and one of each sharer.
            u64::try_from(count).expect("few") * 64 / u64::from(1_u32 << (key % 3))
        };
        let greatest =
            |class: u8| of_class(class).map(|one| (load(class, one.key, 0), one.key)).max();
        let last = classes - 1;
        let in_last = of_class(last).count();
        if class_of(&new) == last && last > 0 && in_last < reserved {
            let class = (0..last).rev().find(|class| of_class(*class).count() > 0)?;
            return greatest(class).map(|(_, key)| key);
        }
        let may_take = |class: &u8| {
            of_class(*class).count() > 0
                && (*class != last || class_of(&new) == last || in_last > reserved)
        };
        let class = (0..classes).rev().find(may_take)?;
        let (most, victim) = greatest(class)?;
        let is_later = class > class_of(&new);
        let is_less = class == class_of(&new) && load(class, new.key, 1) < most;
        (is_later || is_less).then_some(victim)
    }

    proptest! {
        #[test]
        fn the_victim_is_that_of_a_look_at_all_requests(
            classes in 1_u8..4,
            requests in vec((0_u64..6, 0_u8..5, any::<bool>()), 1..80),
        ) {
            const MAX: usize = 20;
            let mut loads = Loads::new(classes, 2_000, 20);
            let mut waiting: Vec<Sharer> = Vec::new();
            for (key, class, leaves) in requests {
                let new = sharer(key, 1 << (key % 3), class);
                let expected = naive(&waiting, new, classes, 4);
                prop_assert_eq!(victim(&loads, new), expected);

                if waiting.len() >= MAX {
                    let Some(victim) = expected else { continue };
                    let of = loads.victim(KeySlot::Shared, new).expect("the same").class;
                    let gone = waiting.iter().rposition(|one| {
                        one.key == victim && one.class.min(classes - 1) == of
                    });
                    let gone = waiting.remove(gone.expect("it waits"));
                    loads.remove(KeySlot::Shared, gone);
                } else if leaves && !waiting.is_empty() {
                    loads.remove(KeySlot::Shared, waiting.remove(0));
                }
                waiting.push(new);
                loads.add(KeySlot::Shared, new);
            }
            for gone in waiting {
                loads.remove(KeySlot::Shared, gone);
            }
            prop_assert!(loads.counts.is_empty());
            let is_empty = |class: &ClassLoads| class.order.is_empty() && class.requests == 0;
            prop_assert!(loads.classes.iter().all(is_empty));
        }
    }
}
