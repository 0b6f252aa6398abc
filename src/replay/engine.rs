//! The rules on a virtual clock: arrivals go through the compiled configuration one after the
//! other.
//!
//! Routes, claims, decisions and their words are the proxy's own code (`config::claim`,
//! `flow::Gate`, `access_log::DecisionRecord`). The engine supplies what a gateway gets from the
//! network: time, and the ends of requests. Requests that end at the time of an arrival have ended
//! before it is decided.

use super::{
    event::{Arrival, Complete, Ending, Id, RecordedKey, Request, ResponseHead},
    settle::{self, Unsettled},
    waits::{EndedWait, WaitingArrival, Waits},
};
use crate::{
    access_log::DecisionRecord,
    config::{
        self, Claims, KeySource, Live, Plan, RequestContext, Retired, Route, RouteRule, Snapshot,
        Unrouted,
    },
    flow::{
        Admission, Instant, Key, Outcome, Permit, Rejection, Report, Sharer, SlotId, Verdict,
        rule_of,
    },
    geo::Located,
    route::{
        BodyMembers, Identity, KeySpec, Matcher, MemberPaths, Seed, Target, canonical_host,
        normal_path,
    },
};
use core::{
    cell::OnceCell,
    cmp::{Ordering, Reverse},
    net::{IpAddr, Ipv4Addr},
    task::Poll,
    time::Duration,
};
use http::{HeaderMap, HeaderName, StatusCode};
use std::{
    collections::{BTreeSet, BinaryHeap, HashMap, binary_heap::PeekMut},
    sync::Arc,
};

/// A configuration with its state and the requests in flight.
#[derive(Debug)]
pub struct Engine {
    live: Live,
    retired: Retired,
    snapshot: Arc<Snapshot>,
    seed: Seed,
    /// The route of all arrivals, if set.
    forced: Option<Arc<str>>,
    /// The host of arrivals without one.
    host: Option<Arc<str>>,
    /// The listener of arrivals without one.
    listener: Option<Arc<str>>,
    by_name: HashMap<Arc<str>, usize>,
    /// True if a route needs headers, the query or the listener, which logs lack.
    needs_fields: bool,
    due: BinaryHeap<Reverse<Due>>,
    open: HashMap<Id, Open>,
    /// The times at which open requests are cut off.
    deadlines: BTreeSet<(Instant, Id)>,
    /// Requests that wait for a place.
    waits: Waits,
    /// The latest time seen.
    latest: Instant,
    /// Counts admitted requests, so that ends at the same instant are in the order of arrivals.
    admitted: u64,
    no_headers: HeaderMap,
}

/// The result of an arrival.
#[derive(Debug)]
pub struct ArrivalResult {
    /// Its route's index in the snapshot.
    pub route: Result<usize, Unreached>,
    /// The decision; `None` without a route.
    pub decided: Option<DecisionRecord>,
    /// Its claims.
    pub claims: Claims,
    /// Each rule's part in the decision.
    pub report: Report,
    /// Its start; `None` if it was rejected.
    pub start: Option<Instant>,
}

/// The result of an arrival, with the engine that decided.
#[derive(Clone, Copy, Debug)]
pub(super) struct ResultOf<'a> {
    pub(super) engine: &'a Engine,
    pub(super) result: &'a ArrivalResult,
}

/// Why an arrival reached no rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unreached {
    /// The gateway rejects it before routing.
    Invalid(&'static str),
    /// No route matches.
    NoRoute,
    /// The line names an unknown route.
    UnknownRoute,
    /// The route does not allow the client's address.
    Denied,
}

/// A request with a known time of its response or end.
#[derive(Debug)]
struct Due {
    /// The time of the next step: the head of its response, a charge, or the end.
    at: Instant,
    number: u64,
    /// Boxed, because the heap moves its items.
    permit: Box<Permit>,
    /// The head of its response, if that comes before the end, and its time.
    head: Option<(ResponseHead, Instant)>,
    end: Instant,
    ending: Ending,
    unsettled: Option<Box<Unsettled>>,
}

