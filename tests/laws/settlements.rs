//! Laws of costs that are settled after the response: the gates decide as a list of all charges, excesses
//! and parts given back says, by the definitions of each algorithm.

use crate::{
    config,
    day::{CLIENTS, MORNING, key, windows},
};
use core::time::Duration;
use flowgate::flow::{
    Algorithm, Claim, Gate, Gates, ImportedSlots, Instant, Keyed, Outcome, Permit, Rate, Rule,
    Rules, SlotId,
    calendar::{Calendar, Run},
    limiter::{
        fixed_window::{self, Align},
        leaky_bucket, sliding_counter, sliding_log, sliding_window, token_bucket,
    },
    transfer::{Journal, JournalReader},
};
use proptest::{collection::vec, prelude::*};
use std::{num::NonZeroU64, sync::Arc};

/// An algorithm of a rule, with a limit that an edit may change.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Token,
    Leaky,
    Log,
    Buckets { buckets: u32, strict: bool },
    Counter,
    Clock,
    FirstRequest,
    Calendar,
}

/// A rule, and the gate that has it: 0 is the route's own, the others are budgets'.
#[derive(Clone, Copy, Debug)]
struct TestedRule {
    kind: Kind,
    limit: u64,
    gate: usize,
    is_keyed: bool,
}

#[derive(Clone, Copy, Debug)]
enum Act {
    Wait(u64),
    Enter {
        client: u8,
        reserve: u64,
    },
    /// The response to a request in flight has cost so much so far.
    Charge {
        which: usize,
        cost: u64,
    },
    /// A request in flight ends at this cost, or keeps its reserve.
    End {
        which: usize,
        cost: Option<u64>,
    },
    /// A rule that counts in windows gets another limit.
    Edit {
        rule: usize,
        limit: u64,
    },
    /// A new process takes over. Requests in flight end in the old one.
    Upgrade,
}

fn tested_rules() -> impl Strategy<Value = Vec<TestedRule>> {
    let kind = prop_oneof![
        Just(Kind::Token),
        Just(Kind::Leaky),
        Just(Kind::Log),
        (1..7_u32, any::<bool>()).prop_map(|(buckets, strict)| Kind::Buckets { buckets, strict }),
        Just(Kind::Counter),
        Just(Kind::Clock),
        Just(Kind::FirstRequest),
        Just(Kind::Calendar),
    ];
    let rule = (kind, 1..=20_u64, 0..3_usize, any::<bool>());
    let rule =
        rule.prop_map(|(kind, limit, gate, is_keyed)| TestedRule { kind, limit, gate, is_keyed });
    vec(rule, 1..=4)
}

fn acts(window: u64) -> impl Strategy<Value = Vec<Act>> {
    let end = |which, cost| Act::End { which, cost };
    let act = prop_oneof![
        4 => (0..=window / 6).prop_map(Act::Wait),
        1 => (window / 2..=window * 2).prop_map(Act::Wait),
        8 => (0..CLIENTS, 1..=6_u64).prop_map(|(client, reserve)| Act::Enter { client, reserve }),
        3 => (any::<usize>(), 1..=12_u64).prop_map(|(which, cost)| Act::Charge { which, cost }),
        4 => (any::<usize>(), 0..=9_u64).prop_map(move |(which, cost)| end(which, Some(cost))),
        1 => (any::<usize>(), 10..=90_u64).prop_map(move |(which, cost)| end(which, Some(cost))),
        1 => any::<usize>().prop_map(move |which| end(which, None)),
        1 => (any::<usize>(), 1..=20_u64).prop_map(|(rule, limit)| Act::Edit { rule, limit }),
    ];
    vec(act, 1..150)
}

