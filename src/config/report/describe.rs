//! The meaning of a file in words: `flowgate check` prints it.

use super::promise::{breaker_promise, pacing_promise, promise};
use crate::counted::counted;
use crate::{
    config::HeaderCase,
    config::{
        plan::{
            BREAKER, Certificate, Certificates, ComputedReserve, Cost, CountedBytes, FlowPart,
            Listener, MetGroup, PACING, Plan, RoutePlan, RuleGroupPlan, RulePlan, Settings, Settle,
            SettleSource, StoreKind, StoreSettings, Tracing, UpstreamPlan,
        },
        spec::{OnMissing, OnStoreError, leaf::short, word},
        vocabulary::ShownKey,
    },
    flow::{Algorithm, Keyed, QueueConfig, Rule, Rules, breaker},
    route::{NetworkList, OnDuplicate, key_words},
    usage::{Otherwise, Weight},
};
use bytesize::ByteSize;
use http::HeaderName;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    net::SocketAddr,
    time::{Duration, UNIX_EPOCH},
};

/// The latest time that is shown as a date: the end of the year 9999.
const LATEST: u64 = 253_402_300_799;

/// The most routes that are described one by one.
const MOST_ROUTES: usize = 200;

/// Describes a plan: listeners, upstreams, the routes in the order in which they match with what
/// each of their rules promises, and the settings in force, defaults included.
pub fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    _ = write(&mut text, plan);
    text
}

/// The promises of a route's rules, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoutePromises {
    /// The route's name.
    pub route: String,
    /// Its match in words.
    pub matches: String,
    /// Where its requests go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// The response that it gives itself, as `redirect 308 https://{host}{path}` or `respond 200`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// Its rules, its breaker and its pacing.
    pub rules: Vec<RulePromise>,
}

/// The promise of a rule, for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RulePromise {
    /// The rule's name, `breaker` or `pacing`.
    pub name: String,
    /// Its promise and its algorithm, in the words of `flowgate check`.
    pub promise: String,
}

/// Returns what all rules of a plan promise, in the order in which the routes match.
pub fn promises(plan: &Plan) -> Vec<RoutePromises> {
    let routes = plan.table.order().into_iter().map(|index| &plan.routes[index]);
    let rules = |route: &RoutePlan| -> Vec<RulePromise> {
        let breaker = route.flow.breaker.as_ref().map(|_| BREAKER);
        let pacing = route.flow.pacing.as_ref().map(|_| PACING);
        let named = route.flow.flow.iter().map(|rule| &*rule.name).chain(breaker).chain(pacing);
        let promise = |name: &str| {
            Some(RulePromise { name: name.to_owned(), promise: in_words(route, name)? })
        };
        named.filter_map(promise).collect()
    };
    routes
        .map(|route| RoutePromises {
            route: route.name.to_string(),
            matches: route.matches.to_string(),
            upstream: route.action.upstream().map(|index| plan.upstreams[*index].name.to_string()),
            answer: route.action.own_words(),
            rules: rules(route),
        })
        .collect()
}