/// A request that ends by a later line, or by its route's timeout.
#[derive(Debug)]
struct Open {
    permit: Permit,
    ending: Ending,
    deadline: Instant,
    unsettled: Option<Box<Unsettled>>,
}

impl Engine {
    /// Starts with `plan` at `from`. With `forced`, all arrivals belong to that route.
    pub fn new(plan: Plan, from: Instant, forced: Option<&str>) -> Self {
        let live = Live::start(plan, from);
        let snapshot = live.load_full();
        let mut engine = Self {
            live,
            retired: Retired::default(),
            snapshot,
            // Constant, so that runs are reproducible.
            seed: Seed::new([0, 0]),
            forced: forced.map(Arc::from),
            host: None,
            listener: None,
            by_name: HashMap::new(),
            needs_fields: false,
            due: BinaryHeap::new(),
            open: HashMap::new(),
            deadlines: BTreeSet::new(),
            waits: Waits::default(),
            latest: from,
            admitted: 0,
            no_headers: HeaderMap::new(),
        };
        engine.index();
        engine
    }

    /// Sets the host of arrivals without one.
    pub fn assume_host(&mut self, host: &str) {
        self.host = Some(host.into());
    }

    /// Sets the listener of arrivals without one.
    pub fn assume_listener(&mut self, name: &str) {
        self.listener = Some(name.into());
    }

    /// Returns the hosts of all routes, each once, with an example for wildcards. They are empty if
    /// arrivals without a host get one.
    pub(super) fn hosts(&self) -> BTreeSet<Arc<str>> {
        if self.host.is_some() {
            return BTreeSet::new();
        }
        let patterns = self.matchers().flat_map(|matcher| &matcher.hosts);
        patterns.map(|pattern| pattern.to_string().replace('*', "www").into()).collect()
    }

    /// Returns the listeners of all routes, each once. They are empty if arrivals without a listener
    /// get one.
    pub(super) fn listeners(&self) -> BTreeSet<Arc<str>> {
        if self.assumed_listener().is_some() {
            return BTreeSet::new();
        }
        self.matchers().flat_map(|matcher| &matcher.listeners).map(|name| (**name).into()).collect()
    }

    fn matchers(&self) -> impl Iterator<Item = &Matcher> {
        (0..self.snapshot.routes.len()).filter_map(|at| self.snapshot.table.matcher(at))
    }

    /// Returns the listener of arrivals without one.
    fn assumed_listener(&self) -> Option<&str> {
        match (&self.listener, &self.snapshot.listeners[..]) {
            (Some(name), _) => Some(name),
            (None, [only]) => Some(&only.name),
            (None, _) => None,
        }
    }

    /// Returns the listener that an arrival came by, if the configuration has it, or else the one of
    /// arrivals without one.
    pub(super) fn listener_of<'a>(&'a self, arrival: &'a Arrival) -> Option<&'a str> {
        let known = arrival
            .listener
            .as_deref()
            .filter(|name| self.snapshot.listeners.iter().any(|listener| *listener.name == **name));
        known.or_else(|| self.assumed_listener())
    }

    /// Returns the route that an arrival would match with this host and this listener.
    pub(super) fn route_with(
        &self,
        arrival: &Arrival,
        host: Option<&Arc<str>>,
        listener: Option<&Arc<str>>,
    ) -> Option<usize> {
        let mut arrival = arrival.clone();
        arrival.request.host = host.cloned().or(arrival.request.host);
        arrival.listener = listener.cloned().or(arrival.listener);
        let found = self.with_head(&arrival, |target, path, _| {
            self.route_of(&self.snapshot, &arrival, target, path)
        });
        found.ok()
    }

    /// Applies another plan, like a reload.
    pub fn reload(&mut self, plan: Plan, at: Instant) {
        self.release_until(at);
        self.live.apply(plan, at, &mut self.retired);
        self.snapshot = self.live.load_full();
        self.retired.sweep();
        self.index();
        self.poll_woken(at);
    }