/// Returns acts with at most one upgrade.
fn days() -> impl Strategy<Value = (u64, Vec<TestedRule>, Vec<Act>)> {
    windows().prop_flat_map(|window| {
        let acts = (acts(window), any::<prop::sample::Index>(), any::<bool>());
        let acts = acts.prop_map(|(mut acts, at, upgrades)| {
            if upgrades {
                acts.insert(at.index(acts.len()), Act::Upgrade);
            }
            acts
        });
        (Just(window), tested_rules(), acts)
    })
}

impl TestedRule {
    const fn is_bucket(self) -> bool {
        matches!(self.kind, Kind::Token | Kind::Leaky)
    }

    fn rule(self, at: usize, window: u64) -> Rule {
        let rate = Rate::new(self.limit, Duration::from_nanos(window)).expect("a rate");
        let fixed = |align| Algorithm::FixedWindow(fixed_window::Config { rate, align });
        let algorithm = match self.kind {
            Kind::Token => Algorithm::TokenBucket(token_bucket::Config { rate, burst: self.limit }),
            Kind::Leaky => {
                Algorithm::LeakyBucket(leaky_bucket::Config { rate, capacity: self.limit })
            }
            Kind::Log => Algorithm::SlidingLog(sliding_log::Config { rate }),
            Kind::Buckets { buckets, strict } => {
                Algorithm::SlidingWindow(sliding_window::Config { rate, buckets, strict })
            }
            Kind::Counter => Algorithm::SlidingCounter(sliding_counter::Config { rate }),
            Kind::Clock => fixed(Align::Clock),
            Kind::FirstRequest => fixed(Align::FirstRequest),
            Kind::Calendar => fixed(Align::Calendar(calendar(window))),
        };
        let keyed = self.is_keyed.then(|| Keyed { by: "client_ip".into(), max_keys: 40 });
        let name = format!("rule {at}").into();
        Rule {
            name,
            algorithm,
            keyed,
            dry_run: false,
            settles: true,
            queue: None,
            reject_for: None,
        }
    }
}

/// Returns windows of equal length from the morning on.
fn calendar(window: u64) -> Calendar {
    let runs = vec![Run { start: MORNING, count: NonZeroU64::MAX }];
    Calendar::new("equal", NonZeroU64::new(window).expect("some time"), runs)
}

/// The counts of one rule for one client, or for all: a list, from which everything is computed.
#[derive(Clone, Debug, Default)]
struct List {
    /// Charges and excesses, each with the time from which it counts, and what is left of it.
    charges: Vec<(Instant, u64)>,
    /// All changes in their order: the time, and the charged or given back cost.
    changes: Vec<(Instant, i128)>,
    /// Windows that began with a request: the beginning, and the places of their charges.
    windows: Vec<(Instant, Vec<usize>)>,
}

impl List {
    /// Charges a cost at `now`. Returns its place.
    fn charge(&mut self, now: Instant, cost: u64, window: u64) -> usize {
        let place = self.charges.len();
        self.charges.push((now, cost));
        self.changes.push((now, i128::from(cost)));

        let is_used = |list: &Self, window: &(Instant, Vec<usize>)| {
            window.1.iter().any(|place| list.charges[*place].1 > 0)
        };
        let open = self.windows.last();
        let is_open = open
            .is_some_and(|open| now < open.0 + Duration::from_nanos(window) && is_used(self, open));
        match self.windows.last_mut() {
            Some(open) if is_open => open.1.push(place),
            _ => self.windows.push((now, vec![place])),
        }
        place
    }

    fn give_back(&mut self, now: Instant, place: usize, cost: u64) {
        self.charges[place].1 -= cost;
        self.changes.push((now, -i128::from(cost)));
    }

    /// Returns what is used of charges that began at instants that `counts` says.
    fn sum(&self, counts: impl Fn(u64) -> bool) -> u64 {
        let counted = self.charges.iter().filter(|(at, _)| counts(at.as_nanos()));
        counted.map(|(_, cost)| cost).sum()
    }

