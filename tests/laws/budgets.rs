//! Laws of budgets, which several routes share: gates that decide together decide as one gate with
//! all rules would, under its one lock.

use crate::{
    config,
    day::{CLIENTS, MORNING, algorithm, cost, key, rule, windows},
};
use core::time::Duration;
use flowgate::flow::{
    Admission, Algorithm, Claim, Gate, Gates, Instant, Key, Outcome, Permit, Quota, Reason,
    Rejection, Rule, Rules, SlotId, limiter::concurrency, transfer::Journal,
};
use proptest::{collection::vec, option, prelude::*};
use std::{collections::HashMap, sync::Arc, thread};

/// What happens next.
#[derive(Clone, Debug)]
enum Act {
    Wait(u64),
    Enter {
        route: usize,
        client: u8,
        cost: u64,
    },
    /// A request in two steps, of which the second follows at once.
    Reserve {
        route: usize,
        client: u8,
        cost: u64,
        is_rejected: bool,
    },
    End(usize),
    /// A budget's rule gets this algorithm.
    Edit(usize, Algorithm),
    /// Another process takes over when all requests have ended.
    Upgrade,
}

/// Budgets, and the routes that use them.
#[derive(Clone, Debug)]
struct Tree {
    budgets: Vec<Rule>,
    /// The parent of each budget: one that comes later.
    parents: Vec<Option<usize>>,
    /// The rules of each route, and the budgets that it names.
    routes: Vec<(Vec<Rule>, Vec<usize>)>,
}

impl Tree {
    /// Returns the budgets that a route's requests meet, in their order.
    fn met(&self, route: usize) -> Vec<usize> {
        let mut met = Vec::new();
        for named in &self.routes[route].1 {
            let mut next = Some(*named);
            while let Some(budget) = next {
                met.push(budget);
                next = self.parents[budget];
            }
        }
        met.sort_unstable();
        met.dedup();
        met
    }

    /// Returns the rules of all routes, then all budgets.
    fn all_rules(&self) -> Rules {
        let own = self.routes.iter().flat_map(|(rules, _)| rules.iter().cloned());
        let flow = own.chain(self.budgets.iter().cloned()).collect();
        Rules { flow, ..Rules::default() }
    }
}

fn trees(window: u64) -> impl Strategy<Value = Tree> {
    let rules = |most: usize| vec((algorithm(window), any::<bool>()), 0..=most);
    let budgets = vec((algorithm(window), any::<bool>(), option::of(1..4_usize)), 1..=5);
    let routes = vec((rules(2), vec(0..5_usize, 0..=3)), 1..=3);
    (budgets, routes).prop_map(|(budgets, routes)| {
        let count = budgets.len();
        let parent = |(at, (_, _, step)): (usize, &(Algorithm, bool, Option<usize>))| {
            step.map(|step| at + step).filter(|parent| *parent < count)
        };
        let parents = budgets.iter().enumerate().map(parent).collect();
        let budgets = budgets.into_iter().enumerate();
        let budgets = budgets.map(|(at, (algorithm, keyed, _))| rule(100 + at, algorithm, keyed));
        let mut number = 0;
        let mut own = |(algorithm, keyed)| {
            number += 1;
            rule(number, algorithm, keyed)
        };
        let routes = routes.into_iter().map(|(rules, names)| {
            let names = names.into_iter().map(|name| name % count).collect();
            (rules.into_iter().map(&mut own).collect(), names)
        });
        Tree { budgets: budgets.collect(), parents, routes: routes.collect() }
    })
}