    /// Returns the configuration in force.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Returns the route of an arrival, and its `key` as text if it has one.
    ///
    /// # Errors
    /// It reaches no route.
    pub fn identify(
        &self,
        arrival: &Arrival,
        key: &KeySpec,
    ) -> Result<(usize, Option<String>), Unreached> {
        self.with_head(arrival, |target, path, client| {
            let route = self.route_of(&self.snapshot, arrival, target, path)?;
            let known = arrival.key.as_ref().map(ToString::to_string);
            Ok((route, known.or_else(|| self.shown(arrival, key, target, client))))
        })
    }

    /// Decides about an arrival. `None`: it waits for a place, and [`take_ended`](Self::take_ended) has
    /// the result when that is known.
    pub fn arrive(&mut self, arrival: &Arrival) -> Option<ArrivalResult> {
        self.release_until(arrival.at);
        let snapshot = Arc::clone(&self.snapshot);
        let mut claims = Claims::new();
        let route = match self.claim(&snapshot, arrival, &mut claims) {
            Ok(route) => route,
            Err(reason) => return Some(ArrivalResult::unreached(reason)),
        };

        follow_limits(&snapshot.routes[route], arrival);
        let decision = snapshot.routes[route].gates.enter(arrival.at, &claims);
        match decision {
            Ok(Admission { mut permit, .. }) if permit.is_waiting() => {
                permit.share(self.sharers(&snapshot.routes[route], arrival));
                let number = self.admitted;
                self.admitted += 1;
                let waiting = WaitingArrival::new(arrival, permit, claims, route, &snapshot);
                let ended = self.poll(number, waiting, arrival.at);
                // It may have taken the room of another one.
                self.poll_woken(arrival.at);
                ended.map(|ended| ended.result)
            }
            Ok(Admission { permit, report }) => {
                let start = permit.start();
                let decided = Some(DecisionRecord::admitted(&report, &snapshot.routes[route]));
                self.keep(arrival, permit, &snapshot.routes[route]);
                let start = Some(start);
                Some(ArrivalResult { route: Ok(route), decided, claims, report, start })
            }
            Err(rejection) => Some(ArrivalResult::rejected(route, claims, rejection)),
        }
    }

    /// Takes the arrivals whose wait for a place has ended since the last call.
    pub fn take_ended(&mut self) -> Vec<EndedWait> {
        self.waits.take_ended()
    }

    /// Goes on until no arrival waits for a place any more.
    pub fn end_waits(&mut self) {
        while let Some((end, _)) = self.waits.first_end() {
            self.release_until(end);
        }
    }

    /// Ends a request that came without a duration, if it was admitted.
    pub fn complete(&mut self, complete: &Complete) {
        self.release_until(complete.at);
        if let Some(Open { permit, ending, deadline, unsettled }) = self.open.remove(&complete.of) {
            self.deadlines.remove(&(deadline, complete.of));
            let ending = match complete.status {
                Some(_) => Ending::Responded(complete.status),
                None => ending,
            };
            finish(permit, ending, complete.at, unsettled.as_deref());
        } else if let Some(number) = self.waits.find(complete.of)
            && let Some(waiting) = self.waits.take(number)
        {
            // It would have ended while it waited: its client has left.
            self.leave(waiting, complete.at);
        }
        self.poll_woken(complete.at);
    }

    /// Responds to and ends requests due at `until` or before, and those that wait in vain; time does not
    /// step back.
    pub fn release_until(&mut self, until: Instant) {
        let until = self.latest.max(until);
        self.latest = until;
        loop {
            let end = self.waits.first_end().filter(|(end, _)| *end <= until);
            self.release_admitted(end.map_or(until, |(end, _)| end));
            let Some((at, number)) = end else { break };

            // Requests that ended until then may have given it a place.
            if self.waits.first_end() == Some((at, number))
                && let Some(waiting) = self.waits.take(number)
            {
                self.end_wait(number, waiting, at);
            }
        }
    }

    /// Responds to and ends admitted requests due at `until` or before.
    fn release_admitted(&mut self, until: Instant) {
        while let Some((deadline, id)) =
            self.deadlines.first().copied().filter(|(deadline, _)| *deadline <= until)
        {
            self.release_due(deadline);
            self.deadlines.pop_first();
            if let Some(Open { permit, ending, unsettled, .. }) = self.open.remove(&id) {
                finish(permit, cut_off(ending), deadline, unsettled.as_deref());
                self.poll_woken(deadline);
            }
        }
        self.release_due(until);
    }

