use super::*;
use crate::flow::{
    Algorithm, Change, Claim, MOST_GRANTS, Permit, Rules,
    limiter::{
        SyncedConfig, concurrency, fixed_window, leaky_bucket, sliding_counter, sliding_log,
        sliding_window, token_bucket, warm_up,
    },
    timeline::{keyed, one, paced, rate},
    transfer::Journal,
};
use proptest::{collection::vec, prelude::*};
use std::{collections::HashMap, sync::Arc};

const NOW: Instant = Instant::EPOCH;

/// Every algorithm, with `limit` in a second or at once.
fn algorithms(limit: u64) -> Vec<Algorithm> {
    let rate = rate(limit, 1000);
    let warm_up = crate::flow::WarmUp { period: Duration::from_secs(10), cold_factor: 3 };
    let align = fixed_window::Align::Clock;
    vec![
        Algorithm::TokenBucket(token_bucket::Config { rate, burst: limit }),
        Algorithm::WarmUp(warm_up::Config { rate, burst: limit, warm_up }),
        Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: limit }),
        Algorithm::SlidingLog(sliding_log::Config { rate }),
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict: false }),
        Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict: true }),
        Algorithm::SlidingCounter(sliding_counter::Config { rate }),
        Algorithm::FixedWindow(fixed_window::Config { rate, align }),
        Algorithm::Pacing(paced(rate, 500, limit).pacing.expect("pacing")),
        Algorithm::Concurrency(concurrency::Config { limit }),
    ]
}

fn bucket(limit: u64) -> Algorithm {
    algorithms(limit).swap_remove(0)
}

/// A gate with one rule, and the requests in flight.
struct Opened {
    gate: Arc<Gate>,
    slot: SlotId,
    permits: Vec<Permit>,
}

impl Opened {
    fn new(rules: &Rules) -> Self {
        let gate = Arc::new(Gate::new(NOW));
        let slot = gate.install(rules, NOW).flow[0];
        Self { gate, slot, permits: Vec::new() }
    }

    fn claim(&self, key: Key) -> Claim {
        Claim { slot: self.slot, key, cost: 1, patience: Duration::ZERO, plan: None }
    }

    fn ask(&mut self, now: Instant, key: Key) -> bool {
        let admitted = self.gate.enter(now, &[self.claim(key)]);
        let is_admitted = admitted.is_ok();
        self.permits.extend(admitted.map(|admission| admission.permit));
        is_admitted
    }

    fn passing(&mut self, now: Instant, key: Key) -> usize {
        (0..99).take_while(|_| self.ask(now, key)).count()
    }

    fn grant(&self, key: Key, count: u64, until: Instant) -> bool {
        self.gate.grant(self.slot, NOW, Grant { key, count, left: count, until })
    }

    fn fullest(&self, now: Instant, most: usize) -> Vec<KeyUsage> {
        let mut fullest = Fullest::new(most);
        let mut next = Some(u32::MAX);
        while let Some(before) = next {
            next = self.gate.find_fullest(self.slot, now, before, &mut fullest);
        }
        self.gate.usages(self.slot, now, fullest)
    }
}

fn millis(count: u64) -> Instant {
    NOW + Duration::from_millis(count)
}

/// As evenly spread as a hash.
const fn key(number: u64) -> Key {
    Key::Of(fingerprint(number))
}

const fn fingerprint(number: u64) -> u128 {
    (number as u128).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835)
}

