//! Explains why arrivals reached no rule, and which option helps.

use super::{
    engine::{ArrivalResult, Engine, Unreached},
    event::Arrival,
};
use core::{cmp::Reverse, fmt::Write};

/// Hosts to try.
const MOST_HOSTS: usize = 32;

/// Arrivals to try with each host.
const MOST_TRIED: u64 = 1000;

/// Hosts, routes and requests to name.
const MOST_NAMED: usize = 3;

/// Counts of arrivals that reached no rule.
#[derive(Debug)]
pub(super) struct Unmatched {
    arrivals: u64,
    /// Arrivals that a rule decided, or whose route has rules.
    ruled: u64,
    /// Arrivals that matched no route.
    lost: u64,
    /// Arrivals without host that were tried with other hosts.
    tried: u64,
    /// Hosts of routes, and how many tried arrivals match another route with each.
    hosts: Vec<(String, u64)>,
    /// The first requests that matched no route.
    examples: Vec<String>,
}

impl Unmatched {
    pub(super) fn new(engine: &Engine) -> Self {
        let mut hosts = engine.hosts();
        hosts.truncate(MOST_HOSTS);
        Self {
            arrivals: 0,
            ruled: 0,
            lost: 0,
            tried: 0,
            hosts: hosts.into_iter().map(|host| (host, 0)).collect(),
            examples: Vec::new(),
        }
    }

    pub(super) fn note(&mut self, engine: &Engine, arrival: &Arrival, result: &ArrivalResult) {
        self.arrivals += 1;
        let has_rules =
            result.route.is_ok_and(|route| !engine.snapshot().routes[route].rules.is_empty());
        self.ruled += u64::from(has_rules || !result.report.quotas.is_empty());
        self.try_hosts(engine, arrival, result);
        if result.route != Err(Unreached::NoRoute) {
            return;
        }
        self.lost += 1;
        let request = &arrival.request;
        if self.examples.len() < MOST_NAMED {
            let host = request.host.as_deref().unwrap_or_default();
            let path = request.path.as_deref().unwrap_or("/");
            let shown = format!("{} {host}{path}", request.method);
            let shown: String = shown.chars().take(60).flat_map(char::escape_debug).collect();
            if !self.examples.contains(&shown) {
                self.examples.push(shown);
            }
        }
    }

    fn try_hosts(&mut self, engine: &Engine, arrival: &Arrival, result: &ArrivalResult) {
        let is_hostless = arrival.request.host.is_none() && !engine.assumes_host();
        if !is_hostless || self.tried >= MOST_TRIED {
            return;
        }
        self.tried += 1;
        for (host, matched) in &mut self.hosts {
            let found = engine.route_with(arrival, host);
            *matched += u64::from(found.is_some() && found != result.route.ok());
        }
    }

    /// Explains why no rule was reached, and what to pass.
    pub(super) fn explain(&self, engine: &Engine) -> Option<String> {
        let Self { arrivals, lost, .. } = self;
        if *arrivals == 0 {
            return Some("the input has no request: nothing was replayed".to_owned());
        }
        if let Some(hosts) = self.fitting_hosts() {
            if *lost == 0 {
                return Some(format!(
                    "the log names no host, so no arrival went to the routes for certain hosts: \
                     pass {hosts}"
                ));
            }
            let them = if *lost == 1 { "arrival matches" } else { "arrivals match" };
            return Some(format!(
                "{lost} of {arrivals} {them} no route, as the log names no host and routes are \
                 for certain hosts: pass {hosts}"
            ));
        }
        if lost == arrivals {
            return Some(format!(
                "no arrival matches a route, as {}; the routes are {}. A log seldom has the host and \
                 the headers that a route asks for: `--host HOST` adds a host, `--route NAME` sends \
                 all arrivals to one route",
                self.examples.join(", "),
                routes(engine)
            ));
        }
        (self.ruled == 0 && *lost == 0).then(|| {
            "no rule was asked: the routes that the arrivals match have neither `flow` nor `pacing` \
             nor `breaker`; `--route NAME` sends all arrivals to another route"
                .to_owned()
        })
    }

    /// Returns the hosts that help, the best first.
    fn fitting_hosts(&self) -> Option<String> {
        let mut hosts: Vec<_> = self.hosts.iter().filter(|(_, matched)| *matched > 0).collect();
        hosts.sort_by_key(|(_, matched)| Reverse(*matched));
        let mut text = String::new();
        for (host, matched) in hosts.iter().take(MOST_NAMED) {
            let or = if text.is_empty() { "" } else { ", or " };
            // Writing to a String cannot fail.
            _ = write!(text, "{or}`--host {host}` (then {matched} of {} match)", self.tried);
        }
        (!text.is_empty()).then_some(text)
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