    fn release_due(&mut self, until: Instant) {
        while let Some(due) = self.next_due(until) {
            let Due { at, permit, ending, unsettled, .. } = due;
            finish(*permit, ending, at, unsettled.as_deref());
            self.poll_woken(at);
        }
    }

    /// Responds to requests, and charges them, until one ends, at `until` or before.
    fn next_due(&mut self, until: Instant) -> Option<Due> {
        while let Some(mut next) = self.due.peek_mut().filter(|next| next.0.at <= until) {
            if next.0.is_over() {
                return Some(PeekMut::pop(next).0);
            }
            next.0.go_on();
        }
        None
    }

    /// Looks after those that were woken by what has ended at `now`.
    fn poll_woken(&mut self, now: Instant) {
        loop {
            let woken = self.waits.take_woken();
            if woken.is_empty() {
                break;
            }
            for number in woken {
                let Some(waiting) = self.waits.take(number) else { continue };
                if let Some(ended) = self.poll(number, waiting, now) {
                    self.waits.end(ended);
                }
            }
        }
    }

    /// Ends a wait whose time is over at `at`, or whose client leaves then.
    fn end_wait(&mut self, number: u64, waiting: WaitingArrival, at: Instant) {
        if waiting.leaves_at().is_some_and(|leaves| leaves <= at) {
            self.leave(waiting, at);
        } else if let Some(ended) = self.poll(number, waiting, at) {
            self.waits.end(ended);
        }
        self.poll_woken(at);
    }

    /// Has an arrival take the places that are free for it. Returns its result if it waits no longer.
    fn poll(
        &mut self,
        number: u64,
        mut waiting: WaitingArrival,
        now: Instant,
    ) -> Option<EndedWait> {
        let waker = self.waits.waker(number);
        let polled = match waiting.permit.poll_start(now, &waker) {
            Poll::Pending => {
                self.waits.insert(number, waiting);
                return None;
            }
            Poll::Ready(polled) => polled,
        };

        let WaitingArrival { arrival, permit, claims, route, snapshot, .. } = waiting;
        let result = match polled {
            Ok(report) => {
                let decided = Some(DecisionRecord::admitted(&report, &snapshot.routes[route]));
                let start = Some(permit.start());
                self.keep(&arrival, permit, &snapshot.routes[route]);
                ArrivalResult { route: Ok(route), decided, claims, report, start }
            }
            Err(rejection) => ArrivalResult::rejected(route, claims, rejection),
        };
        Some(EndedWait { arrival, result, snapshot })
    }

    /// Ends the wait of an arrival whose client leaves at `at`.
    fn leave(&mut self, waiting: WaitingArrival, at: Instant) {
        let WaitingArrival { arrival, mut permit, claims, route, snapshot, .. } = waiting;
        let report = permit.withdraw(at);
        let decided = Some(DecisionRecord::admitted(&report, &snapshot.routes[route]));
        let result = ArrivalResult { route: Ok(route), decided, claims, report, start: Some(at) };
        self.waits.end(EndedWait { arrival, result, snapshot });
    }

    fn index(&mut self) {
        let names = self.snapshot.routes.iter().enumerate();
        self.by_name = names.map(|(index, route)| (Arc::clone(&route.name), index)).collect();
        let needs_fields = |matcher: &Matcher| {
            let Matcher { listeners, headers, query, certificate, whole_query, .. } = matcher;
            let has_query = !query.is_empty() || whole_query.is_some();
            let has_fields = !headers.is_empty() || !certificate.is_empty() || has_query;
            !listeners.is_empty() || has_fields
        };
        let is_needed = self.matchers().any(needs_fields);
        self.needs_fields = is_needed;
    }

