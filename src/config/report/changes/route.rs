//! The differences of a route and its rules.

use super::Words;
use crate::{
    config::{
        plan::{
            Action, Mirror, Plan, Respond, RouteOptions, RoutePlan, RouteTimeouts, RuleOptions,
            RulePlan,
        },
        report::promise::bucket_numbers,
        snapshot::{Route, RouteRule},
        spec::{
            OnStoreError,
            leaf::{byte_rate, short},
            word,
        },
    },
    flow::{self, Algorithm, QueueConfig, Rate, limiter::fixed_window::Align},
};
use bytesize::ByteSize;
use std::{borrow::Cow, time::Duration};

/// A route without state, of a plan or in force.
pub(in crate::config) struct ComparedRoute<'r> {
    matches: &'r str,
    /// The upstream's name, or what the route answers itself.
    action: Cow<'r, str>,
    is_forwarded: bool,
    respond: Option<&'r Respond>,
    options: &'r RouteOptions,
    flow: &'r flow::Rules,
    rules: ComparedRules<'r>,
    /// The shared rules that its requests meet, by name.
    shared: Vec<&'r str>,
    /// The decisions of pacing while the store fails, if gateways share it.
    paced: Option<OnStoreError>,
}

/// Returns an upstream's name, or what a route answers itself.
fn words_of<'r, U>(action: &'r Action<U>, name: impl FnOnce(&'r U) -> &'r str) -> Cow<'r, str> {
    let upstream = action.upstream().map(name);
    upstream.map_or_else(|| action.own_words().unwrap_or_default().into(), Cow::from)
}

/// The rules of one gate without state, of a plan or in force.
pub(in crate::config) struct ComparedRules<'r> {
    flow: &'r flow::Rules,
    rules: Vec<ComparedRule<'r>>,
}

impl<'r> ComparedRules<'r> {
    pub(in crate::config) fn new<R>(flow: &'r flow::Rules, rules: &'r [R]) -> Self
    where
        ComparedRule<'r>: From<&'r R>,
    {
        Self { flow, rules: rules.iter().map(ComparedRule::from).collect() }
    }

    /// Says what differs.
    pub(in crate::config) fn words(&self, new: &Self) -> Vec<String> {
        let mut words = Words::default();
        self.compare(new, &mut words);
        words.0
    }

    fn compare(&self, new: &Self, words: &mut Words) {
        let find =
            |view: &Self, name: &str| view.flow.flow.iter().position(|rule| *rule.name == *name);
        for (rule, view) in new.flow.flow.iter().zip(&new.rules) {
            match find(self, &rule.name) {
                None => words.add(format!("+rule {} {}", rule.name, limit(&rule.algorithm))),
                Some(at) => {
                    algorithm(&rule.name, &self.flow.flow[at], rule, words);
                    conditions(&rule.name, &self.rules[at], view, words);
                }
            }
        }
        for rule in self.flow.flow.iter().filter(|rule| find(new, &rule.name).is_none()) {
            words.add(format!("-rule {}", rule.name));
        }
    }
}

/// The conditions that a rule has of requests, and whether gateways share it.
pub(in crate::config) struct ComparedRule<'r> {
    options: &'r RuleOptions,
    /// The decisions of the rule while the store fails, if gateways share it.
    shared: Option<OnStoreError>,
    sync_interval: Option<Duration>,
}

impl<'r> From<&'r Route> for ComparedRoute<'r> {
    fn from(route: &'r Route) -> Self {
        Self {
            matches: &route.matches,
            action: words_of(&route.action, |upstream| &upstream.name),
            is_forwarded: route.action.upstream().is_some(),
            respond: route.action.respond(),
            options: &route.options,
            flow: &route.flow,
            rules: ComparedRules::new(&route.flow, route.own_rules()),
            shared: route.groups.iter().map(|group| &**group.owner.rule()).collect(),
            paced: route.paced.as_ref().map(|shared| shared.on_error),
        }
    }
}