fn acts(window: u64) -> impl Strategy<Value = Vec<Act>> {
    let request = || (0..3_usize, 0..CLIENTS, cost());
    let act = prop_oneof![
        3 => (0..=window / 8).prop_map(Act::Wait),
        1 => (window / 2..=window * 2).prop_map(Act::Wait),
        8 => request().prop_map(|(route, client, cost)| Act::Enter { route, client, cost }),
        2 => (request(), any::<bool>()).prop_map(|((route, client, cost), is_rejected)| {
            Act::Reserve { route, client, cost, is_rejected }
        }),
        3 => any::<usize>().prop_map(Act::End),
        1 => (0..5_usize, algorithm(window)).prop_map(|(at, to)| Act::Edit(at, to)),
        1 => Just(Act::Upgrade),
    ];
    vec(act, 1..120)
}

/// One gate with all rules.
struct Whole {
    gate: Arc<Gate>,
    slots: Vec<SlotId>,
}

/// A gate for each route and each budget.
struct Parts {
    routes: Vec<Arc<Gate>>,
    budgets: Vec<Arc<Gate>>,
    /// By the rule's name.
    slots: HashMap<Arc<str>, SlotId>,
}

impl Parts {
    fn new(tree: &Tree) -> Self {
        let budgets = 1..=u32::try_from(tree.budgets.len()).expect("few");
        // In another order than they decide in.
        let budgets = budgets.rev().map(|number| Arc::new(Gate::with_number(number, MORNING)));
        let routes = tree.routes.iter().map(|_| Arc::new(Gate::new(MORNING)));
        let mut parts =
            Self { routes: routes.collect(), budgets: budgets.collect(), slots: HashMap::new() };
        parts.install(tree, MORNING);
        parts
    }

    fn install(&mut self, tree: &Tree, now: Instant) {
        let own = tree.routes.iter().map(|(rules, _)| rules.clone()).zip(&self.routes);
        let shared = tree.budgets.iter().map(|rule| vec![rule.clone()]).zip(&self.budgets);
        for (flow, gate) in own.chain(shared) {
            let names: Vec<_> = flow.iter().map(|rule| Arc::clone(&rule.name)).collect();
            let installed = gate.install(&Rules { flow, ..Rules::default() }, now);
            self.slots.extend(names.into_iter().zip(installed.flow));
        }
    }

    fn gates(&self, tree: &Tree, route: usize) -> Gates {
        let met = tree.met(route);
        let budgets = met.iter().map(|budget| &self.budgets[*budget]);
        Gates::new(Arc::clone(&self.routes[route]), budgets)
    }

    /// Exports every gate into a new one.
    fn upgrade(&mut self, tree: &Tree, now: Instant) {
        let moved = |old: &Arc<Gate>| {
            let (journal, _changes) = Journal::new();
            let export = old.begin_export(journal);
            let new = match old.number() {
                0 => Gate::new(now),
                number => Gate::with_number(number, now),
            };
            let slots = new.import(&export, now);
            for (number, _) in &export.rules {
                let slot = slots.find(*number).expect("it was imported");
                let mut has_more = true;
                while has_more {
                    let mut states = Vec::new();
                    has_more = old.export(*number, &mut states);
                    for part in states {
                        assert!(new.import_part(slot, now, part));
                    }
                }
            }
            Arc::new(new)
        };
        self.routes = self.routes.iter().map(moved).collect();
        self.budgets = self.budgets.iter().map(moved).collect();
        self.install(tree, now);
    }
}

/// What was decided, in terms that both have: the start, or the reason and its rule; and what each
/// rule says.
#[derive(Debug, PartialEq)]
struct Decided {
    verdict: Result<Instant, (Arc<str>, Reason)>,
    /// By the rule's name.
    quotas: Vec<(Arc<str>, Quota)>,
}

fn decided(
    outcome: Result<Admission, Rejection>,
    names: &HashMap<SlotId, Arc<str>>,
    slot: SlotId,
    live: &mut Vec<Permit>,
) -> Decided {
    let name = |slot: SlotId| Arc::clone(&names[&slot]);
    let (verdict, report) = match outcome {
        Ok(Admission { permit, report }) => {
            let start = permit.start();
            live.push(permit);
            (Ok(start), report)
        }
        Err(rejection) => (Err((name(rejection.slot), rejection.reason)), rejection.report),
    };
    let by_rule = report.quotas.into_iter();
    let by_rule = by_rule.map(|quota| (name(quota.slot), Quota { slot, ..quota }));
    let mut quotas: Vec<_> = by_rule.collect();
    quotas.sort_by(|(one, _), (other, _)| one.cmp(other));
    Decided { verdict, quotas }
}