    /// Keeps an admitted request until its end, at most `longest` from its arrival if no line has
    /// its end and the route bounds it.
    fn keep(&mut self, arrival: &Arrival, permit: Permit, route: &Arc<Route>) {
        let unsettled = Unsettled::of(arrival, &permit, route);
        let start = permit.start();
        let ending = arrival.ending;
        let left_at = left_at(arrival, start).filter(|at| permit.waits_in_queue(*at));
        if !permit.holds() && left_at.is_none() && unsettled.is_none() {
            return;
        }

        if let Some(takes) = arrival.takes {
            let number = self.admitted;
            let answered = arrival.recorded.as_ref().and_then(|recorded| recorded.head);
            let end = match ending {
                // A client's patience counts from the arrival.
                Ending::Cancelled(after) => left_at.unwrap_or(arrival.at + after),
                Ending::Responded(_) | Ending::Failed => start + takes,
            };

            let answered =
                answered.filter(|answered| permit.awaits_answer() && start + answered.after <= end);
            let head = answered.map(|answered| (answered, start + answered.after));

            let permit = Box::new(permit);
            let mut due = Due { at: start, number, permit, head, end, ending, unsettled };
            due.at = due.next_step();
            self.admitted += 1;
            self.due.push(Reverse(due));
        } else {
            // A request that waits longer is cut off at its start.
            let longest = route.options.timeouts.request;
            let deadline = longest.map_or(Instant::FAR_FUTURE, |longest| arrival.at + longest);
            let deadline = permit.start().max(deadline);
            self.deadlines.insert((deadline, arrival.id));
            let before = self.open.insert(arrival.id, Open { permit, ending, deadline, unsettled });
            debug_assert!(before.is_none(), "an arrival has one number");
        }
    }

    /// Finds the route, and adds the arrival's claims.
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
            let is_known = arrival.request.client.is_some() || arrival.place().is_some();
            let access = route.options.access.as_ref().filter(|_| is_known);
            if access.is_some_and(|access| !access.allows(client, target.place)) {
                return Err(Unreached::Denied);
            }

            let members = self.members(arrival, route.members.as_ref());
            let said = said_by_service(target, route.auth_fields());
            let identity = said.as_ref().or(target.identity);
            let target = &Target { identity, body: members.as_ref(), ..*target };

            // Keys: of the line, of flowgate's log, or of the request as the route reads it.
            let known = |rule: &RouteRule, identity: &str| match fingerprint {
                Some(fingerprint) => KeySource::Fingerprint(fingerprint),
                None => recorded(arrival, rule, identity),
            };
            route.claim(RequestContext { seed: &self.seed, target, client }, known, claims);

