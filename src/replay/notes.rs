//! Notes on arrivals that tell little about the rules: those that reached none, and those that lack
//! the key of a rule.

use super::{
    engine::{ArrivalResult, Engine, Unreached},
    event::Arrival,
};
use crate::{
    config::{OnMissing, RouteRule},
    counted::{counted, inflected},
    route::KeyPart,
    terminal_text::printable,
};
use core::cmp::Reverse;
use http::header::COOKIE;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The most hosts, listeners, and pairs of both to try.
const MOST_HOSTS: usize = 32;
const MOST_LISTENERS: usize = 8;
const MOST_CHOICES: usize = 100;

/// The most arrivals to try with each of them.
const MOST_TRIED: u64 = 1000;

/// Choices, routes, requests and rules to name.
const MOST_NAMED: usize = 3;

/// Counts of arrivals that reached no rule, and the options with which they would.
#[derive(Debug)]
pub(crate) struct Unmatched {
    arrivals: u64,
    /// Arrivals that a rule decided, or whose route has rules.
    ruled: u64,
    /// Arrivals that reached no route for another reason than that none matches.
    stopped: BTreeMap<&'static str, u64>,
    /// Arrivals that matched no route.
    lost: u64,
    /// Hosts and listeners that arrivals may lack, the fewest options first.
    choices: Vec<Choice>,
    /// The first requests that matched no route.
    examples: Vec<String>,
}

/// A host and a listener for arrivals that lack them.
#[derive(Clone, Debug)]
struct Choice {
    host: Option<Arc<str>>,
    listener: Option<Arc<str>>,
    /// Arrivals that lack these.
    tried: u64,
    /// Those of them that match another route with these.
    matched: u64,
}

impl Unmatched {
    pub(crate) fn new(engine: &Engine) -> Self {
        let hosts = engine.hosts().into_iter().take(MOST_HOSTS).map(Some);
        let listeners = engine.listeners().into_iter().take(MOST_LISTENERS).map(Some);
        let hosts: Vec<_> = [None].into_iter().chain(hosts).collect();
        let listeners: Vec<_> = [None].into_iter().chain(listeners).collect();
        let paired = |listener: &Option<Arc<str>>| {
            let choice = |host: &Option<Arc<str>>| {
                let host = host.clone();
                Choice { host, listener: listener.clone(), tried: 0, matched: 0 }
            };
            hosts.iter().map(choice).collect::<Vec<_>>()
        };

        // The first one has neither.
        let mut choices: Vec<_> = listeners.iter().flat_map(paired).skip(1).collect();
        choices.sort_by_key(Choice::options);
        choices.truncate(MOST_CHOICES);

        Self {
            arrivals: 0,
            ruled: 0,
            stopped: BTreeMap::new(),
            lost: 0,
            choices,
            examples: Vec::new(),
        }
    }

    /// Counts an arrival that the rules have decided.
    pub(super) fn note_result(
        &mut self,
        engine: &Engine,
        arrival: &Arrival,
        result: &ArrivalResult,
    ) {
        let has_rules = result.route.is_ok_and(|route| {
            let route = &engine.snapshot().routes[route];
            !route.rules.is_empty() || route.breaker.is_some() || route.pacing.is_some()
        });
        self.ruled += u64::from(has_rules || !result.report.quotas.is_empty());
        self.note(engine, arrival, result.route);
    }

    /// Counts an arrival with its route.
    pub(crate) fn note(
        &mut self,
        engine: &Engine,
        arrival: &Arrival,
        route: Result<usize, Unreached>,
    ) {
        self.arrivals += 1;
        let is_for_unmatched = |at: usize| engine.snapshot().routes[at].is_for_unmatched();
        let route = route
            .and_then(|at| if is_for_unmatched(at) { Err(Unreached::NoRoute) } else { Ok(at) });
        for choice in &mut self.choices {
            choice.try_with(engine, arrival, route);
        }

        match route {
            Ok(_) => return,
            Err(Unreached::NoRoute) => {}
            Err(other) => {
                *self.stopped.entry(other.words()).or_default() += 1;
                return;
            }
        }

        self.lost += 1;
        let request = &arrival.request;
        if self.examples.len() < MOST_NAMED {
            let host = request.host.as_deref().unwrap_or_default();
            let path = request.path.as_deref().unwrap_or("/");
            let shown = format!("{} {host}{path}", request.method);
            let shown = printable(&shown, 60);
            if !self.examples.contains(&shown) {
                self.examples.push(shown);
            }
        }
    }