/// Plays the acts on one gate and on many.
struct Play {
    tree: Tree,
    whole: Whole,
    parts: Parts,
    now: Instant,
    live: [Vec<Permit>; 2],
}

impl Play {
    fn new(tree: Tree) -> Self {
        let gate = Arc::new(Gate::new(MORNING));
        let slots = gate.install(&tree.all_rules(), MORNING).flow;
        let parts = Parts::new(&tree);
        let live = [Vec::new(), Vec::new()];
        Self { whole: Whole { gate, slots }, parts, tree, now: MORNING, live }
    }

    /// Returns the names of the rules that a route's requests meet.
    fn names(&self, route: usize) -> Vec<Arc<str>> {
        let own = self.tree.routes[route].0.iter();
        let met = self.tree.met(route).into_iter().map(|budget| &self.tree.budgets[budget]);
        own.chain(met).map(|rule| Arc::clone(&rule.name)).collect()
    }

    /// Returns the slots by rule: those of the one gate, and those of the many.
    fn slots(&self) -> [HashMap<Arc<str>, SlotId>; 2] {
        let names = self.tree.all_rules().flow.into_iter().map(|rule| rule.name);
        [names.zip(self.whole.slots.iter().copied()).collect(), self.parts.slots.clone()]
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Wait(nanos) => self.now = self.now + Duration::from_nanos(nanos),
            Act::Enter { route, client, cost } => self.enter(route, client, cost, None),
            Act::Reserve { route, client, cost, is_rejected } => {
                self.enter(route, client, cost, Some(is_rejected));
            }
            Act::End(which) => {
                let at = self.now;
                for live in &mut self.live {
                    if !live.is_empty() {
                        let place = which % live.len();
                        live.swap_remove(place).finish(Outcome::Success { at });
                    }
                }
            }
            Act::Edit(at, to) => {
                let at = at % self.tree.budgets.len();
                self.tree.budgets[at].algorithm = to;
                self.whole.slots = self.whole.gate.install(&self.tree.all_rules(), self.now).flow;
                self.parts.install(&self.tree, self.now);
            }
            Act::Upgrade => {
                let at = self.now;
                let all = self.live.iter_mut().flat_map(|live| live.drain(..));
                all.for_each(|permit| _ = permit.finish(Outcome::Success { at }));
                self.parts.upgrade(&self.tree, self.now);
            }
        }
    }

    /// Has both decide about a request. `is_rejected`: a store then rejects it, or does not.
    fn enter(&mut self, route: usize, client: u8, cost: u64, is_rejected: Option<bool>) {
        let route = route % self.tree.routes.len();
        let names = self.names(route);
        let [whole, parts] = self.slots();
        // Some borrow from windows to come.
        let patience = Duration::from_millis(if client == 1 { 50 } else { 0 });
        let claims = |slots: &HashMap<Arc<str>, SlotId>| -> Vec<Claim> {
            let claim =
                |name| Claim { slot: slots[name], key: key(client), cost, patience, plan: None };
            names.iter().map(claim).collect()
        };
        let gates = [
            (Gates::from(Arc::clone(&self.whole.gate)), whole),
            (self.parts.gates(&self.tree, route), parts),
        ];

        let same = self.whole.slots[0];
        let both = gates.into_iter().zip(&mut self.live).map(|((gates, slots), live)| {
            let claims = claims(&slots);
            let peeked = gates.peek(self.now, &claims);
            let outcome = match (is_rejected, claims.first()) {
                (None, _) | (_, None) => gates.enter(self.now, &claims),
                (Some(is_rejected), Some(first)) => match gates.reserve(self.now, &claims) {
                    Ok(reservation) if is_rejected => {
                        let reason = Reason::MissingKey;
                        Err(reservation.reject(self.now, first.slot, None, reason, &[]))
                    }
                    Ok(reservation) => Ok(reservation.confirm(self.now, &[])),
                    Err(rejection) => Err(rejection),
                },
            };
            // A request in two steps borrows nothing, so it is peeked differently.
            if is_rejected.is_none() {
                let peeked = peeked.as_ref().map_err(|rejection| rejection.reason).err();
                let reason = outcome.as_ref().err().map(|rejection| rejection.reason);
                assert_eq!(peeked, reason, "what was peeked is decided");
            }
            let by_slot = names.iter().map(|name| (slots[name], Arc::clone(name))).collect();
            decided(outcome, &by_slot, same, live)
        });
        let both: Vec<_> = both.collect();
        assert_eq!(both[0], both[1], "at {:?}", self.now);
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn gates_that_decide_together_decide_as_one(
        (tree, acts) in windows().prop_flat_map(|window| (trees(window), acts(window))),
    ) {
        let mut play = Play::new(tree);
        for act in acts {
            play.act(act);
        }
        // Nothing is held for a request that has ended.
        let at = play.now;
        for live in &mut play.live {
            live.drain(..).for_each(|permit| _ = permit.finish(Outcome::Success { at }));
        }
        for budget in play.parts.budgets.iter().chain(&play.parts.routes) {
            let seen = budget.observe(at);
            prop_assert_eq!(seen.in_flight, 0);
        }
    }
}

