//! The one way in which tests beside the code drive it: a timeline in text.
//!
//! ```text
//! 0            pass            at 0 ms a request passes
//! 0.5 x3       block rate 9.5  three are rejected; 9.5 ms later one would pass
//! 1 key=a      wait 20         the client `a` may start 20 ms later
//! 2 cost=4     block costly 3
//! 2 prio=500   wait 98         one with priority borrows, and would wait 500 ms
//! 3 done       7               the oldest in flight ends cancelled, 7 are left
//! 3 ok         6               the oldest ends well
//! 3 fail       5               the oldest ends badly
//! 3 left       4               the client of the oldest leaves
//! 3 settle=58  3               the oldest ends well, and has cost 58 in the end
//! 3 charge=40  3               the response of the oldest has cost 40 so far
//! ```

use super::{
    Algorithm, Change, Claim, Gate, Instant, Key, Keyed, Outcome, Permit, Rate, Reason, Rule,
    Rules, SlotId, limiter::pacing,
};
use core::time::Duration;
use std::{collections::VecDeque, sync::Arc};

/// A gate whose day is being played.
pub(super) struct Timeline {
    pub(super) gate: Arc<Gate>,
    slots: Vec<SlotId>,
    now: Instant,
    live: VecDeque<Permit>,
}

/// Plays `timeline` on a new gate with `rules`.
#[track_caller]
pub(super) fn check(rules: &Rules, timeline: &str) {
    Timeline::new(rules).check(timeline);
}

impl Timeline {
    pub(super) fn new(rules: &Rules) -> Self {
        let gate = Arc::new(Gate::new(Instant::EPOCH));
        let mut it = Self { gate, slots: Vec::new(), now: Instant::EPOCH, live: VecDeque::new() };
        it.install(rules);
        it
    }

    /// Puts `rules` in force, and asserts what became of each.
    #[track_caller]
    pub(super) fn edit(mut self, rules: &Rules, expected: &[Change]) -> Self {
        assert_eq!(self.install(rules), expected);
        self
    }

    fn install(&mut self, rules: &Rules) -> Vec<Change> {
        let installed = self.gate.install(rules, self.now);
        self.slots =
            installed.flow.into_iter().chain(installed.breaker).chain(installed.pacing).collect();
        installed.changes.into_iter().map(|(_, change)| change).collect()
    }

    #[track_caller]
    pub(super) fn check(mut self, timeline: &str) -> Self {
        for line in timeline.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (at, words) = line.split_once(' ').expect("two columns");
            self.now = Instant::EPOCH + millis(at);
            let (options, expected): (Vec<&str>, Vec<&str>) =
                words.split_whitespace().partition(|word| is_option(word));
            for _ in 0..option(&options, "x").unwrap_or(1) {
                let word = END_WORDS.iter().find(|word| options.contains(word));
                let decided = match (word, option(&options, "settle=")) {
                    (_, Some(cost)) => self.settle(cost),
                    (Some(word), None) => self.end(word),
                    (None, None) => match option(&options, "charge=") {
                        Some(cost) => self.charge(cost),
                        None => self.enter(&options),
                    },
                };
                assert_eq!(decided, expected.join(" "), "in the line `{line}`");
            }
        }
        self
    }

    /// Ends the oldest in flight.
    fn end(&mut self, word: &str) -> String {
        let at = self.now;
        if let Some(permit) = self.live.pop_front() {
            match word {
                "ok" => _ = permit.finish(Outcome::Success { at }),
                "fail" => _ = permit.finish(Outcome::Failure { at }),
                "left" => permit.leave(at),
                _ => drop(permit),
            }
        }
        self.gate.observe(at).in_flight.to_string()
    }

    /// Charges what the oldest in flight has cost so far in every rule.
    fn charge(&mut self, cost: u64) -> String {
        if let Some(permit) = self.live.front_mut() {
            permit.charge_so_far(self.now, |_| Some(cost));
        }
        self.live.len().to_string()
    }

    /// Settles the cost of the oldest in flight in every rule, and ends it.
    fn settle(&mut self, cost: u64) -> String {
        if let Some(permit) = self.live.front_mut() {
            permit.settle(self.now, |_| Some(cost.into()));
        }
        self.end("ok")
    }

    fn enter(&mut self, options: &[&str]) -> String {
        let key = match option(options, "key=") {
            None => Key::Shared,
            Some(0) => Key::Missing,
            // As evenly spread as a hash.
            Some(key) => {
                Key::Of(u128::from(key).wrapping_mul(0x9E37_79B9_7F4A_7C15_F39C_C060_5CED_C835))
            }
        };
        let cost = option(options, "cost=").unwrap_or(1);
        let patience = Duration::from_millis(option(options, "prio=").unwrap_or(0));
        let claims: Vec<Claim> = self
            .slots
            .iter()
            .map(|&slot| Claim { slot, key, cost, patience, plan: None })
            .collect();
        match self.gate.enter(self.now, &claims) {
            Ok(admission) => {
                let wait = admission.permit.start().since(self.now);
                self.live.push_back(admission.permit);
                if wait.is_zero() { "pass".into() } else { format!("wait {}", text(wait)) }
            }
            Err(rejection) => format!("block {}", reason(rejection.reason)),
        }
    }
}

