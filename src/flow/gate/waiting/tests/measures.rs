//! The measures of fairness, in virtual time: a service with 8 places, whose requests take 20 ms each.

use super::{Permit, Sharer, World, places, rules};
use crate::flow::{Instant, Key, Outcome, Rule, limiter::concurrency::QueueConfig};
use core::{
    cmp::Reverse,
    num::{NonZeroU8, NonZeroU32},
    task::{Poll, Waker},
    time::Duration,
};
use std::{
    collections::{BTreeSet, BinaryHeap},
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    task::Wake,
};

const PLACES: u64 = 8;
const SERVICE: u64 = 20 * MILLI;
const MILLI: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MILLI;

/// A request that arrives.
#[derive(Clone, Copy)]
struct Arriving {
    at: u64,
    key: u64,
    class: u8,
}

/// A request and what became of it.
struct Done {
    arrival: Arriving,
    /// `None`: it was rejected.
    start: Option<u64>,
}

/// Sends the number of its request when that is woken.
struct Alarm(usize, Sender<usize>);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.1.send(self.0).expect("the run goes on");
    }
}

/// A run of the gate.
struct Run {
    world: World,
    arrivals: Vec<Arriving>,
    permits: Vec<Option<Permit>>,
    starts: Vec<Option<u64>>,
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    deadlines: BTreeSet<(u64, usize)>,
    /// The numbers of requests that were woken.
    woken: Receiver<usize>,
    wakes: Sender<usize>,
    /// Places times nanoseconds, in use and in all, while requests waited.
    busy: (u64, u64),
}

