//! Routes: names, upstreams, matchers, and which can never be reached.

use super::{Compiler, upstreams};
use crate::{
    config::{
        decode::At,
        node::Place,
        plan::RoutePlan,
        problem::{Problem, quoted},
        snapshot::{RouteOptions, RouteTimeouts},
        spec::{BreakerSpec, FieldSpec, MatchSpec, PathSpec, RouteSpec},
        vocabulary::nearest,
    },
    flow::breaker,
    route::{self, FieldPattern, HostPattern, Matcher, PathPattern, Repeated, Table, folded_name},
};
use std::{
    collections::{BTreeSet, HashMap},
    fmt::Write,
    sync::Arc,
    time::Duration,
};

impl Compiler {
    /// Compiles the routes, whose bodies may hold `body_limit` bytes unless they say otherwise.
    pub(super) fn routes(
        &mut self,
        specs: Vec<RouteSpec>,
        upstreams: &[upstreams::Compiled],
        body_limit: u64,
    ) -> (Vec<RoutePlan>, Table) {
        self.names("route", specs.iter().filter_map(|spec| spec.name.as_ref()));
        let by_name: HashMap<&str, usize> =
            upstreams.iter().enumerate().map(|(index, u)| (&*u.name, index)).collect();
        let mut plans = Vec::with_capacity(specs.len());
        let mut matchers = Vec::with_capacity(specs.len());
        let mut places = Vec::with_capacity(specs.len());
        for spec in specs {
            let place = spec.matcher.as_ref().map_or(spec.place, |m| m.place);
            let upstream = spec.upstream.as_ref().and_then(|name| self.upstream_of(name, &by_name));
            let matcher = spec.matcher.as_ref().map(|spec| self.matcher(spec));
            let plan = self.route(spec, upstream, body_limit);
            if let (Some(plan), Some(matcher)) = (plan, matcher) {
                plans.push(plan);
                matchers.push(matcher);
                places.push(place);
            }
        }
        let table = Table::build(matchers);
        let mut shadowed = table.shadowed();
        // One reason for each is enough.
        shadowed.sort_by_key(|(first, later)| (*later, *first));
        shadowed.dedup_by_key(|(_, later)| *later);
        for (first, later) in shadowed {
            let message = format!("the route `{}` can never be reached", plans[later].name);
            self.warn(
                Problem::warning(places[later], message)
                    .label("matches what the other one matches")
                    .also(places[first], format!("`{}` comes first", plans[first].name))
                    .help("remove one of the two, or write a more specific `match`"),
            );
        }
        (plans, table)
    }

    fn route(
        &mut self,
        mut spec: RouteSpec,
        upstream: Option<usize>,
        body_limit: u64,
    ) -> Option<RoutePlan> {
        self.shorten_waits(&mut spec);
        let (mut flow, rules, paced) = self.rules(spec.flow, spec.pacing.as_deref());
        flow.breaker = spec.breaker.as_deref().and_then(breaker);
        let matches = spec.matcher.as_ref().map(in_words);
        Some(RoutePlan {
            name: spec.name?.value,
            matches: matches?.into(),
            upstream: upstream?,
            options: RouteOptions {
                timeouts: spec.timeouts.unwrap_or(RouteTimeouts {
                    first_byte: Duration::ZERO,
                    idle: Duration::ZERO,
                    event_stream: Duration::ZERO,
                    tunnel: Duration::ZERO,
                    request: Duration::ZERO,
                }),
                body_limit: spec.body_limit.unwrap_or(body_limit),
                upgrades: spec.upgrades,
                relaxed_path: spec.relaxed_path,
                request_trailers: spec.request_trailers,
                request_headers: spec.request_headers,
                response_headers: spec.response_headers,
                reject: spec.reject,
            },
            policy: super::quotas::policy(&rules),
            flow,
            rules,
            paced,
            print: spec.print,
        })
    }

    fn upstream_of(
        &mut self,
        name: &At<Arc<str>>,
        by_name: &HashMap<&str, usize>,
    ) -> Option<usize> {
        let found = by_name.get(&*name.value).copied();
        if found.is_none() {
            let help = if self.errors.are_many() {
                "write the name of an upstream".to_owned()
            } else {
                suggestion(&name.value, by_name)
            };
            let message = format!("there is no upstream {}", quoted(&name.value));
            self.error(Problem::error(name.place, message).help(help));
        }
        found
    }

    fn matcher(&mut self, spec: &MatchSpec) -> Matcher {
        let mut hosts = Vec::with_capacity(spec.hosts.len());
        for host in &spec.hosts {
            hosts.extend(self.pattern(HostPattern::parse(&host.value), host.place));
        }
        let path = spec.path.as_ref().and_then(|at| {
            let path = match &at.value {
                PathSpec::Exact(text) => PathPattern::exact(text),
                PathSpec::Prefix(text) => PathPattern::prefix(text),
                PathSpec::Regex(text) => PathPattern::regex(text),
            };
            self.pattern(path, at.place)
        });
        let headers = spec.headers.iter().map(|(name, field)| (name.value.as_str(), field));
        let headers = headers.filter_map(|(name, field)| self.field(name, field)).collect();
        let query = spec.query.iter().map(|(name, field)| (name.value.as_str(), field));
        let query = query.filter_map(|(name, field)| self.field(name, field)).collect();
        Matcher {
            hosts,
            path: path.unwrap_or(PathPattern::Any),
            methods: spec.methods.clone(),
            headers,
            query,
            // Nobody gets past a route by sending a field twice.
            repeated: Repeated::Any,
        }
    }

