//! `limit_req` and `limit_conn` as rules.

use super::{
    access,
    converted_config::Fields,
    limit_keys::{Key, Lacking, read_key},
    numbers::{Rate, size, spelled},
    report::ImportReport,
    template::{Certificates, ServerVariables},
    tree::{Directive, Scope},
};
use core::time::Duration;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The bytes of a zone for each key: a state of `limit_req` takes 64 in nginx.
const BYTES_A_KEY: u64 = 64;

/// The most keys that a rule may keep.
const MOST_KEYS: u64 = 10_000_000;

/// The longest wait of pacing: half of the longest request.
const LONGEST_WAIT: Duration = Duration::from_mins(30);

/// The key of a rule with the name of its zone, until the file is whole: see [`shared_zones`]. A rule for
/// requests that lack parts of the zone's key has these in a second line.
///
/// [`shared_zones`]: super::shared_zones
pub(super) const ZONE: &str = "zone of nginx";

/// The most rules of a route.
const MOST_RULES: usize = 16;

/// A `limit_req_zone` or a `limit_conn_zone`.
#[derive(Debug)]
struct Zone<'a> {
    directive: &'a Directive,
    key: Result<Key<'a>, String>,
    rate: Option<Rate>,
    keys: u64,
}

/// The zones of a file, and the directives that use them.
#[derive(Debug, Default)]
pub(super) struct Zones<'a> {
    by_name: BTreeMap<&'a str, Zone<'a>>,
    /// The `limit_req` and `limit_conn` of each zone.
    users: Vec<(&'a str, Directive)>,
}

/// The rules of a route.
#[derive(Debug, Default)]
pub(super) struct Rules {
    pub flow: Vec<Value>,
    pub reject: Option<Value>,
    /// Comments on them.
    pub comments: Vec<String>,
}

/// A `limit_req` or a `limit_conn` with its zone.
#[derive(Debug)]
struct Limit<'a, 'd> {
    /// The name of the zone.
    name: &'d str,
    directive: &'d Directive,
    key: Key<'a>,
    /// The most keys that it counts.
    keys: u64,
    is_dry: bool,
}

/// The statuses of rejections by the rules of a route.
#[derive(Debug, Default)]
struct Statuses {
    wanted: BTreeSet<u16>,
    is_usual: bool,
}

