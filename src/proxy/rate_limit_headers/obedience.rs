//! Clients that obey the fields, and others, in virtual time.
//!
//! A client obeys so: of requests that cost the same, it sends at most what `r` allows until `t` has
//! passed since a response, and one more then, whose response it reads. Within `t`, it need not
//! read other responses. After a rejection, it sends one request once `Retry-After` has passed.

use super::{
    RATELIMIT, RATELIMIT_POLICY, RateLimitFields, is_shown,
    tests::{claim, route},
    whole_seconds,
};
use crate::{
    config::{RateLimitHeaders, Route},
    flow::{Claim, Instant, Key, Outcome, Permit, Rejection, Report},
    http1::FieldList,
};
use core::time::Duration;
use http::{HeaderMap, HeaderName};
use proptest::{collection::vec, prelude::*};
use std::{collections::HashMap, fmt::Write as _, sync::Arc};

/// What the latest response that a client has read says.
#[derive(Clone, Copy, Debug)]
struct Read {
    at: Instant,
    /// The number of requests `r` allows.
    requests: u64,
    t: Duration,
    /// Requests since.
    sent: u64,
}

#[derive(Debug, Default)]
struct Client {
    read: Option<Read>,
    /// Not before this, by `Retry-After`.
    wait_until: Option<Instant>,
    running: Vec<Permit>,
}

impl Client {
    /// Reports whether a request now obeys.
    fn may_send(&self, now: Instant) -> bool {
        if self.wait_until.is_some_and(|until| now < until) {
            return false;
        }
        let Some(read) = self.read else { return true };
        read.sent < read.requests || now >= read.at + read.t
    }

    /// Reports whether the response to a request now must be read.
    fn must_read(&self, now: Instant) -> bool {
        self.read.is_none_or(|read| now >= read.at + read.t)
    }
}

/// A step of a run: who sends, and what passes before it.
#[derive(Clone, Debug)]
struct Step {
    client: usize,
    pause: Pause,
    /// True if it sends also if that does not obey.
    insists: bool,
    reads: bool,
    /// True if one of its requests ends before.
    ends: bool,
}

#[derive(Clone, Copy, Debug)]
enum Pause {
    None,
    Nanos(u64),
    /// Until the client may send.
    Due,
    /// Until just before that.
    AlmostDue,
}

struct Run {
    route: Arc<Route>,
    /// True if each rule has a key.
    is_keyed: Vec<bool>,
    clients: Vec<Client>,
    now: Instant,
}

impl Run {
    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        let at = if self.is_keyed.iter().all(|is_keyed| *is_keyed) { step.client } else { 0 };
        let client = &self.clients[at];
        let due = client.read.map_or(self.now, |read| read.at + read.t);
        let due = due.max(client.wait_until.unwrap_or(due));
        self.now = match step.pause {
            Pause::None => self.now,
            Pause::Nanos(nanos) => self.now + Duration::from_nanos(nanos),
            Pause::Due => self.now.max(due),
            Pause::AlmostDue => self.now.max(due - Duration::from_nanos(1)),
        };
        let now = self.now;
        if step.ends && !self.clients[at].running.is_empty() {
            self.clients[at].running.remove(0).finish(Outcome::Success { at: now });
        }
        let obeys = self.clients[at].may_send(now);
        if !obeys && !step.insists {
            return Ok(());
        }
        match self.route.gate.enter(now, &self.claims(at)) {
            Ok(admission) => {
                self.clients[at].running.push(admission.permit);
                self.admitted(at, step.reads || !obeys, &admission.report)
            }
            Err(rejection) => {
                let rule = self.rule(&rejection);
                let has_quota = is_shown(&self.route.rules[rule]);
                prop_assert!(
                    !(obeys && has_quota),
                    "{now:?}: {rejection:?} of {:?}",
                    self.clients[at]
                );
                self.rejected(at, &rejection, has_quota)
            }
        }
    }

    fn claims(&self, client: usize) -> Vec<Claim> {
        let key = Key::Of(client as u128 + 1);
        let claims = self.is_keyed.iter().enumerate().map(|(rule, is_keyed)| {
            let key = if *is_keyed { key } else { Key::Shared };
            Claim { key, ..claim(&self.route, rule) }
        });
        claims.collect()
    }

    fn rule(&self, rejection: &Rejection) -> usize {
        let slot = rejection.slot;
        self.route.rules.iter().position(|rule| rule.slot == slot).expect("a rule of the route")
    }

    fn admitted(&mut self, at: usize, reads: bool, report: &Report) -> Result<(), TestCaseError> {
        let now = self.now;
        let client = &mut self.clients[at];
        client.wait_until = None;
        let must_read = client.must_read(now);
        if let Some(read) = &mut client.read {
            read.sent += 1;
        }
        let fields = RateLimitFields::admitted(&self.route, report, RateLimitHeaders::Draft);
        let Some(fields) = fields.filter(|_| reads || must_read) else { return Ok(()) };
        let headers = self.written(&fields);
        let (rule, r, t) = limit(&headers).expect("an admitted request has one");
        let (q, w) = policy(&headers)[&rule];
        let is_counted = r < q && t >= 1;
        prop_assert!(r <= q && w >= 1 && is_counted, "{rule}: r={r} t={t} q={q} w={w}");
        let cost = self.cost(&rule);
        self.clients[at].read =
            Some(Read { at: now, requests: r / cost, t: Duration::from_secs(t), sent: 0 });
        Ok(())
    }

    fn rejected(
        &mut self,
        at: usize,
        rejection: &Rejection,
        has_quota: bool,
    ) -> Result<(), TestCaseError> {
        // What depends on running requests is guessed.
        let wait = rejection.reason.retry_after().map_or(1, whole_seconds);
        let fields = RateLimitFields::rejected(&self.route, rejection, RateLimitHeaders::Draft);
        let limit = fields.and_then(|fields| limit(&self.written(&fields)));
        if has_quota {
            let name = self.route.rules[self.rule(rejection)].name.to_string();
            prop_assert_eq!(limit, Some((name, 0, wait)), "{:?}", rejection);
            let t = Duration::from_secs(wait);
            self.clients[at].read = Some(Read { at: self.now, requests: 0, t, sent: 0 });
        } else {
            prop_assert_eq!(limit, None);
        }
        self.clients[at].wait_until = Some(self.now + Duration::from_secs(wait));
        Ok(())
    }

    fn written(&self, fields: &RateLimitFields) -> HeaderMap {
        let mut headers = FieldList::default();
        fields.write(&mut headers, &self.route);
        headers.into_map()
    }

    fn cost(&self, name: &str) -> u64 {
        let rule = self.route.rules.iter().find(|rule| &*rule.name == name);
        rule.expect("the field names a rule").cost.default
    }
}

