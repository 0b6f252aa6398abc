//! A decision takes no heap memory.

use allocation_counter::{AllocationInfo, measure};
use core::time::Duration;
use flowgate::{
    flow::{
        Algorithm, Claim, Gate, Instant, Key, Keyed, Outcome, Rate, Rule, Rules, WarmUp,
        limiter::{
            concurrency,
            fixed_window::{self, Align},
            leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket, warm_up,
        },
        pacing,
    },
    geo::{Geo, GeoFile, GeoKind, Place},
};
use std::{fs, path::Path, sync::Arc};

#[test]
fn a_decision_takes_no_heap_memory() {
    assert_eq!(of_a_thousand_requests(None, 1), 0);
}

#[test]
fn a_decision_about_known_clients_takes_no_heap_memory() {
    let keyed = Keyed { by: "client_ip".into(), max_keys: 10_000 };
    assert_eq!(of_a_thousand_requests(Some(&keyed), 5_000), 0);
}

#[test]
fn a_decision_about_clients_without_room_takes_no_heap_memory() {
    let keyed = Keyed { by: "client_ip".into(), max_keys: 100 };
    assert_eq!(of_a_thousand_requests(Some(&keyed), 5_000), 0);
}

#[test]
fn the_place_of_a_client_takes_no_heap_memory() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/geo");
    let open = |name: &str, kind| {
        let bytes = fs::read(folder.join(name)).expect("a file of the repository");
        Some(Arc::new(GeoFile::new(name.into(), bytes.into(), kind).expect("it can be used")))
    };
    let addresses = ["192.0.2.1", "203.0.113.200", "10.0.0.1", "2001:db8:de::1", "::1", "::"];
    let addresses = addresses.map(|text| text.parse().expect("an address"));
    for (country, asn) in [
        ("country.mmdb", "asn.mmdb"),
        ("city.mmdb", "asn.mmdb"),
        ("lite.mmdb", "lite.mmdb"),
        ("flat.mmdb", "flat.mmdb"),
        ("v4.mmdb", "asn.mmdb"),
    ] {
        let geo = Geo { country: open(country, GeoKind::Country), asn: open(asn, GeoKind::Asn) };
        let mut known = 0;
        let info = measure(|| {
            for address in addresses {
                known += u32::from(geo.place(address) != Place::default());
            }
        });
        assert!(known > 0, "{country} {asn}");
        assert_eq!(info.count_total, 0, "{country} {asn}");
    }
}

#[test]
fn a_sliding_log_takes_memory_only_as_it_fills() {
    let rate = Rate::new(1_000, Duration::from_secs(1)).expect("a rate");
    let algorithm = Algorithm::SlidingLog(sliding_log::Config { rate });
    let rule = Rule {
        name: "log".into(),
        algorithm,
        keyed: None,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let slot =
        gate.install(&Rules { flow: vec![rule], ..Rules::default() }, Instant::EPOCH).flow[0];
    let mut now = Instant::EPOCH;
    let mut flood = |requests| {
        let mut passed = 0;
        let info = measure(|| {
            for _ in 0..requests {
                now = now + Duration::from_micros(300);
                let claims = [Claim {
                    slot,
                    key: Key::Shared,
                    cost: 1,
                    patience: Duration::ZERO,
                    plan: None,
                }];
                passed += u64::from(gate.enter(now, &claims).is_ok());
            }
        });
        (passed, info)
    };
    drop(gate.enter(Instant::EPOCH, &[]));
    let (passed, filling) = flood(1_000);
    assert_eq!(passed, 1_000);
    // 4, 8, 16, … 512, 1000 stamps.
    assert_eq!((filling.count_total, filling.bytes_current), (9, 16 * 1_000));
    let (passed, full) = flood(100_000);
    assert!((29_000..=31_000).contains(&passed), "{passed}");
    assert_eq!(full.count_total, 0);
}

/// Every algorithm of two an hour that keeps something of a request that has ended, with
/// how many pass at once.
fn two_an_hour() -> Vec<(Algorithm, u32)> {
    let rate = Rate::new(2, Duration::from_hours(1)).expect("a rate");
    let warm_up = WarmUp { period: Duration::from_hours(1), cold_factor: 3 };
    let sliding =
        |strict| Algorithm::SlidingWindow(sliding_window::Config { rate, buckets: 10, strict });
    let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
    // One starts, one waits half an hour.
    let max_wait = Duration::from_mins(45);
    let pacing = pacing::Config { rate, max_wait, max_queue: 2, warm_up: None };
    vec![
        (Algorithm::TokenBucket(token_bucket::Config { rate, burst: 2 }), 2),
        (Algorithm::WarmUp(warm_up::Config { rate, burst: 2, warm_up }), 1),
        (Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: 2 }), 2),
        (Algorithm::SlidingLog(sliding_log::Config { rate }), 2),
        (sliding(false), 2),
        (sliding(true), 2),
        (Algorithm::SlidingCounter(sliding_counter::Config { rate }), 2),
        (fixed(Align::Clock), 2),
        (fixed(Align::FirstRequest), 2),
        (Algorithm::Pacing(pacing), 2),
    ]
}

