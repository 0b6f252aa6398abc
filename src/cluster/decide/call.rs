//! The call to the store for one request, and its answer.

use crate::cluster::error::StoreError;
use crate::flow::{Decision, Instant, Judgement, Stored};
use redis::Value;
use smallvec::SmallVec;
use std::{fmt::Write as _, sync::Arc};

/// A request's question about one rule.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// The rule's name in the store, with a hash tag: `{route}` if all states of the route lie on
    /// one node, `{route:*}` if those of each key do. Equal for all gateways, and another for a
    /// rule whose states mean something else.
    pub name: &'a str,
    /// The rule itself.
    pub rule: &'a Arc<Stored>,
    /// The fingerprint of the key, equal on all gateways; `None` for the state that all clients
    /// share.
    pub key: Option<u128>,
    /// The cost of the request.
    pub cost: u64,
    /// True for a dry run: the rule only counts what it would reject.
    pub is_dry_run: bool,
    /// True if the cost is a reserve, which the end of the request settles.
    pub settles: bool,
}

impl Ask<'_> {
    /// Returns whether the request has a lease of this rule if it passes.
    fn holds(&self) -> bool {
        self.rule.holds() && self.cost > 0
    }
}

/// The decisions of the store about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdicts {
    /// The time of the decision, by the store's clock.
    pub now: Instant,
    /// True if every rule let the request pass but for dry runs, so that all were charged.
    pub is_admitted: bool,
    /// One for each [`Ask`], in their order.
    pub answers: SmallVec<[Judgement; 4]>,
    /// The first of them that found a state further ahead than a window, and dropped it.
    pub stale: Option<usize>,
    /// For each answer, whether the rule would reject the request while an operator's grant is in
    /// force, which admits it if enough is left.
    pub has_grant: SmallVec<[bool; 4]>,
}

/// A lease of a concurrency limit. The gateway names it, so that it can give it back even if the
/// answer is lost.
#[derive(Clone, Copy, Debug)]
pub struct Lease<'a> {
    /// Without blanks and colons; no two requests share one.
    pub name: &'a str,
    /// The time after which it runs out unless it is renewed, in microseconds.
    pub micros: u64,
}

/// The bits of a verdict: the request passes, the state was stale, the rule would reject it and a
/// grant is in force.
const PASSED: u64 = 1;
const STALE: u64 = 2;
const GRANTED: u64 = 4;

/// The end of the hash tag of a rule's name where the key is part of the tag.
const BY_KEY: &str = "*}";

/// Returns the key of the state that `ask` is about.
pub(in crate::cluster) fn key(prefix: &str, ask: &Ask<'_>) -> String {
    key_of(prefix, ask.name, ask.key)
}

/// Returns the key of a state, by the rule's name and the fingerprint of the client's key.
pub(in crate::cluster) fn key_of(prefix: &str, name: &str, fingerprint: Option<u128>) -> String {
    let mut key = String::with_capacity(prefix.len() + name.len() + 34);
    key += prefix;
    let Some(fingerprint) = fingerprint else { return key + name };
    // Writing to a string does not fail.
    _ = match name.split_once(BY_KEY) {
        Some((tag, rest)) => write!(key, "{tag}{fingerprint:032x}}}{rest}"),
        None => write!(key, "{name}:{fingerprint:032x}"),
    };
    key
}

/// Returns the hash tag of a key: the part that decides the slot.
pub(in crate::cluster) fn tag(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.map(|(tag, _)| tag).filter(|tag| !tag.is_empty()).unwrap_or(key)
}

/// Returns an ask in the words of the script. Of a concurrency limit, it gives `ended` leases back
/// before it decides.
pub(in crate::cluster) fn line(
    ask: &Ask<'_>,
    lease: Lease<'_>,
    now: Instant,
    ended: &[String],
) -> String {
    let terms = ask.rule.terms(ask.cost, now);
    let (name, micros) = if ask.rule.holds() { (lease.name, lease.micros) } else { ("-", 0) };
    let dry = u8::from(ask.is_dry_run);
    let mut line = format!("{} {dry} {} {name} {micros}", terms.word, terms.cost);
    for number in terms.numbers {
        _ = write!(line, " {number}");
    }
    for lease in ended {
        _ = write!(line, " {lease}");
    }
    line
}

