//! The call to the store about the states of one rule, and its answer.

use crate::{
    cluster::{error::StoreError, scripts::Lua},
    flow::{Delta, Instant, RemoteState, Stored},
};
use core::time::Duration;
use redis::{Cmd, FromRedisValue, Value, cmd};
use std::fmt::Write as _;

/// The most states in an answer.
pub const MOST_STATES: usize = 48;

/// The store's time for the calls of one round trip, in microseconds of [`Push::cost`], unless it
/// is one call: meanwhile the store decides about no request.
pub(super) const BUDGET: usize = 400;

/// The cost of a version check, in the same unit: it took 1 to 2 µs among a hundred.
pub(super) const VERSION_CHECK_COST: usize = 4;

/// A question about one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Merges deltas and returns new states, [by the script](Push).
    Push { keys: [String; 3], arguments: Vec<String> },
    /// Asks for the latest version only: it costs next to nothing for a rule without requests.
    VersionCheck { changed: String, known: u64 },
}

/// A call of the script.
#[derive(Clone, Copy, Debug)]
pub struct Push<'a> {
    /// The rule's name in the store, with the hash tag of its route.
    pub name: &'a str,
    /// The rule itself.
    pub rule: &'a Stored,
    /// The gateway's name, which no other has.
    pub gateway: &'a str,
    /// Grows with each of the gateway's calls with deltas. A repeated call has the same number and
    /// the same deltas, and is merged once. 0 for a [reset](Self::reset).
    pub number: u64,
    /// The latest version of a state that the gateway knows.
    pub known: u64,
    /// The latest arrival at which a delta still counts exactly: the store remembers a drained
    /// bucket for so long. A later delta may count for less.
    pub late: Duration,
    /// The most states in the answer, [`MOST_STATES`] at most.
    pub most: usize,
    /// The charges of the gateway, [in the form of the script](line()); [`most_deltas`] at most.
    pub deltas: &'a [String],
}

/// Returns the most deltas in a call about a rule: as many as the store merges in 0.4 ms, or one.
pub fn most_deltas(rule: &Stored) -> usize {
    (BUDGET / merging(rule)).max(1)
}

/// Returns what it takes the store to merge one state: to read, add and write its numbers.
fn merging(rule: &Stored) -> usize {
    rule.max_sync_numbers().saturating_mul(2).saturating_add(20)
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReply {
    /// The time of the answer, by the store's clock.
    pub now: Instant,
    /// The latest version in this answer.
    pub known: u64,
    /// True if more states have changed.
    pub is_full: bool,
    /// True if its clock was set back by more than a window, so that it has dropped the states.
    pub is_set_back: bool,
    /// The states that have changed since the version that the gateway knew.
    pub states: Vec<RemoteState>,
}

impl<'a> Push<'a> {
    /// Returns the call that resets these states, by their [names](crate::flow::StateName). Gateways
    /// learn it like any other change. Only what they have charged since their last sync counts
    /// from then on.
    pub const fn reset(
        name: &'a str,
        rule: &'a Stored,
        late: Duration,
        states: &'a [String],
    ) -> Self {
        Self { name, rule, gateway: "", number: 0, known: 0, late, most: 0, deltas: states }
    }
}

impl Push<'_> {
    /// Returns what the call takes of the store at most, in microseconds of a redis-server 7.0 on
    /// an AMD EPYC core: measured for each algorithm, as `docs/cluster-sync.md` says.
    pub(super) fn cost(&self) -> usize {
        let merged = self.deltas.len().saturating_mul(merging(self.rule));
        merged.saturating_add(60 + 6 * self.most)
    }

    /// Returns where the store keeps what the call is about.
    pub(in crate::cluster) fn keys(&self, prefix: &str) -> [String; 3] {
        let Self { name, gateway, .. } = self;
        [
            format!("{prefix}{name}"),
            format!("{prefix}{name}:changed"),
            format!("{prefix}{name}:from:{gateway}"),
        ]
    }

    /// Returns the question with all deltas.
    pub(super) fn question(&self, prefix: &str) -> Question {
        Question::Push { keys: self.keys(prefix), arguments: self.arguments("").collect() }
    }

    /// Returns a version check of the same rule.
    pub(super) fn version_check(&self, prefix: &str) -> Question {
        let [_, changed, _] = self.keys(prefix);
        Question::VersionCheck { changed, known: self.known }
    }

    /// Returns what the script takes beside, at `time` if it is not the store's.
    pub(in crate::cluster) fn arguments(&self, time: &str) -> impl Iterator<Item = String> {
        let mut rule = String::new();
        if let Some((word, numbers)) = self.rule.sync_terms() {
            rule += word;
            for number in numbers {
                // Writing to a string does not fail.
                _ = write!(rule, " {number}");
            }
        }
        let late = self.late.as_micros().min(1 << 40);
        let call = format!("{} {} {} {late}", self.number, self.known, self.most);
        [time.to_owned(), rule, call].into_iter().chain(self.deltas.iter().cloned())
    }
}

