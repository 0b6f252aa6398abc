//! Runs one test on a new gateway.

use crate::{
    config::{
        self, Arrivals, Bound, Count, Expect, Measure, Plan, Snapshot, Spread, Step, Test, What,
        Word,
    },
    flow::{Instant, Verdict, time::nanos},
    replay::{
        Arrival, ArrivalResult, DecisionKind, EndedWait, Ending, Engine, Id, Recorded, Request,
        Settling, Unreached,
    },
    route::{ClaimValue, Identity, json_body},
};
use core::{fmt::Write, net::IpAddr, ops::Range, time::Duration};
use http::{HeaderMap, HeaderValue};
use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

#[derive(Debug, Default)]
struct Tally {
    /// By decision and deciding rule.
    counts: BTreeMap<(DecisionResult, String), u64>,
    /// By the dry-run rule that would have rejected.
    dry_runs: BTreeMap<String, u64>,
    waits: Vec<Duration>,
    retries: Vec<Duration>,
    /// The last request's rules: name, used, limit.
    usage: Vec<(String, u64, u64)>,
}

/// The decision about an arrival, or the reason why it reached no rule.
type DecisionResult = Result<DecisionKind, Unreached>;

/// A test that runs.
struct Running<'t> {
    engine: Engine,
    /// The number of the next arrival.
    number: u64,
    /// By the step that fails.
    failures: Vec<(usize, String)>,
    steps: Vec<TalliedStep<'t>>,
}

/// The arrivals of a step, some of which may still wait for a place.
struct TalliedStep<'t> {
    /// Its index in the test.
    index: usize,
    arrivals: &'t Arrivals,
    /// The numbers of its arrivals.
    numbers: Range<u64>,
    tally: Tally,
    /// Expected rules that the configuration lacked.
    unknown: String,
}

/// Runs a test, and returns its failures as text.
pub(super) fn run(test: &Test, plan: Plan) -> Vec<String> {
    let engine = Engine::new(plan, Instant::EPOCH, None);
    let mut running = Running { engine, number: 0, failures: Vec::new(), steps: Vec::new() };
    let mut clock = Duration::ZERO;
    for (index, step) in test.steps.iter().enumerate() {
        let begin = step.when.at.unwrap_or(clock) + step.when.after;
        if begin < clock {
            running.fail(index, "  it begins before the step above has ended\n");
        }

        match &step.what {
            What::Reload(path) => match config::read_rules(path) {
                Ok(plan) => running.engine.reload(plan, Instant::EPOCH + begin),
                Err(problems) => running.fail(index, &format!("{problems}\n")),
            },
            What::Arrivals(arrivals) => running.arrive(index, step, arrivals, begin),
        }
        clock = clock.max(begin + length(step));
    }

    running.engine.end_waits();
    running.check();
    let failure = |(index, text): (usize, String)| {
        let step = &test.steps[index];
        format!("line {}: {}\n{text}", step.line, step.text)
    };
    running.failures.sort_by_key(|(index, _)| *index);
    running.failures.into_iter().map(failure).collect()
}

impl<'t> Running<'t> {
    fn fail(&mut self, index: usize, text: &str) {
        self.failures.push((index, text.to_owned()));
    }

    /// Has the requests of a step arrive.
    fn arrive(&mut self, index: usize, step: &Step, arrivals: &'t Arrivals, begin: Duration) {
        let first = self.number;
        let mut tally = Tally::default();
        for (nth, at) in (1..).zip(times(step, arrivals.count, begin)) {
            let id = Id { input: 0, number: self.number };
            self.number += 1;
            let arrival = match arrival(arrivals, Instant::EPOCH + at, id, nth) {
                Ok(arrival) => arrival,
                Err(wrong) => {
                    self.fail(index, &format!("  {wrong}\n"));
                    break;
                }
            };
            if let Some(result) = self.engine.arrive(&arrival) {
                tally.note(self.engine.snapshot(), &arrival, &result);
            }
        }

        let unknown = unknown(&self.engine, &arrivals.expect);
        let numbers = first..self.number;
        self.steps.push(TalliedStep { index, arrivals, numbers, tally, unknown });
    }

