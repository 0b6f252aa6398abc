//! A service that serves so many requests at once, each in the same time, and always gets more than it
//! can finish.

use super::*;

const MILLI: u64 = 1_000_000;
const WIDE: Config = Config { min: 1, max: 1_000 };

struct World {
    auto: AutoLimit,
    config: Config,
    now: u64,
    places: u64,
    /// The service time in nanoseconds.
    time: u64,
    is_failing: bool,
    /// The clients, each of which sends again when it has the response. Without a number, requests always wait.
    clients: Option<u64>,
    /// The changes so far.
    changes: Vec<LimitChange>,
}

impl World {
    fn new(config: Config, initial: Option<u32>, places: u64) -> Self {
        let auto = AutoLimit::new(config, initial);
        let changes = Vec::new();
        Self {
            auto,
            config,
            now: 0,
            places,
            time: 20 * MILLI,
            is_failing: false,
            clients: None,
            changes,
        }
    }

    /// Lets requests be served for so long. As many are in flight as the limit allows.
    fn live(&mut self, seconds: u64) -> &mut Self {
        let end = self.now + seconds * 1_000 * MILLI;
        while self.now < end {
            self.live_until_next();
        }
        self
    }

    /// Lets the next request be served.
    fn live_until_next(&mut self) {
        let level = u64::from(self.auto.level(self.config));
        let in_flight = self.clients.map_or(level, |clients| clients.min(level));
        let served = in_flight.min(self.places);
        self.now += self.time / served;
        let now = Instant::from_nanos(self.now);
        let time = Duration::from_nanos(self.time * in_flight / served);
        self.auto.set_waiting(now, self.clients.is_none_or(|clients| clients > level));
        self.auto.on_response(now, time, 1, !self.is_failing);
        let level = self.auto.level(self.config);
        self.auto.tick(self.config, now, in_flight.min(level.into()));
        self.changes.extend(self.auto.take_change());
    }

    fn limit(&self) -> u32 {
        self.auto.stats(self.config).limit
    }

    fn reasons(&self) -> Vec<ChangeReason> {
        self.changes.iter().map(|change| change.reason).collect()
    }
}

#[test]
fn it_finds_the_places_of_a_service() {
    for places in [1, 4, 8, 64, 300] {
        let mut world = World::new(WIDE, None, places);
        let limit = u64::from(world.live(20).limit());
        let most = places + places.isqrt() + 2;
        assert!((places * 3 / 4..=most).contains(&limit), "{limit} for {places}");
    }
}

#[test]
fn it_doubles_at_the_start() {
    let mut world = World::new(WIDE, None, 64);
    world.live(2);
    let starts: Vec<(u32, u32)> =
        world.changes.iter().map(|change| (change.from, change.to)).take(5).collect();
    assert_eq!(starts, [(2, 4), (4, 8), (8, 16), (16, 32), (32, 64)]);
    assert!(world.reasons()[..5].iter().all(|reason| *reason == ChangeReason::Start));
}

#[test]
fn it_follows_a_service_that_gets_more_or_fewer_places() {
    let mut world = World::new(WIDE, None, 8);
    world.live(20);
    world.places = 16;
    assert!(world.live(30).limit() >= 14, "{}", world.limit());
    assert!(world.reasons().contains(&ChangeReason::MorePays));
    world.places = 4;
    assert!(world.live(30).limit() <= 7, "{}", world.limit());
    assert!(world.reasons().contains(&ChangeReason::NobodyGains));
}

#[test]
fn a_service_that_becomes_slower_keeps_its_places() {
    let mut world = World::new(WIDE, None, 8);
    world.live(20);
    world.time *= 3;
    let limit = world.live(30).limit();
    assert!((6..=12).contains(&limit), "{limit}");
    assert!(world.reasons().contains(&ChangeReason::DiveRefuted), "{:?}", world.changes);
    let unloaded = world.auto.stats(WIDE).unloaded;
    assert!(unloaded >= Duration::from_millis(50), "{unloaded:?}");
}