/// Returns rules of one flow rule, `it`.
pub(super) fn one(algorithm: Algorithm) -> Rules {
    Rules { flow: vec![rule("it", algorithm)], ..Rules::default() }
}

/// Returns rules of one flow rule with a state for each of `max_keys` clients.
pub(super) fn keyed(algorithm: Algorithm, max_keys: u32) -> Rules {
    let keyed = Some(Keyed { by: "client_ip".into(), max_keys });
    Rules { flow: vec![Rule { keyed, ..rule("it", algorithm) }], ..Rules::default() }
}

/// Returns a flow rule.
pub(super) fn rule(name: &str, algorithm: Algorithm) -> Rule {
    Rule {
        name: name.into(),
        algorithm,
        keyed: None,
        dry_run: false,
        settles: false,
        queue: None,
        reject_for: None,
    }
}

/// Returns rules of one flow rule whose cost is settled.
pub(super) fn settled(algorithm: Algorithm) -> Rules {
    Rules { flow: vec![Rule { settles: true, ..rule("it", algorithm) }], ..Rules::default() }
}

/// Returns rules that only pace.
pub(super) fn paced(rate: Rate, max_wait: u64, max_queue: u64) -> Rules {
    let max_wait = Duration::from_millis(max_wait);
    let pacing = Some(pacing::Config { rate, max_wait, max_queue, warm_up: None });
    Rules { pacing, ..Rules::default() }
}

/// Returns `count` per `window` milliseconds.
pub(super) fn rate(count: u64, window: u64) -> Rate {
    Rate::new(count, Duration::from_millis(window)).expect("a rate")
}

/// The ends of a request.
const END_WORDS: [&str; 4] = ["done", "ok", "fail", "left"];

fn is_option(word: &str) -> bool {
    END_WORDS.contains(&word) || word.starts_with('x') || word.contains('=')
}

fn option(options: &[&str], name: &str) -> Option<u64> {
    let value = options.iter().find_map(|word| word.strip_prefix(name))?;
    // A key may be a letter: a is 10.
    Some(u64::from_str_radix(value, if name == "key=" { 36 } else { 10 }).expect("a number"))
}

fn reason(reason: Reason) -> String {
    match reason {
        Reason::Rate { retry_after } => format!("rate {}", text(retry_after)),
        Reason::TooCostly { limit, .. } => format!("costly {limit}"),
        Reason::Concurrency { limit } => format!("concurrency {limit}"),
        Reason::QueueFull { retry_after } => format!("full {}", text(retry_after)),
        Reason::QueueWait { wait, retry_after } => {
            format!("queue {} {}", text(wait), text(retry_after))
        }
        Reason::NoRoomToWait { retry_after } => format!("no room {}", text(retry_after)),
        Reason::WaitedTooLong { retry_after } => format!("late {}", text(retry_after)),
        Reason::Banned { retry_after } => format!("banned {}", text(retry_after)),
        Reason::Closed => "closed".into(),
        Reason::MissingKey => "key".into(),
        Reason::DuplicateKey => "duplicate key".into(),
        Reason::Undecided { retry_after } => format!("undecided {}", text(retry_after)),
        Reason::BreakerOpen { retry_after: Some(retry_after) } => {
            format!("open {}", text(retry_after))
        }
        Reason::BreakerOpen { retry_after: None } => "probing".into(),
    }
}

fn millis(text: &str) -> Duration {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let nanos = format!("{whole}{part:0<6}");
    Duration::from_nanos(nanos.parse().expect("milliseconds"))
}

fn text(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    let text = format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').into()
}