    /// Returns whether a request of this cost passes at `now`.
    fn passes(&self, rule: TestedRule, window: u64, now: Instant, cost: u64) -> bool {
        let wide = u128::from(window);
        let limit = u128::from(rule.limit);
        let at = now.as_nanos();
        let used = match rule.kind {
            Kind::Token | Kind::Leaky => {
                // In parts of a nanosecond, of which one request takes `window`.
                let mut tat: i128 = 0;
                let units = |at: Instant| i128::from(at.as_nanos()) * i128::from(rule.limit);
                for (at, change) in &self.changes {
                    if *change > 0 {
                        tat = tat.max(units(*at));
                    }
                    tat += change * i128::from(window);
                }
                let missing = (tat - units(now)).max(0);
                return missing + i128::from(cost) * i128::from(window)
                    <= i128::from(rule.limit) * i128::from(window);
            }
            Kind::Log => self.sum(|charged| charged + window >= at),
            Kind::Buckets { buckets, strict } => {
                let index = |at: u64| u128::from(at) * u128::from(buckets) / wide;
                let span = u128::from(buckets) + u128::from(strict);
                self.sum(|charged| index(charged) + span > index(at))
            }
            Kind::Counter => {
                let index = at / window;
                let current = self.sum(|charged| charged / window == index);
                let last = self.sum(|charged| charged / window + 1 == index);
                let seen = u128::from(window - at % window);
                let all = u128::from(last) * seen + u128::from(current + cost) * wide;
                return all <= limit * wide;
            }
            Kind::Clock => self.sum(|charged| charged / window == at / window),
            Kind::Calendar => {
                let index = |at: u64| (at - MORNING.as_nanos()) / window;
                self.sum(|charged| index(charged) == index(at))
            }
            Kind::FirstRequest => match self.windows.last() {
                Some((began, places)) if now < *began + Duration::from_nanos(window) => {
                    places.iter().map(|place| self.charges[*place].1).sum()
                }
                Some(_) | None => 0,
            },
        };
        used + cost <= rule.limit
    }
}

/// A request in flight, and where each rule has charged it.
struct Live {
    permit: Permit,
    client: u8,
    reserve: u64,
    /// The charges, the latest last: the cost, and its places by rule.
    charges: Vec<(u64, Vec<usize>)>,
}

impl Live {
    fn charged(&self) -> u64 {
        self.charges.iter().map(|(cost, _)| cost).sum()
    }
}

struct Play {
    window: u64,
    rules: Vec<TestedRule>,
    gates: [Arc<Gate>; 3],
    slots: Vec<SlotId>,
    now: Instant,
    live: Vec<Live>,
    /// By rule and client; those of rules without a key have one for all.
    lists: Vec<Vec<List>>,
    old: Option<(JournalReader, [ImportedSlots; 3])>,
}

impl Play {
    fn new(window: u64, rules: Vec<TestedRule>) -> Self {
        let gate = |number| {
            let gate = match number {
                0 => Gate::new(MORNING),
                number => Gate::with_number(number, MORNING),
            };
            Arc::new(gate)
        };
        let lists = rules.iter().map(|_| vec![List::default(); CLIENTS.into()]).collect();
        let gates = [0, 1, 2].map(gate);
        let mut play = Self {
            window,
            rules,
            gates,
            slots: Vec::new(),
            now: MORNING,
            live: Vec::new(),
            lists,
            old: None,
        };
        play.install();
        play
    }

    fn install(&mut self) {
        let mut slots = vec![None; self.rules.len()];
        for (number, gate) in self.gates.iter().enumerate() {
            let of_gate = |(at, rule): (usize, &TestedRule)| (rule.gate == number).then_some(at);
            let places: Vec<_> = self.rules.iter().enumerate().filter_map(of_gate).collect();
            let rule = |at: &usize| self.rules[*at].rule(*at, self.window);
            let flow = places.iter().map(rule).collect();
            let installed = gate.install(&Rules { flow, ..Rules::default() }, self.now);
            for (at, slot) in places.into_iter().zip(installed.flow) {
                slots[at] = Some(slot);
            }
        }
        self.slots = slots.into_iter().map(|slot| slot.expect("in one of the gates")).collect();
    }

