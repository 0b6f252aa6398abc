use super::*;
use proptest::{collection::vec, prelude::*};

const EVEN: Settings = Settings { classes: 1, floor: 0, late: None };

fn sharer(key: u64, weight: u32, class: u8) -> Sharer {
    Sharer { key, weight: NonZeroU32::new(weight).expect("a weight"), class }
}

fn entry(serial: u64, sharer: Sharer, cost: u64) -> Entry {
    let ticket = u32::try_from(serial).expect("few");
    Entry { sharer, cost, serial, arrival: Instant::from_nanos(serial), ticket }
}

/// Starts the next request. Returns its sharer's key.
fn start(turns: &mut Turns) -> u64 {
    let next = turns.next(Instant::EPOCH).expect("some wait");
    assert!(turns.start(&next));
    next.sharer.key
}

/// Returns an order in which each of these sharers has `count` requests.
fn backlog(settings: Settings, sharers: &[Sharer], count: u64) -> Turns {
    let mut turns = Turns::new(settings);
    let mut serial = 0;
    for _ in 0..count {
        for sharer in sharers {
            serial += 1;
            turns.push(entry(serial, *sharer, 1));
        }
    }
    turns
}

/// Returns how often each of `keys` sharers is among `starts`.
fn counts(starts: &[u64], keys: u64) -> Vec<usize> {
    (0..keys).map(|key| starts.iter().filter(|start| **start == key).count()).collect()
}

#[test]
fn requests_of_one_sharer_start_in_the_order_of_their_arrival() {
    let mut turns = backlog(EVEN, &[sharer(0, 1, 0)], 5);
    let order: Vec<u64> = (0..5)
        .map(|_| {
            let next = turns.next(Instant::EPOCH).expect("some wait");
            turns.start(&next);
            next.serial
        })
        .collect();
    assert_eq!(order, [1, 2, 3, 4, 5]);
    assert!(turns.is_empty());
}

#[test]
fn more_classes_keep_every_request() {
    for [before, after] in [[1, 2], [2, 3], [1, 3]] {
        let sharers = [sharer(0, 1, 0), sharer(1, 1, 1), sharer(2, 1, u8::MAX)];
        let settings = |classes| Settings { classes, ..EVEN };
        let mut turns = backlog(settings(before), &sharers, 3);
        turns.set(settings(after));
        let order: Vec<u64> = (0..9).map(|_| start(&mut turns)).collect();
        assert_eq!(counts(&order, 3), [3, 3, 3], "{before} {after}");
        assert!(turns.is_empty());

        let mut turns = backlog(settings(before), &sharers, 1);
        turns.set(settings(after));
        for (serial, sharer) in (1..).zip(sharers) {
            assert!(turns.remove(&entry(serial, sharer, 1)), "{before} {after} {sharer:?}");
        }
    }
}

#[test]
fn sharers_of_one_weight_take_turns() {
    let mut turns = backlog(EVEN, &[sharer(0, 1, 0), sharer(1, 1, 0), sharer(2, 1, 0)], 9);
    let order: Vec<u64> = (0..9).map(|_| start(&mut turns)).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2, 0, 1, 2]);
}

#[test]
fn a_sharer_with_four_times_the_weight_starts_four_times_as_many_and_evenly() {
    let mut turns = backlog(EVEN, &[sharer(0, 4, 0), sharer(1, 1, 0)], 100);
    let order: Vec<u64> = (0..50).map(|_| start(&mut turns)).collect();
    assert_eq!(counts(&order, 2), [40, 10]);
    for five in order.chunks(5) {
        assert_eq!(counts(five, 2), [4, 1]);
    }
}

#[test]
fn a_sharer_that_was_away_has_saved_no_turn() {
    let mut turns = backlog(EVEN, &[sharer(0, 1, 0), sharer(1, 1, 0)], 500);
    for _ in 0..200 {
        start(&mut turns);
    }
    for serial in 2_000..2_100 {
        turns.push(entry(serial, sharer(2, 1, 0), 1));
    }
    let order: Vec<u64> = (0..30).map(|_| start(&mut turns)).collect();
    assert_eq!(counts(&order, 3), [10, 10, 10]);
}

#[test]
fn a_sharer_with_one_request_at_a_time_gains_nothing_by_coming_back_at_once() {
    let mut turns = backlog(EVEN, &[sharer(0, 1, 0), sharer(1, 1, 0)], 500);
    let mut starts = Vec::new();
    let mut serial = 2_000;
    turns.push(entry(serial, sharer(2, 1, 0), 1));
    for _ in 0..60 {
        let key = start(&mut turns);
        starts.push(key);
        if key == 2 {
            serial += 1;
            turns.push(entry(serial, sharer(2, 1, 0), 1));
        }
    }
    assert_eq!(counts(&starts, 3), [20, 20, 20]);
}