impl<'a> Zones<'a> {
    pub(super) fn read(
        http: &'a Directive,
        maps: &[&'a Directive],
        report: &mut ImportReport,
    ) -> Self {
        let mut zones = Self::default();
        for directive in http.inner() {
            let is_rate = directive.name == "limit_req_zone";
            if !is_rate && directive.name != "limit_conn_zone" {
                continue;
            }

            let named = directive.named("zone").unwrap_or_default();
            let (name, memory) = named.split_once(':').unwrap_or((named, ""));

            let key = read_key(directive.arg(0), maps);
            let rate = directive.named("rate").and_then(Rate::read);
            if let Err(why) = &key {
                report.note(directive, why.clone());
            } else if is_rate && rate.is_none() {
                report.note(directive, "the rate is not clear");
            } else if directive.args.iter().any(|arg| arg == "sync") {
                report.note(directive, "`sync` is `scope: cluster` with a `store`");
            }

            let keys = (size(memory).unwrap_or(10 << 20) / BYTES_A_KEY).clamp(1, MOST_KEYS);
            zones.by_name.insert(name, Zone { directive, key, rate, keys });
        }
        zones
    }

    /// Returns the rules that hold in a location, which is the route `route`.
    pub(super) fn rules(
        &mut self,
        scope: &Scope<'_>,
        variables: &ServerVariables<'_>,
        route: &str,
        report: &mut ImportReport,
    ) -> Rules {
        let mut rules = Rules::default();
        let mut statuses = Statuses { is_usual: true, ..Statuses::default() };
        for directive in scope.all(&["limit_req"]) {
            let zone = directive.named("zone").unwrap_or_default();
            if self.is_idle(zone, directive, variables, report) {
                continue;
            }
            let usual = if is_paced(directive) { 503 } else { 429 };
            if self.rate_rule(scope, directive, &mut rules, report) {
                statuses.add(scope, "limit_req_status", usual, report);
            }
        }

        for directive in scope.all(&["limit_conn"]) {
            if self.is_idle(directive.arg(0), directive, variables, report) {
                continue;
            }
            if self.connection_rule(scope, directive, &mut rules, report) {
                statuses.add(scope, "limit_conn_status", 503, report);
            }
        }

        match (statuses.is_usual, statuses.wanted.iter().copied().collect::<Vec<_>>().as_slice()) {
            (true, _) | (_, []) => {}
            (false, [one]) => rules.reject = Some(json!({ "status": rejecting(*one) })),
            (false, [one, ..]) => {
                rules.reject = Some(json!({ "status": rejecting(*one) }));
                let all: Vec<_> = statuses.wanted.iter().map(ToString::to_string).collect();
                let all = all.join(" and ");
                for name in ["limit_req_status", "limit_conn_status"] {
                    if let Some(directive) = scope.find(name) {
                        let why = format!(
                            "limits of the route `{route}` answer {all}; a route has one status: here {one}"
                        );
                        report.note(directive, why);
                    }
                }
            }
        }
        rules
    }

    /// Returns whether each server has counts of its own in a zone. No key here names a server.
    pub(super) fn is_by_server(&self, zone: &str) -> bool {
        let zone = self.by_name.get(zone);
        zone.is_some_and(|zone| zone.directive.arg(0).contains("server_name"))
    }

    /// Notes the limits of a zone that is one count in nginx, and here a count for each of `routes`.
    pub(super) fn note_apart(
        &self,
        zone: &str,
        routes: usize,
        because: &str,
        report: &mut ImportReport,
    ) {
        for (_, directive) in self.users.iter().filter(|(name, _)| *name == zone) {
            let why = format!(
                "the zone `{zone}` is one count in nginx; here each of {routes} routes counts for itself, {because}"
            );
            report.note(directive, why);
        }
    }

    /// Reports whether a limit counts no request: it counts by certificate, and no client shows one.
    fn is_idle(
        &self,
        zone: &str,
        directive: &Directive,
        variables: &ServerVariables<'_>,
        report: &mut ImportReport,
    ) -> bool {
        let Some(Zone { directive: zone, key: Ok(key), .. }) = self.by_name.get(zone) else {
            return false;
        };
        let is_idle = key.is_by_certificate() && variables.certificates == Certificates::None;
        if is_idle {
            report.take(zone);
            report.take(directive);
        }
        is_idle
    }

    fn rate_rule(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        rules: &mut Rules,
        report: &mut ImportReport,
    ) -> bool {
        let name = directive.named("zone").unwrap_or_default();
        let Some((zone, key)) = self.zone(name, directive, rules, report) else { return false };
        let burst = directive.named("burst").unwrap_or("0").parse::<u64>();
        let (Some(rate), Ok(burst)) = (zone.rate, burst) else {
            report.note(directive, unlimited("its rate or its burst is not clear"));
            return false;
        };

        report.take(directive);
        note_key(scope, directive, &key, report);

        let mut rule = Fields::default();
        rule.set("limit", json!(rate.spelled()));

        let wait = rate.spaced(burst).filter(|wait| *wait <= LONGEST_WAIT);
        if let Some(wait) = wait.filter(|_| is_paced(directive)) {
            rule.set("algorithm", json!("pacing"));
            rule.set("max_wait", json!(spelled(wait)));
        } else {
            rule.set("burst", json!(burst.saturating_add(1)));
            if is_paced(directive) {
                report.note(directive, "rejects as nginx does, but holds nothing back: that would take longer than 30 minutes");
            }
        }

        if is_split(directive, burst) {
            report.note(directive, "rejects as nginx does, but holds nothing back: no rule lets some pass at once and delays others");
        }

        if rate.is_rounded() {
            let rounded = rate.count * 1000 / rate.window.as_secs();
            rules.comments.push(format!("nginx rounds the rate of {name} down to {rounded}/1000s"));
        }

        let is_dry = scope.is_on("limit_req_dry_run", report);
        let limit = Limit { name, directive, key, keys: zone.keys, is_dry };
        self.add(&limit, &rule, rules, report);
        true
    }

    fn connection_rule(
        &mut self,
        scope: &Scope<'_>,
        directive: &Directive,
        rules: &mut Rules,
        report: &mut ImportReport,
    ) -> bool {
        let name = directive.arg(0);
        let Some((zone, key)) = self.zone(name, directive, rules, report) else { return false };
        let Some(most) = directive.arg(1).parse::<u64>().ok().filter(|most| *most > 0) else {
            report.note(directive, unlimited("its number is not clear"));
            return false;
        };

        report.take(directive);
        note_key(scope, directive, &key, report);

        let mut rule = Fields::default();
        rule.set("concurrency", json!(most));
        let is_dry = scope.is_on("limit_conn_dry_run", report);
        let limit = Limit { name, directive, key, keys: zone.keys, is_dry };
        self.add(&limit, &rule, rules, report);
        true
    }

    fn zone(
        &self,
        name: &str,
        directive: &Directive,
        rules: &Rules,
        report: &mut ImportReport,
    ) -> Option<(&Zone<'a>, Key<'a>)> {
        let why = match self.by_name.get(name) {
            None => format!("there is no zone `{name}`"),
            Some(Zone { key: Err(why), .. }) => why.clone(),
            Some(_) if rules.flow.len() == MOST_RULES => {
                format!("a route has at most {MOST_RULES} rules")
            }
            Some(zone @ Zone { key: Ok(key), .. }) => {
                report.take(zone.directive);
                key.take(report);
                return Some((zone, key.clone()));
            }
        };

        report.note(directive, unlimited(&why));
        None
    }

    /// Adds the rule of a limit, and others for the requests that lack a part of its key.
    fn add(
        &mut self,
        limit: &Limit<'a, '_>,
        rule: &Fields,
        rules: &mut Rules,
        report: &mut ImportReport,
    ) {
        rules.add(limit, &limit.key, &[], rule);
        for Lacking { without, key } in limit.key.lacking() {
            match key {
                Some(key) if rules.flow.len() < MOST_RULES => {
                    rules.add(limit, &key, &without, rule);
                }
                _ => report.note(limit.directive, uncounted(&without)),
            }
        }

        if let Some((name, _)) = self.by_name.get_key_value(limit.name) {
            self.users.push((name, limit.directive.clone()));
        }
    }
}

impl Rules {
    /// Adds the rule of a limit for the requests with a key, which lack some parts of the zone's.
    fn add(&mut self, limit: &Limit<'_, '_>, key: &Key<'_>, without: &[String], rule: &Fields) {
        let (name, zone) = if without.is_empty() {
            (limit.name.to_owned(), limit.name.to_owned())
        } else {
            let parts = without.iter().map(|part| part.rsplit(':').next().unwrap_or(part));
            let parts = parts.collect::<Vec<_>>().join("-");
            (
                format!("{}-without-{parts}", limit.name),
                format!("{}\n{}", limit.name, named(without)),
            )
        };

        let mut rule = rule.clone().named(&rule_name(&name, self));
        key.write(&mut rule, limit.keys);
        if limit.is_dry {
            rule.set("dry_run", json!(true));
        }
        rule.set(ZONE, zone);
        self.flow.push(rule.into());
    }
}

/// Returns a reason why a limit is not in the result, with what that means.
fn unlimited(why: &str) -> String {
    format!("{why}. Its requests do not have this limit")
}

/// Returns the line about requests without some parts of a key, which no rule counts.
fn uncounted(without: &[String]) -> String {
    let parts = named(without);
    format!(
        "requests without {parts} do not have this limit: nginx counts them by the rest of the key, and no rule is for them alone"
    )
}

/// Returns the names of parts of a key.
fn named(parts: &[String]) -> String {
    let parts: Vec<_> = parts.iter().map(|part| format!("`{part}`")).collect();
    parts.join(" and ")
}

/// Notes where a limit counts other requests than in nginx.
fn note_key(scope: &Scope<'_>, directive: &Directive, key: &Key<'_>, report: &mut ImportReport) {
    if let Some(why) = &key.difference {
        report.note(directive, why.clone());
    }
    if key.is_by_client()
        && let Some(why) = access::lost(scope)
    {
        report
            .note(directive, format!("{why}: here all clients behind a proxy are counted as one"));
    }
}

impl Statuses {
    /// Adds the status of a rule, which would be `usual` if the route did not say.
    fn add(&mut self, scope: &Scope<'_>, name: &str, usual: u16, report: &mut ImportReport) {
        let written = scope.take(name, report);
        let status = written.and_then(|directive| directive.arg(0).parse::<u16>().ok());
        let status = status.filter(|status| (400..600).contains(status));
        if let Some(directive) = written.filter(|_| status.is_none()) {
            report.note(directive, "the status is not one of a rejection");
        }
        let status = status.unwrap_or(503);
        self.wanted.insert(status);
        self.is_usual &= status == usual;
    }
}

/// Returns a status as `reject` has it: nginx closes the connection in place of 444.
fn rejecting(status: u16) -> Value {
    if status == 444 { json!("close") } else { json!(status) }
}

/// Reports whether a limit holds all requests back that it does not reject.
fn is_paced(directive: &Directive) -> bool {
    let has_no = |name: &str| directive.named(name).is_none_or(|value| value == "0");
    !has_no("burst") && has_no("delay") && !directive.args.iter().any(|arg| arg == "nodelay")
}

/// Reports whether a limit holds only those back that come after some others.
fn is_split(directive: &Directive, burst: u64) -> bool {
    let delay = directive.named("delay").and_then(|delay| delay.parse::<u64>().ok());
    delay.is_some_and(|delay| delay > 0 && delay < burst)
}

/// Returns a name for a rule that no other rule of its route has.
fn rule_name(zone: &str, rules: &Rules) -> String {
    let fits = |sign: char| sign.is_ascii_alphanumeric() || "-_.".contains(sign);
    let name: String =
        zone.chars().map(|sign| if fits(sign) { sign } else { '-' }).take(50).collect();
    let name = match name.as_str() {
        "" | "pacing" | "breaker" => format!("zone-{name}"),
        _ => name,
    };

    let is_taken = |name: &str| rules.flow.iter().any(|rule| rule["name"] == *name);
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let mut names = core::iter::once(name.clone()).chain(numbered);
    names.find(|name| !is_taken(name)).unwrap_or(name)
}
