//! Laws of decisions in two steps: what was promised still fits when it is charged, and
//! what was rejected elsewhere never was.

use crate::{
    Expected, Oracle, config,
    day::{Day, DecidedRequest, Step, cost, days, rules, windows},
};
use flowgate::flow::{Algorithm, Reason, Reservation, Rule, Rules};
use proptest::{collection::vec, prelude::*};

/// What happens next.
#[derive(Clone, Copy, Debug)]
enum Act {
    Step(Step),
    Reserve { client: u8, cost: u64 },
    Confirm(usize),
    Reject(usize),
    Abandon(usize),
}

/// A request that awaits its second step.
struct Waiting {
    reservation: Reservation,
    client: u8,
    cost: u64,
}

/// A reason that only another than the gate has.
const ELSEWHERE: Reason = Reason::MissingKey;

fn acts(window: u64) -> impl Strategy<Value = Vec<Act>> {
    let wait = prop_oneof![4 => 0..=window / 8, 1 => Just(1), 1 => window / 2..=window * 2];
    let request = || (0..3_u8, cost());
    let act = prop_oneof![
        4 => wait.prop_map(|nanos| Act::Step(Step::Wait(nanos))),
        3 => request().prop_map(|(client, cost)| Act::Step(Step::Enter { client, cost })),
        6 => request().prop_map(|(client, cost)| Act::Reserve { client, cost }),
        4 => any::<usize>().prop_map(Act::Confirm),
        1 => any::<usize>().prop_map(Act::Reject),
        1 => any::<usize>().prop_map(Act::Abandon),
        2 => any::<usize>().prop_map(|which| Act::Step(Step::End(which))),
    ];
    vec(act, 1..150)
}

fn two_step_days() -> impl Strategy<Value = (Rules, Vec<Act>)> {
    let days = windows().prop_flat_map(|window| (rules(window), acts(window)));
    // Of two that pace, one may put a start off that the other had promised.
    days.prop_filter("one that paces", |(rules, _)| {
        let is_paced = |rule: &&Rule| matches!(rule.algorithm, Algorithm::Pacing(_));
        rules.flow.iter().filter(is_paced).count() + usize::from(rules.pacing.is_some()) <= 1
    })
}

/// Takes one of those that wait.
fn take(waiting: &mut Vec<Waiting>, which: usize) -> Option<Waiting> {
    (!waiting.is_empty()).then(|| waiting.remove(which % waiting.len()))
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn what_was_reserved_fits_when_it_is_confirmed((rules, acts) in two_step_days()) {
        let mut day = Day::new(&rules);
        let mut oracle = Oracle::new(&rules);
        let mut waiting = Vec::new();
        for act in acts {
            let request = match act {
                Act::Step(step) => day.step(step),
                Act::Reserve { client, cost } => {
                    let claims = day.claims(client, cost);
                    if let Ok(reservation) = day.gate.reserve(day.now, &claims) {
                        waiting.push(Waiting { reservation, client, cost });
                    }
                    None
                }
                Act::Confirm(which) => take(&mut waiting, which).map(|waiting| {
                    let Waiting { reservation, client, cost } = waiting;
                    let expected = oracle.expect(&day, Step::Enter { client, cost });
                    let request = day.note(client, cost, Ok(reservation.confirm(day.now, &[])));
                    assert_eq!(Expected::from(Some(&request)), expected, "by the definitions");
                    request
                }),
                Act::Reject(which) => {
                    if let Some(it) = take(&mut waiting, which) {
                        it.reservation.reject(day.now, day.slots[0], None, ELSEWHERE, &[]);
                    }
                    None
                }
                Act::Abandon(which) => {
                    drop(take(&mut waiting, which));
                    None
                }
            };
            oracle.learn(&day, request.as_ref());
        }
        oracle.assert_promises();
    }

    #[test]
    fn what_is_rejected_elsewhere_leaves_no_trace(
        (rules, steps) in days(),
        rejections in vec((0..3_u8, cost(), any::<bool>()), 150),
    ) {
        let mut day = Day::new(&rules);
        let mut other = Day::new(&rules);
        for (step, (client, cost, is_rejected)) in steps.into_iter().zip(rejections) {
            // Both know what time it is: a request that is dropped ends at the latest seen.
            drop(day.gate.enter(day.now, &[]));
            let claims = other.claims(client, cost);
            match other.gate.reserve(other.now, &claims) {
                Ok(it) if is_rejected => {
                    let rejection = it.reject(other.now, other.slots[0], None, ELSEWHERE, &[]);
                    prop_assert_eq!((rejection.slot, rejection.reason), (other.slots[0], ELSEWHERE));
                }
                Ok(_) | Err(_) => {}
            }
            prop_assert_eq!(day.states(), other.states());
            let decided = |request: Option<DecidedRequest>| {
                request.map(|request| (request.decided, request.report))
            };
            prop_assert_eq!(decided(day.step(step)), decided(other.step(step)));
        }
    }

    #[test]
    fn a_reservation_that_is_confirmed_at_once_is_an_entry((rules, steps) in days()) {
        let mut day = Day::new(&rules);
        let mut other = Day::new(&rules);
        for step in steps {
            let request = match step {
                Step::Enter { client, cost } => {
                    let reserved = other.gate.reserve(other.now, &other.claims(client, cost));
                    let now = other.now;
                    Some(other.note(client, cost, reserved.map(|reservation| reservation.confirm(now, &[]))))
                }
                Step::Wait(_) | Step::End(_) => other.step(step),
            };
            prop_assert_eq!(day.step(step), request);
            prop_assert_eq!(day.states(), other.states());
        }
    }
}