/// Reads the one item of `RateLimit`: its name, `r` and `t`.
fn limit(headers: &HeaderMap) -> Option<(String, u64, u64)> {
    let items = items(headers, &RATELIMIT, ["r", "t"]);
    assert!(items.len() <= 1, "{headers:?}");
    items.into_iter().next().map(|(name, [r, t])| (name, r, t))
}

/// Reads `RateLimit-Policy`: `q` and `w` of each name.
fn policy(headers: &HeaderMap) -> HashMap<String, (u64, u64)> {
    let items = items(headers, &RATELIMIT_POLICY, ["q", "w"]);
    items.into_iter().map(|(name, [q, w])| (name, (q, w))).collect()
}

fn items(headers: &HeaderMap, name: &HeaderName, keys: [&str; 2]) -> Vec<(String, [u64; 2])> {
    let Some(value) = headers.get(name) else { return Vec::new() };
    let items = value.to_str().expect("text").split(", ");
    let items = items.map(|item| {
        let mut parts = item.split(';');
        let name = parts.next().expect("a name").trim_matches('"').to_owned();
        let numbers = keys.map(|key| {
            let part = parts.next().and_then(|part| part.strip_prefix(key)?.strip_prefix('='));
            part.expect("the parameter").parse().expect("a number")
        });
        assert_eq!(parts.next(), None);
        (name, numbers)
    });
    items.collect()
}

/// The text of a rule without its name and key, with a limit of `cost` or more.
fn rule() -> impl Strategy<Value = (String, u64)> {
    let windows = prop::sample::select(vec!["300ms", "1s", "1500ms", "7s", "1m"]);
    (0..11_u8, 1..=3_u64, 0..7_u64, windows, 0..7_u64).prop_map(
        |(kind, cost, more, window, extra)| {
            let limit = format!("limit: {}/{window}", cost + more);
            let burst = cost + extra;
            let text = match kind {
                0 | 1 => format!("{limit}, burst: {burst}"),
                2 => format!("algorithm: leaky_bucket, {limit}, burst: {burst}"),
                3 => {
                    let up = "warm_up: { period: 3s, cold_factor: 3 }";
                    format!("{limit}, burst: {burst}, {up}")
                }
                4 => format!("algorithm: sliding_log, {limit}"),
                5 => format!("algorithm: sliding_window, {limit}, buckets: {}", 1 + extra),
                6 => format!("algorithm: sliding_window, {limit}, buckets: 4, strict: false"),
                7 => format!("algorithm: sliding_counter, {limit}"),
                8 => format!("algorithm: fixed_window, {limit}"),
                9 => format!("algorithm: fixed_window, align: first_request, {limit}"),
                _ if extra % 2 == 0 => format!("concurrency: {burst}"),
                _ => format!("algorithm: pacing, {limit}, max_wait: {extra}s"),
            };
            (text, cost)
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let pause = prop_oneof![
        3 => Just(Pause::None),
        2 => (0..3_000_000_000_u64).prop_map(Pause::Nanos),
        1 => (0..200_000_000_000_u64).prop_map(Pause::Nanos),
        3 => Just(Pause::Due),
        1 => Just(Pause::AlmostDue),
    ];
    (0..3_usize, pause, prop::bool::weighted(0.1), any::<bool>(), any::<bool>()).prop_map(
        |(client, pause, insists, reads, ends)| Step { client, pause, insists, reads, ends },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn a_client_that_obeys_the_fields_is_not_rejected_by_a_quota(
        rules in vec((rule(), any::<bool>()), 1..4),
        steps in vec(step(), 1..120),
        start in 0..100_000_000_000_u64,
    ) {
        let mut text = String::new();
        for (at, ((rule, cost), is_keyed)) in rules.iter().enumerate() {
            let key = if *is_keyed { ", key: client_ip" } else { "" };
            _ = write!(text, "{}{{ name: r{at}, {rule}, cost: {cost}{key} }}", if at > 0 { ", " } else { "" });
        }
        let mut run = Run {
            route: route(&text),
            is_keyed: rules.iter().map(|(_, is_keyed)| *is_keyed).collect(),
            clients: (0..3).map(|_| Client::default()).collect(),
            now: Instant::EPOCH + Duration::from_nanos(start),
        };
        for step in &steps {
            run.step(step)?;
        }
    }
}