impl Question {
    pub(super) const fn is_version_check(&self) -> bool {
        matches!(self, Self::VersionCheck { .. })
    }

    /// Returns the call that asks it.
    pub(super) fn call(&self, script: &Lua, is_known: bool) -> Cmd {
        match self {
            Self::Push { keys, arguments } => script.call(is_known, keys, arguments),
            Self::VersionCheck { changed, .. } => {
                let mut latest = cmd("ZREVRANGE");
                latest.arg(changed).arg(0).arg(0).arg("WITHSCORES");
                latest
            }
        }
    }

    /// Returns what a version check has found at `time`, if there is nothing new.
    pub(super) fn unchanged(&self, time: &Value, latest: &Value) -> Option<SyncReply> {
        let Self::VersionCheck { known, .. } = *self else { return None };
        let (seconds, micros): (u64, u64) = FromRedisValue::from_redis_value(time.clone()).ok()?;
        let now = seconds.checked_mul(1_000_000)?.checked_add(micros)?;

        let Value::Array(latest) = latest else { return None };
        let latest = match &latest[..] {
            [] => 0,
            [_, Value::BulkString(version)] => str::from_utf8(version).ok()?.parse().ok()?,
            _ => return None,
        };

        // A store that forgot its states begins again: that needs a call.
        (latest <= known && known <= latest.max(now)).then(|| SyncReply {
            now: Instant::from_nanos(now.saturating_mul(1000)),
            known,
            is_full: false,
            is_set_back: false,
            states: Vec::new(),
        })
    }
}

/// Returns a delta in the words of the script.
pub fn line(delta: &Delta) -> String {
    let mut line = delta.name.to_string();
    for number in &delta.numbers {
        _ = write!(line, " {number}");
    }
    if !delta.given.is_empty() {
        line.push_str(" /");
    }
    for number in &delta.given {
        _ = write!(line, " {number}");
    }
    line
}

impl SyncReply {
    /// Reads the answer to a call.
    ///
    /// # Errors
    ///
    /// The answer is malformed.
    pub fn read(answer: &Value) -> Result<Self, StoreError> {
        Self::parse(answer).ok_or(StoreError::InvalidReply)
    }

    fn parse(answer: &Value) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let [micros, nanos, known, flags, states @ ..] = &answer[..] else { return None };
        let micros = whole(micros)?.saturating_mul(1000);
        let flags = whole(flags)?;
        let (states, rest) = states.as_chunks::<2>();
        Some(Self {
            now: Instant::from_nanos(micros.saturating_add(whole(nanos)?)),
            known: whole(known)?,
            is_full: flags & 1 != 0,
            is_set_back: flags & 2 != 0,
            states: states.iter().map(state).collect::<Option<_>>().filter(|_| rest.is_empty())?,
        })
    }
}

fn state([name, numbers]: &[Value; 2]) -> Option<RemoteState> {
    let (Value::BulkString(name), Value::BulkString(numbers)) = (name, numbers) else {
        return None;
    };
    let name = str::from_utf8(name).ok()?.parse().ok()?;
    let numbers = str::from_utf8(numbers).ok()?.split(' ').map(|word| word.parse().ok());
    Some(RemoteState { name, numbers: numbers.collect::<Option<_>>()? })
}