#[test]
fn a_limit_far_too_high_dives_once() {
    let mut world = World::new(WIDE, None, 8);
    world.live(20);
    world.auto.set(WIDE, 64 * ONE);
    world.changes.clear();
    let limit = world.live(5).limit();
    assert!((7..=18).contains(&limit), "{limit}");
    let reasons = world.reasons();
    let dives: Vec<usize> =
        (0..reasons.len()).filter(|at| reasons[*at] == ChangeReason::Dive).collect();
    let [dive] = dives[..] else { panic!("one dive: {reasons:?}") };
    assert_eq!(reasons[dive + 1], ChangeReason::DiveKept);
}

/// If every client is inside, none waits, and only response times say that the service is too full.
#[test]
fn a_limit_above_the_number_of_clients_dives() {
    let mut world = World::new(WIDE, None, 8);
    world.live(20);
    world.clients = Some(40);
    world.auto.set(WIDE, 64 * ONE);
    world.changes.clear();
    let limit = world.live(20).limit();
    assert!((7..=18).contains(&limit), "{limit}");
    assert_eq!(world.reasons()[..2], [ChangeReason::Dive, ChangeReason::DiveKept]);
}

#[test]
fn a_slower_service_that_is_not_full_keeps_its_limit() {
    let mut world = World::new(WIDE, None, 64);
    world.live(20);
    let before = world.limit();
    world.clients = Some(20);
    world.time *= 4;
    world.changes.clear();
    world.live(60);
    assert_eq!(world.limit(), before);
    assert_eq!(world.reasons()[..2], [ChangeReason::Dive, ChangeReason::DiveRefuted]);
}

/// A hiccup of the service while a dive measures looks as if fewer places gave less throughput.
#[test]
fn a_dive_that_was_refuted_by_chance_is_repeated() {
    let mut world = World::new(WIDE, None, 8);
    world.live(20);
    world.auto.set(WIDE, 48 * ONE);
    world.changes.clear();
    while !matches!(world.auto.phase, Phase::Dive(_)) {
        world.live_until_next();
    }
    world.time *= 6;
    while matches!(world.auto.phase, Phase::Dive(_)) {
        world.live_until_next();
    }
    world.time /= 6;

    let limit = world.live(40).limit();
    assert!((7..=18).contains(&limit), "{limit}: {:?}", world.changes);
    let dives = world.reasons();
    let dives: Vec<ChangeReason> = dives.into_iter().filter(|of| is_of_a_dive(*of)).collect();
    let kept = [ChangeReason::Dive, ChangeReason::DiveKept];
    assert_eq!(dives[..2], [ChangeReason::Dive, ChangeReason::DiveRefuted]);
    assert_eq!(dives[2..], kept);
}

#[test]
fn a_check_of_a_dive_is_given_up_if_the_limit_cannot_fall() {
    let mut world = World::new(WIDE, None, 8);
    world.live(20);
    world.time *= 3;
    while !world.reasons().contains(&ChangeReason::DiveRefuted) {
        world.live_until_next();
    }
    assert!(world.auto.recheck.is_some());

    world.config = Config { min: 20, max: 20 };
    world.auto.fit(world.config);
    world.live(60);
    assert_eq!(world.auto.recheck, None);
    assert_eq!(world.limit(), 20);
}

const fn is_of_a_dive(reason: ChangeReason) -> bool {
    matches!(reason, ChangeReason::Dive | ChangeReason::DiveKept | ChangeReason::DiveRefuted)
}

#[test]
fn it_stays_within_its_bounds() {
    let mut world = World::new(Config { min: 4, max: 6 }, None, 64);
    assert_eq!(world.limit(), 4);
    assert_eq!(world.live(20).limit(), 6);
    world.places = 1;
    world.live(60);
    assert!((4..=6).contains(&world.limit()));

    world.config = Config { min: 20, max: 30 };
    world.auto.fit(world.config);
    assert_eq!(world.limit(), 20);
}

