//! What a file means, in words: `flowgate check` prints it.

use super::{
    AccessLog, Balance, OnMissing, OnStoreError, Plan, RateLimitHeaders, StoreKind,
    plan::{RoutePlan, RulePlan, UpstreamPlan},
};
use crate::flow::{
    self, Algorithm, OTHERS, Rate, Rule, WarmUp,
    breaker::{self, Ratio},
    limiter::{
        fixed_window::{self, Align},
        sliding_window,
    },
    pacing,
    time::spelled,
};
use bytesize::ByteSize;
use std::{
    fmt::{self, Write},
    time::Duration,
};

/// How many routes are described one by one.
const MOST_ROUTES: usize = 200;

/// Describes a plan: listeners, upstreams, the routes in the order in which they match with what
/// each of their rules promises, and the settings in force, defaults included.
pub fn describe(plan: &Plan) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    _ = write(&mut text, plan);
    text
}

fn write(out: &mut String, plan: &Plan) -> fmt::Result {
    writeln!(
        out,
        "{}: {}, {}, {} (config {})",
        plan.path.display(),
        count(plan.listeners.len(), "listener"),
        count(plan.upstreams.len(), "upstream"),
        count(plan.routes.len(), "route"),
        plan.hash
    )?;
    writeln!(out, "\nlisteners")?;
    for listener in &plan.listeners {
        let tls = listener.tls.as_ref().map_or_else(String::new, |certificates| {
            let names: Vec<_> =
                certificates.iter().flat_map(|c| &c.names).map(String::as_str).collect();
            format!("  TLS for {}", names.join(", "))
        });
        writeln!(out, "  {}  {}{tls}", listener.name, listener.address)?;
    }
    if let Some(admin) = plan.settings.admin {
        writeln!(out, "  admin  {admin}")?;
    }
    writeln!(out, "\nupstreams")?;
    plan.upstreams.iter().try_for_each(|upstream| write_upstream(out, upstream))?;
    writeln!(out, "\nroutes, in the order in which they match")?;
    let order = plan.table.order();
    for index in order.iter().take(MOST_ROUTES) {
        let route = &plan.routes[*index];
        let gateways = plan.settings.store.as_ref().map_or(1, |store| store.gateways);
        write_route(out, route, &plan.upstreams[route.upstream].name, gateways)?;
    }
    if order.len() > MOST_ROUTES {
        writeln!(out, "  … and {} more", order.len() - MOST_ROUTES)?;
    }
    write_settings(out, plan)
}