    /// Explains why no rule was reached, and what to pass.
    pub(super) fn explain(&self, engine: &Engine) -> Option<String> {
        let Self { arrivals, lost, .. } = self;
        if *arrivals == 0 {
            return Some("the input has no request: nothing was replayed".to_owned());
        }
        if let Some(absent) = self.explain_absent() {
            return Some(absent);
        }

        if lost == arrivals {
            return Some(format!(
                "no request matches a route, as {}; the routes are {}. A log seldom has the host and \
                 the headers that a route asks for: `--host HOST` adds a host, `--route NAME` sends \
                 all requests to one route",
                self.examples.join(", "),
                routes(engine)
            ));
        }

        let stopped: u64 = self.stopped.values().sum();
        if lost + stopped == *arrivals {
            let reasons = self.stopped.iter().map(|(why, count)| format!("{why} (×{count})"));
            let reasons: Vec<_> = reasons.take(MOST_NAMED).collect();
            return Some(format!("no request reached a rule: {}", reasons.join(", ")));
        }

        (self.ruled == 0 && *lost == 0).then(|| {
            "no rule decided: the routes that the requests match have no `flow`, `pacing` or \
             `breaker`; `--route NAME` sends all requests to another route"
                .to_owned()
        })
    }

    /// Names the host or the listener that the log lacks, if routes need it.
    pub(crate) fn explain_absent(&self) -> Option<String> {
        let Self { arrivals, lost, .. } = self;
        let found = self.fitting();
        let best = found.first()?;
        let pass: Vec<_> = found.iter().take(MOST_NAMED).map(|choice| choice.shown()).collect();
        let pass = pass.join(", or ");
        let (absent, asked) = match (&best.host, &best.listener) {
            (_, None) => ("host", "hosts"),
            (None, _) => ("listener", "listeners"),
            (Some(_), Some(_)) => ("host and no listener", "hosts and listeners"),
        };

        if *lost == 0 {
            return Some(format!(
                "the log names no {absent}, so no request went to the routes for certain {asked}: \
                 pass {pass}"
            ));
        }
        let requests = counted(*arrivals, "request");
        let them = inflected(*lost, "matches", "match");
        Some(format!(
            "{lost} of {requests} {them} no route, as the log names no {absent} and routes are \
             for certain {asked}: pass {pass}"
        ))
    }

    /// Returns the choices that help, the best first. A choice of two options helps if more arrivals
    /// match with it than with either.
    fn fitting(&self) -> Vec<&Choice> {
        let is_better = |choice: &&Choice| {
            let mut others = self.choices.iter().filter(|other| choice.extends(other));
            others.all(|other| other.matched < choice.matched)
        };
        let helps = self.choices.iter().filter(|choice| choice.matched > 0);
        let mut all: Vec<_> = helps.filter(is_better).collect();
        all.sort_by_key(|choice| Reverse(choice.matched));
        all
    }
}

impl Choice {
    /// Returns the number of its options.
    fn options(&self) -> usize {
        usize::from(self.host.is_some()) + usize::from(self.listener.is_some())
    }

    /// True if it is another choice with a further option.
    fn extends(&self, other: &Self) -> bool {
        let is_part =
            |own: &Option<Arc<str>>, other: &Option<Arc<str>>| other.is_none() || own == other;
        other.options() < self.options()
            && is_part(&self.host, &other.host)
            && is_part(&self.listener, &other.listener)
    }

    fn try_with(&mut self, engine: &Engine, arrival: &Arrival, route: Result<usize, Unreached>) {
        let Self { host, listener, .. } = self;
        let has_host = host.is_some() && arrival.request.host.is_some();
        let has_listener = listener.is_some() && arrival.listener.is_some();
        // Most logs lack the listener, and that matters only if there is no route without it.
        let is_found = listener.is_some() && route != Err(Unreached::NoRoute);
        if has_host || has_listener || is_found || self.tried >= MOST_TRIED {
            return;
        }
        let found = engine.route_with(arrival, host.as_ref(), listener.as_ref());
        self.tried += 1;
        self.matched += u64::from(found.is_some() && found != route.ok());
    }

    fn shown(&self) -> String {
        let host = self.host.iter().map(|host| format!("--host {host}"));
        let listener = self.listener.iter().map(|name| format!("--listener {name}"));
        let options: Vec<_> = host.chain(listener).collect();
        format!("`{}` (then {} of {} match)", options.join(" "), self.matched, self.tried)
    }
}