            if arrival.priority {
                route.prioritize(claims);
            }
            settle::reserve(arrival, members.as_ref(), route, claims);
            if let Some(cost) = arrival.cost {
                route.charge(cost, claims);
            }
            Ok(index)
        })
    }

    /// Returns the parts of an arrival in the order of queues: of flowgate's log, or of the request.
    fn sharers(&self, route: &Route, arrival: &Arrival) -> Vec<(SlotId, Sharer)> {
        if !route.shares_queues {
            return Vec::new();
        }
        let recorded = |identity: &str| {
            let mut sharers = arrival.recorded.iter().flat_map(|recorded| &recorded.sharers);
            sharers.find(|recorded| *recorded.rule == *identity).map(|recorded| recorded.sharer)
        };
        let sharers = self.with_head(arrival, |target, _, client| {
            let members = self.members(arrival, route.members.as_ref());
            let said = said_by_service(target, route.auth_fields());
            let identity = said.as_ref().or(target.identity);
            let target = &Target { identity, body: members.as_ref(), ..*target };
            let request = RequestContext { seed: &self.seed, target, client };
            Ok(route.sharers(request, recorded))
        });
        sharers.unwrap_or_default()
    }

    /// Returns an arrival's key for a rule as text.
    pub fn show_key(&self, arrival: &Arrival, rule: &RouteRule) -> String {
        const UNKNOWN: &str = "(none)";
        if let Some(key) = &arrival.key {
            return key.to_string();
        }
        let of_rule = |key: &&RecordedKey| rule_of(&key.rule) == &*rule.name;
        let mut recorded = recorded_keys(arrival).filter(of_rule);
        if let Some(fingerprint) = recorded.find_map(|key| match key.key {
            Some(Key::Of(fingerprint)) => Some(fingerprint),
            Some(Key::Shared | Key::Missing | Key::Duplicate) | None => None,
        }) {
            return format!("#{:08x}", fingerprint >> 96);
        }
        let shown = self.with_head(arrival, |target, _, client| {
            Ok(self.shown(arrival, &rule.key, target, client))
        });
        shown.ok().flatten().unwrap_or_else(|| UNKNOWN.to_owned())
    }

    /// Returns an arrival's key as text.
    fn shown(
        &self,
        arrival: &Arrival,
        key: &KeySpec,
        target: &Target<'_>,
        client: IpAddr,
    ) -> Option<String> {
        let paths = arrival.body().and_then(|_| MemberPaths::new(key.members()).ok()?);
        let members = self.members(arrival, paths.map(Arc::new).as_ref());
        let said = said_by_service(target, key.auth_fields());
        let identity = said.as_ref().or(target.identity);
        key.show(&Target { identity, body: members.as_ref(), ..*target }, client)
    }

    /// Returns the members at `paths` of an arrival's body, unless that is longer than what is held back.
    fn members(&self, arrival: &Arrival, paths: Option<&Arc<MemberPaths>>) -> Option<BodyMembers> {
        let most = self.snapshot.settings.limits.peek_body;
        let body = arrival.body().filter(|body| body.len() <= most)?;
        BodyMembers::of(paths?, body.as_bytes())
    }

    /// Calls `then` with the target, the received path and the client's address of an arrival.
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
        let headers = headers.as_deref().unwrap_or(&self.no_headers).into();
        let normal = normal_path(path);
        let listener = self.listener_of(arrival);
        let identity = arrival.identity.as_deref();
        // A log without addresses has one client.
        let peer = client.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let client = self.snapshot.proxies(listener).client(peer, headers).address;
        let found = OnceCell::new();
        let files = self.snapshot.settings.geo.as_deref();
        let looked_up = || Located::of(files, client, &found);
        let target = Target {
            listener,
            certificate: None,
            place: arrival.place().map_or_else(looked_up, Located::At),
            identity,
            body: None,
            host: &host,
            path: &normal,
            query,
            method,
            headers,
        };

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

        // The recorded route decides where a route needs fields that the log lacks.
        let found = arrival.recorded.as_ref().filter(|_| self.needs_fields);
        let found = found.and_then(|recorded| recorded.route.as_ref());
        if let Some(index) = found.and_then(|name| self.by_name.get(name)) {
            return Ok(*index);
        }

        // Events without a head belong to the only route.
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

impl ArrivalResult {
    /// Returns the rule that rejected the request, delayed it longest, or passed it with least
    /// left.
    pub fn rule(&self) -> Option<SlotId> {
        let held = self.report.quotas.iter().filter(|quota| quota.verdict == Verdict::Delayed);
        // The first of equal ones, as in all reports.
        let longest = held.filter(|_| self.start.is_some()).min_by_key(|quota| Reverse(quota.wait));
        longest.copied().or(self.decided?.quota).map(|quota| quota.slot)
    }

    fn rejected(route: usize, claims: Claims, rejection: Rejection) -> Self {
        let decided = Some(DecisionRecord::rejected(&rejection));
        Self { route: Ok(route), decided, claims, report: rejection.report, start: None }
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
            Self::Denied => "the route does not allow the client's address",
        }
    }
}

fn recorded_keys(arrival: &Arrival) -> impl Iterator<Item = &RecordedKey> {
    arrival.recorded.iter().flat_map(|recorded| &recorded.keys)
}

/// Returns what an auth service has said about the client in the fields of these names: the service is
/// not asked, so the request has them as the upstream got them.
fn said_by_service<'n>(
    target: &Target<'_>,
    names: impl Iterator<Item = &'n HeaderName>,
) -> Option<Identity> {
    let mut names = names.peekable();
    let has_any = target.identity.is_none() && names.peek().is_some();
    has_any.then(|| Identity::of_service(target.headers, names))
}