fn instant(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

impl Run {
    fn poll(&mut self, at: u64, number: usize) {
        let Some(mut permit) = self.permits[number].take() else { return };
        let waker = Waker::from(Arc::new(Alarm(number, self.wakes.clone())));
        match permit.poll_start(instant(at), &waker) {
            Poll::Pending => {
                let until = permit.waits_until().expect("it waits").as_nanos();
                self.deadlines.insert((until, number));
                self.permits[number] = Some(permit);
            }
            Poll::Ready(Ok(_)) => self.begin(at, number, permit),
            Poll::Ready(Err(_)) => {}
        }
    }

    fn begin(&mut self, at: u64, number: usize, permit: Permit) {
        self.starts[number] = Some(at);
        self.ends.push(Reverse((at + SERVICE, number)));
        self.permits[number] = Some(permit);
    }

    fn arrive(&mut self, number: usize) {
        let Arriving { at, key, class } = self.arrivals[number];
        let claims = self.world.claims(Key::Shared, 1);
        let Ok(admission) = self.world.gates.enter(instant(at), &claims) else { return };
        let mut permit = admission.permit;
        if !permit.is_waiting() {
            return self.begin(at, number, permit);
        }
        let sharer = Sharer { key, weight: NonZeroU32::MIN, class };
        permit.share(vec![(self.world.slots[0], sharer)]);
        self.permits[number] = Some(permit);
        self.poll(at, number);
    }

    fn end(&mut self, at: u64, number: usize) {
        if let Some(permit) = self.permits[number].take() {
            permit.finish(Outcome::Success { at: instant(at) });
        }
    }

    fn wake(&mut self, at: u64) {
        while let Ok(number) = self.woken.try_recv() {
            self.poll(at, number);
        }
    }

    /// Plays all arrivals.
    fn play(mut self) -> (Vec<Done>, u64) {
        let mut next = 0;
        let mut last = 0;
        loop {
            let arrival = self.arrivals.get(next).map_or(u64::MAX, |arrival| arrival.at);
            let end = self.ends.peek().map_or(u64::MAX, |Reverse((at, _))| *at);
            let deadline = self.deadlines.first().map_or(u64::MAX, |(at, _)| *at);
            let now = arrival.min(end).min(deadline);
            if now == u64::MAX {
                break;
            }

            let seen = self.world.gate().observe(instant(last));
            if seen.waiting > 0 {
                self.busy.0 += seen.rules[0].used * (now - last);
                self.busy.1 += PLACES * (now - last);
            }
            last = now;

            if end == now {
                if let Some(Reverse((at, number))) = self.ends.pop() {
                    self.end(at, number);
                }
            } else if deadline == now {
                if let Some((at, number)) = self.deadlines.pop_first()
                    && self.starts[number].is_none()
                {
                    self.poll(at, number);
                }
            } else {
                self.arrive(next);
                next += 1;
            }
            self.wake(now);
        }

        let busy = self.busy.0 * 1_000 / self.busy.1.max(1);
        let done = self.arrivals.into_iter().zip(self.starts);
        (done.map(|(arrival, start)| Done { arrival, start }).collect(), busy)
    }
}

/// Plays arrivals on a gate with a queue. Returns what became of them, and the busy share of the places
/// while requests waited, in thousandths.
fn play(queue: QueueConfig, mut arrivals: Vec<Arriving>) -> (Vec<Done>, u64) {
    arrivals.sort_by_key(|arrival| arrival.at);
    let rule = Rule { queue: Some(Box::new(queue)), ..places("it", PLACES, 1, 1) };
    let count = arrivals.len();
    let (wakes, woken) = channel();
    let run = Run {
        world: World::new(&rules([rule])),
        arrivals,
        permits: (0..count).map(|_| None).collect(),
        starts: vec![None; count],
        ends: BinaryHeap::new(),
        deadlines: BTreeSet::new(),
        woken,
        wakes,
        busy: (0, 0),
    };
    run.play()
}

/// Returns the arrivals of a client that sends at `rate` per second, from and to these seconds.
fn steady(key: u64, class: u8, rate: u64, from: u64, to: u64) -> Vec<Arriving> {
    let each = SECOND / rate;
    let first = from * SECOND + key * 977 * 1_000;
    (0..(to - from) * rate).map(|nth| Arriving { at: first + nth * each, key, class }).collect()
}

fn fair(max_wait: u64) -> QueueConfig {
    QueueConfig { shares: true, ..QueueConfig::new(Duration::from_millis(max_wait), 100_000) }
}

/// Returns a queue with room for all, and one that is always full.
fn rooms(queue: &QueueConfig) -> [QueueConfig; 2] {
    [100_000, 100].map(|max| QueueConfig { max, ..queue.clone() })
}

#[test]
fn equal_tenants_start_equally_often_over_any_stretch_of_backlog() {
    for queue in rooms(&fair(60_000)) {
        equal_tenants(queue);
    }
}

fn equal_tenants(queue: QueueConfig) {
    let tenants = 10_u64;
    // In all three times as many as the service can bear.
    let arrivals = (0..tenants).flat_map(|key| steady(key, 0, 80 + 20 * key, 0, 6)).collect();
    let (done, busy) = play(queue, arrivals);
    assert!(busy >= 990, "{busy} of a thousand");

    let mut starts: Vec<(u64, u64)> =
        done.iter().filter_map(|done| Some((done.start?, done.arrival.key))).collect();
    starts.sort_unstable();
    let backlog: Vec<u64> = starts
        .iter()
        .filter(|(at, _)| (SECOND..5 * SECOND).contains(at))
        .map(|(_, key)| *key)
        .collect();
    assert!(backlog.len() > 1_500, "{}", backlog.len());
    for stretch in backlog.chunks_exact(500) {
        let counts: Vec<usize> =
            (0..tenants).map(|key| stretch.iter().filter(|of| **of == key).count()).collect();
        let sum: usize = counts.iter().sum();
        let squares: usize = counts.iter().map(|count| count * count).sum();
        let jain = sum * sum * 1_000 / (counts.len() * squares);
        assert!(jain >= 990, "{jain} of a thousand, of {counts:?}");
    }
}

#[test]
fn a_flood_does_not_delay_a_tenant_with_few_requests_and_does_not_take_its_room() {
    for queue in rooms(&fair(60_000)) {
        let flood = steady(1, 0, 1_000, 0, 20);
        let calm = steady(2, 0, 1, 1, 20);
        let (done, _) = play(queue, flood.into_iter().chain(calm).collect());
        let waits = done.iter().filter(|done| done.arrival.key == 2);
        let waits: Vec<u64> =
            waits.map(|done| done.start.expect("it started") - done.arrival.at).collect();
        let longest = waits.iter().max().expect("some");
        assert!(*longest <= SERVICE, "{longest} ns, with one other tenant that waits");
    }
}

#[test]
fn a_twelvefold_spike_of_the_last_class_leaves_the_first_alone() {
    let classes = NonZeroU8::new(2).expect("two");
    for queue in rooms(&QueueConfig { classes, floor: 500, ..fair(500) }) {
        // The service bears 400/s. The first class needs half of it.
        let first = steady(1, 0, 200, 0, 20);
        let spike = steady(2, 1, 100, 0, 5)
            .into_iter()
            .chain(steady(2, 1, 1_200, 5, 15))
            .chain(steady(2, 1, 100, 15, 20));
        let (done, _) = play(queue, first.into_iter().chain(spike).collect());
        let of_class = |class| done.iter().filter(move |done| done.arrival.class == class);
        let answered = of_class(0).filter(|done| done.start.is_some()).count();
        assert!(answered * 1_000 >= 999 * of_class(0).count(), "{answered}");
        let rejected = of_class(1).filter(|done| done.start.is_none()).count();
        assert!(rejected > 5_000, "the spike is more than the service can bear: {rejected}");
    }
}

#[test]
fn the_last_class_gets_its_floor_while_the_first_is_too_much() {
    let classes = NonZeroU8::new(2).expect("two");
    for queue in rooms(&QueueConfig { classes, floor: 500, ..fair(500) }) {
        let first = steady(1, 0, 1_000, 0, 10);
        let last = steady(2, 1, 1_000, 0, 10);
        let (done, _) = play(queue, first.into_iter().chain(last).collect());
        let started = |class| {
            let of_class = done.iter().filter(|done| done.arrival.class == class);
            of_class.filter(|done| done.start.is_some_and(|at| at > SECOND)).count()
        };
        let share = started(1) * 1_000 / (started(0) + started(1));
        assert!((49..=54).contains(&share), "{share} of a thousand");
    }
}

#[test]
fn late_requests_do_not_make_all_late_if_the_newest_starts_first() {
    let flood = || steady(1, 0, 600, 0, 20);
    let waits = |queue| {
        let (done, _) = play(queue, flood());
        let late = done.iter().filter(|done| done.arrival.at > 5 * SECOND);
        let mut waits: Vec<u64> =
            late.filter_map(|done| Some(done.start? - done.arrival.at)).collect();
        waits.sort_unstable();
        waits[waits.len() / 2]
    };
    let fair_wait = waits(fair(1_000));
    let newest = waits(QueueConfig { newest_when_late: true, ..fair(1_000) });
    assert!(fair_wait > 900 * MILLI, "in order, all wait as long as they may: {fair_wait}");
    assert!(newest < 100 * MILLI, "the newest first, most wait for a moment: {newest}");
}