fn whole(value: &Value) -> Option<u64> {
    let Value::Int(number) = value else { return None };
    u64::try_from(*number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::{
        Algorithm, Rate, StateName,
        limiter::{sliding_counter, sliding_window, token_bucket},
    };

    #[test]
    fn a_call_about_any_rule_keeps_the_store_from_others_for_less_than_a_millisecond() {
        let rate = Rate::new(9, Duration::from_mins(1)).unwrap();
        let sliding = |buckets| {
            let config = sliding_window::Config { rate, buckets, strict: true };
            (Algorithm::SlidingWindow(config), 400 / (20 + 2 * (buckets as usize + 2)))
        };
        for (algorithm, most) in [
            (Algorithm::TokenBucket(token_bucket::Config { rate, burst: 9 }), 12),
            (Algorithm::SlidingCounter(sliding_counter::Config { rate }), 15),
            sliding(1),
            sliding(10),
            sliding(60),
        ] {
            let rule = &Stored::new(&algorithm).unwrap();
            assert_eq!(most_deltas(rule), most, "{algorithm:?}");
            let deltas = vec![String::new(); most];
            let name = "a";
            let gateway = "b";
            let late = Duration::ZERO;
            let number = 1;
            let known = 0;
            let most = MOST_STATES;
            let push = Push { name, rule, gateway, number, known, late, most, deltas: &deltas };
            assert!(push.cost() < 1_000, "{algorithm:?}: {}", push.cost());
        }
    }

    #[test]
    fn a_version_check_finds_nothing_new_or_leaves_it_to_a_call() {
        let text = |text: &str| Value::BulkString(text.into());
        let time = Value::Array(vec![text("7"), text("5")]);
        let check = |known, latest: &[Value]| {
            let check = Question::VersionCheck { changed: "a".to_owned(), known };
            check.unchanged(&time, &Value::Array(latest.to_vec()))
        };
        let version = |version| [text("-"), text(version)];
        let reply = check(9, &version("9")).expect("nothing new");
        assert_eq!((reply.now, reply.known), (Instant::from_nanos(7_000_005_000), 9));
        assert!(!reply.is_full && reply.states.is_empty());
        assert_eq!(check(0, &[]).expect("nothing yet").known, 0);
        assert!(check(9, &version("8")).is_some(), "the latest state has expired");
        assert!(check(8_000_000, &version("8000000")).is_some(), "versions may be ahead");
        for (known, latest) in [
            (9, &version("10")[..]),
            (8_000_000, &version("9")),
            (8_000_000, &[]),
            (9, &version("?")),
            (9, &version("9")[1..]),
        ] {
            assert_eq!(check(known, latest), None, "{known} {latest:?}");
        }
    }

    #[test]
    fn an_answer_that_makes_no_sense_is_none() {
        let number = Value::Int;
        let text = |text: &str| Value::BulkString(text.into());
        let answer =
            |states: &[Value]| Value::Array([&[1, 2, 3, 0].map(number)[..], states].concat());
        let reply = SyncReply::read(&answer(&[text("-"), text("7 8")])).expect("a reply");
        assert_eq!((reply.now, reply.known, reply.is_full), (Instant::from_nanos(1_002), 3, false));
        assert_eq!(
            (reply.states[0].name, &reply.states[0].numbers[..]),
            (StateName::All, &[7, 8][..])
        );
        for wrong in [
            number(1),
            Value::Array(vec![number(1); 3]),
            answer(&[number(7), text("7")]),
            answer(&[text("no"), text("7")]),
            answer(&[text("-"), number(7)]),
            answer(&[text("-"), text("-1")]),
            answer(&[text("-"), text("")]),
            answer(&[text("-")]),
        ] {
            assert_eq!(SyncReply::read(&wrong), Err(StoreError::InvalidReply), "{wrong:?}");
        }
    }
}
