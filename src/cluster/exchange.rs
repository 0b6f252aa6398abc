//! One call of the store about the states of one rule: what this gateway has charged, and what all
//! have.

use super::StoreError;
use crate::flow::{Delta, Instant, Stored, Told};
use core::time::Duration;
use redis::Value;
use std::fmt::Write as _;

/// The most states that a call tells, and the most that it is told: while a call lasts, the store
/// decides about no request.
pub const MOST_STATES: usize = 128;

/// What a call tells and asks.
#[derive(Clone, Copy, Debug)]
pub struct Push<'a> {
    /// The rule's name in the store, with the hash tag of its route.
    pub name: &'a str,
    /// How it decides.
    pub rule: &'a Stored,
    /// The gateway's name, which no other has.
    pub gateway: &'a str,
    /// Grows with each of the gateway's calls about this rule that tells anything, from 1 or more.
    /// A call that is repeated has the same number and the same deltas, and is merged once.
    pub number: u64,
    /// The latest version of a state that the gateway knows.
    pub known: u64,
    /// How late anybody may tell what was charged, so that it is counted exactly: a bucket that
    /// has drained is remembered for so long. Told later, it may count for less.
    pub late: Duration,
    /// What it has charged, [in the words of the script](line()); at most [`MOST_STATES`].
    pub deltas: &'a [String],
}

/// What the store tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// When, by its clock.
    pub now: Instant,
    /// The latest version that is told.
    pub known: u64,
    /// Whether more has changed than is told.
    pub is_full: bool,
    /// What has changed since the version that the gateway knew.
    pub told: Vec<Told>,
}

impl Push<'_> {
    /// Returns where the store keeps what the call is about.
    pub(super) fn keys(&self, prefix: &str) -> [String; 3] {
        let Self { name, gateway, .. } = self;
        [
            format!("{prefix}{name}"),
            format!("{prefix}{name}:changed"),
            format!("{prefix}{name}:from:{gateway}"),
        ]
    }

    /// Returns what the script takes beside, at `time` if it is not the store's.
    pub(super) fn arguments(&self, time: &str) -> impl Iterator<Item = String> {
        let mut rule = String::new();
        if let Some((word, numbers)) = self.rule.exchange() {
            rule += word;
            for number in numbers {
                // Writing to a string does not fail.
                _ = write!(rule, " {number}");
            }
        }
        let late = self.late.as_micros().min(1 << 40);
        let call = format!("{} {} {MOST_STATES} {late}", self.number, self.known);
        [time.to_owned(), rule, call].into_iter().chain(self.deltas.iter().cloned())
    }
}

/// Returns a delta in the words of the script.
pub fn line(delta: &Delta) -> String {
    let mut line = delta.whose.to_string();
    for number in &delta.numbers {
        _ = write!(line, " {number}");
    }
    line
}

impl Page {
    /// Reads the answer to a call.
    ///
    /// # Errors
    ///
    /// It is none.
    pub fn read(answer: &Value) -> Result<Self, StoreError> {
        Self::parse(answer).ok_or(StoreError::Nonsense)
    }

    fn parse(answer: &Value) -> Option<Self> {
        let Value::Array(answer) = answer else { return None };
        let [micros, nanos, known, is_full, told @ ..] = &answer[..] else { return None };
        let micros = whole(micros)?.saturating_mul(1000);
        let (told, rest) = told.as_chunks::<2>();
        Some(Self {
            now: Instant::from_nanos(micros.saturating_add(whole(nanos)?)),
            known: whole(known)?,
            is_full: whole(is_full)? == 1,
            told: told.iter().map(state).collect::<Option<_>>().filter(|_| rest.is_empty())?,
        })
    }
}

fn state([whose, numbers]: &[Value; 2]) -> Option<Told> {
    let (Value::BulkString(whose), Value::BulkString(numbers)) = (whose, numbers) else {
        return None;
    };
    let whose = str::from_utf8(whose).ok()?.parse().ok()?;
    let numbers = str::from_utf8(numbers).ok()?.split(' ').map(|word| word.parse().ok());
    Some(Told { whose, numbers: numbers.collect::<Option<_>>()? })
}

fn whole(value: &Value) -> Option<u64> {
    let Value::Int(number) = value else { return None };
    u64::try_from(*number).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::Whose;

    #[test]
    fn an_answer_that_makes_no_sense_is_none() {
        let number = Value::Int;
        let text = |text: &str| Value::BulkString(text.into());
        let answer = |told: &[Value]| Value::Array([&[1, 2, 3, 0].map(number)[..], told].concat());
        let page = Page::read(&answer(&[text("-"), text("7 8")])).expect("a page");
        assert_eq!((page.now, page.known, page.is_full), (Instant::from_nanos(1_002), 3, false));
        assert_eq!((page.told[0].whose, &page.told[0].numbers[..]), (Whose::All, &[7, 8][..]));
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
            assert_eq!(Page::read(&wrong), Err(StoreError::Nonsense), "{wrong:?}");
        }
    }
}