/// Returns the leases that `asks` take if they are granted: key and name of each.
pub(in crate::cluster) fn leases(
    prefix: &str,
    asks: &[Ask<'_>],
    lease: Lease<'_>,
) -> impl Iterator<Item = (String, String)> {
    let held = asks.iter().filter(|ask| ask.holds());
    held.map(move |ask| (key(prefix, ask), format!("{}:{}", lease.name, ask.cost)))
}

/// Returns which of these leases the store has granted: none of a dry run that would reject.
pub(in crate::cluster) fn granted(
    asks: &[Ask<'_>],
    verdicts: &Verdicts,
) -> impl Iterator<Item = bool> {
    let answers = verdicts.answers.iter().zip(&verdicts.has_grant);
    let held = asks.iter().zip(answers).filter(|(ask, _)| ask.holds());
    let is_admitted = verdicts.is_admitted;
    held.map(move |(_, (judgement, has_grant))| {
        is_admitted && !has_grant && !matches!(judgement.decision, Decision::Reject(_))
    })
}

/// Reads the script's answer to `asks`.
pub(in crate::cluster) fn read(asks: &[Ask<'_>], answer: &Value) -> Result<Verdicts, StoreError> {
    let invalid = || StoreError::InvalidReply;
    let Value::Array(answer) = answer else { return Err(invalid()) };
    let [micros, nanos, admitted, each @ ..] = &answer[..] else { return Err(invalid()) };
    let [micros, nanos, admitted] =
        [micros, nanos, admitted].map(|number| whole(number).ok_or_else(invalid));

    let now = Instant::from_nanos(micros?.saturating_mul(1000).saturating_add(nanos?));
    let is_admitted = admitted? == 1;
    if each.len() != asks.len() {
        return Err(invalid());
    }

    let judge = |(ask, answer)| judge(ask, answer, now, is_admitted).ok_or_else(invalid);
    let answers = asks.iter().zip(each).map(judge).collect::<Result<_, _>>()?;
    let stale = each.iter().position(|answer| has(answer, STALE));
    let has_grant = each.iter().map(|answer| has(answer, GRANTED)).collect();
    Ok(Verdicts { now, is_admitted, answers, stale, has_grant })
}

/// `None` if the store did not decide as the rule does.
fn judge(ask: &Ask<'_>, answer: &Value, now: Instant, is_admitted: bool) -> Option<Judgement> {
    let Value::Array(answer) = answer else { return None };
    let numbers = answer.iter().map(whole).collect::<Option<SmallVec<[u64; 16]>>>()?;
    let (verdict, state) = numbers.split_first()?;
    let passes = verdict & PASSED != 0;
    let has_grant = verdict & GRANTED != 0;
    let is_charged = is_admitted && passes && !has_grant && ask.cost > 0;

    let mut judgement = ask.rule.judge(state, now, ask.cost, is_charged)?;
    if has_grant {
        if !matches!(judgement.decision, Decision::Reject(_)) {
            return None;
        }
        if passes {
            judgement.decision = Decision::Pass;
        }
        return Some(judgement);
    }

    let is_same = match judgement.decision {
        Decision::Pass | Decision::Delay(_) => passes,
        Decision::Reject(_) => !passes,
    };
    is_same.then_some(judgement)
}

/// Returns whether the verdict of an answer has this bit.
fn has(answer: &Value, bit: u64) -> bool {
    let Value::Array(answer) = answer else { return false };
    answer.first().and_then(whole).is_some_and(|verdict| verdict & bit != 0)
}

fn whole(value: &Value) -> Option<u64> {
    let Value::Int(number) = value else { return None };
    u64::try_from(*number).ok()
}