    fn list(&mut self, rule: usize, client: u8) -> &mut List {
        let at = if self.rules[rule].is_keyed { client } else { 0 };
        &mut self.lists[rule][usize::from(at)]
    }

    fn passes(&mut self, client: u8, now: Instant, cost: u64) -> bool {
        let window = self.window;
        (0..self.rules.len()).all(|at| {
            let rule = self.rules[at];
            self.list(at, client).passes(rule, window, now, cost)
        })
    }

    fn act(&mut self, act: Act) {
        match act {
            Act::Wait(nanos) => self.now = self.now + Duration::from_nanos(nanos),
            Act::Enter { client, reserve } => self.enter(client, reserve),
            Act::Charge { which, cost } if !self.live.is_empty() => {
                self.charge(which % self.live.len(), cost);
            }
            Act::End { which, cost } if !self.live.is_empty() => {
                let live = self.live.swap_remove(which % self.live.len());
                self.end(live, cost);
            }
            Act::Charge { .. } | Act::End { .. } => {}
            Act::Edit { rule, limit } => {
                let at = rule % self.rules.len();
                if !self.rules[at].is_bucket() {
                    self.rules[at].limit = limit;
                    self.install();
                }
            }
            Act::Upgrade => self.upgrade(),
        }
        self.follow_the_old();
    }

    fn enter(&mut self, client: u8, reserve: u64) {
        // A written reserve is at most the limit.
        let least = self.rules.iter().map(|rule| rule.limit).min().unwrap_or(1);
        let reserve = reserve.min(least);
        let claim = |slot: &SlotId| Claim {
            slot: *slot,
            key: key(client),
            cost: reserve,
            patience: Duration::ZERO,
            plan: None,
        };
        let claims: Vec<_> = self.slots.iter().map(claim).collect();
        let gates = Gates::new(Arc::clone(&self.gates[0]), self.gates[1..].iter());
        let now = self.now;
        let expected = self.passes(client, now, reserve);

        match gates.enter(now, &claims) {
            Ok(admission) => {
                assert!(expected, "it passes at {now:?}, beyond the limit");
                let window = self.window;
                let rules = 0..self.rules.len();
                let places =
                    rules.map(|at| self.list(at, client).charge(now, reserve, window)).collect();
                let charges = vec![(reserve, places)];
                self.live.push(Live { permit: admission.permit, client, reserve, charges });
            }
            Err(rejection) => {
                assert!(!expected, "it is rejected at {now:?} for {:?}", rejection.reason);
                let wait = rejection.reason.retry_after().expect("time alone decides");
                assert!(self.passes(client, now + wait, reserve), "not after {wait:?} either");
                let earlier = now + wait - Duration::from_nanos(1);
                assert!(!self.passes(client, earlier, reserve), "earlier than after {wait:?}");
            }
        }
    }

    fn charge(&mut self, which: usize, cost: u64) {
        let now = self.now;
        let window = self.window;
        let live = &mut self.live[which];
        live.permit.charge_so_far(now, |_| Some(cost));

        let client = live.client;
        let charged = live.charged();
        if cost > charged {
            let excess = cost - charged;
            let rules = 0..self.rules.len();
            let places = rules.map(|at| self.list(at, client).charge(now, excess, window));
            let places = places.collect();
            self.live[which].charges.push((excess, places));
        }
    }

