//! Laws of peeks: they say what the next decision will be, and change none.

#![expect(clippy::result_large_err, reason = "as that of `Gate::enter`")]

use crate::{
    config,
    day::{Day, MORNING, Step, all_days, cost, key},
};
use core::time::Duration;
use flowgate::flow::{Admission, Claim, Grant, Rejection, Report, Rules};
use proptest::{collection::vec, option, prelude::*};

/// A peek: client, cost, and how far ahead in nanoseconds.
type Peek = (u8, u64, u64);

/// More clients than days have: some are new.
fn peeks() -> impl Strategy<Value = Vec<Vec<Peek>>> {
    let ahead = prop_oneof![3 => Just(0), 1 => 0..3_000_000_000_u64];
    vec(vec((0..9_u8, cost(), ahead), 0..4), 150)
}

/// Returns rules of every kind, of which some only observe, and steps for a day.
fn days() -> impl Strategy<Value = (Rules, Vec<Step>)> {
    let observes = prop::bool::weighted(0.2);
    (all_days(), vec(observes, 6)).prop_map(|((mut rules, steps), observes)| {
        for (rule, observes) in rules.flow.iter_mut().zip(&observes) {
            rule.dry_run = *observes;
        }
        if let Some(breaker) = &mut rules.breaker {
            breaker.dry_run = observes[5];
        }
        (rules, steps)
    })
}

/// What operators grant, and to whom: rule, client, cost, and for how long in nanoseconds.
type Granted = (usize, u8, u64, u64);

fn grants() -> impl Strategy<Value = Vec<Option<Granted>>> {
    let grant = (any::<usize>(), 0..9_u8, 1..20_u64, 0..3_000_000_000_u64);
    vec(option::weighted(0.1, grant), 150)
}

/// Returns whether the rule took the grant.
fn grant(day: &Day, (rule, client, count, lasts): Granted) -> bool {
    let Some(slot) = day.slots.get(rule % day.slots.len().max(1)) else { return false };
    let until = day.now + Duration::from_nanos(lasts);
    day.gate.grant(*slot, day.now, Grant { key: key(client), count, left: count, until })
}

/// Makes the tables of keyed rules so small that clients evict each other.
fn crowded(mut rules: Rules, max_keys: u32) -> Rules {
    for rule in &mut rules.flow {
        if let Some(keyed) = &mut rule.keyed {
            keyed.max_keys = max_keys;
        }
    }
    rules
}

/// What a decision says, without the breaker's transition.
fn said(decided: Result<&Admission, &Rejection>) -> Result<Report, Rejection> {
    let plain = |report: &Report| Report { transition: None, ..report.clone() };
    match decided {
        Ok(admission) => Ok(plain(&admission.report)),
        Err(it) => Err(Rejection { report: plain(&it.report), ..it.clone() }),
    }
}

fn day(rules: &Rules, patience: Duration) -> Day {
    let mut day = Day::patient(patience);
    day.install(rules);
    day
}

/// What logs and metrics show.
fn observed(day: &Day) -> String {
    format!("{:?}", day.gate.observe(day.now))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_peek_changes_a_decision(
        (rules, steps) in days(),
        (next, _) in days(),
        peeks in peeks(),
        reserved in vec(any::<bool>(), 150),
        grants in grants(),
        max_keys in 1..9_u32,
        millis in 0..2000_u64,
    ) {
        let patience = Duration::from_millis(millis);
        let rules = crowded(rules, max_keys);
        let mut other = day(&rules, patience);
        let mut day = day(&rules, patience);
        let mut waiting = Vec::new();
        let half = steps.len() / 2;
        for (at, ((step, peeks), is_reserved)) in steps.into_iter().zip(peeks).zip(reserved).enumerate() {
            for (client, cost, ahead) in peeks {
                let claims: Vec<Claim> = other.claims(client, cost);
                drop(other.gate.peek(other.now + Duration::from_nanos(ahead), &claims));
            }
            if let Some(granted) = grants[at] {
                prop_assert_eq!(grant(&day, granted), grant(&other, granted));
            }
            if at == half {
                // States that the edit left to be converted are peeked at too.
                day.install(&crowded(next.clone(), max_keys));
                other.install(&crowded(next.clone(), max_keys));
            }
            match step {
                Step::Enter { client, cost } if is_reserved => {
                    let [one, two] = [&day, &other].map(|day| day.gate.reserve(day.now, &day.claims(client, cost)));
                    match (one, two) {
                        (Ok(one), Ok(two)) => waiting.push((client, cost, one, two)),
                        (one, two) => prop_assert_eq!(one.err(), two.err()),
                    }
                }
                Step::End(_) if !waiting.is_empty() => {
                    let (client, cost, one, two) = waiting.remove(0);
                    let one = one.confirm(day.now, &[]);
                    let two = two.confirm(other.now, &[]);
                    prop_assert_eq!(day.note(client, cost, Ok(one)), other.note(client, cost, Ok(two)));
                }
                Step::Wait(_) | Step::Enter { .. } | Step::End(_) => {
                    prop_assert_eq!(day.step(step), other.step(step));
                }
            }
            prop_assert_eq!(observed(&day), observed(&other));
        }
    }

    #[test]
    fn a_peek_says_what_the_decision_will_say(
        (rules, steps) in days(),
        (next, _) in days(),
        max_keys in 1..9_u32,
        millis in 0..2000_u64,
        clients in 1..9_u8,
    ) {
        let mut day = day(&crowded(rules, max_keys), Duration::from_millis(millis));
        let half = steps.len() / 2;
        for (at, step) in steps.into_iter().enumerate() {
            if at == half {
                day.install(&crowded(next.clone(), max_keys));
            }
            let Step::Enter { client, cost } = step else {
                day.step(step);
                continue;
            };
            let client = client.wrapping_add(u8::try_from(at % 9).unwrap()) % clients;
            // A clock that was read before that of another request.
            let now = if at.is_multiple_of(7) { MORNING } else { day.now };
            let claims = day.claims(client, cost);
            let peeked = day.gate.peek(now, &claims);
            let decided = day.gate.enter(now, &claims);
            prop_assert_eq!(&peeked, &said(decided.as_ref()));
            if let (Ok(peeked), Ok(admission)) = (&peeked, &decided) {
                let start = admission.permit.start();
                prop_assert!(now == MORNING || start == now + peeked.wait());
            }
            day.note(client, cost, decided);
        }
    }
}
