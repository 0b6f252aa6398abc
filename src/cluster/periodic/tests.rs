//! What is exchanged first, and how much at a time.

use super::*;
use crate::cluster::Page;
use crate::config;
use core::num::NonZeroUsize;

#[test]
fn a_round_trip_makes_one_call_or_as_many_as_keep_the_store_from_others_for_a_moment() {
    let sizes = |costs: &[usize]| {
        let (mut rest, mut sizes) = (costs, Vec::new());
        while !rest.is_empty() {
            let (some, more) = rest.split_at(portion(rest.iter().copied()));
            sizes.push(some.len());
            rest = more;
        }
        sizes
    };
    let most = BUDGET;
    assert_eq!(sizes(&[2 * most, 2 * most, 1, 1]), [1, 1, 2]);
    assert_eq!(sizes(&[most / 2, most / 2, 1]), [2, 1]);
    assert_eq!(sizes(&[1, most, 1]), [1, 1, 1]);
    assert_eq!(sizes(&[usize::MAX, usize::MAX]), [1, 1]);
}

#[test]
fn rules_with_one_interval_are_due_at_once_and_those_of_another_gateway_at_another_time() {
    let interval = Duration::from_millis(100);
    let at = |millis| Instant::EPOCH + Duration::from_millis(millis);
    let due = |now, part| rule::after(at(now), interval, part).since(Instant::EPOCH).as_millis();
    assert_eq!([0, 1, 49, 50, 51, 149].map(|now| due(now, 0.5)), [50, 50, 50, 150, 150, 150]);
    assert_eq!([0, 1, 99, 100, 1_234].map(|now| due(now, 0.0)), [100, 100, 100, 200, 1_300]);
    assert_eq!(due(1_234, 0.3), 1_330, "whatever has happened before");
}

/// Returns the exchange of three rules, on whose runtime nothing has run yet.
fn three_rules() -> Periodic {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    let rule = |name| format!("{{ name: {name}, limit: 5/1m, scope: cluster, sync_interval: 1s }}");
    let rules = ["a", "b", "c"].map(rule).join(", ");
    let text = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]
store: {{ redis: redis://127.0.0.1 }}
upstreams: [{{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}]
routes: [{{ name: r, match: {{ path_prefix: / }}, upstream: app, flow: [{rules}] }}]\n"
    );
    std::fs::write(&path, text).unwrap();
    let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
    let settings = plan.settings.store.as_deref().cloned().unwrap();
    let (store, clock) = (Store::new(settings, NonZeroUsize::MIN), Clock::start());
    let live = Live::start(plan, clock.now());
    Periodic::new(Arc::new(store), Arc::new(live), clock)
}

/// Returns a page of a store that tells nothing.
fn page(now: Instant) -> (RoundTrip, Page) {
    let way = RoundTrip { asked: now, given: now, came: now };
    (way, Page { now, known: 0, is_full: false, told: Vec::new() })
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_who_was_called_longest_ago_goes_first_and_alone() {
    let mut exchange = three_rules();
    exchange.look();
    let now = exchange.clock.now();
    let mut waiting = exchange.under_way(now);
    assert_eq!((waiting.len(), exchange.portion(&waiting)), (3, 3));
    // The store fails over one of them whenever it is asked: each other has its turn all the same.
    let broken = waiting[0].clone();
    let mut answered = Vec::new();
    for turn in 1..=6 {
        let now = now + turn * Duration::from_secs(1);
        let first = waiting[0].clone();
        let rule = exchange.rules.get_mut(&first).unwrap();
        rule.called = now;
        if first != broken {
            let (way, page) = page(now);
            rule.take_over(way, &page);
            answered.push(first.clone());
        }
        exchange.lose();
        waiting = exchange.under_way(now + Duration::from_secs(1));
        assert_eq!((waiting.len(), &waiting[2]), (3, &first));
        assert_eq!(exchange.portion(&waiting), 1, "it may have been too much for one round trip");
    }
    assert_eq!(answered.len(), 4);
    assert_eq!(answered[..2], answered[2..]);
}

#[tokio::test(start_paused = true)]
async fn what_the_store_refuses_is_kept_and_told_again_and_keeps_nobody_from_ending() {
    let mut exchange = three_rules();
    exchange.look();
    let now = exchange.clock.now();
    let waiting = exchange.under_way(now);
    for name in &waiting {
        let rule = exchange.rules.get_mut(name).unwrap();
        (rule.number, rule.deltas) = (7, vec!["- 1 2 3".to_owned()]);
        if *name == waiting[0] {
            rule.refuse();
        } else {
            let (way, page) = page(now);
            rule.take_over(way, &page);
        }
    }
    let refused = |exchange: &Periodic| exchange.rules[&waiting[0]].is_refused();
    assert!(refused(&exchange));
    assert!(!exchange.under_way(now).contains(&waiting[0]), "not before the next exchange");
    assert!(exchange.rules.values().any(|rule| !rule.is_refused()), "the store takes the others");
    let later = now + Duration::from_secs(1);
    assert!(exchange.under_way(later).contains(&waiting[0]));
    assert_eq!(exchange.portion(&waiting[..1]), 1);
    let rule = exchange.rules.get_mut(&waiting[0]).unwrap();
    assert_eq!((rule.number, rule.deltas.len()), (7, 1), "the same call again");
    let (way, page) = page(later);
    rule.take_over(way, &page);
    assert!(!refused(&exchange));
}

#[tokio::test(start_paused = true)]
async fn who_forgets_as_the_clock_of_the_store_steps_back_asks_for_all_again() {
    let mut exchange = three_rules();
    exchange.look();
    let rule = exchange.rules.values_mut().next().unwrap();
    let came = rule.due + Duration::from_hours(1);
    for (back, asks_again) in [(0, false), (100, false), (5_000, true), (5_000, false)] {
        let given = came - Duration::from_millis(back);
        let page = Page { now: given, known: 9, is_full: false, told: Vec::new() };
        rule.take_over(RoundTrip { asked: came, given, came }, &page);
        // What it has to tell when it first hears of the clock is told.
        (rule.source.from, rule.deltas) = (None, Vec::new());
        assert_eq!(rule.known, if asks_again { 0 } else { 9 }, "{back} ms back");
        assert!(rule.is_under_way || !asks_again, "at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_gone_is_kept_for_what_it_has_to_tell_but_not_for_ever() {
    let mut exchange = three_rules();
    exchange.look();
    for rule in exchange.rules.values_mut() {
        rule.source.has_clock = true;
        rule.leave(rule.due, &HashSet::new());
    }
    exchange.lose();
    assert_eq!(exchange.rules.len(), 3, "the store may come back");
    for rule in exchange.rules.values_mut() {
        rule.heard = rule.heard - STALE;
    }
    exchange.lose();
    assert!(exchange.rules.is_empty());
}