/// Floods a rule of `max_keys` with twice as many clients, and asserts that it takes no
/// more memory than was said, and resets nobody. Each passes once, and `at_once` if alone.
fn flood_with_keys(algorithm: Algorithm, at_once: u32, max_keys: u32) {
    let keyed = Some(Keyed { by: "client_ip".into(), max_keys });
    let rule = Rule {
        name: "it".into(),
        algorithm,
        keyed,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    let most = rule.most_bytes(false);
    let word = rule.algorithm.word();
    let now = Instant::EPOCH + Duration::from_hours(500_000);
    let later = now + Duration::from_secs(1);
    let gate = Arc::new(Gate::new(now));
    let rules = Rules { flow: vec![rule], ..Rules::default() };
    let slot = gate.install(&rules, now).flow[0];
    // The gate's own statistics are no key's.
    drop(gate.enter(now, &[]));
    let AllocationInfo { bytes_max, .. } = measure(|| {
        let passes = |client: u32, at: Instant| {
            let key = u128::from(client).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835);
            let key = Key::Of(key);
            gate.enter(at, &[Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None }])
                .is_ok()
        };
        // One who uses up all, and one who comes now and then.
        let greedy = 1;
        let honest = 2;
        (0..at_once).for_each(|_| assert!(passes(greedy, now), "{word}"));
        assert!(!passes(greedy, now), "{word}");
        assert!(passes(honest, now), "{word}");
        for client in 10..10 + 2 * max_keys {
            passes(client, now + Duration::from_micros(1));
        }
        assert!(!passes(greedy, later), "{word}");
        (1..at_once).for_each(|_| assert!(passes(honest, later), "{word}"));
        assert!(!passes(honest, later), "{word}");
    });
    let keys = gate.observe(now).rules[0].keys.expect("keys");
    assert_eq!((keys.live, keys.max), (max_keys, max_keys), "{word}");
    assert!(keys.churn.evicted >= u64::from(max_keys), "{word}: {:?}", keys.churn);
    assert!(bytes_max <= most, "{word}: {bytes_max} bytes, of {most}");
    assert!(bytes_max * 4 > most * 3, "{word}: {bytes_max} bytes, of {most}");
}

#[test]
fn a_million_keys_take_no_more_memory_than_was_said_and_reset_nobody() {
    for (algorithm, at_once) in two_an_hour() {
        let is_8_bytes = matches!(algorithm, Algorithm::TokenBucket(_));
        // Of the rest, numbers that are no round ones of the table's.
        let sizes = if is_8_bytes { &[100_000][..] } else { &[1_500, 10_300] };
        for &max_keys in sizes {
            flood_with_keys(algorithm.clone(), at_once, max_keys);
        }
    }
}

/// Returns the most memory that a rule takes while `clients` come, each once.
fn bytes_of_filling(rule: Rule, clients: u32) -> u64 {
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let rules = Rules { flow: vec![rule], ..Rules::default() };
    let slot = gate.install(&rules, Instant::EPOCH).flow[0];
    // The gate's own statistics are no key's.
    drop(gate.enter(Instant::EPOCH, &[]));
    let filled = measure(|| {
        for client in 0..u128::from(clients) {
            let key = Key::Of(client.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
            let claims = [Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None }];
            drop(gate.enter(Instant::EPOCH, &claims));
        }
    });
    filled.bytes_max
}

#[test]
fn any_number_of_keys_takes_no_more_memory_than_was_said() {
    // Where room is doubled, just before and just after.
    let powers = (4..=12).flat_map(|log| [1 << log, (1 << log) + 1, 3 << (log - 1)]);
    let sizes: Vec<u32> = (1..=20).chain(powers).collect();
    for (algorithm, _) in two_an_hour() {
        for &max_keys in &sizes {
            let keyed = Some(Keyed { by: "client_ip".into(), max_keys });
            let name = "it".into();
            let algorithm = algorithm.clone();
            let rule = Rule {
                name,
                algorithm,
                keyed,
                dry_run: false,
                settles: false,
                queue: None,
                reject_for: None,
            };
            let most = rule.most_bytes(false);
            let word = rule.algorithm.word();
            let bytes = bytes_of_filling(rule, max_keys + 10);
            assert!(bytes <= most, "{word}, {max_keys} keys: {bytes} bytes, of {most}");
        }
    }
}