const THREADS: usize = 8;
const ROUTES: usize = 50;

#[test]
fn threads_on_many_routes_pass_exactly_the_limit_of_their_budget() {
    let place = |limit| Rules {
        flow: vec![rule(0, Algorithm::Concurrency(concurrency::Config { limit }), false)],
        ..Rules::default()
    };
    // The first budget is every route's. The others are met in orders that differ.
    let open = |number: u32, limit| {
        let gate = Arc::new(Gate::with_number(number, MORNING));
        let slot = gate.install(&place(limit), MORNING).flow[0];
        (gate, slot)
    };
    let site = open(3, 100);
    let others: Vec<_> = [5, 1, 4, 2].map(|number| open(number, 1_000_000)).into();
    let routes: Vec<(Gates, Vec<Claim>)> = (0..ROUTES)
        .map(|route| {
            let mut met = vec![site.clone()];
            met.extend(others.iter().cycle().skip(route).take(1 + route % 4).cloned());
            met.rotate_left(route % 3);
            let claim = |slot| Claim {
                slot,
                key: Key::Shared,
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            };
            let claims = met.iter().map(|(_, slot)| claim(*slot)).collect();
            let gates: Vec<_> = met.into_iter().map(|(gate, _)| gate).collect();
            (Gates::new(Arc::new(Gate::new(MORNING)), gates.iter()), claims)
        })
        .collect();

    for _ in 0..20 {
        let passed: Vec<Permit> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let routes = &routes;
                    scope.spawn(move || {
                        let asked = (0..200).map(|at| &routes[(at * 7 + thread) % ROUTES]);
                        let enter = |(gates, claims): &(Gates, Vec<Claim>)| {
                            gates.enter(MORNING, claims).ok().map(|admission| admission.permit)
                        };
                        asked.filter_map(enter).collect::<Vec<_>>()
                    })
                })
                .collect();
            threads
                .into_iter()
                .flat_map(|thread| thread.join().expect("it does not panic"))
                .collect()
        });
        assert_eq!(passed.len(), 100);
    }
    let used = |(gate, _): &(Arc<Gate>, SlotId)| gate.observe(MORNING).rules[0].used;
    assert_eq!((used(&site), others.iter().map(used).sum::<u64>()), (0, 0), "all was given back");
}