/// Names a few routes with their conditions.
fn routes(engine: &Engine) -> String {
    let routes = &engine.snapshot().routes;
    let named = routes.iter().take(MOST_NAMED);
    let mut named: Vec<_> =
        named.map(|route| format!("`{}` ({})", route.name, route.matches)).collect();
    if routes.len() > MOST_NAMED {
        named.push(format!("{} more", routes.len() - MOST_NAMED));
    }
    named.join(", ")
}

/// Rules about which the input says little, as it lacks what they look at.
///
/// That is usual for a log without header fields. The report of such a rule says little about live
/// requests.
#[derive(Debug, Default)]
pub(super) struct AbsentKeys {
    /// Counts of arrivals by route and rule, for rules whose key no arrival has.
    keys: BTreeMap<(usize, usize), Counts>,
    /// The listeners whose rules were not asked, as an arrival has no listener.
    listeners: BTreeSet<Arc<str>>,
}

#[derive(Debug, Default)]
struct Counts {
    arrivals: u64,
    /// Those without a part of the key.
    absent: u64,
}

impl AbsentKeys {
    pub(super) fn note(&mut self, engine: &Engine, arrival: &Arrival, result: &ArrivalResult) {
        // Lines with keys need no fields.
        if arrival.key.is_some()
            || arrival.recorded.as_ref().is_some_and(|recorded| !recorded.is_event)
        {
            return;
        }
        let Ok(route) = result.route else { return };
        let has_listener = engine.listener_of(arrival).is_some();
        for (index, rule) in engine.snapshot().routes[route].rules.iter().enumerate() {
            if !has_listener {
                self.listeners
                    .extend(rule.listeners.iter().flat_map(|names| names.iter().cloned()));
            }
            if rule.when.is_some() || !rule.key.looks_at_fields() {
                continue;
            }
            let counts = self.keys.entry((route, index)).or_default();
            counts.arrivals += 1;
            counts.absent += u64::from(is_absent(rule, arrival));
        }
    }

    /// Returns a note for rules of listeners, and for each rule that got no key at all.
    pub(super) fn explain(&self, engine: &Engine) -> Vec<String> {
        let routes = &engine.snapshot().routes;
        let keyless = self.keys.iter().filter(|(_, counts)| counts.absent == counts.arrivals);
        let note = |(&(route, rule), counts): (&(usize, usize), &Counts)| {
            let route = routes.get(route)?;
            let rule = route.rules.get(rule)?;
            let arrivals = counts.arrivals;
            let outcome = match rule.on_missing {
                OnMissing::Shared => inflected(arrivals, "counts as one client", "count together"),
                OnMissing::Skip => inflected(arrivals, "is not counted", "are not counted"),
                OnMissing::Reject => inflected(arrivals, "is rejected", "are rejected"),
            };
            let requests = match arrivals {
                1 => "the only request".to_owned(),
                _ => format!("all {arrivals} requests"),
            };
            Some(format!(
                "the input has no `{}`, the key of the rule `{}` of route `{}`: {requests} \
                 {outcome} (`on_missing_key`). Pass a log that has the field",
                rule.key, rule.name, route.name
            ))
        };
        let keyless = keyless.filter_map(note).take(MOST_NAMED);
        self.explain_listeners().into_iter().chain(keyless).collect()
    }

    /// Says that the rules of listeners were not asked.
    fn explain_listeners(&self) -> Option<String> {
        let names: Vec<&str> = self.listeners.iter().map(|name| &**name).collect();
        let first = names.first()?;
        Some(format!(
            "the input names no listener, so that the rules of {} {} decided nothing: pass \
             `--listener {first}` if the requests came by it",
            inflected(names.len() as u64, "the listener", "the listeners"),
            names.join(", ")
        ))
    }
}

/// True if the line lacks a field that the rule's key needs.
fn is_absent(rule: &RouteRule, arrival: &Arrival) -> bool {
    let headers = arrival.request.headers.as_deref();
    rule.key.parts().iter().any(|part| match part {
        KeyPart::Header(name) => !headers.is_some_and(|headers| headers.contains_key(name)),
        KeyPart::Cookie(_) => !headers.is_some_and(|headers| headers.contains_key(COOKIE)),
        KeyPart::Json(_) => arrival.body().is_none(),
        KeyPart::User | KeyPart::Jwt(_) | KeyPart::Auth(_) | KeyPart::ClientCert => true,
        KeyPart::Query(_)
        | KeyPart::Route
        | KeyPart::ClientIp { .. }
        | KeyPart::Listener
        | KeyPart::Country
        | KeyPart::Asn
        | KeyPart::Segment(_)
        | KeyPart::Host
        | KeyPart::Path
        | KeyPart::Method => false,
    })
}