impl<'r> From<&'r RouteRule> for ComparedRule<'r> {
    fn from(rule: &'r RouteRule) -> Self {
        Self {
            options: &rule.options,
            shared: rule.shared.as_ref().map(|shared| shared.on_error),
            sync_interval: rule.sync().map(|sync| sync.interval),
        }
    }
}

impl<'r> From<&'r RulePlan> for ComparedRule<'r> {
    fn from(rule: &'r RulePlan) -> Self {
        let RulePlan { options, shared, sync_interval, .. } = rule;
        Self { options, shared: *shared, sync_interval: *sync_interval }
    }
}

impl<'r> ComparedRoute<'r> {
    /// Returns a route of `plan`.
    pub(in crate::config) fn of_plan(route: &'r RoutePlan, plan: &'r Plan) -> Self {
        let shared = route.groups.iter().map(|met| &plan.groups[met.index]);
        Self {
            matches: &route.matches,
            action: words_of(&route.action, |index| &plan.upstreams[*index].name),
            is_forwarded: route.action.upstream().is_some(),
            respond: route.action.respond(),
            options: &route.options,
            flow: &route.flow,
            rules: ComparedRules::new(&route.flow, &route.rules),
            shared: shared.map(|group| &**group.owner.rule()).collect(),
            paced: route.paced,
        }
    }

    /// Says what differs, the rules first.
    pub(in crate::config) fn words(&self, new: &Self) -> Vec<String> {
        let mut words = Words::default();
        self.rules.compare(&new.rules, &mut words);
        words.value("shared rules", &self.shared, &new.shared, |names| {
            format!("[{}]", names.join(", "))
        });
        words.named("breaker", self.flow.breaker == new.flow.breaker);
        self.pacing(new, &mut words);
        words.value("match", self.matches, new.matches, |words| (*words).to_owned());
        let key = if self.is_forwarded && new.is_forwarded { "upstream" } else { "answer" };
        words.value(key, &self.action, &new.action, ToString::to_string);
        words.named("respond", self.action != new.action || self.respond == new.respond);
        options(self.options, new.options, &mut words);
        words.0
    }

    fn pacing(&self, new: &Self, words: &mut Words) {
        match (&self.flow.pacing, &new.flow.pacing) {
            (None, None) => {}
            (None, Some(config)) => words.add(format!("+pacing {}", rate(config.rate))),
            (Some(_), None) => words.add("-pacing".to_owned()),
            (Some(old), Some(new)) => {
                words.value("pacing", old.rate, new.rate, |steady| rate(*steady));
                words.value("pacing max_wait", old.max_wait, new.max_wait, |wait| short(*wait));
                words.value("pacing max_queue", old.max_queue, new.max_queue, u64::to_string);
                words.named("pacing warm_up", old.warm_up == new.warm_up);
            }
        }
        shared("pacing", self.paced, new.paced, words);
    }
}