    /// Makes the pattern of one header or query field.
    pub(super) fn field(&mut self, name: &str, field: &At<FieldSpec>) -> Option<FieldPattern> {
        let pattern = match &field.value {
            FieldSpec::Equals(value) => FieldPattern::equals(name, value),
            FieldSpec::Regex(regex) => FieldPattern::regex(name, regex),
            FieldSpec::Present => FieldPattern::present(name),
        };
        self.pattern(pattern, field.place)
    }

    /// Returns the pattern, or reports at `place` what is wrong with it.
    pub(super) fn pattern<T>(
        &mut self,
        pattern: Result<T, route::Invalid>,
        place: Place,
    ) -> Option<T> {
        pattern.map_err(|e| self.error(Problem::error(place, e.message).help(e.help))).ok()
    }
}

/// Returns the header fields that decide about requests, on any route: which one a request takes
/// is decided by them as well.
pub(super) fn deciding_headers(table: &Table, routes: &[RoutePlan]) -> Arc<[Box<str>]> {
    let mut names: BTreeSet<Box<str>> = BTreeSet::new();
    let mut add = |name: &str| _ = names.insert(folded_name(name).into());
    table.header_names().for_each(&mut add);
    for rule in routes.iter().flat_map(|route| &route.rules) {
        rule.key.header_names().for_each(&mut add);
        rule.when.iter().flat_map(|when| when.header_names()).for_each(&mut add);
        rule.except.iter().flat_map(|except| except.header_names()).for_each(&mut add);
        rule.priority.iter().flat_map(|priority| priority.header_names()).for_each(&mut add);
    }
    names.into_iter().collect()
}

/// Fewer answers than this say little about a ratio.
const MIN_ANSWERS: u64 = 20;

/// Returns the breaker, or `None` if a part of it could not be read.
fn breaker(spec: &BreakerSpec) -> Option<breaker::Config> {
    let small = |at: At<u64>| u32::try_from(at.value).unwrap_or(u32::MAX);
    let errors_alone = spec.error_ratio.is_none() && spec.slow.is_none();
    let default = if errors_alone { 1 } else { MIN_ANSWERS };
    Some(breaker::Config {
        error_ratio: spec.error_ratio.map(|at| at.value),
        slow: spec.slow,
        errors: spec.errors.map(|at| at.value),
        min_requests: spec.min_requests.map_or(default, |at| at.value),
        window: spec.window?.value,
        buckets: spec.buckets.map(small)?,
        open_for: spec.open_for?.value,
        probes: spec.probes.map(small)?,
        dry_run: spec.dry_run,
    })
}

/// Says what a matcher takes, as in `POST shop.example.com/users/{id} header x-tenant=gold`.
fn in_words(spec: &MatchSpec) -> String {
    let mut text = String::new();
    if !spec.methods.is_empty() {
        let methods: Vec<_> = spec.methods.iter().map(http::Method::as_str).collect();
        _ = write!(text, "{} ", methods.join("|"));
    }
    let hosts: Vec<_> = spec.hosts.iter().map(|host| host.value.as_str()).collect();
    text += &hosts.join("|");
    match spec.path.as_ref().map(|at| &at.value) {
        None => text += "/*",
        Some(PathSpec::Exact(path)) => text += path,
        Some(PathSpec::Prefix(path)) => _ = write!(text, "{}/*", path.trim_end_matches('/')),
        Some(PathSpec::Regex(regex)) => _ = write!(text, "~{regex}"),
    }
    for (name, field) in &spec.headers {
        _ = write!(text, " header {}{}", name.value, field_in_words(&field.value));
    }
    for (name, field) in &spec.query {
        _ = write!(text, " query {}{}", name.value, field_in_words(&field.value));
    }
    text
}

pub(super) fn field_in_words(field: &FieldSpec) -> String {
    match field {
        FieldSpec::Equals(value) => format!("={value}"),
        FieldSpec::Regex(regex) => format!("~{regex}"),
        FieldSpec::Present => String::new(),
    }
}

/// Says which upstream was meant, or which there are.
fn suggestion(name: &str, upstreams: &HashMap<&str, usize>) -> String {
    const MOST: usize = 8;
    // In the order of the alphabet, so that the hint does not change from run to run.
    let mut words: Vec<_> = upstreams.keys().copied().collect();
    words.sort_unstable();
    if let Some(meant) = nearest(name, words.iter().copied()) {
        return format!("did you mean `{meant}`?");
    }
    if words.is_empty() {
        return "write the upstream under `upstreams`".to_owned();
    }
    let shown: Vec<_> = words.iter().take(MOST).map(|word| format!("`{word}`")).collect();
    let more = if words.len() > MOST { ", …" } else { "" };
    format!("write one of {}{more}", shown.join(", "))
}