fn write(out: &mut String, plan: &Plan) -> fmt::Result {
    let included = match plan.source().files.len() {
        1 => String::new(),
        files => format!(" with {}", counted(files - 1, "included file")),
    };
    writeln!(
        out,
        "{}{included}: {}, {}, {} (config {})",
        plan.path.display(),
        counted(plan.listeners.len(), "listener"),
        counted(plan.upstreams.len(), "upstream"),
        counted(plan.file_routes().count(), "route"),
        plan.hash
    )?;

    writeln!(out, "\nlisteners")?;
    for listener in &plan.listeners {
        let tls = listener.tls.as_ref().map_or_else(String::new, |all| tls(listener, all));
        let proxied = if listener.proxy_protocol { "  PROXY protocol" } else { "" };
        writeln!(out, "  {}  {}{tls}{proxied}", listener.name, listener.listens())?;
        for certificate in listener.tls.iter().flat_map(|all| all.iter()) {
            writeln!(out, "    {}", valid(certificate))?;
        }
        if let Some(proxies) = &listener.trusted_proxies {
            writeln!(out, "    trusted_proxies  {}", networks(proxies))?;
        }
        if let Some(header) = &listener.client_ip_header {
            writeln!(out, "    client_ip_header  {header}")?;
        }
    }

    if let Some(admin) = &plan.settings.admin {
        writeln!(out, "  admin  {admin}")?;
        if let Some(tls) = &admin.tls {
            writeln!(out, "    {}", valid(tls.certificate()))?;
        }
    }

    if !plan.upstreams.is_empty() {
        writeln!(out, "\nupstreams")?;
    }
    let written = |value| plan.source().substitutions.as_written(value);
    plan.upstreams.iter().try_for_each(|upstream| write_upstream(out, upstream, written))?;

    write_shared_rules(out, plan)?;
    writeln!(out, "\nroutes, in the order in which they match")?;
    let order = plan.table.order();
    let unmatched = plan.routes.iter().filter(|route| route.is_for_unmatched());
    let shown = order.iter().take(MOST_ROUTES).map(|index| &plan.routes[*index]);
    for route in shown.chain(unmatched) {
        let gateways = plan.settings.store.as_ref().map_or(1, |store| store.gateways);
        let upstream = route.action.upstream().map(|index| plan.upstreams[*index].name.to_string());
        let action = route.action.own_words().or(upstream).unwrap_or_default();
        let shared = shared_names(plan, route);
        write_route(out, route, &action, gateways, &shared)?;
    }

    if order.len() > MOST_ROUTES {
        writeln!(out, "  … and {} more", order.len() - MOST_ROUTES)?;
    }
    write_settings(out, plan)
}

/// Says for which names a listener has TLS, and on which terms.
fn tls(listener: &Listener, certificates: &Certificates) -> String {
    let names: Vec<_> = certificates.iter().flat_map(|c| &c.names).map(String::as_str).collect();
    let version = if listener.terms.needs_tls13 { " 1.3" } else { "" };
    let clients = match &listener.terms.clients {
        Some(clients) if clients.is_required => ", for clients with a certificate",
        Some(_) => ", clients may show a certificate",
        None => "",
    };
    format!("  TLS{version} for {}{clients}", names.join(", "))
}

/// Says how long a certificate is valid.
fn valid(certificate: &Certificate) -> String {
    if certificate.is_self_signed() {
        let file = certificate.path.display();
        return format!("certificate {file}  self-signed until the authority has issued it");
    }
    format!("certificate {}  valid until {}", certificate.path.display(), certificate.valid_until())
}

