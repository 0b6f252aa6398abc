//! Names the rules whose key no arrival has, as in a log without header fields: the report of such
//! a rule says little about live requests.

use super::{
    engine::{ArrivalResult, Engine},
    event::Arrival,
};
use crate::counted::inflected;
use crate::{
    config::{OnMissing, RouteRule},
    route::KeyPart,
};
use http::header::COOKIE;
use std::collections::BTreeMap;

/// Rules to name.
const MOST_NAMED: usize = 3;

/// Counts of arrivals by route and rule.
#[derive(Debug, Default)]
pub(super) struct AbsentKeys(BTreeMap<(usize, usize), Counts>);

#[derive(Debug, Default)]
struct Counts {
    arrivals: u64,
    /// Those without a part of the key.
    absent: u64,
}

impl AbsentKeys {
    pub(super) fn note(&mut self, engine: &Engine, arrival: &Arrival, result: &ArrivalResult) {
        // Such a line has keys in place of the fields.
        if arrival.key.is_some() || arrival.recorded.is_some() {
            return;
        }
        let Ok(route) = result.route else { return };
        for (index, rule) in engine.snapshot().routes[route].rules.iter().enumerate() {
            if rule.when.is_some() || !rule.key.looks_at_fields() {
                continue;
            }
            let counts = self.0.entry((route, index)).or_default();
            counts.arrivals += 1;
            counts.absent += u64::from(is_absent(rule, arrival));
        }
    }

    /// Returns a note for each rule that got no key at all.
    pub(super) fn explain(&self, engine: &Engine) -> Vec<String> {
        let routes = &engine.snapshot().routes;
        let keyless = self.0.iter().filter(|(_, counts)| counts.absent == counts.arrivals);
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
        keyless.filter_map(note).take(MOST_NAMED).collect()
    }
}

/// Reports whether the line lacks a field that the rule's key needs.
fn is_absent(rule: &RouteRule, arrival: &Arrival) -> bool {
    let headers = arrival.request.headers.as_deref();
    rule.key.parts().iter().any(|part| match part {
        KeyPart::Header(name) => !headers.is_some_and(|headers| headers.contains_key(name)),
        KeyPart::Cookie(_) => !headers.is_some_and(|headers| headers.contains_key(COOKIE)),
        KeyPart::User | KeyPart::Jwt(_) => true,
        KeyPart::Query(_)
        | KeyPart::Route
        | KeyPart::ClientIp { .. }
        | KeyPart::Host
        | KeyPart::Path
        | KeyPart::Method => false,
    })
}
