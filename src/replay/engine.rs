//! The rules on a virtual clock: arrivals go through the compiled configuration, one
//! after the other, as they go through a gateway.
//!
//! Finding the route, the claims, the decision and its words are the proxy's own code
//! (`config::claim`, `flow::Gate`, `access_log::Decided`); here is what a live gateway
//! has the network for: time, and the ends of requests. Whoever is due to end at or
//! before an arrival has ended when it is decided.

use super::event::{Answered, Arrival, Complete, Ending, Id, RecordedKey, Request};
use crate::{
    access_log::Decided,
    config::{self, Applicant, Claims, Known, Live, Plan, Retired, RouteRule, Snapshot, Unrouted},
    flow::{Admission, Instant, Key, Outcome, Permit, Report, SlotId, Verdict, rule_of},
    route::{Seed, Target, canonical_host, client_ip, normal_path},
};
use core::{
    cmp::{Ordering, Reverse},
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use http::{HeaderMap, StatusCode};
use std::{
    collections::{BTreeSet, BinaryHeap, HashMap, binary_heap::PeekMut},
    sync::Arc,
};

/// A configuration with its state, and the requests that are under way.
#[derive(Debug)]
pub struct Engine {
    live: Live,
    retired: Retired,
    snapshot: Arc<Snapshot>,
    seed: Seed,
    /// Every arrival's route.
    forced: Option<Arc<str>>,
    /// The host of arrivals that name none.
    host: Option<Arc<str>>,
    by_name: HashMap<Arc<str>, usize>,
    /// Whether some route is found by a header or by the query, which logs do not contain.
    needs_fields: bool,
    due: BinaryHeap<Reverse<Due>>,
    /// Without a known end.
    open: HashMap<Id, Open>,
    /// When these are cut off.
    deadlines: BTreeSet<(Instant, Id)>,
    /// The latest time that was seen.
    latest: Instant,
    /// Numbers what is due, so that ends of the same instant come in the order of arrivals.
    admitted: u64,
    no_headers: HeaderMap,
}

/// What became of an arrival.
#[derive(Debug)]
pub struct Ruling {
    /// Its route's index in the snapshot.
    pub route: Result<usize, Unreached>,
    /// The decision; `None` if it reached no route.
    pub decided: Option<Decided>,
    /// What it claimed of the route's rules.
    pub claims: Claims,
    /// What each rule said.
    pub report: Report,
    /// When it may start; `None` if it may not.
    pub start: Option<Instant>,
}

/// What became of an arrival, and where.
pub(super) type Ruled<'a> = (&'a Engine, &'a Ruling);

/// Why an arrival was never decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreached {
    /// The gateway would not have looked for a route.
    Invalid(&'static str),
    /// No route matches.
    NoRoute,
    /// The line names a route that the configuration does not have.
    UnknownRoute,
}

/// A request that will be answered, or end, at a known time.
#[derive(Debug)]
struct Due {
    at: Instant,
    number: u64,
    /// Apart, since the heap moves what it holds.
    permit: Box<Permit>,
    /// The status of its answer, and when it ends, if it is to be answered first.
    answer: Option<(Option<u16>, Instant)>,
    ending: Ending,
}

/// A request that ends when a line says so, or else when its route's time is up.
#[derive(Debug)]
struct Open {
    permit: Permit,
    ending: Ending,
    deadline: Instant,
}

impl Engine {
    /// Puts `plan` in force at `from`. With `forced`, all arrivals belong to that route.
    pub fn new(plan: Plan, from: Instant, forced: Option<&str>) -> Self {
        let live = Live::start(plan, from);
        let snapshot = live.load_full();
        let mut engine = Self {
            live,
            retired: Retired::default(),
            snapshot,
            // The same at every run, so that two runs are alike.
            seed: Seed::new([0, 0]),
            forced: forced.map(Arc::from),
            host: None,
            by_name: HashMap::new(),
            needs_fields: false,
            due: BinaryHeap::new(),
            open: HashMap::new(),
            deadlines: BTreeSet::new(),
            latest: from,
            admitted: 0,
            no_headers: HeaderMap::new(),
        };
        engine.index();
        engine
    }

    /// Has arrivals that name no host be for `host`.
    pub fn assume_host(&mut self, host: &str) {
        self.host = Some(host.into());
    }

    /// Returns whether arrivals that name no host have one all the same.
    pub(super) const fn assumes_host(&self) -> bool {
        self.host.is_some()
    }

    /// Returns hosts that routes are for, each once, of a wildcard one that it covers.
    pub(super) fn hosts(&self) -> Vec<String> {
        let snapshot = &self.snapshot;
        let matchers = (0..snapshot.routes.len()).filter_map(|at| snapshot.table.matcher(at));
        let patterns = matchers.flat_map(|matcher| &matcher.hosts);
        let hosts = patterns.map(|pattern| pattern.to_string().replace('*', "www"));
        hosts.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Returns whether an arrival would match a route if it were for `host`.
    pub(super) fn would_match(&self, arrival: &Arrival, host: &str) -> bool {
        let mut arrival = arrival.clone();
        arrival.request.host = Some(host.into());
        let found = self.with_head(&arrival, |target, path, _| {
            self.route_of(&self.snapshot, &arrival, target, path)
        });
        found.is_ok()
    }

    /// Puts another plan in force, as a reload does.
    pub fn reload(&mut self, plan: Plan, at: Instant) {
        self.release_until(at);
        self.live.apply(plan, at, &mut self.retired);
        self.snapshot = self.live.load_full();
        self.retired.sweep();
        self.index();
    }

    /// Returns the configuration in force.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Decides about an arrival.
    pub fn arrive(&mut self, arrival: &Arrival) -> Ruling {
        self.release_until(arrival.at);
        let snapshot = Arc::clone(&self.snapshot);
        let mut claims = Claims::new();
        let route = match self.claim(&snapshot, arrival, &mut claims) {
            Ok(route) => route,
            Err(reason) => return Ruling::unreached(reason),
        };
        let decision = snapshot.routes[route].gate.enter(arrival.at, &claims);
        match decision {
            Ok(Admission { permit, report }) => {
                let start = permit.start();
                let decided = Some(Decided::admitted(&report));
                self.keep(arrival, permit, snapshot.routes[route].options.timeouts.request);
                Ruling { route: Ok(route), decided, claims, report, start: Some(start) }
            }
            Err(rejection) => Ruling {
                route: Ok(route),
                decided: Some(Decided::rejected(&rejection)),
                claims,
                report: rejection.report,
                start: None,
            },
        }
    }

    /// Ends a request that came without telling how long it takes. Of one that was
    /// refused there is nothing to end.
    pub fn complete(&mut self, complete: &Complete) {
        self.release_until(complete.at);
        if let Some(Open { permit, ending, deadline }) = self.open.remove(&complete.of) {
            self.deadlines.remove(&(deadline, complete.of));
            let ending = match complete.status {
                Some(_) => Ending::Answered(complete.status),
                None => ending,
            };
            finish(permit, ending, complete.at);
        }
    }

    /// Answers and ends what is due at `until` or before, or at the latest time that was seen.
    pub fn release_until(&mut self, until: Instant) {
        let until = self.latest.max(until);
        self.latest = until;
        while let Some((deadline, id)) = self.deadlines.first().copied().filter(|it| it.0 <= until)
        {
            self.release_due(deadline);
            self.deadlines.pop_first();
            if let Some(Open { permit, ending, .. }) = self.open.remove(&id) {
                finish(permit, cut_off(ending), deadline);
            }
        }
        self.release_due(until);
    }

    fn release_due(&mut self, until: Instant) {
        while let Some(mut next) = self.due.peek_mut().filter(|next| next.0.at <= until) {
            if let Some((status, end)) = next.0.answer {
                let Reverse(due) = &mut *next;
                due.permit.answered(status.map_or(Outcome::Cancelled, |it| answer(it, due.at)));
                (due.answer, due.at) = (None, end.max(due.at));
            } else {
                let Reverse(Due { at, permit, ending, .. }) = PeekMut::pop(next);
                finish(*permit, ending, at);
            }
        }
    }

    fn index(&mut self) {
        let names = self.snapshot.routes.iter().enumerate();
        self.by_name = names.map(|(index, route)| (Arc::clone(&route.name), index)).collect();
        let table = &self.snapshot.table;
        self.needs_fields = (0..self.snapshot.routes.len())
            .filter_map(|route| table.matcher(route))
            .any(|matcher| !(matcher.headers.is_empty() && matcher.query.is_empty()));
    }

    /// Keeps what an admitted request holds until it ends, of which a route's requests have
    /// at most `longest` from their arrival where no line says it.
    fn keep(&mut self, arrival: &Arrival, permit: Permit, longest: Duration) {
        if !permit.holds() {
            return;
        }
        let ending = arrival.ending;
        if let Some(takes) = arrival.takes {
            let (start, number) = (permit.start(), self.admitted);
            let answered = arrival.recorded.as_ref().and_then(|recorded| recorded.answered);
            let end = match ending {
                // Its patience is counted from when it came.
                Ending::Cancelled(after) => arrival.at + after,
                Ending::Answered(_) | Ending::Failed => start + takes,
            };
            let answered = answered.filter(|it| permit.awaits_answer() && start + it.after <= end);
            let (at, answer) = match answered {
                Some(Answered { after, status }) => (start + after, Some((status, end))),
                None => (end, None),
            };
            let due = Due { at, number, permit: Box::new(permit), answer, ending };
            self.admitted += 1;
            self.due.push(Reverse(due));
        } else {
            // Who waits longer than that is cut off when it starts.
            let deadline = permit.start().max(arrival.at + longest);
            self.deadlines.insert((deadline, arrival.id));
            let before = self.open.insert(arrival.id, Open { permit, ending, deadline });
            debug_assert!(before.is_none(), "an arrival has one number");
        }
    }

    /// Finds the route, and notes what the arrival claims of its rules.
    fn claim(
        &self,
        snapshot: &Snapshot,
        arrival: &Arrival,
        claims: &mut Claims,
    ) -> Result<usize, Unreached> {
        let key = arrival.key.as_ref();
        let fingerprint = key.map(|key| self.seed.fingerprint(key.as_bytes()));
        self.with_head(arrival, |target, path, client| {
            let index = self.route_of(snapshot, arrival, target, path)?;
            let route = &snapshot.routes[index];
            let known = |_: &RouteRule, rule: &str| match fingerprint {
                Some(fingerprint) => Known::Key(fingerprint),
                None => recorded(arrival, rule),
            };
            route.claim(Applicant { seed: &self.seed, target, client }, known, claims);
            if arrival.priority {
                route.prioritize(claims);
            }
            if let Some(cost) = arrival.cost {
                route.charge(cost, claims);
            }
            Ok(index)
        })
    }

    /// Returns an arrival's key for a rule, for people to read.
    pub fn show_key(&self, arrival: &Arrival, rule: &RouteRule) -> String {
        const UNKNOWN: &str = "(none)";
        if let Some(key) = &arrival.key {
            return key.to_string();
        }
        let of_rule = |key: &&RecordedKey| rule_of(&key.rule) == &*rule.name;
        let mut recorded = recorded_keys(arrival).filter(of_rule);
        if let Some(print) = recorded.find_map(|key| match key.key {
            Some(Key::Of(print)) => Some(print),
            Some(Key::Shared | Key::Missing | Key::Duplicate) | None => None,
        }) {
            return format!("#{:08x}", print >> 96);
        }
        let shown = self.with_head(arrival, |target, _, client| Ok(rule.key.show(target, client)));
        shown.ok().flatten().unwrap_or_else(|| UNKNOWN.to_owned())
    }

    /// Hands the head of an arrival to `then`: the target, the path as received and the
    /// client's address.
    fn with_head<T>(
        &self,
        arrival: &Arrival,
        then: impl FnOnce(&Target<'_>, &str, IpAddr) -> Result<T, Unreached>,
    ) -> Result<T, Unreached> {
        let Request { method, host, path, headers, client } = &arrival.request;
        if !config::is_served(method) {
            return Err(Unreached::Invalid("the method is not served"));
        }
        let host = host.as_ref().or(self.host.as_ref());
        let host = match host.map(|host| &**host).unwrap_or_default() {
            "" => "".into(),
            host => {
                canonical_host(host).map_err(|_| Unreached::Invalid("no host has this name"))?
            }
        };
        let (path, query) = split(path.as_deref().unwrap_or("/"));
        let headers = headers.as_deref().unwrap_or(&self.no_headers);
        let normal = normal_path(path);
        let target = Target { host: &host, path: &normal, query, method, headers };
        let peer = client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let client = client_ip(peer, headers, &self.snapshot.settings.trusted_proxies);
        then(&target, path, client)
    }

    fn route_of(
        &self,
        snapshot: &Snapshot,
        arrival: &Arrival,
        target: &Target<'_>,
        path: &str,
    ) -> Result<usize, Unreached> {
        let named = self.forced.as_ref().or(arrival.route.as_ref());
        if let Some(name) = named {
            return self.by_name.get(name).copied().ok_or(Unreached::UnknownRoute);
        }
        let found = arrival.recorded.as_ref().filter(|_| self.needs_fields);
        let found = found.and_then(|recorded| recorded.route.as_ref());
        if let Some(index) = found.and_then(|name| self.by_name.get(name)) {
            return Ok(*index);
        }
        let request = &arrival.request;
        if snapshot.routes.len() == 1 && request.host.is_none() && request.path.is_none() {
            return Ok(0);
        }
        snapshot.find_index(target, path).map_err(|unrouted| match unrouted {
            Unrouted::NoRoute => Unreached::NoRoute,
            Unrouted::Path(why) => Unreached::Invalid(why),
        })
    }
}

impl Ruling {
    /// Returns the rule that refused the request, that held it longest, or of those that let
    /// it pass at once the one with least left.
    pub fn rule(&self) -> Option<SlotId> {
        let held = self.report.quotas.iter().filter(|quota| quota.verdict == Verdict::Delayed);
        // The first of those that are equal, as with all that is reported.
        let longest = held.filter(|_| self.start.is_some()).min_by_key(|it| Reverse(it.wait));
        longest.copied().or(self.decided?.quota).map(|quota| quota.slot)
    }

    fn unreached(reason: Unreached) -> Self {
        Self {
            route: Err(reason),
            decided: None,
            claims: Claims::new(),
            report: Report::default(),
            start: None,
        }
    }
}

impl Unreached {
    /// Returns the reason in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Invalid(why) => why,
            Self::NoRoute => "no route matches",
            Self::UnknownRoute => "no route has this name",
        }
    }
}

fn recorded_keys(arrival: &Arrival) -> impl Iterator<Item = &RecordedKey> {
    arrival.recorded.iter().flat_map(|recorded| &recorded.keys)
}

/// Returns what an arrival is known to have claimed of a rule.
fn recorded(arrival: &Arrival, rule: &str) -> Known {
    recorded_keys(arrival)
        .find(|key| *key.rule == *rule)
        .map_or(Known::Nothing, |known| Known::Was { key: known.key, priority: known.priority })
}

/// Returns what a gateway makes of an exchange whose time is up: 504, if there was no
/// answer by then.
fn cut_off(ending: Ending) -> Ending {
    match ending {
        Ending::Answered(None) => Ending::Answered(Some(StatusCode::GATEWAY_TIMEOUT.as_u16())),
        known @ (Ending::Answered(Some(_)) | Ending::Failed | Ending::Cancelled(_)) => known,
    }
}

fn finish(permit: Permit, ending: Ending, at: Instant) {
    permit.finish(match ending {
        Ending::Answered(status) => answer(status.unwrap_or(200), at),
        Ending::Failed => Outcome::Failure { at },
        Ending::Cancelled(_) => Outcome::Cancelled,
    });
}

fn answer(status: u16, at: Instant) -> Outcome {
    config::outcome(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), at)
}

/// Parts a path and its query.
fn split(path: &str) -> (&str, Option<&str>) {
    match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    }
}

impl Ord for Due {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Due {}