fn write_upstream<'p>(
    out: &mut String,
    upstream: &'p UpstreamPlan,
    written: impl Fn(&'p str) -> &'p str,
) -> fmt::Result {
    let options = &upstream.options;
    writeln!(
        out,
        "  {}  {}{}  connect_timeout {}, idle_timeout {}, max_idle {}",
        upstream.name,
        word(&options.balance),
        options.hash_key.as_ref().map_or_else(String::new, |key| format!(" by {key}")),
        short(options.connect_timeout),
        short(options.idle_timeout),
        options.max_idle
    )?;

    if let Some(cookie) = &options.sticky {
        writeln!(out, "    sticky by the cookie {cookie}")?;
    }

    if let Some(check) = &options.health {
        let host =
            check.host.as_ref().map_or_else(String::new, |host| format!(" of {}", written(host)));
        writeln!(
            out,
            "    checked: GET {}{host} every {}",
            written(&check.path),
            short(check.interval)
        )?;
    }

    if let Some(identity) = options.tls.as_ref().and_then(|tls| tls.identity()) {
        writeln!(out, "    {}", valid(identity))?;
    }

    for server in &upstream.servers {
        write!(out, "    {}", server.endpoint)?;
        if server.weight > 1 {
            write!(out, "  weight {}", server.weight)?;
        }
        if server.is_backup {
            write!(out, "  backup")?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_route(
    out: &mut String,
    route: &RoutePlan,
    action: &str,
    gateways: u32,
    shared_names: &str,
) -> fmt::Result {
    writeln!(out, "  {}  {} → {action}", route.name, route.matches)?;

    if let Some(access) = &route.options.access {
        writeln!(out, "    access  {access}")?;
    }
    if let Some(retry) = &route.options.retry {
        writeln!(out, "    retry  {retry}")?;
    }
    if let Some(rewrite) = &route.options.rewrite {
        writeln!(out, "    rewrite  {}", rewrite.words)?;
    }
    if let Some(auth) = &route.options.auth {
        writeln!(out, "    auth  {auth}")?;
    }

    if let Some(compress) = &route.options.compress {
        writeln!(out, "    compress  {compress}")?;
    }
    if let Some(cors) = &route.options.cors {
        writeln!(out, "    cors  {cors}")?;
    }
    if let Some(mirror) = &route.options.mirror {
        writeln!(out, "    mirror  {mirror}")?;
    }

    write_rules(out, &route.flow, &route.rules, gateways)?;
    if !shared_names.is_empty() {
        writeln!(out, "    shared: {shared_names}")?;
    }

    if let Some(breaker) = &route.flow.breaker {
        writeln!(out, "    breaker  {}", breaker_promise(breaker))?;
        write_details(out, details_of_breaker(breaker))?;
    }

    match &route.flow.pacing {
        Some(pacing) => {
            writeln!(out, "    pacing  {}", pacing_promise(pacing))?;
            write_details(out, route.paced.map(shared))
        }
        None if route.flow.flow.is_empty() && shared_names.is_empty() => {
            writeln!(out, "    no limit")
        }
        None => Ok(()),
    }
}

fn write_rules(out: &mut String, flow: &Rules, rules: &[RulePlan], gateways: u32) -> fmt::Result {
    for (rule, plan) in flow.flow.iter().zip(rules) {
        let indent = if plan.when.is_some() { "  " } else { "" };
        writeln!(out, "    {indent}{}  {}", rule.name, promise(&rule.algorithm))?;
        write_details(out, details(rule, plan, gateways))?;
    }
    Ok(())
}

/// Describes the rules that several routes share, and which of them one node of a store decides
/// about.
fn write_shared_rules(out: &mut String, plan: &Plan) -> fmt::Result {
    if plan.groups.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nrules that routes share")?;
    let gateways = plan.settings.store.as_ref().map_or(1, |store| store.gateways);
    for (index, group) in plan.groups.iter().enumerate() {
        let meets = |route: &&RoutePlan| route.groups.iter().any(|met| met.index == index);
        let routes = counted(plan.file_routes().filter(meets).count(), "route");
        let parent = group.parent.as_ref();
        let parent = parent.map_or_else(String::new, |parent| format!(", counted in {parent} too"));
        writeln!(out, "  {}  for {routes}{parent}", group.owner)?;
        write_rules(out, &group.flow, &group.rules, gateways)?;
    }

    let mut tags: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for group in plan.groups.iter().filter(|group| group.is_decided_by_store()) {
        tags.entry(&group.store_tag).or_default().push(group.owner.rule());
    }
    for names in tags.into_values() {
        writeln!(
            out,
            "  one node of a Redis Cluster decides about {}: its capacity is their bound",
            names.join(", ")
        )?;
    }
    Ok(())
}

/// Returns the names of the shared rules that a route's requests meet.
fn shared_names(plan: &Plan, route: &RoutePlan) -> String {
    let name = |met: &MetGroup| {
        let owner = &plan.groups[met.index].owner;
        let at = met.listeners.as_ref();
        let at = at.map_or_else(String::new, |names| format!(" (at {})", names.join(", ")));
        format!("{owner}{at}")
    };
    route.groups.iter().map(name).collect::<Vec<_>>().join(", ")
}

fn write_details(out: &mut String, details: impl IntoIterator<Item = String>) -> fmt::Result {
    details.into_iter().try_for_each(|detail| writeln!(out, "      {detail}"))
}

/// Says in one line what the rule of this name promises and how it counts, or the breaker, or
/// the pacing.
pub(in crate::config) fn in_words(route: &RoutePlan, name: &str) -> Option<String> {
    let (promise, details) = match route.part(name)? {
        FlowPart::Rule(at) => {
            let rule = route.flow.flow.get(at)?;
            (promise(&rule.algorithm), details(rule, route.rules.get(at)?, 1))
        }
        FlowPart::Breaker => {
            let breaker = route.flow.breaker.as_ref()?;
            (breaker_promise(breaker), details_of_breaker(breaker))
        }
        FlowPart::Pacing => {
            let pacing = route.flow.pacing.as_ref()?;
            (pacing_promise(pacing), route.paced.map(shared).into_iter().collect())
        }
    };
    Some(std::iter::once(promise).chain(details).collect::<Vec<_>>().join("; "))
}

/// Says in one line what the rule of this name promises and how it counts, if the group has it.
pub(in crate::config) fn shared_in_words(group: &RuleGroupPlan, name: &str) -> Option<String> {
    let mut rules = group.flow.flow.iter().zip(&group.rules);
    let (rule, plan) = rules.find(|(rule, _)| *rule.name == *name)?;
    let promise = promise(&rule.algorithm);
    Some(std::iter::once(promise).chain(details(rule, plan, 1)).collect::<Vec<_>>().join("; "))
}

const DRY_RUN: &str = "dry run: counts, rejects nothing";

/// Says how a rule counts, where that is not the default.
fn details(rule: &Rule, plan: &RulePlan, gateways: u32) -> Vec<String> {
    let details = [
        rule.keyed.as_ref().map(|keyed| each(keyed, rule, plan)),
        rule.queue.as_ref().map(|queue| queue_words(queue, plan)),
        cost(&plan.cost),
        plan.plans.as_ref().map(|plans| format!("plans by {plans}")),
        plan.except.as_ref().map(|except| format!("exempt: {}", except.words())),
        plan.priority.as_ref().map(|priority| {
            let most = short(priority.max_wait);
            let words = priority.words();
            format!("requests with {words} borrow from windows to come, and wait up to {most}")
        }),
        rule.reject_for
            .map(|time| format!("a client that exceeds it is rejected for {}", short(time))),
        plan.dry_run.then(|| DRY_RUN.to_owned()),
        plan.before_auth.then(|| "decides before the auth service is asked".to_owned()),
        plan.shared.map(shared),
        synced(rule, plan, gateways),
    ];
    details.into_iter().flatten().collect()
}

/// Says how many requests wait, and in which order.
fn queue_words(queue: &QueueConfig, plan: &RulePlan) -> String {
    let mut words = format!("queue: {queue}");
    if let Some(shares) = &plan.shares {
        // Writing to a String cannot fail.
        _ = write!(words, "; {shares}");
    }
    if queue.classes.get() > 1 {
        _ = write!(words, ", the last at least {} %", f64::from(queue.floor) / 100.0);
    }
    words
}

fn details_of_breaker(config: &breaker::Config) -> Vec<String> {
    config.dry_run.then(|| DRY_RUN.to_owned()).into_iter().collect()
}

/// Says what is counted separately, and how much memory that takes.
fn each(keyed: &Keyed, rule: &Rule, plan: &RulePlan) -> String {
    let lends = plan.priority.is_some();
    let each = rule.algorithm.bytes_per_key(lends);
    let most = ByteSize(rule.most_bytes(lends));
    let missing = match plan.on_missing {
        OnMissing::Shared => "",
        OnMissing::Skip => "; without a key: not counted",
        OnMissing::Reject => "; without a key: rejected",
    };
    let duplicate = match plan.key.on_duplicate() {
        OnDuplicate::First => "; of several values: the first",
        OnDuplicate::Last => "; of several values: the last",
        OnDuplicate::Reject => "",
    };
    let summary = if rule.algorithm.is_remembered() {
        ", including the usage remembered for replaced keys"
    } else {
        ""
    };
    format!(
        "for each {}: at most {}, {each} bytes each; {most:.1} in all{summary}{missing}{duplicate}",
        key_words(&keyed.by),
        counted(keyed.max_keys, "key")
    )
}

fn cost(cost: &Cost) -> Option<String> {
    let named = cost.by_method.iter().map(|(method, cost)| format!("{method} {cost}"));
    let costs: Vec<_> = named.chain([format!("else {}", cost.default)]).collect();
    match &cost.settle {
        None => (costs != ["else 1"]).then(|| format!("cost: {}", costs.join(", "))),
        Some(settle) => {
            let reserve = settle.reserve.as_ref().map_or_else(|| costs.join(", "), computed);
            let when = if settle.while_streaming { ", charged while it passes" } else { "" };
            Some(format!("reserve: {reserve}; {}{when}", settled(settle)))
        }
    }
}

/// Says how a reserve is computed.
fn computed(reserve: &ComputedReserve) -> String {
    let number =
        |number: Option<u64>| number.map_or_else(|| "auto".to_owned(), |number| number.to_string());
    let json = reserve.json.as_ref().map(|json| {
        let terms = json.terms.iter().map(|(path, weight)| match *weight {
            Weight::ONE => format!("json:{path}"),
            weight => format!("{weight} × json:{path}"),
        });
        let terms = terms.collect::<Vec<_>>().join(" + ");
        let least = if json.terms.len() == 1 { "else" } else { "without any of them at least" };
        format!("({terms}, {least} {})", number(json.otherwise))
    });
    let bytes = (reserve.request_bytes != Weight::default())
        .then(|| format!("{} × bytes of the request", reserve.request_bytes));
    // Beside numbers of the body, 0 goes without saying.
    let plus = (json.is_none() || reserve.plus != Some(0)).then(|| number(reserve.plus));
    json.into_iter().chain(bytes).chain(plus).collect::<Vec<_>>().join(" + ")
}

/// Says what a request costs in the end.
fn settled(settle: &Settle) -> String {
    match &settle.source {
        SettleSource::Json(cost) => {
            let otherwise = otherwise(&cost.otherwise);
            format!("costs by the response: {}, else {otherwise}", cost.words)
        }
        SettleSource::Status(costs) => {
            let (listed, default) = costs.parts();
            let listed =
                listed.iter().map(|(statuses, cost)| match (statuses.start(), statuses.end()) {
                    (one, same) if one == same => format!("{one} {cost}"),
                    (first, last) => format!("{first}-{last} {cost}"),
                });
            let default = match default {
                Some(cost) => format!("else {cost}"),
                None => "else the reserve".to_owned(),
            };
            let costs: Vec<_> = listed.chain([default]).collect();
            format!("costs by status after the response: {}", costs.join(", "))
        }
        SettleSource::Header(name) => format!("costs by the header {name} of the response"),
        SettleSource::Trailer(name) => format!("costs by the trailer {name} of the response"),
        SettleSource::Bytes(CountedBytes::Request) => "costs by bytes of the request".to_owned(),
        SettleSource::Bytes(CountedBytes::Response) => "costs by bytes of the response".to_owned(),
        SettleSource::Bytes(CountedBytes::Both) => "costs by bytes of both bodies".to_owned(),
        SettleSource::Time(unit) => format!("costs by time in units of {}", short(*unit)),
    }
}

/// Says what a response costs that has no number.
fn otherwise(otherwise: &Otherwise) -> String {
    let Otherwise::Weights { request_bytes, response_bytes, events } = otherwise else {
        return "nothing if it is not streamed".to_owned();
    };
    let weights =
        [(request_bytes, "bytes of the request"), (response_bytes, "bytes"), (events, "events")];
    let weights = weights.into_iter().filter(|(weight, _)| **weight != Weight::default());
    let words: Vec<String> = weights.map(|(weight, of)| format!("{weight} × {of}")).collect();
    if words.is_empty() {
        "the reserve".to_owned()
    } else {
        format!("at least the reserve and {}", words.join(" + "))
    }
}

/// Says what gateways share, and what holds while they cannot.
fn shared(on_error: OnStoreError) -> String {
    let otherwise = match on_error {
        OnStoreError::Local => "each counts by itself, with the limit divided by the gateways",
        OnStoreError::Allow => "everything passes",
        OnStoreError::Deny => "everything is rejected",
    };
    format!("shared by all gateways of the store; while that fails, {otherwise}")
}

/// Says how much more gateways that sync let pass than one would.
fn synced(rule: &Rule, plan: &RulePlan, gateways: u32) -> Option<String> {
    let (Algorithm::Synced(config), Some(interval)) = (&rule.algorithm, plan.sync_interval) else {
        return None;
    };
    let most = config.most_unseen(interval);
    let each = if rule.keyed.is_some() { " of a key" } else { "" };
    let here = match u64::from(gateways) {
        1 => String::new(),
        gateways => {
            format!("; {gateways} gateways {} at most", (gateways - 1).saturating_mul(most))
        }
    };
    Some(format!(
        "synced every {}: G gateways let pass up to (G − 1)·min({most}, what one lets pass{each} in {}) more{here}; a start without the store adds what that one counts alone",
        short(interval),
        short(2 * interval)
    ))
}

fn write_settings(out: &mut String, plan: &Plan) -> fmt::Result {
    let settings = &plan.settings;
    // The number of threads and the time at the end come last; the case of names is for old clients.
    let is_last = |name: &str| matches!(name, "workers" | "drain_timeout" | "h1_header_case");
    writeln!(out, "\nsettings")?;
    writeln!(out, "  timeouts  {}", keys(settings, "timeouts", |_| true))?;
    writeln!(out, "  limits  {}", keys(settings, "limits", |key| key.has_default))?;
    let is_written = |key: &&ShownKey| key.map == "limits" && !key.has_default;
    for key in settings.keys.iter().filter(is_written) {
        if let Some(value) = &key.value {
            writeln!(out, "  {} {value}", key.name)?;
        }
    }
    write_addresses(out, settings)?;
    writeln!(out, "  {}", keys(settings, "", |key| !is_last(key.name)))?;

    if !settings.logged_headers.is_empty() {
        let names: Vec<_> = settings.logged_headers.iter().map(HeaderName::as_str).collect();
        writeln!(out, "  access_log_headers {}", names.join(", "))?;
    }
    if settings.header_case != HeaderCase::default() {
        writeln!(out, "  h1_header_case {}", word(&settings.header_case))?;
    }

    if let Some(tracing) = &settings.tracing {
        let Tracing { collector, sample, parents, service_name, .. } = &**tracing;
        writeln!(
            out,
            "  tracing  {} as {service_name}, sample {sample}, parent {}",
            collector.endpoint,
            word(parents)
        )?;
    }

    if let Some(store) = &settings.store {
        write_store(out, store)?;
    }
    writeln!(out, "  workers {}, drain_timeout {}", settings.workers, short(settings.drain_timeout))
}

/// Returns the keys of the map `map` with their values, those that have one.
fn keys(settings: &Settings, map: &str, takes: impl Fn(&ShownKey) -> bool) -> String {
    let keys = settings.keys.iter().filter(|key| key.map == map && takes(key));
    let words = |key: &ShownKey| Some(format!("{} {}", key.name, key.value.as_ref()?));
    keys.filter_map(words).collect::<Vec<_>>().join(", ")
}

fn write_addresses(out: &mut String, settings: &Settings) -> fmt::Result {
    writeln!(out, "  trusted_proxies  {}", networks(&settings.trusted_proxies))?;
    if !settings.nat64.further().is_empty() {
        let prefixes = settings.nat64.further().iter().map(ToString::to_string);
        writeln!(out, "  nat64  {}", prefixes.collect::<Vec<_>>().join(", "))?;
    }
    if let Some(geo) = &settings.geo {
        for (name, file) in [("country", &geo.country), ("asn", &geo.asn)] {
            let Some(file) = file else { continue };
            let built = UNIX_EPOCH + Duration::from_secs(file.built().min(LATEST));
            let built = humantime::format_rfc3339_seconds(built);
            let date = built.to_string();
            let date = date.get(..10).unwrap_or_default();
            writeln!(
                out,
                "  geo.{name}  {} ({} of {date})",
                file.path.display(),
                file.type_name()
            )?;
        }
    }
    if !settings.dns_servers.is_empty() {
        let servers = settings.dns_servers.iter().map(SocketAddr::to_string);
        writeln!(out, "  dns_servers  {}", servers.collect::<Vec<_>>().join(", "))?;
    }
    Ok(())
}

fn write_store(out: &mut String, store: &StoreSettings) -> fmt::Result {
    let kind = match &store.kind {
        StoreKind::Single => "one server".to_owned(),
        StoreKind::Sentinel { primary, .. } => {
            format!("the primary `{primary}` of the sentinels")
        }
        StoreKind::Cluster => "a Redis Cluster of".to_owned(),
    };
    let nodes: Vec<_> = store.nodes.iter().map(|(host, port)| format!("{host}:{port}")).collect();
    let tls = if store.is_tls { ", TLS" } else { "" };
    writeln!(
        out,
        "  store  {kind} {}{tls}, prefix {}, timeout {}, connect_timeout {}, lease {}",
        nodes.join(", "),
        store.prefix,
        short(store.timeout),
        short(store.connect_timeout),
        short(store.lease)
    )
}

fn networks(list: &NetworkList) -> String {
    if list.is_empty() { "none".to_owned() } else { list.to_string() }
}