    /// Counts those that have waited, and checks what is expected.
    fn check(&mut self) {
        for EndedWait { arrival, result, snapshot } in self.engine.take_ended() {
            let mut steps = self.steps.iter_mut();
            if let Some(step) = steps.find(|step| step.numbers.contains(&arrival.id.number)) {
                step.tally.note(&snapshot, &arrival, &result);
            }
        }
        for step in &self.steps {
            let TalliedStep { index, arrivals, tally, unknown, .. } = step;
            let wrong = unknown.clone() + &tally.check(&arrivals.expect);
            if !wrong.is_empty() {
                self.failures.push((*index, wrong + &tally.usage()));
            }
        }
    }
}

/// Lists expected rules that the configuration lacks: for them `0 rejected` would always be true.
fn unknown(engine: &Engine, expect: &[Expect]) -> String {
    let routes = &engine.snapshot().routes;
    let mut known: Vec<&str> = Vec::new();
    for route in routes {
        known.extend(route.rules.iter().map(|rule| &*rule.name));
        known.extend(
            [route.breaker, route.pacing].into_iter().flatten().map(|slot| route.rule_name(slot)),
        );
    }
    known.sort_unstable();
    known.dedup();

    let mut text = String::new();
    for expect in expect {
        if let Expect::Count(Count { rule: Some(rule), .. }) = expect
            && !known.contains(&&**rule)
        {
            // Writing to a String cannot fail.
            _ = writeln!(text, "  no rule is named {rule}; there are: {}", known.join(", "));
        }
    }
    text
}

fn length(step: &Step) -> Duration {
    match step.when.spread {
        Spread::Once => Duration::ZERO,
        Spread::Over(time) | Spread::Every(_, time) => time,
    }
}

/// Returns the times of a step's arrivals.
fn times(step: &Step, count: u64, begin: Duration) -> Box<dyn Iterator<Item = Duration>> {
    let nth = move |time: Duration, place: u64, of: u64| {
        let nanos = time.as_nanos() * u128::from(place) / u128::from(of.max(1));
        begin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    };

    match step.when.spread {
        Spread::Once => Box::new((0..count).map(move |_| begin)),
        Spread::Over(time) => Box::new((0..count).map(move |place| nth(time, place, count))),
        Spread::Every(each, time) => {
            let rounds = time.as_nanos().div_ceil(each.as_nanos().max(1));
            let rounds = u64::try_from(rounds).unwrap_or(u64::MAX);
            let round =
                move |place: u64| begin + Duration::from_nanos(nanos(each).saturating_mul(place));
            Box::new((0..rounds).flat_map(move |place| (0..count).map(move |_| round(place))))
        }
    }
}

/// Returns the `nth` arrival of its step, or why its address is invalid.
fn arrival(arrivals: &Arrivals, at: Instant, id: Id, nth: u64) -> Result<Arrival, String> {
    let shared = |text: Cow<'_, str>| -> Arc<str> { text.into() };
    let mut headers = HeaderMap::new();
    for (name, value) in &arrivals.headers {
        // A number cannot make a value invalid.
        if let Ok(value) = HeaderValue::from_str(&value.of(nth)) {
            headers.append(name.clone(), value);
        }
    }

    let address = |text: Cow<'_, str>| {
        text.parse::<IpAddr>().map_err(|_| format!("{text} is no address: `{{n}}` is {nth} here"))
    };

    Ok(Arrival {
        at,
        id,
        request: Request {
            method: arrivals.method.clone(),
            host: arrivals.host.as_ref().map(|host| shared(host.of(nth))),
            path: Some(shared(arrivals.path.of(nth))),
            headers: (!headers.is_empty()).then(|| Arc::new(headers)),
            client: arrivals.client.as_ref().map(|client| address(client.of(nth))).transpose()?,
        },
        listener: arrivals.listener.clone(),
        identity: identity(arrivals, nth),
        route: None,
        key: arrivals.key.as_ref().map(|key| shared(key.of(nth))),
        recorded: Recorded::of_event(Settling::default(), body(arrivals, nth), arrivals.place),
        cost: arrivals.cost,
        priority: arrivals.priority,
        takes: Some(arrivals.takes),
        ending: Ending::Responded(arrivals.status),
    })
}