fn write_upstream(out: &mut String, upstream: &UpstreamPlan) -> fmt::Result {
    let balance = match upstream.balance {
        Balance::RoundRobin => "round_robin",
        Balance::LeastRequest => "least_request",
        Balance::Random => "random",
    };
    writeln!(
        out,
        "  {}  {balance}  connect_timeout {}, idle_timeout {}, max_idle {}",
        upstream.name,
        short(upstream.connect_timeout),
        short(upstream.idle_timeout),
        upstream.max_idle
    )?;
    for server in &upstream.servers {
        let host = &server.endpoint.host;
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_string() };
        write!(out, "    http://{host}:{}", server.endpoint.port)?;
        if server.weight > 1 {
            write!(out, "  weight {}", server.weight)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn write_route(out: &mut String, route: &RoutePlan, upstream: &str, gateways: u32) -> fmt::Result {
    writeln!(out, "  {}  {} → {upstream}", route.name, route.matches)?;
    for (rule, plan) in route.flow.flow.iter().zip(&route.rules) {
        let indent = if plan.when.is_some() { "  " } else { "" };
        writeln!(out, "    {indent}{}  {}", rule.name, promise(&rule.algorithm))?;
        write_details(out, rule, plan)?;
        write_exchanged(out, rule, plan, gateways)?;
    }
    if let Some(breaker) = &route.flow.breaker {
        writeln!(out, "    breaker  {}", breaker_promise(breaker))?;
        if breaker.dry_run {
            writeln!(out, "      dry run: counts, refuses nothing")?;
        }
    }
    match &route.flow.pacing {
        Some(pacing) => {
            writeln!(out, "    pacing  {}", pacing_promise(pacing))?;
            route.paced.map_or(Ok(()), |on_error| write_shared(out, on_error))
        }
        None if route.flow.flow.is_empty() => writeln!(out, "    no limit"),
        None => Ok(()),
    }
}

/// Says when a breaker opens, and how it closes.
fn breaker_promise(config: &breaker::Config) -> String {
    let more_than = |ratio: Ratio| {
        if ratio == Ratio::ONE { "all".to_owned() } else { format!("more than {ratio}") }
    };
    let slow =
        |it: breaker::Slow| format!("{} begin after {}", more_than(it.ratio), short(it.after));
    let conditions = [
        config.error_ratio.map(|ratio| format!("{} fail", more_than(ratio))),
        config.slow.map(slow),
        config.errors.map(|errors| format!("{errors} fail")),
    ];
    let conditions: Vec<_> = conditions.into_iter().flatten().collect();
    format!(
        "opens when, of at least {} in {}, {}; none passes for {}, then {} must be good",
        count(usize::try_from(config.min_requests).unwrap_or(usize::MAX), "answer"),
        short(config.window),
        conditions.join(" or "),
        short(config.open_for),
        count(config.probes as usize, "probe"),
    )
}

/// Says what the rule of this name promises, or the breaker, or the pacing.
pub(super) fn promise_of(rules: &flow::Rules, name: &str) -> Option<String> {
    if let Some(rule) = rules.flow.iter().find(|rule| *rule.name == *name) {
        let each = rule.keyed.as_ref().map(|keyed| format!(", for each {}", keyed.by));
        let dry_run = if rule.dry_run { ", dry run" } else { "" };
        return Some(format!("{}{}{dry_run}", promise(&rule.algorithm), each.unwrap_or_default()));
    }
    match name {
        "breaker" => rules.breaker.as_ref().map(breaker_promise),
        "pacing" => rules.pacing.as_ref().map(pacing_promise),
        _ => None,
    }
}

/// Says the most that a rule lets pass: its line of the table of promises, with its numbers.
fn promise(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::TokenBucket(config) => bucket("token_bucket", config.rate, config.burst),
        Algorithm::WarmUp(config) => {
            let promise = bucket("token_bucket", config.rate, config.burst);
            format!("{promise}, when warm; {}", ramp_promise(config.rate, config.warm_up))
        }
        Algorithm::LeakyBucket(config) => bucket("leaky_bucket", config.rate, config.capacity),
        Algorithm::SlidingLog(config) => {
            let (count, window) = (config.rate.count(), short(config.rate.window()));
            let log = ByteSize(config.full_bytes() as u64);
            format!(
                "sliding_log {count}/{window}: at most {count} in any {window}, exactly; \
                 a log of up to {log:.1}"
            )
        }
        Algorithm::SlidingWindow(config) => sliding(config),
        Algorithm::SlidingCounter(config) => {
            let (count, window) = (config.rate.count(), short(config.rate.window()));
            let most = 2 * count - 1;
            // Of a full window the last one is in sight to the end of the next.
            let saturated = match count {
                1 => "1 in every other window".to_owned(),
                count => format!("{} in each", count - 1),
            };
            format!(
                "sliding_counter {count}/{window}: at most {count} in each window of the clock, \
                 {most} in any {window}; {saturated} under saturation"
            )
        }
        Algorithm::FixedWindow(config) => fixed_window_promise(config),
        Algorithm::Concurrency(config) => {
            format!(
                "concurrency {}: at most {} in flight at any instant",
                config.limit, config.limit
            )
        }
        Algorithm::Pacing(config) => format!("pacing {}", pacing_promise(config)),
        Algorithm::Exchanged(config) => promise(config.whole()),
    }
}

fn fixed_window_promise(fixed_window::Config { rate, align }: &fixed_window::Config) -> String {
    let (count, window) = (rate.count(), short(rate.window()));
    let (twice, almost) = (2 * count, 2 * count - 1);
    match align {
        Align::Clock => format!(
            "fixed_window {count}/{window}: at most {count} in each window from the clock, \
             {twice} in any {window} across a boundary"
        ),
        Align::FirstRequest => format!(
            "fixed_window {count}/{window}: at most {count} in each window from the first request, \
             {almost} in any {window} across a boundary, {twice} across that of the clock's first"
        ),
        Align::Calendar(calendar) => format!(
            "fixed_window {count}/{}: at most {count} in each, {twice} across a boundary",
            calendar.name(),
        ),
    }
}

fn bucket(word: &str, rate: Rate, size: u64) -> String {
    let (count, window) = (rate.count(), short(rate.window()));
    let most = size.saturating_add(count);
    format!("{word} {count}/{window}, burst {size}: at most {size} at once, {most} in any {window}")
}

/// Says how a rate grows.
fn ramp_promise(rate: Rate, warm_up: WarmUp) -> String {
    let cold =
        rate.window() / u32::try_from(rate.count()).unwrap_or(u32::MAX) * warm_up.cold_factor;
    format!(
        "one each {} when cold, warm after {}, cold after {} of silence",
        short(cold),
        short(warm_up.duration()),
        short(warm_up.coldest()),
    )
}

fn sliding(config: &sliding_window::Config) -> String {
    let (count, window) = (config.rate.count(), short(config.rate.window()));
    let buckets = config.buckets;
    if config.strict {
        return format!(
            "sliding_window {count}/{window}, {buckets} buckets, strict: at most {count} in any {window}"
        );
    }
    let most = 2 * count;
    if buckets == 1 {
        return format!(
            "sliding_window {count}/{window}, 1 bucket: at most {count} in each window from the \
             clock, {most} in any {window} across a boundary"
        );
    }
    let sure = config.rate.window().saturating_sub(config.rate.window() / buckets);
    format!(
        "sliding_window {count}/{window}, {buckets} buckets: at most {count} in any {}, {most} in \
         any {window}",
        short(sure)
    )
}

/// Says how a rule counts, where that is not the default.
fn write_details(out: &mut String, rule: &Rule, plan: &RulePlan) -> fmt::Result {
    if let Some(keyed) = &rule.keyed {
        let lends = plan.priority.is_some();
        let (each, most) = (rule.algorithm.bytes_per_key(lends), ByteSize(rule.most_bytes(lends)));
        let missing = match plan.on_missing {
            OnMissing::Shared => "",
            OnMissing::Skip => "; without a key: not counted",
            OnMissing::Reject => "; without a key: refused",
        };
        writeln!(
            out,
            "      for each {}: at most {} keys and {OTHERS} spare, {each} bytes each, {most:.1} in all{missing}",
            keyed.by, keyed.max_keys
        )?;
    }
    if plan.cost.default != 1 || !plan.cost.by_method.is_empty() {
        write!(out, "      cost: ")?;
        for (method, cost) in &plan.cost.by_method {
            write!(out, "{method} {cost}, ")?;
        }
        writeln!(out, "else {}", plan.cost.default)?;
    }
    if plan.except.is_some() {
        writeln!(out, "      some requests are exempt")?;
    }
    if let Some(priority) = &plan.priority {
        let most = short(priority.max_wait);
        writeln!(out, "      some requests borrow from windows to come, and wait up to {most}")?;
    }
    if plan.dry_run {
        writeln!(out, "      dry run: counts, refuses nothing")?;
    }
    plan.shared.map_or(Ok(()), |on_error| write_shared(out, on_error))
}

/// Says what gateways share, and what holds while they cannot.
fn write_shared(out: &mut String, on_error: OnStoreError) -> fmt::Result {
    let otherwise = match on_error {
        OnStoreError::Local => "each counts by itself, with the limit divided by the gateways",
        OnStoreError::Allow => "everything passes",
        OnStoreError::Deny => "everything is refused",
    };
    writeln!(out, "      shared by all gateways of the store; while that fails, {otherwise}")
}

/// Says how much more gateways let pass that exchange states than one would.
fn write_exchanged(out: &mut String, rule: &Rule, plan: &RulePlan, gateways: u32) -> fmt::Result {
    let (Algorithm::Exchanged(config), Some(interval)) = (&rule.algorithm, plan.sync_interval)
    else {
        return Ok(());
    };
    let most = config.most_unseen(interval);
    let each = if rule.keyed.is_some() { " of a key" } else { "" };
    write!(
        out,
        "      exchanged every {}: G gateways let pass up to (G − 1)·min({most}, what one lets pass{each} in {}) more",
        short(interval),
        short(2 * interval)
    )?;
    match u64::from(gateways) {
        1 => writeln!(out),
        gateways => {
            let most = (gateways - 1).saturating_mul(most);
            writeln!(out, "; {gateways} gateways {most} at most")
        }
    }
}

fn pacing_promise(config: &pacing::Config) -> String {
    let ramp = |warm_up| format!("; {}", ramp_promise(config.rate, warm_up));
    let ramp = config.warm_up.map_or_else(String::new, ramp);
    let interval = Duration::from_nanos(config.rate.window_nanos() / config.rate.count());
    let window = short(config.rate.window());
    format!(
        "{}/{window}: starts at least {} apart; waits up to {}, {} at most{ramp}",
        config.rate.count(),
        short(interval),
        short(config.max_wait),
        config.max_queue
    )
}

fn write_settings(out: &mut String, plan: &Plan) -> fmt::Result {
    let settings = &plan.settings;
    let (timeouts, limits) = (&settings.timeouts, &settings.limits);
    writeln!(out, "\nsettings")?;
    writeln!(
        out,
        "  timeouts  header_read {}, keep_alive {}, tls_handshake {}, write {}",
        short(timeouts.header_read),
        short(timeouts.keep_alive),
        short(timeouts.tls_handshake),
        short(timeouts.write)
    )?;
    writeln!(
        out,
        "  limits  header_bytes {}, headers {}, body {}, connections {}",
        ByteSize(limits.header_bytes as u64),
        limits.headers,
        ByteSize(limits.body),
        limits.connections
    )?;
    let proxies: Vec<_> = settings.trusted_proxies.iter().map(ToString::to_string).collect();
    let proxies = if proxies.is_empty() { "none".to_owned() } else { proxies.join(", ") };
    writeln!(out, "  trusted_proxies  {proxies}")?;
    let headers = match settings.rate_limit_headers {
        RateLimitHeaders::Draft => "draft",
        RateLimitHeaders::Legacy => "legacy",
        RateLimitHeaders::Off => "off",
    };
    let log = match &settings.access_log {
        AccessLog::Off => "off".to_owned(),
        AccessLog::Stdout => "stdout".to_owned(),
        AccessLog::File(path) => path.display().to_string(),
    };
    writeln!(
        out,
        "  headers {headers}, explain_headers {}, access_log {log}",
        settings.explain_headers
    )?;
    if let Some(store) = &settings.store {
        let kind = match &store.kind {
            StoreKind::Single => "one server".to_owned(),
            StoreKind::Sentinel { primary, .. } => {
                format!("the primary `{primary}` of the sentinels")
            }
            StoreKind::Cluster => "a Redis Cluster of".to_owned(),
        };
        let nodes: Vec<_> =
            store.nodes.iter().map(|(host, port)| format!("{host}:{port}")).collect();
        let tls = if store.is_tls { ", TLS" } else { "" };
        writeln!(
            out,
            "  store  {kind} {}{tls}, prefix {}, timeout {}, connect_timeout {}, lease {}",
            nodes.join(", "),
            store.prefix,
            short(store.timeout),
            short(store.connect_timeout),
            short(store.lease)
        )?;
    }
    writeln!(out, "  workers {}, drain_timeout {}", settings.workers, short(settings.drain_timeout))
}

/// Writes a duration without blanks, as the file would.
fn short(duration: Duration) -> String {
    spelled(duration).replace(' ', "")
}

fn count(number: usize, what: &str) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