/// Says what differs of a route's options. Taken apart, so that a new one cannot be left out.
fn options(old: &RouteOptions, new: &RouteOptions, words: &mut Words) {
    let RouteOptions {
        access,
        auth,
        cors,
        compress,
        mirror,
        timeouts: RouteTimeouts { first_byte, idle, event_stream, tunnel, request },
        body_limit,
        min_body_rate,
        upgrades,
        relaxed_path,
        request_trailers,
        retry,
        rewrite,
        request_headers,
        response_headers,
        reject,
        errors,
        // It follows from the others.
        has_placeholders: _,
    } = old;

    let time = |time: &&Duration| short(**time);
    let switch = |is_on: &&bool| is_on.to_string();
    let timeouts = &new.timeouts;

    words.named("access", *access == new.access);
    words.named("auth", *auth == new.auth);
    words.named("compress", *compress == new.compress);
    words.named("cors", *cors == new.cors);
    let copies = |mirror: &&Option<Box<Mirror>>| {
        mirror.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
    };
    words.value("mirror", mirror, &new.mirror, copies);
    words.value("timeouts.first_byte", first_byte, &timeouts.first_byte, time);
    words.value("timeouts.idle", idle, &timeouts.idle, time);
    words.value("timeouts.event_stream", event_stream, &timeouts.event_stream, time);
    words.value("timeouts.tunnel", tunnel, &timeouts.tunnel, time);
    words.value("timeouts.request", request, &timeouts.request, |request| {
        request.map_or_else(|| "off".to_owned(), short)
    });

    words.value("body_limit", body_limit, &new.body_limit, |bytes| ByteSize(**bytes).to_string());
    words.value("min_body_rate", min_body_rate, &new.min_body_rate, |rate| byte_rate(**rate));
    words.value("upgrades", upgrades, &new.upgrades, |list| format!("[{}]", list.join(", ")));
    words.value("relaxed_path", relaxed_path, &new.relaxed_path, switch);
    words.value("request_trailers", request_trailers, &new.request_trailers, switch);

    words.named("retry", *retry == new.retry);
    words.named("rewrite", *rewrite == new.rewrite);
    words.named("request_headers", *request_headers == new.request_headers);
    words.named("response_headers", *response_headers == new.response_headers);
    words.named("reject", *reject == new.reject);
    words.named("errors", *errors == new.errors);
}

/// Says what differs in how a rule counts.
fn algorithm(name: &str, old: &flow::Rule, new: &flow::Rule, words: &mut Words) {
    let at = |key: &str| format!("{name} {key}");
    let before = &old.algorithm;
    let after = &new.algorithm;

    words.value(name, before.word(), after.word(), |word| (*word).to_owned());
    words.value(name, limit(before), limit(after), String::clone);
    // A burst that equals the limit's count changes with the limit, which is named already.
    let follows_limit = has_default_burst(before) && has_default_burst(after);
    if before.word() == after.word() && !follows_limit {
        words.value(name, detail(before), detail(after), String::clone);
    }

    let key = |rule: &flow::Rule| {
        rule.keyed.as_ref().map_or_else(|| "none".to_owned(), |keyed| keyed.by.to_string())
    };
    words.value(&at("key"), key(old), key(new), String::clone);
    if let (Some(old), Some(new)) = (&old.keyed, &new.keyed) {
        words.value(&at("max_keys"), old.max_keys, new.max_keys, u32::to_string);
    }
    let waits = |rule: &flow::Rule| {
        rule.queue.as_deref().map_or_else(|| "none".to_owned(), QueueConfig::to_string)
    };
    words.value(&at("queue"), waits(old), waits(new), String::clone);
    let bans = |rule: &flow::Rule| rule.reject_for.map_or_else(|| "none".to_owned(), short);
    words.value(&at("reject_for"), bans(old), bans(new), String::clone);
    words.value(&at("dry_run"), old.dry_run, new.dry_run, bool::to_string);
}

/// Says what differs in the requests that a rule counts, and in the gateways that share it.
fn conditions(name: &str, from: &ComparedRule<'_>, to: &ComparedRule<'_>, words: &mut Words) {
    let at = |key: &str| format!("{name} {key}");
    let before = from.options;
    let after = to.options;
    words.value(&at("before_auth"), before.before_auth, after.before_auth, bool::to_string);
    words.named(&at("cost"), before.cost == after.cost);
    words.named(&at("except"), before.except == after.except);
    words.named(&at("priority"), before.priority == after.priority);
    words.named(&at("order of the queue"), before.shares == after.shares);
    if before.plans != after.plans {
        let plans = [before, after].map(|options| {
            options.plans.as_ref().map_or_else(|| "none".to_owned(), ToString::to_string)
        });
        words.value(&at("plans"), &plans[0], &plans[1], |plans| (*plans).clone());
    }
    words.named(&at("on_missing_key"), before.on_missing == after.on_missing);
    let duplicates = [before, after].map(|options| options.key.on_duplicate());
    words.named(&at("on_duplicate_key"), duplicates[0] == duplicates[1]);

    let jitter = |time: &Option<Duration>| time.map_or_else(|| "none".to_owned(), short);
    let jitters = [before, after].map(|options| options.retry_after_jitter);
    words.value(&at("retry_after_jitter"), jitters[0], jitters[1], jitter);

    shared(name, from.shared, to.shared, words);
    let interval = |interval: &Option<Duration>| interval.map_or_else(|| "none".to_owned(), short);
    words.value(&at("sync_interval"), from.sync_interval, to.sync_interval, interval);
}