#[test]
fn clients_that_borrow_take_no_more_memory_than_was_said() {
    const CLIENTS: u32 = 10_000;
    let rate = Rate::new(1, Duration::from_secs(1)).expect("a rate");
    let config = sliding_window::Config { rate, buckets: 10, strict: false };
    let keyed = Some(Keyed { by: "client_ip".into(), max_keys: CLIENTS });
    let algorithm = Algorithm::SlidingWindow(config);
    let rule = Rule {
        name: "it".into(),
        algorithm,
        keyed,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    let plain = rule.most_bytes(false);
    let most = rule.most_bytes(true);
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let rules = Rules { flow: vec![rule], ..Rules::default() };
    let slot = gate.install(&rules, Instant::EPOCH).flow[0];
    // The gate's own statistics are no key's.
    drop(gate.enter(Instant::EPOCH, &[]));
    let AllocationInfo { bytes_max, .. } = measure(|| {
        for client in 0..u128::from(CLIENTS) {
            let key = Key::Of(client.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
            let claims =
                [Claim { slot, key, cost: 1, patience: Duration::from_secs(1), plan: None }];
            for start in [Instant::EPOCH, Instant::EPOCH + Duration::from_secs(1)] {
                let admission = gate.enter(Instant::EPOCH, &claims).expect("at once, and a loan");
                assert_eq!(admission.permit.start(), start);
            }
        }
    });
    // The gate remembers when each that waits will start, in room that grows by doubling.
    let bytes_max = bytes_max - 2 * 8 * u64::from(CLIENTS);
    assert!((plain + 1..=most).contains(&bytes_max), "{bytes_max} bytes, of {most}");
}

#[test]
fn an_edit_of_buckets_takes_memory_once_for_a_client() {
    let rules = |buckets| {
        let rate = Rate::new(1_000, Duration::from_secs(1)).expect("a rate");
        let algorithm =
            Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict: false });
        let keyed = Some(Keyed { by: "client_ip".into(), max_keys: 100 });
        let rule = Rule {
            name: "window".into(),
            algorithm,
            keyed,
            dry_run: false,
            settles: false,
            queue: None,
            reject_for: None,
        };
        Rules { flow: vec![rule], ..Rules::default() }
    };
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let slot = gate.install(&rules(10), Instant::EPOCH).flow[0];
    let enter = |client: u128| {
        let key = Key::Of(client.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
        drop(gate.enter(
            Instant::EPOCH,
            &[Claim { slot, key, cost: 1, patience: Duration::ZERO, plan: None }],
        ));
    };
    (0..100).for_each(enter);
    gate.install(&rules(20), Instant::EPOCH);
    // The first few were converted by the edit.
    assert_eq!(measure(|| enter(0)).count_total, 0);
    assert_eq!(measure(|| enter(99)).count_total, 1);
    assert_eq!(measure(|| enter(99)).count_total, 0);
    while gate.catch_up() {}
    assert_eq!(measure(|| enter(98)).count_total, 0);
}

/// Returns the allocations of a thousand requests, admitted, waiting, rejected,
/// finished and cancelled, of clients that have all passed before.
fn of_a_thousand_requests(keyed: Option<&Keyed>, clients: u128) -> u64 {
    let gate = Arc::new(Gate::new(Instant::EPOCH));
    let installed = gate.install(&three_rules_and_pacing(keyed), Instant::EPOCH);
    let slots: Vec<_> = installed.flow.into_iter().chain(installed.pacing).collect();
    let mut now = Instant::EPOCH;
    let mut enter = |client: u128| {
        now = now + Duration::from_micros(300);
        let key = Key::Of(client.wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835));
        let claims = [0, 1, 2, 3].map(|at| Claim {
            slot: slots[at],
            key,
            cost: 1,
            patience: Duration::ZERO,
            plan: None,
        });
        Some((now, gate.enter(now, &claims).ok()?))
    };
    // Who is rejected takes no place.
    for client in 0..clients {
        while enter(client).is_none() {}
    }
    let mut passed = 0;
    let mut waited = 0;
    let mut blocked = 0;
    let AllocationInfo { count_total, .. } = measure(|| {
        for turn in 0..1_000 {
            match enter(turn % clients) {
                None => blocked += 1,
                Some((now, admission)) => {
                    passed += 1;
                    waited += u32::from(admission.permit.start() > now);
                    if turn % 3 > 0 {
                        let at = now + Duration::from_millis(1);
                        admission.permit.finish(Outcome::Success { at });
                    }
                }
            }
        }
    });
    assert!(passed > 100 && waited > 10 && blocked > 100, "{passed} {waited} {blocked}");
    count_total
}

fn three_rules_and_pacing(keyed: Option<&Keyed>) -> Rules {
    let per_second = |count| Rate::new(count, Duration::from_secs(1)).expect("a rate");
    let algorithms = [
        Algorithm::TokenBucket(token_bucket::Config { rate: per_second(2_000), burst: 20 }),
        Algorithm::SlidingWindow(sliding_window::Config {
            rate: per_second(1_500),
            buckets: 10,
            strict: true,
        }),
        Algorithm::Concurrency(concurrency::Config { limit: 50 }),
    ];
    let rule = |algorithm: Algorithm| Rule {
        name: algorithm.word().into(),
        algorithm,
        keyed: keyed.cloned(),
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    };
    Rules {
        flow: algorithms.into_iter().map(rule).collect(),
        pacing: Some(pacing::Config {
            rate: per_second(1_700),
            max_wait: Duration::from_millis(2),
            max_queue: 100,
            warm_up: None,
        }),
        breaker: None,
    }
}