fn kinds(algorithm: &Algorithm) -> [(Rules, Key); 2] {
    [(one(algorithm.clone()), Key::Shared), (keyed(algorithm.clone(), 9), key(7))]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A grant admits what the rule would reject, until it is spent or over, and changes nothing else.
    #[test]
    fn a_grant_is_exactly_so_much_more_and_leaves_no_trace(
        steps in vec((0..400_u64, 1..4_u64, any::<bool>()), 1..60),
        count in 0..20_u64,
        end in 0..8_000_u64,
        at in 0..10_usize,
    ) {
        for (rules, key) in kinds(&algorithms(3).swap_remove(at)) {
            let mut with = Opened::new(&rules);
            let mut without = Opened::new(&rules);
            prop_assert!(with.grant(key, count, millis(end)));
            let mut left = count;
            let mut now = 0;
            for (pause, cost, ends) in &steps {
                now += pause;
                let claim = Claim { cost: *cost, ..with.claim(key) };
                let granted = with.gate.enter(millis(now), &[claim]);
                let plain = without.gate.enter(millis(now), &[claim]);
                let is_granted = plain.is_err() && now < end && *cost <= left;
                left -= if is_granted { *cost } else { 0 };
                prop_assert_eq!(granted.is_ok(), plain.is_ok() || is_granted, "{:?}", rules);
                with.permits.extend(granted.map(|admission| admission.permit));
                without.permits.extend(plain.map(|admission| admission.permit));
                if *ends {
                    with.permits.clear();
                    without.permits.clear();
                }
            }
        }
    }

    #[test]
    fn a_key_that_was_reset_is_as_one_never_seen_and_others_stay(
        before in vec((0..300_u64, 0..3_u64), 1..40),
        after in vec((0..300_u64, 0..3_u64), 1..40),
        at in 0..9_usize,
    ) {
        let rules = keyed(algorithms(3).swap_remove(at), 9);
        let mut reset = Opened::new(&rules);
        // The same without any request of the key before.
        let mut unseen = Opened::new(&rules);
        let mut now = 0;
        for (pause, number) in before {
            now += pause;
            reset.ask(millis(now), key(number));
            if number != 1 {
                unseen.ask(millis(now), key(number));
            }
        }
        reset.gate.reset_key(reset.slot, millis(now), key(1)).expect("a rate");
        for (pause, number) in after {
            now += pause;
            let key = key(number);
            prop_assert_eq!(reset.ask(millis(now), key), unseen.ask(millis(now), key), "{:?}", rules);
        }
    }

    #[test]
    fn the_fullest_keys_are_those_with_the_most_admitted(
        requests in vec(0..400_u64, 0..900),
        most in 1..20_usize,
        at in 0..10_usize,
    ) {
        let algorithm = algorithms(5).swap_remove(at);
        let is_queue = matches!(algorithm, Algorithm::Pacing(_));
        let mut opened = Opened::new(&keyed(algorithm, 1_000));
        let mut admitted: HashMap<u128, u64> = HashMap::new();
        for number in requests {
            if opened.ask(NOW, key(number)) {
                *admitted.entry(fingerprint(number)).or_default() += 1;
            }
        }
        if is_queue {
            // The first does not wait.
            for count in admitted.values_mut() {
                *count -= 1;
            }
        }
        let found = opened.fullest(NOW, most);
        for usage in &found {
            // A cold bucket has used some already.
            prop_assert!(usage.used >= admitted[&usage.key], "{:?}", usage);
        }
        let mut expected: Vec<u64> = admitted.into_values().filter(|count| *count > 0).collect();
        expected.sort_unstable_by(|one, other| other.cmp(one));
        expected.truncate(most);
        if at == 1 {
            prop_assert!(found.len() >= expected.len());
        } else {
            let used: Vec<u64> = found.iter().map(|usage| usage.used).collect();
            prop_assert_eq!(used, expected);
        }
    }
}

#[test]
fn keys_are_converted_after_an_edit_before_they_are_compared() {
    let mut opened = Opened::new(&keyed(bucket(10), 1_000));
    for number in 0..500 {
        for _ in 0..=(number % 7) {
            opened.ask(NOW, key(number));
        }
    }
    opened.gate.install(&keyed(bucket(100), 1_000), NOW);
    let fullest = opened.fullest(NOW, 3);
    assert_eq!(fullest.iter().map(|usage| usage.used).collect::<Vec<_>>(), [70, 70, 70]);
}

#[test]
fn rejections_are_counted_by_key_also_those_of_a_dry_run() {
    for dry_run in [false, true] {
        let mut rules = keyed(bucket(1), 9);
        rules.flow[0].dry_run = dry_run;
        let mut opened = Opened::new(&rules);
        assert!(opened.gate.rejected_keys(opened.slot, NOW).is_none());
        for (number, times) in [(1, 3), (2, 5), (3, 1)] {
            for _ in 0..times {
                opened.ask(NOW, key(number));
            }
        }
        let seen = opened.gate.rejected_keys(opened.slot, NOW).expect("some");
        let keys =
            seen.keys.sorted().into_iter().map(|entry| (entry.key, entry.count, entry.error));
        let keys: Vec<_> = keys.collect();
        assert_eq!(keys, [(fingerprint(2), 4, 0), (fingerprint(1), 2, 0)]);
        assert_eq!(seen.total, 6);
    }
}