#[test]
fn new_sharers_do_not_keep_one_from_starting() {
    let mut turns = backlog(EVEN, &[sharer(0, 1, 0)], 100);
    let mut starts = Vec::new();
    for serial in 2_000..2_050 {
        turns.push(entry(serial, sharer(serial, 1, 0), 1));
        starts.extend([start(&mut turns), start(&mut turns)]);
    }
    assert!(counts(&starts, 1)[0] >= 49, "every other one is its: {starts:?}");
}

#[test]
fn a_costly_request_counts_as_several() {
    let mut turns = Turns::new(EVEN);
    for serial in 0..40 {
        turns.push(entry(2 * serial, sharer(0, 1, 0), 3));
        turns.push(entry(2 * serial + 1, sharer(1, 1, 0), 1));
    }
    let order: Vec<u64> = (0..40).map(|_| start(&mut turns)).collect();
    assert_eq!(counts(&order, 2), [10, 30]);
}

#[test]
fn earlier_classes_start_first_and_the_last_has_its_floor() {
    let settings = Settings { classes: 2, floor: WHOLE / 20, late: None };
    let mut turns = backlog(settings, &[sharer(0, 1, 0), sharer(1, 1, 1)], 300);
    let order: Vec<u64> = (0..200).map(|_| start(&mut turns)).collect();
    assert_eq!(counts(&order, 2), [190, 10]);
    for twenty in order.chunks(20) {
        assert_eq!(counts(twenty, 2), [19, 1], "one of twenty, evenly");
    }

    let none = Settings { floor: 0, ..settings };
    let mut turns = backlog(none, &[sharer(0, 1, 0), sharer(1, 1, 1)], 100);
    let order: Vec<u64> = (0..101).map(|_| start(&mut turns)).collect();
    assert_eq!(counts(&order, 2), [100, 1]);
}

#[test]
fn a_last_class_that_did_not_wait_is_owed_nothing() {
    let settings = Settings { classes: 2, floor: WHOLE / 10, late: None };
    let mut turns = backlog(settings, &[sharer(0, 1, 0)], 200);
    for _ in 0..100 {
        start(&mut turns);
    }
    for serial in 1_000..1_010 {
        turns.push(entry(serial, sharer(1, 1, 9), 1));
    }
    let order: Vec<u64> = (0..20).map(|_| start(&mut turns)).collect();
    assert_eq!(counts(&order, 2), [18, 2], "a class beyond the last is of the last");
}

#[test]
fn the_newest_starts_first_once_the_oldest_is_late() {
    let late = Some(Duration::from_nanos(100));
    let mut turns = Turns::new(Settings { late, ..EVEN });
    for serial in 1..=4 {
        turns.push(entry(serial, sharer(0, 1, 0), 1));
    }
    let next = |turns: &mut Turns, now| {
        let next = turns.next(Instant::from_nanos(now)).expect("some wait");
        turns.start(&next);
        next.serial
    };
    assert_eq!(next(&mut turns, 101), 1, "it has waited for 100");
    assert_eq!([next(&mut turns, 103), next(&mut turns, 103)], [4, 3]);
    assert_eq!(next(&mut turns, 103), 2);
}

/// A step of a random trace.
#[derive(Clone, Copy, Debug)]
enum Step {
    Push { key: u64, class: u8, cost: u64 },
    Start,
    Leave(usize),
}

/// The order, by looking at every waiting request for each start: fair queueing as its formulas say.
#[derive(Default)]
struct Reference {
    waiting: Vec<Entry>,
    /// Of each class.
    time: [u128; 2],
    /// The start of the first request of each waiting sharer, and the number of that first one.
    begins: BTreeMap<(u8, u64), (u128, u64)>,
    firsts: u64,
    owed: u128,
}

impl Reference {
    /// Returns the first request of each waiting sharer of a class.
    fn heads(&self, class: u8) -> Vec<Entry> {
        let mut heads: Vec<Entry> = Vec::new();
        for entry in self.waiting.iter().filter(|entry| entry.sharer.class == class) {
            if heads.iter().all(|head| head.sharer.key != entry.sharer.key) {
                heads.push(*entry);
            }
        }
        heads
    }

    fn first_of(&self, class: u8) -> Option<Entry> {
        let place = |entry: &Entry| {
            let (begin, first) = self.begins[&(class, entry.sharer.key)];
            (begin + entry.length(), first)
        };
        self.heads(class).into_iter().min_by_key(place)
    }