    fn end(&mut self, mut live: Live, cost: Option<u64>) {
        let now = self.now;
        let charged = live.charged();
        let settled = live.permit.settle(now, |_| cost.map(Into::into));
        assert_eq!(settled.len(), cost.map_or(0, |_| self.rules.len()));
        live.permit.finish(Outcome::Success { at: now });

        let Some(cost) = cost else { return };
        let window = self.window;
        for at in 0..self.rules.len() {
            let list = self.list(at, live.client);
            if cost > charged {
                list.charge(now, cost - charged, window);
            }
            // The latest charge first.
            let mut left = charged.saturating_sub(cost);
            for (part, places) in live.charges.iter().rev() {
                let given_back = left.min(*part);
                if given_back > 0 {
                    list.give_back(now, places[at], given_back);
                }
                left -= given_back;
            }
        }
    }

    fn upgrade(&mut self) {
        let (journal, changes) = Journal::new();
        let now = self.now;
        let mut imported = Vec::new();
        self.gates = self.gates.clone().map(|old| {
            let export = old.begin_export(journal.of(old.number()));
            let new = match old.number() {
                0 => Gate::new(now),
                number => Gate::with_number(number, now),
            };
            let slots = new.import(&export, now);
            for (number, _) in &export.rules {
                let slot = slots.find(*number).expect("it was imported");
                let mut has_more = true;
                while has_more {
                    let mut parts = Vec::new();
                    has_more = old.export(*number, &mut parts);
                    assert!(parts.into_iter().all(|part| new.import_part(slot, now, part)));
                }
            }
            imported.push(slots);
            Arc::new(new)
        });
        let imported = <[_; 3]>::try_from(imported).expect("one for each gate");
        self.old = Some((changes, imported));
        self.install();
    }

    /// Applies what requests of the old process change.
    fn follow_the_old(&self) {
        let Some((changes, imported)) = &self.old else { return };
        while let Some(late) = changes.next() {
            let gate = late.gate as usize;
            let slot = imported[gate].find(late.slot).expect("it was imported");
            self.gates[gate].apply(slot, late.owner, late.change);
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn settled_costs_count_as_a_list_of_all_changes_says((window, rules, acts) in days()) {
        let mut play = Play::new(window, rules);
        for act in acts {
            play.act(act);
        }
    }

    /// The reserve is never too small, so what counts is never more than the reserves.
    #[test]
    fn with_a_reserve_that_suffices_the_bound_of_a_window_holds(
        (window, rules, acts) in days(),
    ) {
        let mut play = Play::new(window, rules);
        for act in acts {
            let act = match act {
                Act::End { which, cost: Some(cost) } if !play.live.is_empty() => {
                    let reserve = play.live[which % play.live.len()].reserve;
                    Act::End { which, cost: Some(cost.min(reserve)) }
                }
                Act::Edit { .. } | Act::Charge { .. } => continue,
                act @ (Act::Wait(_) | Act::Enter { .. } | Act::End { .. } | Act::Upgrade) => act,
            };
            play.act(act);
            for (rule, lists) in play.rules.iter().zip(&play.lists) {
                // Each of these counts at most its limit at any time.
                if matches!(rule.kind, Kind::Log | Kind::Buckets { .. } | Kind::Clock | Kind::Calendar) {
                    for list in lists {
                        prop_assert!(list.passes(*rule, window, play.now, 0));
                    }
                }
            }
        }
    }

    /// Whatever requests cost, a bucket is overdrawn by no more than they cost beyond their reserves.
    #[test]
    fn a_debt_is_at_most_what_requests_cost_beyond_their_reserves(
        (window, rules, acts) in days(),
    ) {
        let mut play = Play::new(window, rules);
        let mut excess = 0;
        for act in acts {
            if let Act::Charge { which, cost } | Act::End { which, cost: Some(cost) } = act
                && !play.live.is_empty()
            {
                let charged = play.live[which % play.live.len()].charged();
                excess += cost.saturating_sub(charged);
            }
            if matches!(act, Act::Edit { .. }) {
                continue;
            }
            play.act(act);
            for gate in &play.gates {
                for rule in gate.observe(play.now).rules {
                    prop_assert!(rule.used <= rule.limit.saturating_mul(2) + excess, "{rule:?}");
                }
            }
        }
    }
}
