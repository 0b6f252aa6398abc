//! Models of what threads share without a lock: every order in which they can run, and
//! every value that relaxed memory lets them read.

use exemplar::{Exemplar, ExemplarCell, ExemplarId};
use lock_order::LockOrder;
use loom::{
    model,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering, Ordering::Relaxed},
    },
    thread,
};
use pairs::Pairs;
use std::{collections::BTreeMap, time::Duration};

// The production files themselves, whose atomics are loom's here.
mod atomics {
    pub(super) use super::{AtomicU64, Ordering, Relaxed};
}
#[expect(unreachable_pub, reason = "the crate exports what stands in it")]
#[path = "../src/meter/exemplar.rs"]
mod exemplar;
#[path = "../src/flow/gate/lock_order.rs"]
mod lock_order;
#[path = "../src/meter/pairs.rs"]
mod pairs;

/// Counts `one` and `other`, each in a thread, in a table of two places that has counted
/// `before`. Returns what one of them reads meanwhile, and the table when both have ended.
fn race(before: Option<u64>, one: u64, other: u64) -> (Vec<(u64, u64)>, Arc<Pairs<2>>) {
    let pairs = Arc::new(Pairs::default());
    if let Some(tag) = before {
        pairs.count(tag);
    }
    let shared = Arc::clone(&pairs);
    let thread = thread::spawn(move || shared.count(other));
    pairs.count(one);
    let meanwhile = pairs.read().collect();
    thread.join().expect("it does not panic");
    (meanwhile, pairs)
}

/// Returns the counts by tag.
///
/// # Panics
///
/// If a tag has two places.
fn by_tag(read: impl IntoIterator<Item = (u64, u64)>) -> BTreeMap<u64, u64> {
    let mut counts = BTreeMap::new();
    for (tag, count) in read {
        assert_eq!(counts.insert(tag, count), None, "{tag} has two places");
    }
    counts
}

#[test]
fn threads_that_race_for_a_place_lose_no_count_and_no_tag_has_two() {
    model(|| {
        let (_, pairs) = race(None, 2, 2);
        assert_eq!((by_tag(pairs.read()), pairs.others()), ([(2, 2)].into(), 0));
    });
    // Both are at home in the same place.
    model(|| {
        let (_, pairs) = race(None, 2, 4);
        assert_eq!((by_tag(pairs.read()), pairs.others()), ([(2, 1), (4, 1)].into(), 0));
    });
}

#[test]
fn a_tag_that_loses_the_last_place_is_counted_with_the_others() {
    model(|| {
        let (_, pairs) = race(Some(3), 2, 4);
        let counts = by_tag(pairs.read());
        assert!(counts == [(2, 1), (3, 1)].into() || counts == [(3, 1), (4, 1)].into());
        assert_eq!(pairs.others(), 1);
    });
}

#[test]
fn a_reader_among_writers_sees_no_count_that_was_not() {
    for other in [2, 4] {
        model(move || {
            let (meanwhile, pairs) = race(None, 2, other);
            let seen = by_tag(meanwhile);
            let all = by_tag(pairs.read());
            // Its own it sees always, the other's perhaps.
            assert!(seen.get(&2).is_some_and(|count| *count >= 1), "{seen:?}");
            assert!(seen.iter().all(|(tag, count)| *count <= all[tag]), "{seen:?} of {all:?}");
        });
    }
}

#[test]
fn workers_that_accept_at_once_never_exceed_the_limit() {
    for (taken, admitted) in [(0, 2), (1, 1), (2, 0)] {
        model(move || {
            let room = Arc::new(AtomicU64::new(taken));
            let shared = Arc::clone(&room);
            let thread = thread::spawn(move || pairs::take(&shared, 2));
            let here = pairs::take(&room, 2);
            let there = thread.join().expect("it does not panic");
            assert_eq!(u64::from(here) + u64::from(there), admitted);
            assert_eq!(room.load(Relaxed), taken + admitted);
        });
    }
}

/// Two requests of which each word differs.
const EXEMPLARS: [Exemplar; 2] = [
    Exemplar { id: ExemplarId::Trace(1 << 64 | 2), nanos: 3, at: Duration::from_secs(10) },
    Exemplar { id: ExemplarId::Request(5 << 64 | 6), nanos: 7, at: Duration::from_secs(20) },
];

fn offer(cell: &ExemplarCell, exemplar: Exemplar) {
    cell.offer(exemplar.nanos, exemplar.at, || Some(exemplar.id));
}

#[test]
fn an_exemplar_is_never_made_of_two() {
    model(|| {
        let cell = Arc::new(ExemplarCell::default());
        let shared = Arc::clone(&cell);
        let thread = thread::spawn(move || offer(&shared, EXEMPLARS[1]));
        offer(&cell, EXEMPLARS[0]);
        thread.join().expect("it does not panic");
        let after = cell.read().expect("one of both was kept");
        assert!(EXEMPLARS.contains(&after), "{after:?}");
    });
}

#[test]
fn a_reader_sees_a_whole_exemplar_or_none() {
    model(|| {
        let cell = Arc::new(ExemplarCell::default());
        offer(&cell, EXEMPLARS[0]);
        let shared = Arc::clone(&cell);
        let thread = thread::spawn(move || offer(&shared, EXEMPLARS[1]));
        let meanwhile = cell.read();
        thread.join().expect("it does not panic");
        assert!(meanwhile.is_none_or(|seen| EXEMPLARS.contains(&seen)), "{meanwhile:?}");
        assert_eq!(cell.read(), Some(EXEMPLARS[1]));
    });
}

/// A gate that counts.
type CountingGate = Arc<Mutex<u64>>;

/// Serves a request: locks its own gate and those of its budgets in their order, and charges all.
fn serve(own: &CountingGate, budgets: &[(u32, CountingGate)]) {
    let order = LockOrder::of(budgets.to_vec(), |(number, _)| *number);
    let mut locked = vec![own.lock().expect("no thread panics")];
    let shared = order.gates.iter().map(|(_, gate)| gate.lock().expect("no thread panics"));
    locked.extend(shared);
    for gate in &mut locked {
        **gate += 1;
    }
}

#[test]
fn routes_that_list_their_budgets_in_any_order_never_wait_for_each_other_in_a_circle() {
    let listed: [&[usize]; 5] = [&[0, 1], &[1, 0], &[2, 0, 1], &[1, 2], &[0]];
    for one in listed {
        for other in listed {
            // loom fails on a deadlock in any order of the threads.
            model(move || {
                let gates: Vec<CountingGate> = (0..3).map(|_| Arc::default()).collect();
                let budgets = |places: &[usize]| -> Vec<(u32, CountingGate)> {
                    let numbers =
                        (1..).zip(&gates).map(|(number, gate)| (number, Arc::clone(gate)));
                    let all: Vec<_> = numbers.collect();
                    places.iter().map(|place| all[*place].clone()).collect()
                };
                let routes = [CountingGate::default(), CountingGate::default()];
                let theirs = (Arc::clone(&routes[1]), budgets(other));
                let thread = thread::spawn(move || serve(&theirs.0, &theirs.1));
                serve(&routes[0], &budgets(one));
                thread.join().expect("it does not panic");

                for (place, gate) in gates.iter().enumerate() {
                    let charged = [one, other].iter().filter(|list| list.contains(&place)).count();
                    assert_eq!(*gate.lock().expect("no thread panics"), charged as u64);
                }
            });
        }
    }
}