/// Returns the JSON body of an arrival, if it has one.
fn body(arrivals: &Arrivals, nth: u64) -> Option<Arc<str>> {
    if arrivals.json.is_empty() {
        return None;
    }
    let members = arrivals.json.iter().map(|(name, value)| (&**name, value.of(nth)));
    let members: Vec<(&str, Cow<'_, str>)> = members.collect();
    Some(json_body(members.iter().map(|(name, value)| (*name, &**value))).into())
}

/// Returns what the client of an arrival has proved to be, if it is said.
fn identity(arrivals: &Arrivals, nth: u64) -> Option<Arc<Identity>> {
    if arrivals.user.is_none() && arrivals.claims.is_empty() {
        return None;
    }

    let mut claims: Vec<(Box<str>, Vec<Box<str>>)> = Vec::new();
    for (name, value) in &arrivals.claims {
        let value: Box<str> = value.of(nth).into();
        match claims.iter_mut().find(|(known, _)| known == name) {
            Some((_, values)) => values.push(value),
            None => claims.push((name.clone(), vec![value])),
        }
    }

    let claims: Vec<_> = claims
        .into_iter()
        .map(|(name, values)| match <[Box<str>; 1]>::try_from(values) {
            Ok([single]) => (name, ClaimValue::of_text(single)),
            Err(values) => (name, ClaimValue::of_list(values)),
        })
        .collect();
    let subject = claims.iter().find(|(name, _)| &**name == "sub");
    let subject = subject.map(|(_, value)| Arc::from(value.key()));
    let user = arrivals.user.as_ref().map(|user| Arc::from(&*user.of(nth))).or(subject);
    Some(Arc::new(Identity::of_token(user, claims)))
}

impl Tally {
    fn note(&mut self, snapshot: &Snapshot, arrival: &Arrival, result: &ArrivalResult) {
        let index = match result.route {
            Ok(index) => index,
            Err(reason) => {
                *self.counts.entry((Err(reason), String::new())).or_default() += 1;
                return;
            }
        };

        let route = &snapshot.routes[index];
        let decision = match result.decided.map(|decided| decided.decision) {
            // The rules of the file let it pass, to a 404.
            Some(DecisionKind::Passed) if route.is_for_unmatched() => Err(Unreached::NoRoute),
            None => Err(Unreached::NoRoute),
            Some(decision) => Ok(decision),
        };
        let rule = result.rule().map_or("", |slot| route.rule_name(slot));
        let key = (decision, rule.to_owned());
        *self.counts.entry(key).or_default() += 1;
        self.waits.extend(result.start.map(|start| start.since(arrival.at)));
        self.retries.extend(result.decided.and_then(|decided| decided.retry_after));

        let quotas = result.report.quotas.iter();
        for quota in quotas.filter(|quota| matches!(quota.verdict, Verdict::DryRunRejected(_))) {
            *self.dry_runs.entry(route.rule_name(quota.slot).to_owned()).or_default() += 1;
        }

        self.usage.clear();
        // A breaker has no limit.
        let quotas = result.report.quotas.iter().filter(|quota| quota.limit > 0);
        self.usage.extend(
            quotas.map(|quota| (route.rule_name(quota.slot).to_owned(), quota.used, quota.limit)),
        );
    }

    /// Lists unmet expectations.
    fn check(&self, expect: &[Expect]) -> String {
        let mut text = String::new();
        let counts: Vec<&Count> = expect
            .iter()
            .filter_map(|expect| if let Expect::Count(count) = expect { Some(count) } else { None })
            .collect();
        for count in &counts {
            let got = self.matching(count);
            if got != count.count {
                // Writing to a String cannot fail.
                _ = writeln!(text, "  expected {}, got {got}", in_words(count));
            }
        }

        let is_expected = |decision: DecisionResult, rule: &str| {
            counts.iter().any(|count| fits(count, decision, rule))
        };
        let counts_decisions = counts.iter().any(|count| count.word != Word::DryRun);
        let unexpected =
            self.counts.iter().filter(|((decision, rule), _)| !is_expected(*decision, rule));
        for ((decision, rule), count) in unexpected.filter(|_| counts_decisions) {
            _ = writeln!(text, "  not expected: {count} {}", describe(*decision, rule));
        }

        for expect in expect {
            if let Expect::Time(measure, bound, time) = expect {
                text += &self.check_time(*measure, *bound, *time);
            }
        }
        text
    }

    fn check_time(&self, measure: Measure, bound: Bound, time: Duration) -> String {
        let (name, all) = match measure {
            // Requests without a wait count for an upper bound only.
            Measure::Wait if bound == Bound::AtMost => ("wait", &self.waits),
            Measure::Wait => {
                ("wait", &self.waits.iter().copied().filter(|wait| !wait.is_zero()).collect())
            }
            Measure::RetryAfter => ("retry after", &self.retries),
        };

        let sign = match bound {
            Bound::AtMost => "at most ",
            Bound::AtLeast => "at least ",
            Bound::Exactly => "",
        };
        let expected = format!("  expected {name} {sign}{time:?}");
        let (Some(least), Some(most)) = (all.iter().min(), all.iter().max()) else {
            return match bound {
                Bound::AtMost => String::new(),
                Bound::AtLeast | Bound::Exactly => format!("{expected}, but there was none\n"),
            };
        };

        let is_fine = match bound {
            Bound::AtMost => *most <= time,
            Bound::AtLeast => *least >= time,
            Bound::Exactly => *least == time && *most == time,
        };
        if is_fine { String::new() } else { format!("{expected}, got {least:?} to {most:?}\n") }
    }

    fn matching(&self, count: &Count) -> u64 {
        if count.word == Word::DryRun {
            let wanted = count.rule.as_deref();
            let all =
                self.dry_runs.iter().filter(|(rule, _)| wanted.is_none_or(|name| name == *rule));
            return all.map(|(_, count)| count).sum();
        }
        let all = self.counts.iter().filter(|((decision, rule), _)| fits(count, *decision, rule));
        all.map(|(_, count)| count).sum()
    }

    fn usage(&self) -> String {
        let rule = |(name, used, limit): &(String, u64, u64)| format!("{name} {used} of {limit}");
        let rules: Vec<_> = self.usage.iter().map(rule).collect();
        if rules.is_empty() {
            String::new()
        } else {
            format!("  in use at the end: {}\n", rules.join(", "))
        }
    }
}

fn fits(count: &Count, decision: DecisionResult, rule: &str) -> bool {
    let reason = decision.ok().and_then(DecisionKind::reason);
    let is_word = match count.word {
        Word::Passed => decision == Ok(DecisionKind::Passed),
        Word::Delayed => decision == Ok(DecisionKind::Delayed),
        Word::Admitted => decision.is_ok() && reason.is_none(),
        Word::Rejected => reason.is_some(),
        Word::Unrouted => decision.is_err_and(|reason| reason != Unreached::Denied),
        Word::Denied => decision == Err(Unreached::Denied),
        Word::DryRun => false,
    };
    let is_rule = count.rule.as_deref().is_none_or(|wanted| wanted == rule);
    is_word && is_rule && (count.reason.is_none() || count.reason == reason)
}

/// Describes an arrival's decision like an expectation.
fn describe(decision: DecisionResult, rule: &str) -> String {
    match decision {
        Err(Unreached::Denied) => Word::Denied.text().to_owned(),
        Err(_) => Word::Unrouted.text().to_owned(),
        Ok(DecisionKind::Passed) => Word::Passed.text().to_owned(),
        Ok(DecisionKind::Delayed) => format!("delayed by {rule}"),
        Ok(DecisionKind::Rejected(kind)) => format!("rejected by {rule} for {}", kind.word()),
    }
}

fn in_words(count: &Count) -> String {
    let by = count.rule.as_ref().map_or_else(String::new, |rule| format!(" by {rule}"));
    let reason = count.reason.map_or_else(String::new, |kind| format!(" for {}", kind.word()));
    format!("{} {}{by}{reason}", count.count, count.word.text())
}