#[test]
fn a_grant_survives_edits_of_numbers_and_ends_with_its_rule() {
    let mut opened = Opened::new(&keyed(bucket(2), 9));
    assert!(opened.grant(key(1), 5, millis(60_000)));
    assert_eq!(opened.passing(NOW, key(1)), 7);
    assert!(opened.grant(key(1), 5, millis(60_000)));
    let changes = opened.gate.install(&keyed(bucket(1), 9), NOW).changes;
    assert_eq!(changes[0].1, Change::Converted);
    assert_eq!(opened.passing(NOW, key(1)), 5);
    assert!(opened.gate.grants(opened.slot, NOW).is_empty(), "it is spent");

    assert!(opened.grant(key(1), 5, millis(60_000)));
    assert_eq!(opened.gate.grants(opened.slot, NOW).len(), 1);
    assert!(opened.gate.grants(opened.slot, millis(60_000)).is_empty(), "it is over");
    opened.slot = opened.gate.install(&keyed(algorithms(1).swap_remove(3), 9), NOW).flow[0];
    assert_eq!(opened.passing(NOW, key(1)), 1, "another algorithm is another rule");
}

#[test]
fn a_rule_has_so_many_grants_and_a_keys_second_one_replaces_its_first() {
    let opened = Opened::new(&keyed(bucket(1), 9));
    for number in 0..MOST_GRANTS as u64 {
        assert!(opened.grant(key(number), 1, millis(1_000 + number)));
    }
    assert!(opened.grant(key(0), 9, millis(1_000)));
    assert!(!opened.grant(key(1_000), 1, millis(1_000)));
    let late = Grant { key: key(1_000), count: 1, left: 1, until: millis(9_000) };
    assert!(opened.gate.grant(opened.slot, millis(1_000), late), "the first is over");
}

#[test]
fn a_reservation_that_is_dropped_gives_its_grant_back() {
    let mut opened = Opened::new(&one(bucket(1)));
    assert_eq!(opened.passing(NOW, Key::Shared), 1);
    assert!(opened.grant(Key::Shared, 1, millis(1)));
    let claims = [opened.claim(Key::Shared)];
    let reservation = opened.gate.reserve(NOW, &claims).expect("granted");
    assert!(opened.gate.reserve(NOW, &claims).is_err(), "it is spent");
    drop(reservation);
    let reservation = opened.gate.reserve(NOW, &claims).expect("granted again");
    let admission = reservation.confirm(NOW, &[]);
    assert_eq!(admission.report.quotas[0].used, 1, "not counted");
    assert!(opened.gate.enter(NOW, &claims).is_err(), "it is spent");
}

#[test]
fn what_cannot_be_reset_says_why() {
    let mut opened = Opened::new(&keyed(algorithms(1).swap_remove(9), 9));
    opened.ask(NOW, key(1));
    assert_eq!(opened.gate.reset_key(opened.slot, NOW, key(1)), Err(NotReset::InFlight));
    assert_eq!(opened.gate.reset_all(opened.slot), Err(NotReset::InFlight));
    let synced = Algorithm::Synced(SyncedConfig::new(bucket(1), 1).expect("one that syncs"));
    let mut opened = Opened::new(&keyed(synced, 9));
    opened.ask(NOW, key(1));
    assert_eq!(opened.gate.reset_all(opened.slot), Err(NotReset::Synced));
    assert_eq!(opened.gate.reset_key(opened.slot, NOW, key(1)), Ok(true));
    let mut opened = Opened::new(&keyed(bucket(1), 9));
    opened.ask(NOW, key(1));
    let (journal, _changes) = Journal::new();
    opened.gate.begin_export(journal);
    assert_eq!(opened.gate.reset_key(opened.slot, NOW, key(1)), Err(NotReset::HandingOver));
    opened.gate.end_export();
    assert_eq!(opened.gate.reset_key(opened.slot, NOW, key(2)), Ok(false), "it has used nothing");
    assert_eq!(opened.gate.reset_key(opened.slot, NOW, key(1)), Ok(true));
}

#[test]
fn a_reset_of_all_keeps_the_counts() {
    for (rules, key) in kinds(&bucket(2)) {
        let mut opened = Opened::new(&rules);
        assert_eq!(opened.passing(NOW, key), 2);
        opened.gate.reset_all(opened.slot).expect("a rate");
        assert_eq!(opened.passing(NOW, key), 2);
        let seen = &opened.gate.observe(NOW).rules[0];
        assert_eq!((seen.counts.passed, seen.counts.rejected.total()), (4, 2));
    }
}

#[test]
fn an_evicted_key_that_is_reset_does_not_remember() {
    let mut opened = Opened::new(&keyed(bucket(2), 2));
    for number in 1..9 {
        assert_eq!(opened.passing(NOW, key(number)), 2);
    }
    for number in 1..9 {
        assert_eq!(opened.passing(NOW, key(number)), 0, "{number} is remembered");
    }
    assert_eq!(opened.gate.reset_key(opened.slot, NOW, key(1)), Ok(true));
    assert_eq!(opened.passing(NOW, key(1)), 2);
}