/// Returns what the log says that an arrival claimed of a rule with this identity.
fn recorded(arrival: &Arrival, rule: &RouteRule, identity: &str) -> KeySource {
    let known = recorded_keys(arrival).find(|key| *key.rule == *identity);
    known.map_or(KeySource::Request, |known| {
        let plans = rule.plans.as_deref();
        let plan = plans.zip(known.plan.as_deref()).and_then(|(plans, text)| plans.read(text));
        KeySource::Recorded { key: known.key, priority: known.priority, plan }
    })
}

/// Returns the end of a request at its timeout: 504 if it had no response.
fn cut_off(ending: Ending) -> Ending {
    match ending {
        Ending::Responded(None) => Ending::Responded(Some(StatusCode::GATEWAY_TIMEOUT.as_u16())),
        known @ (Ending::Responded(Some(_)) | Ending::Failed | Ending::Cancelled(_)) => known,
    }
}

/// Returns the time at which the client leaves while the request waits for `start`, if it does. If
/// the log says that it left, that is before the start, even if the recording gateway counted the
/// wait from a later time than this one.
fn left_at(arrival: &Arrival, start: Instant) -> Option<Instant> {
    const TICK: Duration = Duration::from_nanos(1);
    let Ending::Cancelled(after) = arrival.ending else { return None };
    let at = arrival.at + after;
    if arrival.recorded.as_ref().is_some_and(|recorded| recorded.left) {
        return Some(at.min(start - TICK)).filter(|at| *at >= arrival.at);
    }
    Some(at).filter(|at| *at < start)
}

fn finish(mut permit: Permit, ending: Ending, at: Instant, unsettled: Option<&Unsettled>) {
    if let Some(unsettled) = unsettled {
        unsettled.settle(&mut permit, ending, at);
    }
    let outcome = match ending {
        Ending::Responded(status) => outcome(status.unwrap_or(200), at),
        Ending::Failed => Outcome::Failure { at },
        // As in a live gateway, another request may take its start.
        Ending::Cancelled(_) if at < permit.start() => return permit.leave(at),
        Ending::Cancelled(_) => Outcome::Cancelled,
    };
    permit.finish(outcome);
}

fn outcome(status: u16, at: Instant) -> Outcome {
    config::outcome(StatusCode::from_u16(status).unwrap_or(StatusCode::OK), at)
}

/// Splits a path from its query.
fn split(path: &str) -> (&str, Option<&str>) {
    match path.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (path, None),
    }
}

impl Due {
    /// Returns the time of the next step.
    fn next_step(&self) -> Instant {
        let head = self.head.map(|(_, at)| at);
        let charge = self.unsettled.as_ref().and_then(|unsettled| unsettled.next_charge());
        head.into_iter().chain(charge).min().map_or(self.end, |next| next.min(self.end))
    }

    /// Returns whether the end is the next step.
    fn is_over(&self) -> bool {
        let unsettled = self.unsettled.as_ref();
        let has_charge = unsettled.and_then(|unsettled| unsettled.next_charge()).is_some();
        self.head.is_none() && !has_charge
    }

    /// Takes the next step, which is not the end.
    fn go_on(&mut self) {
        let at = self.at;
        if let Some((ResponseHead { status, uploading, .. }, _)) =
            self.head.take_if(|(_, head)| *head <= at)
        {
            let outcome = status.map_or(Outcome::Cancelled, |status| outcome(status, at));
            self.permit.answered(outcome, uploading);
        }
        if let Some(unsettled) = &mut self.unsettled {
            // No charge is later than the end.
            let until = if at >= self.end { Instant::FAR_FUTURE } else { at };
            unsettled.charge(&mut self.permit, at, until);
        }
        self.at = self.next_step().max(at);
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

/// Has limits that find themselves take over those of the recorded decision: what is learned depends on how
/// the service reacts, which a record of other times does not know.
fn follow_limits(route: &Route, arrival: &Arrival) {
    let Some(recorded) = arrival.recorded.as_ref().filter(|_| !route.auto.is_empty()) else {
        return;
    };
    for (identity, limit) in &recorded.limits {
        let is_it = |rule: &&RouteRule| rule.is_auto && *rule.identity == **identity;
        if let Some(rule) = route.rules.iter().find(is_it) {
            route.gates.follow_limit(rule.slot, arrival.at, *limit);
        }
    }
}