#[test]
fn it_comes_down_from_the_highest_limit() {
    let mut world = World::new(Config { min: 1, max: 16 }, Some(16), 16);
    assert_eq!(world.live(10).limit(), 16);
    world.places = 8;
    let limit = world.live(60).limit();
    assert!((6..=12).contains(&limit), "{limit}");
}

#[test]
fn it_learns_nothing_while_no_request_waits() {
    let mut world = World::new(WIDE, None, 8);
    world.live(20);
    let before = world.limit();
    let level = world.auto.level(WIDE);
    world.places = 2;
    for _ in 0..2_000 {
        world.now += 10 * MILLI;
        let now = Instant::from_nanos(world.now);
        world.auto.set_waiting(now, false);
        world.auto.on_response(now, Duration::from_millis(20), 1, true);
        world.auto.tick(WIDE, now, 2);
    }
    assert_eq!(world.limit(), before);
    assert!(world.auto.level(WIDE) >= level.min(before + 1), "the higher level holds");
}

#[test]
fn a_rejection_counts_as_a_wait_for_the_time_of_a_response() {
    let mut world = World::new(WIDE, None, 8);
    world.live(10);
    let unloaded = world.auto.unloaded;
    let waited = |world: &mut World, after: u64| {
        let now = Instant::from_nanos(world.now + after);
        world.auto.tally = Tally::new(Instant::from_nanos(world.now));
        world.auto.set_waiting(now, false);
        world.auto.tally.waited
    };
    let now = Instant::from_nanos(world.now);
    world.auto.set_waiting(now, false);
    world.auto.on_full(now);
    assert_eq!(waited(&mut world, unloaded / 2), unloaded / 2);
    world.now += unloaded / 2;
    assert_eq!(waited(&mut world, 10 * unloaded), unloaded - unloaded / 2);
}

#[test]
fn without_a_queue_it_makes_room_for_a_load_that_is_too_low_to_learn_from() {
    let mut world = World::new(WIDE, None, 8);
    for round in 0..4_000 {
        world.now += 10 * MILLI;
        let now = Instant::from_nanos(world.now);
        if round % 10 == 0 && world.limit() < 6 {
            world.auto.on_full(now);
        }
        world.auto.on_response(now, Duration::from_millis(20), 1, true);
        world.auto.tick(WIDE, now, 2);
        world.changes.extend(world.auto.take_change());
    }
    assert_eq!(world.limit(), 6);
    assert_eq!(world.reasons(), [ChangeReason::HasRoom; 4]);
}

#[test]
fn if_all_requests_fail_it_starts_anew_from_half() {
    let mut world = World::new(WIDE, None, 8);
    let before = world.live(20).limit();
    world.is_failing = true;
    world.changes.clear();
    world.live(1);
    assert!(world.reasons().contains(&ChangeReason::AllFailed), "{:?}", world.changes);
    assert!(world.limit() <= before / 2 + 1, "{}", world.limit());
    world.is_failing = false;
    assert!(world.live(20).limit() >= 6);
}

#[test]
fn another_process_goes_on_where_it_was() {
    let mut world = World::new(WIDE, None, 8);
    for step in 0..40 {
        world.live(1);
        world.places = if step % 7 < 3 { 16 } else { 5 };
        world.time = if step % 5 == 0 { 60 * MILLI } else { 20 * MILLI };
        let numbers = world.auto.export();
        let mut same = AutoLimit::import(WIDE, &numbers).expect("it is one");
        same.waits = world.auto.waits;
        assert_eq!(same, world.auto, "second {step}");
        assert_eq!(AutoLimit::import(WIDE, &numbers[1..]), None, "one is missing");
        world.auto = same;
    }
    assert!(world.reasons().contains(&ChangeReason::Dive));
}

#[test]
fn recorded_decisions_move_it() {
    let mut world = World::new(WIDE, None, 8);
    world.auto.follow(WIDE, 17);
    assert_eq!(world.live(20).auto.level(WIDE), 17);
    world.auto.follow(Config { min: 1, max: 9 }, 17);
    assert_eq!(world.auto.level(WIDE), 9);
}
