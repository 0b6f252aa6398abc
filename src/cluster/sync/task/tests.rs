//! The order of syncs, and the size of each.

use super::*;
use crate::cluster::sync::{
    call::{BUDGET, SyncReply, VERSION_CHECK_COST},
    rule,
};
use crate::{
    config,
    flow::{RemoteState, StateName},
};
use core::num::NonZeroUsize;

#[test]
fn a_round_trip_asks_as_much_as_keeps_the_store_from_others_for_a_moment() {
    let sizes = |costs: &[usize]| {
        let mut lane = Lane::default();
        let mut sizes = Vec::new();
        for at in 0..costs.len() {
            lane.add(Instant::EPOCH, format!("{at:03}").into());
        }
        while !lane.is_empty() {
            let cost = |name: &Arc<str>| name.parse().ok().and_then(|at: usize| costs.get(at));
            let (taken, sum) = lane.take(|name| cost(name).map(|cost| ((), *cost)));
            assert!(sum <= BUDGET || taken.len() == 1);
            sizes.push(taken.len());
        }
        sizes
    };
    let most = BUDGET;
    assert_eq!(sizes(&[2 * most, 2 * most, 1, 1]), [1, 1, 2]);
    assert_eq!(sizes(&[most / 2, most / 2, 1]), [2, 1]);
    assert_eq!(sizes(&[1, most, 1]), [1, 1, 1]);
    assert_eq!(sizes(&[usize::MAX, usize::MAX]), [1, 1]);
    assert_eq!(sizes(&[VERSION_CHECK_COST; 250]), [100, 100, 50]);
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

/// Returns the task that syncs three rules, on whose runtime nothing has run yet.
fn three_rules() -> SyncTask {
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
    let store = Store::new(settings, NonZeroUsize::MIN);
    let clock = Clock::start();
    let live = Live::start(plan, clock.now());
    SyncTask::new(Arc::new(store), Arc::new(live), clock)
}

/// Returns an answer without states.
fn reply(now: Instant) -> (RoundTrip, SyncReply) {
    let trip = RoundTrip { asked: now, given: now, came: now };
    (trip, SyncReply { now, known: 0, is_full: false, is_set_back: false, states: Vec::new() })
}

impl SyncTask {
    /// Begins with the rules that are due.
    fn begin_at(&mut self, now: Instant) {
        self.due = now;
        self.begin_with(now, |_| None);
    }

    /// Asks what goes in the next round trip, of which no answer comes unless it is heard.
    fn ask_at(&mut self, now: Instant) -> Vec<Arc<str>> {
        let Self { lanes, rules, calls, store, .. } = self;
        let lane = lanes.entry(None).or_default();
        let (taken, _) = lane.take(|name| {
            let rule = rules.get_mut(name)?;
            rule.collect(now, calls);
            Some(rule.question(store))
        });
        let names: Vec<_> = taken.into_iter().map(|(name, _)| name).collect();
        self.round_trips += 1;
        let asked = Asked { node: None, names: names.clone(), at: now, cost: Duration::ZERO };
        self.asked.insert(self.round_trips, asked);
        names
    }

    /// Has the latest round trip answered.
    fn answer(&mut self, now: Instant, answer: impl Fn(&Arc<str>) -> SyncResult) {
        let number = self.round_trips;
        let answers = self.asked[&number].names.iter().map(answer).collect();
        assert!(self.hear(Ok(Answered { number, came: now, answers: Ok(answers) })));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_failure_the_rule_that_was_called_longest_ago_goes_first_and_alone() {
    let mut task = three_rules();
    task.look();
    let now = task.clock.now();
    task.begin_at(now);
    let all = task.ask_at(now);
    assert_eq!(all.len(), 3);
    // The store fails over one of them whenever it is asked, and over all that are asked behind it:
    // each other has its turn all the same.
    let broken = all[0].clone();
    task.lose();
    let mut answered = Vec::new();
    for turn in 1..=6 {
        let now = now + turn * Duration::from_secs(1);
        task.begin_at(now);
        let mut is_lost = false;
        while !is_lost && !task.lanes[&None].is_empty() {
            let names = task.ask_at(now);
            assert_eq!(names.len(), 1, "it may have been too much for one round trip");
            is_lost = names[0] == broken;
            if !is_lost {
                // It has sent all, so that it is not asked again at once.
                let rule = task.rules.get_mut(&names[0]).unwrap();
                rule.source.has_clock = true;
                rule.source.from = None;
                task.answer(now, |_| Ok(Some(reply(now).1)));
                answered.push(names[0].clone());
            }
        }
        // Behind it.
        while !task.lanes[&None].is_empty() {
            task.ask_at(now + Duration::from_millis(1));
        }
        task.lose();
    }
    let of = |name: &Arc<str>| answered.iter().filter(|answered| *answered == name).count();
    assert!(all.iter().all(|name| *name == broken || of(name) >= 3), "{answered:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_store_rejects_is_kept_and_sent_again_and_keeps_no_rule_from_ending() {
    let mut task = three_rules();
    task.look();
    let now = task.clock.now();
    task.begin_at(now);
    let all = task.ask_at(now);
    for name in &all {
        let rule = task.rules.get_mut(name).unwrap();
        rule.number = 7;
        rule.deltas = vec!["- 1 2 3".to_owned()];
        // As after a call that failed.
        rule.received = 9;
    }
    let first = all[0].clone();
    task.answer(
        now,
        |name| {
            if *name == first { Err(StoreError::Other) } else { Ok(Some(reply(now).1)) }
        },
    );
    let is_rejected = |task: &SyncTask| task.rules[&first].is_rejected();
    assert!(is_rejected(&task));
    assert_eq!(task.rules[&first].received, 0, "to ask again is no large question");
    assert!(!task.ask_at(now).contains(&first), "not before the next sync");
    assert!(task.rules.values().any(|rule| !rule.is_rejected()), "the store takes the others");
    let later = now + Duration::from_secs(1);
    task.begin_at(later);
    assert!(task.ask_at(later).contains(&first));
    let rule = &task.rules[&first];
    assert_eq!((rule.number, rule.deltas.len()), (7, 1), "the same call again");
    assert!(!rule.question(&task.store).0.is_version_check());
    task.answer(later, |_| Ok(Some(reply(later).1)));
    assert!(!is_rejected(&task));
}

#[tokio::test(start_paused = true)]
async fn quiet_rules_are_checked_and_called_when_there_is_something_new() {
    let mut task = three_rules();
    task.look();
    let mut now = task.clock.now();
    let mut checks = Vec::new();
    // Nothing is known; then that there is nothing; then one hears that there is something.
    for turn in 0..6 {
        now = now + Duration::from_secs(1);
        task.begin_at(now);
        while !task.lanes[&None].is_empty() {
            let names = task.ask_at(now);
            let is_version_check =
                |name: &&Arc<str>| task.rules[*name].question(&task.store).0.is_version_check();
            let quiet: Vec<_> = names.iter().filter(is_version_check).cloned().collect();
            checks.push(quiet.len());
            let (way, reply) = reply(now);
            let state = RemoteState { name: StateName::All, numbers: vec![0, 0, 1].into() };
            task.answer(way.came, |name| {
                if quiet.contains(name) {
                    return Ok((turn != 3).then(|| reply.clone()));
                }
                let states = if turn == 3 { vec![state.clone()] } else { Vec::new() };
                Ok(Some(SyncReply { states, ..reply.clone() }))
            });
        }
    }
    // Each is called with its deltas when it learns the clock, checked twice, then called and
    // answered; called once more, and checked again.
    assert_eq!(checks, [0, 3, 3, 3, 3, 0, 0, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_forgets_as_the_clock_of_the_store_steps_back_asks_for_all_again() {
    let mut task = three_rules();
    task.look();
    let rule = task.rules.values_mut().next().unwrap();
    let came = rule.due + Duration::from_hours(1);
    for (back, asks_again) in [(0, false), (100, false), (5_000, true), (5_000, false)] {
        let given = came - Duration::from_millis(back);
        let reply = SyncReply {
            now: given,
            known: 9,
            is_full: false,
            is_set_back: false,
            states: Vec::new(),
        };
        rule.take_over(RoundTrip { asked: came, given, came }, &reply);
        // It sends what it has when it learns the clock.
        rule.source.from = None;
        rule.deltas = Vec::new();
        assert_eq!(rule.known, if asks_again { 0 } else { 9 }, "{back} ms back");
        assert!(rule.is_under_way || !asks_again, "at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_that_is_gone_is_kept_for_what_it_has_to_send_but_not_for_ever() {
    let mut task = three_rules();
    task.look();
    for rule in task.rules.values_mut() {
        rule.source.has_clock = true;
        rule.leave(rule.due, &HashSet::new());
    }
    task.lose();
    assert_eq!(task.rules.len(), 3, "the store may come back");
    for rule in task.rules.values_mut() {
        rule.heard = rule.heard - STALE;
    }
    task.lose();
    assert!(task.rules.is_empty());
}