    fn next(&self, floor: u64) -> Option<Entry> {
        let last = self.first_of(1);
        let is_owed = |entry: &Entry| {
            let cost = u128::from(entry.cost);
            floor > 0 && self.owed + cost * u128::from(floor) >= cost * u128::from(WHOLE)
        };
        last.filter(is_owed).or_else(|| self.first_of(0)).or(last)
    }

    fn push(&mut self, entry: Entry) {
        self.firsts += 1;
        let class = entry.sharer.class;
        let begin = (self.time[usize::from(class)], self.firsts);
        self.begins.entry((class, entry.sharer.key)).or_insert(begin);
        self.waiting.push(entry);
    }

    fn start(&mut self, entry: &Entry, floor: u64) {
        let class = entry.sharer.class;
        if !self.heads(1).is_empty() {
            let cost = u128::from(entry.cost);
            self.owed += cost * u128::from(floor);
            if class == 1 {
                self.owed = self.owed.saturating_sub(cost * u128::from(WHOLE));
            }
        }
        let (begin, _) = self.begins[&(class, entry.sharer.key)];
        let finish = begin + entry.length();
        self.time[usize::from(class)] = self.time[usize::from(class)].max(finish);
        self.firsts += 1;
        self.begins.insert((class, entry.sharer.key), (finish, self.firsts));
        self.remove(entry);
    }

    fn remove(&mut self, entry: &Entry) {
        self.waiting.retain(|other| other.serial != entry.serial);
        let is_of_it = |(class, key): &(u8, u64), other: &Entry| {
            (other.sharer.class, other.sharer.key) == (*class, *key)
        };
        let waiting = &self.waiting;
        self.begins.retain(|place, _| waiting.iter().any(|other| is_of_it(place, other)));
        for class in [0, 1] {
            if self.heads(class).is_empty() {
                self.time[usize::from(class)] = 0;
            }
        }
        if self.heads(1).is_empty() {
            self.owed = 0;
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..6_u64, 0..2_u8, 1..4_u64).prop_map(|(key, class, cost)| Step::Push { key, class, cost }),
        3 => Just(Step::Start),
        1 => (0..50_usize).prop_map(Step::Leave),
    ]
}

proptest! {
    #[test]
    fn the_order_is_that_of_a_reference_model(steps in vec(step(), 0..300), floor in 0..2_u64) {
        let floor = floor * WHOLE / 7;
        let mut turns = Turns::new(Settings { classes: 2, floor, late: None });
        let mut reference = Reference::default();
        for (serial, step) in (1..).zip(steps) {
            match step {
                Step::Push { key, class, cost } => {
                    // Each key has its own weight.
                    let weight = u32::try_from(key).expect("few") % 3 + 1;
                    let entry = entry(serial, sharer(key, weight, class), cost);
                    turns.push(entry);
                    reference.push(entry);
                }
                Step::Start => {
                    let next = turns.next(Instant::EPOCH);
                    prop_assert_eq!(next, reference.next(floor));
                    if let Some(next) = next {
                        turns.start(&next);
                        reference.start(&next, floor);
                    }
                }
                Step::Leave(at) if !reference.waiting.is_empty() => {
                    let entry = reference.waiting[at % reference.waiting.len()];
                    prop_assert!(turns.remove(&entry));
                    reference.remove(&entry);
                }
                Step::Leave(_) => {}
            }
            prop_assert_eq!(turns.is_empty(), reference.waiting.is_empty());
        }
    }

    #[test]
    fn between_two_starts_of_a_sharer_no_other_of_its_weight_starts_more_than_twice(
        arrivals in vec(0..8_u64, 200..400),
    ) {
        let mut turns = Turns::new(EVEN);
        let mut waiting: BTreeMap<u64, u64> = BTreeMap::new();
        // The starts of others since the latest start of each sharer that waited all the time.
        let mut others: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (serial, key) in (1..).zip(arrivals) {
            turns.push(entry(serial, sharer(key, 1, 0), 1));
            *waiting.entry(key).or_default() += 1;
            if serial % 4 == 0 || serial < 50 {
                continue;
            }
            let key = start(&mut turns);
            if let Some(since) = others.get(&key) {
                for other in 0..8 {
                    let count = since.iter().filter(|start| **start == other).count();
                    prop_assert!(count <= 2, "{} started {} times", other, count);
                }
            }
            for starts in others.values_mut() {
                starts.push(key);
            }
            let left = waiting.get_mut(&key).expect("it waited");
            *left -= 1;
            if *left > 0 {
                others.insert(key, Vec::new());
            } else {
                others.remove(&key);
            }
        }
    }
}