/// Adds whether `what` is shared by the cluster or local, and how it decides while the store fails.
fn shared(what: &str, old: Option<OnStoreError>, new: Option<OnStoreError>, words: &mut Words) {
    let scope = |shared: &Option<_>| if shared.is_some() { "cluster" } else { "process" };
    words.value(&format!("{what} scope"), scope(&old), scope(&new), |word| (*word).to_owned());
    if let (Some(old), Some(new)) = (old, new) {
        words.value(&format!("{what} on_store_error"), old, new, word);
    }
}

fn rate(rate: Rate) -> String {
    format!("{}/{}", rate.count(), short(rate.window()))
}

/// Writes the limit as the file does: `10/1m`.
fn limit(algorithm: &Algorithm) -> String {
    let steady = match algorithm {
        Algorithm::TokenBucket(config) => config.rate,
        Algorithm::WarmUp(config) => config.rate,
        Algorithm::LeakyBucket(config) => config.rate,
        Algorithm::SlidingLog(config) => config.rate,
        Algorithm::SlidingWindow(config) => config.rate,
        Algorithm::SlidingCounter(config) => config.rate,
        Algorithm::FixedWindow(config) => match &config.align {
            Align::Calendar(calendar) => {
                return format!("{}/{}", config.rate.count(), calendar.name());
            }
            Align::Clock | Align::FirstRequest => config.rate,
        },
        Algorithm::Concurrency(config) => return config.limit.to_string(),
        Algorithm::AutoConcurrency(config) => return format!("auto {config}"),
        Algorithm::Pacing(config) => config.rate,
        Algorithm::Closed => return "0".to_owned(),
        Algorithm::Planned(config) => return limit(config.own()),
        Algorithm::Synced(config) => return limit(config.whole()),
    };
    rate(steady)
}

/// Writes what an algorithm has beside its limit.
fn detail(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::TokenBucket(config) => format!("burst {}", config.burst),
        Algorithm::WarmUp(config) => {
            format!("burst {}, warm_up {}", config.burst, short(config.warm_up.period))
        }
        Algorithm::LeakyBucket(config) => format!("burst {}", config.capacity),
        Algorithm::SlidingWindow(config) => {
            let strict = if config.strict { ", strict" } else { "" };
            format!("{} buckets{strict}", config.buckets)
        }
        Algorithm::FixedWindow(config) => match config.align {
            Align::Clock => "from the clock".to_owned(),
            Align::FirstRequest => "from the first request".to_owned(),
            Align::Calendar(_) => "by the calendar".to_owned(),
        },
        Algorithm::SlidingLog(_)
        | Algorithm::SlidingCounter(_)
        | Algorithm::Concurrency(_)
        | Algorithm::AutoConcurrency(_)
        | Algorithm::Pacing(_)
        | Algorithm::Closed => String::new(),
        Algorithm::Planned(config) => detail(config.own()),
        Algorithm::Synced(config) => detail(config.whole()),
    }
}

/// Returns whether this is a bucket whose size equals the limit's count.
fn has_default_burst(algorithm: &Algorithm) -> bool {
    bucket_numbers(algorithm).is_some_and(|(rate, burst)| burst == rate.count())
}
