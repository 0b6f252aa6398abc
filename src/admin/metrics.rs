//! `/metrics` in the OpenMetrics text format.
//!
//! Nothing is registered: a page reads the snapshot in force, so that edits leave no stale series.
//! Labels are names from the configuration, methods, statuses and fixed words, never a client's
//! key. A page takes about 5 KB per route in use, and 2 KB more with
//! exemplars.

use super::auto_limits::{self, AutoLimit};
use super::exposition::{
    self, Format, Head, Histogram, Process, counter, counters, gauge, gauges, histograms, info,
};
use crate::{
    acme,
    cluster::{ROUND_TRIP_BOUNDS, StoreReading},
    config::{Route, Server, ShownCertificate, Snapshot},
    flow::{
        Algorithm, ByReason, Instant, Observation, ReasonKind, RuleObservation, WAIT_BOUNDS,
        breaker::Phase, rule_of,
    },
    meter::{
        AdminRejection, Counters, DURATION_BOUNDS, Durations, HttpRejection, Resent, RouteReading,
        ServerMeter,
    },
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text},
    registry::Registry,
};
use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

type Label<'a> = (&'static str, &'a str);

/// The family with exemplars, without its unit.
const DURATION: &str = "flowgate_http_request_duration";

/// The numbers of one page.
#[derive(Debug)]
pub(super) struct Metrics {
    snapshot: Arc<Snapshot>,
    counters: Arc<Counters>,
    /// The time when the process started.
    started: Instant,
    /// In the order of the snapshot's routes.
    routes: Vec<(Observation, RouteReading)>,
    /// The rules that routes share, beside the snapshot's groups.
    shared: Vec<Vec<RuleObservation>>,
    store: Option<StoreReading>,
    acme: Arc<acme::Status>,
    process: Process,
}

/// Sums each rule with its overrides.
fn by_name(seen: Vec<RuleObservation>) -> Vec<RuleObservation> {
    let mut rules: Vec<RuleObservation> = Vec::with_capacity(seen.len());
    for seen in seen {
        let name = rule_of(&seen.name);
        match rules.last_mut().filter(|last| *last.name == *name) {
            Some(sum) => {
                sum.counts += seen.counts;
                if let (Some(sum), Some(keys)) = (&mut sum.keys, seen.keys) {
                    sum.live += keys.live;
                }
            }
            None => rules.push(RuleObservation { name: name.into(), ..seen }),
        }
    }
    rules
}

impl Metrics {
    pub(super) fn read(
        snapshot: Arc<Snapshot>,
        counters: Arc<Counters>,
        store: Option<StoreReading>,
        started: Instant,
        now: Instant,
    ) -> Self {
        let read = |route: &Arc<Route>| {
            let mut seen = route.gate.observe(now);
            seen.rules = by_name(seen.rules);
            (seen, route.meter.read())
        };
        let routes = snapshot.routes.iter().map(read).collect();
        let shared = snapshot.groups.iter();
        let shared = shared.map(|group| by_name(group.gate.observe(now).rules)).collect();
        let process = Process::read();
        let acme = Arc::default();
        Self { snapshot, counters, started, routes, shared, store, acme, process }
    }

    /// Adds the certificates that flowgate gets.
    pub(super) fn with_acme(self, acme: &Arc<acme::Status>) -> Self {
        Self { acme: Arc::clone(acme), ..self }
    }

    /// Writes the page in a format. Only OpenMetrics has exemplars.
    ///
    /// # Errors
    ///
    /// None: writing to a `String` cannot fail.
    pub(super) fn write(self, format: Format) -> Result<String, fmt::Error> {
        // Only routes in use have buckets.
        let used = self.snapshot.routes.iter().zip(&self.routes);
        let used = used.filter(|(_, (_, read))| !read.answers.is_empty());
        let used: Vec<Arc<Route>> = used.map(|(route, _)| Arc::clone(route)).collect();
        let mut registry = Registry::default();
        registry.register_collector(Box::new(self));
        let mut page = String::new();
        text::encode(&mut page, &registry)?;
        Ok(match format {
            Format::Text => format.of(page),
            Format::OpenMetrics => {
                let exemplars = used.iter().flat_map(|route| route.meter.exemplars());
                exposition::add_exemplars(&page, &format!("{DURATION}_seconds"), exemplars)
            }
        })
    }

    fn routes(&self) -> impl Iterator<Item = ([Label<'_>; 1], &Observation, &RouteReading)> {
        let labels = self.snapshot.routes.iter().map(|route| [("route", &*route.name)]);
        labels.zip(&self.routes).map(|(labels, (seen, read))| (labels, seen, read))
    }

    fn rules(&self) -> impl Iterator<Item = ([Label<'_>; 2], &RuleObservation)> {
        self.routes().flat_map(|([route], seen, _)| {
            seen.rules.iter().map(move |rule| ([route, ("rule", &*rule.name)], rule))
        })
    }

    /// Returns the rules that routes share.
    fn shared_rules(
        &self,
    ) -> impl Iterator<Item = ([(&'static str, String); 1], &RuleObservation)> {
        let names = self.snapshot.groups.iter().map(|group| match group.owner.budget() {
            Some(name) => name.to_string(),
            None => group.owner.to_string(),
        });
        let rules = names.zip(&self.shared);
        rules.flat_map(|(name, seen)| {
            seen.iter().map(move |rule| ([("budget", name.clone())], rule))
        })
    }

    /// Returns the limits that find themselves, with the labels of their rules.
    fn auto_limits(&self) -> Vec<AutoLimit<'_>> {
        let own = self.rules().filter_map(|([route, rule], seen)| {
            let labels =
                [("budget", Cow::Borrowed("")), (route.0, route.1.into()), (rule.0, rule.1.into())];
            Some(AutoLimit { labels, stats: seen.auto? })
        });
        let shared = self.shared_rules().filter_map(|([(_, budget)], seen)| {
            let labels = [("budget", budget.into()), ("route", "".into()), ("rule", "".into())];
            Some(AutoLimit { labels, stats: seen.auto? })
        });
        own.chain(shared).collect()
    }

    fn budgets(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let started = self.shared_rules().flat_map(|(budget, rule)| {
            let decisions = [("passed", rule.counts.passed), ("delayed", rule.counts.delayed)];
            decisions.map(|(decision, count)| {
                ((budget.clone(), [("decision", decision), ("reason", "")]), count)
            })
        });
        let rejected = self.shared_rules().flat_map(|(budget, rule)| {
            rejections(rule, &rule.counts.rejected).map(move |(kind, count)| {
                ((budget.clone(), [("decision", "rejected"), ("reason", kind)]), count)
            })
        });
        let help = "Decisions of budgets, and of rules of the file, a listener or an upstream";
        counters(encoder, ("flowgate_budget_decisions", help), started.chain(rejected))?;

        let rejected = self.shared_rules().flat_map(|(budget, rule)| {
            let counts = &rule.counts.dry_run_rejected;
            let is_shown = rule.dry_run || counts.total() > 0;
            let each = rejections(rule, counts).filter(move |_| is_shown);
            each.map(move |(kind, count)| ((budget.clone(), [("reason", kind)]), count))
        });
        let help = "Requests that a budget in dry run would have rejected";
        counters(encoder, ("flowgate_budget_dry_run_rejections", help), rejected)?;

        let shared = self.shared_rules().filter(|(_, rule)| rule.keys.is_none());
        let used = shared.map(|(budget, rule)| (budget, rule.used));
        let help =
            "The used part of a budget without a key: requests in flight, if it limits those";
        gauges(encoder, ("flowgate_budget_used", help), used)?;

        let keyed =
            || self.shared_rules().filter_map(|(budget, rule)| Some((budget, rule, rule.keys?)));
        let live = keyed().map(|(budget, _, keys)| (budget, keys.live.into()));
        gauges(encoder, ("flowgate_budget_keys", "Clients that a budget counts separately"), live)?;
        let evicted = keyed().map(|(budget, rule, _)| (budget, rule.counts.churn.evicted));
        let help =
            "Keys of a budget that lost their place in a full table before their use was over";
        counters(encoder, ("flowgate_budget_keys_evicted", help), evicted)
    }

    /// Returns each server once, whichever upstreams name it.
    fn servers(&self) -> impl Iterator<Item = ([(&'static str, String); 1], Arc<Server>)> {
        let servers = self.snapshot.upstreams.iter().flat_map(|upstream| upstream.servers());
        let by_id: BTreeMap<usize, Arc<Server>> =
            servers.map(|server| (server.id, server)).collect();
        by_id.into_values().map(|server| ([("server", server.address())], server))
    }

    /// Writes the costs of rules that settle them.
    fn costs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let settling = || self.rules().filter(|(_, rule)| rule.settles);
        let reserved = settling().map(|(labels, rule)| (labels, rule.counts.reserved));
        let help = "Costs that were reserved for requests of a rule that settles costs";
        counters(encoder, ("flowgate_flow_cost_reserved", help), reserved)?;
        let settled = settling().map(|(labels, rule)| (labels, rule.counts.settled));
        let help = "Costs that were settled after the responses";
        counters(encoder, ("flowgate_flow_cost_settled", help), settled)?;

        let settling = || self.shared_rules().filter(|(_, rule)| rule.settles);
        let reserved = settling().map(|(budget, rule)| (budget, rule.counts.reserved));
        let help = "Costs that were reserved for requests of a budget that settles costs";
        counters(encoder, ("flowgate_budget_cost_reserved", help), reserved)?;
        let settled = settling().map(|(budget, rule)| (budget, rule.counts.settled));
        let help = "Costs of a budget that were settled after the responses";
        counters(encoder, ("flowgate_budget_cost_settled", help), settled)
    }

    fn flow(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let started = self.rules().flat_map(|([route, name], rule)| {
            [("passed", rule.counts.passed), ("delayed", rule.counts.delayed)].map(
                |(decision, count)| ([route, name, ("decision", decision), ("reason", "")], count),
            )
        });
        let rejected = self.rules().flat_map(|([route, name], rule)| {
            let decision = ("decision", "rejected");
            rejections(rule, &rule.counts.rejected)
                .map(move |(kind, count)| ([route, name, decision, ("reason", kind)], count))
        });
        let help = "Decisions of each rule; the breaker is the rule `breaker`, pacing `pacing`";
        counters(encoder, ("flowgate_flow_decisions", help), started.chain(rejected))?;
        let rejected = self.rules().flat_map(|(labels, rule)| {
            let counts = &rule.counts.dry_run_rejected;
            let is_shown = rule.dry_run || counts.total() > 0;
            let each = rejections(rule, counts).filter(move |_| is_shown);
            each.map(move |(kind, count)| ((labels, [("reason", kind)]), count))
        });
        let help = "Requests that a rule in dry run would have rejected";
        counters(encoder, ("flowgate_flow_dry_run_rejections", help), rejected)?;
        self.costs(encoder)?;
        self.bans(encoder)?;
        let keyed = || self.rules().filter_map(|(labels, rule)| Some((labels, rule, rule.keys?)));
        let live = keyed().map(|(labels, _, keys)| (labels, keys.live.into()));
        gauges(encoder, ("flowgate_flow_keys", "Clients that a rule counts separately"), live)?;

        let evicted = keyed().map(|(labels, rule, _)| (labels, rule.counts.churn.evicted));
        let help = "Keys that lost their place in a full table before their use was over";
        counters(encoder, ("flowgate_flow_keys_evicted", help), evicted)?;
        let restored = keyed().map(|(labels, rule, _)| (labels, rule.counts.churn.restored));
        let help = "Keys that got a place and began with what was remembered of evicted keys";
        counters(encoder, ("flowgate_flow_keys_restored", help), restored)?;
        let overflowed = keyed().map(|(labels, rule, _)| (labels, rule.counts.churn.overflowed));
        let help = "Decisions about clients that shared a state, as no other could be evicted";
        counters(encoder, ("flowgate_flow_keys_overflow", help), overflowed)?;
        let in_flight = self.routes().map(|(labels, seen, _)| (labels, seen.in_flight));
        let help = "Requests admitted and not yet ended, waiting ones included";
        gauges(encoder, ("flowgate_flow_in_flight", help), in_flight)?;
        let waiting = self.routes().map(|(labels, seen, _)| (labels, seen.waiting));
        gauges(encoder, ("flowgate_flow_queue_depth", "Requests that wait to start"), waiting)?;
        let ends = self.routes().flat_map(|(labels, seen, _)| {
            ends(seen).map(move |(outcome, count)| ((labels, [("outcome", outcome)]), count))
        });
        counters(encoder, ("flowgate_flow_ends", "How admitted requests ended"), ends)?;
        self.breakers(encoder)?;
        let delayed = self.routes().filter(|(_, seen, _)| seen.totals.delayed > 0);
        let waits = delayed.map(|(labels, seen, _)| {
            let sum = seen.totals.wait_sum;
            (labels, Histogram { bounds: &WAIT_BOUNDS, buckets: &seen.waits, sum })
        });
        histograms(encoder, ("flowgate_flow_wait", "How long requests had to wait"), waits)
    }

    /// Writes the bans of rules that ban clients.
    fn bans(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let count = |banned: usize| u64::try_from(banned).unwrap_or(u64::MAX);
        let banning =
            || self.rules().filter_map(|(labels, rule)| Some((labels, rule, rule.banned?)));
        let begun = banning().map(|(labels, rule, _)| (labels, rule.counts.bans));
        let help = "Clients that a rule began to reject for a while, as they had exceeded it";
        counters(encoder, ("flowgate_flow_bans", help), begun)?;
        let banned = banning().map(|(labels, _, banned)| (labels, count(banned)));
        let help = "Clients that a rule rejects now, as they have exceeded it before";
        gauges(encoder, ("flowgate_flow_banned", help), banned)?;

        let banning =
            || self.shared_rules().filter_map(|(budget, rule)| Some((budget, rule, rule.banned?)));
        let begun = banning().map(|(budget, rule, _)| (budget, rule.counts.bans));
        let help = "Clients that a budget began to reject for a while, as they had exceeded it";
        counters(encoder, ("flowgate_budget_bans", help), begun)?;
        let banned = banning().map(|(budget, _, banned)| (budget, count(banned)));
        let help = "Clients that a budget rejects now, as they have exceeded it before";
        gauges(encoder, ("flowgate_budget_banned", help), banned)
    }

    fn breakers(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let breakers = || {
            self.routes().filter_map(|([route], seen, _)| {
                Some((route, seen.rules.iter().find_map(|rule| rule.breaker)?))
            })
        };
        let states = breakers().map(|(route, seen)| {
            let state = match seen.phase {
                Phase::Closed => 0,
                Phase::HalfOpen => 1,
                Phase::Open => 2,
            };
            ([route], state)
        });

        let help = "0 closed, 1 half-open, 2 open";
        gauges(encoder, ("flowgate_breaker_state", help), states)?;
        let turns = breakers().flat_map(|(route, seen)| {
            [
                (Phase::Open, seen.opened),
                (Phase::HalfOpen, seen.half_opened),
                (Phase::Closed, seen.closed),
            ]
            .map(|(to, count)| ([route, ("to", to.word())], count))
        });
        counters(encoder, ("flowgate_breaker_transitions", "Changes of a breaker's state"), turns)
    }

    fn http(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let requests = self.routes().flat_map(|([route], _, read)| {
            let answers = read.answers.iter();
            let answers = answers.map(|a| (a.method, a.status.to_string(), a.count));
            let others = (read.others > 0).then(|| ("other", "other".to_owned(), read.others));
            answers.chain(others).map(move |(method, code, count)| {
                (([route, ("method", method)], [("code", code)]), count)
            })
        });
        let help = "Answered requests, rejected ones included";
        counters(encoder, ("flowgate_http_requests", help), requests)?;
        let help = "From a request's arrival to the end of its answer";
        self.durations(encoder, (DURATION, help), |read| &read.durations)?;
        let help = "From a request's arrival to the head of its answer";
        let head = ("flowgate_http_time_to_first_byte", help);
        self.durations(encoder, head, |read| &read.first_bytes)?;
        let rejected = HttpRejection::ALL
            .map(|reason| ([("reason", reason.label())], self.counters.rejections(reason)));
        let help = "Requests and connections rejected before any rule was asked";
        counters(encoder, ("flowgate_http_rejected", help), rejected)?;
        let help = "Requests that count as their proxy's, because X-Forwarded-For names no client";
        let unread = get(&self.counters.unread_clients);
        counter(encoder, ("flowgate_http_forwarded_for_invalid", help), &unread)
    }

    fn forward_auth(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let read = || {
            let routes = self.snapshot.routes.iter();
            routes.filter_map(|route| Some(([("route", &*route.name)], route.meter.auth()?)))
        };
        let counts = read().flat_map(|(labels, (counts, _))| {
            counts.map(|(outcome, count)| ((labels, [("outcome", outcome.label())]), count))
        });
        let help = "Requests to the auth service of a route";
        counters(encoder, ("flowgate_forward_auth_requests", help), counts)?;

        let bounds = DURATION_BOUNDS.map(Duration::from_nanos);
        let durations: Vec<_> = read().map(|(labels, (_, took))| (labels, took)).collect();
        let samples = durations.iter().map(|(labels, took)| {
            let Durations { buckets, sum } = took;
            (*labels, Histogram { bounds: &bounds, buckets, sum: *sum })
        });
        let help = "From a request to the auth service to the head of its answer";
        histograms(encoder, ("flowgate_forward_auth_duration", help), samples)
    }

    fn mirrors(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let routes = self.snapshot.routes.iter();
        let read =
            routes.filter_map(|route| Some(([("route", &*route.name)], route.meter.copies()?)));
        let counts = read.flat_map(|(labels, counts)| {
            counts.map(|(outcome, count)| ((labels, [("outcome", outcome.label())]), count))
        });
        let help = "Copies of requests for the mirror of a route";
        counters(encoder, ("flowgate_mirror_requests", help), counts)
    }

    fn durations(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        head: Head,
        read: fn(&RouteReading) -> &Durations,
    ) -> fmt::Result {
        let bounds = DURATION_BOUNDS.map(Duration::from_nanos);
        let used = self.routes().filter(|(_, _, read)| !read.answers.is_empty());
        let samples = used.map(|(labels, _, reading)| {
            let Durations { buckets, sum } = read(reading);
            (labels, Histogram { bounds: &bounds, buckets, sum: *sum })
        });
        histograms(encoder, head, samples)
    }

    fn upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut count = |name, help, read: fn(&ServerMeter) -> &AtomicU64| {
            let samples = self.servers().map(|(labels, server)| (labels, get(read(&server.meter))));
            counters(encoder, (name, help), samples)
        };
        count("flowgate_upstream_requests", "Requests, retries included", |m| &m.requests)?;
        count("flowgate_upstream_failures", "Requests without a whole answer", |m| &m.failures)?;
        count("flowgate_upstream_connects", "Attempts to open a connection", |m| &m.connects)?;
        let help = "Connections that could not be opened";
        count("flowgate_upstream_connect_failures", help, |m| &m.connect_failures)?;
        self.retries(encoder)?;
        let in_flight =
            self.servers().map(|(labels, server)| (labels, server.in_flight.load(Relaxed).into()));
        let help = "Requests that a server works on";
        gauges(encoder, ("flowgate_upstream_in_flight", help), in_flight)?;

        let servers = || {
            self.snapshot.upstreams.iter().flat_map(|upstream| {
                let name = || ("upstream", upstream.name.to_string());
                let servers = upstream.servers().into_iter();
                servers.map(move |server| ([name(), ("server", server.address())], server))
            })
        };
        let weights = servers().map(|(labels, server)| (labels, server.weight.into()));
        let help = "The servers of each upstream, and their weights";
        gauges(encoder, ("flowgate_upstream_server_weight", help), weights)?;
        let healthy =
            servers().map(|(labels, server)| (labels, u64::from(server.health.is_healthy())));
        let help = "Whether a server is healthy: 0 if it is ejected, cannot be reached or fails its checks";
        gauges(encoder, ("flowgate_upstream_server_healthy", help), healthy)?;
        let ejections = servers().map(|(labels, server)| (labels, server.health.ejections()));
        let help = "How often a server was ejected";
        counters(encoder, ("flowgate_upstream_server_ejections", help), ejections)
    }

    fn retries(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let resent = self.servers().flat_map(|([(name, address)], server)| {
            Resent::ALL.map(|reason| {
                let labels = [(name, address.clone()), ("reason", reason.label().to_owned())];
                (labels, server.meter.resent(reason))
            })
        });
        let help = "Requests sent again after this server failed them";
        counters(encoder, ("flowgate_upstream_retries", help), resent)?;
        let upstreams = self.snapshot.upstreams.iter();
        let exhausted = upstreams
            .map(|upstream| ([("upstream", &*upstream.name)], upstream.retries.exhausted()));
        let help = "Retries that the budget of an upstream did not allow";
        counters(encoder, ("flowgate_upstream_retries_exhausted", help), exhausted)
    }

    /// Returns how much more than each synced limit this many gateways may pass together, if all
    /// have this one's traffic.
    fn excess_bounds(&self, gateways: u32) -> impl Iterator<Item = ([Label<'_>; 2], u64)> {
        let routes = self.snapshot.routes.iter();
        let routes = routes.map(|route| (&*route.name, &route.flow, route.own_rules()));
        let groups = self.snapshot.groups.iter().map(|group| ("", &group.flow, &*group.rules));
        routes.chain(groups).flat_map(move |(route, flow, rules)| {
            let rules = rules.iter().zip(&flow.flow).filter(|(rule, _)| rule.when.is_none());
            rules.filter_map(move |(rule, flow)| {
                let Algorithm::Synced(config) = &flow.algorithm else { return None };
                let sync = rule.sync()?;
                let each = get(&sync.unseen).min(config.most_unseen(sync.interval));
                let labels = [("route", route), ("rule", &*rule.name)];
                Some((labels, u64::from(gateways).saturating_sub(1).saturating_mul(each)))
            })
        })
    }

    fn store(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(store) = &self.store else { return Ok(()) };
        let help = "Whether every worker reaches the store";
        gauge(encoder, ("flowgate_store_up", help), &u64::from(store.is_up))?;
        let help = "Gateways that the store has seen lately";
        gauge(encoder, ("flowgate_store_gateways", help), &u64::from(store.gateways))?;
        let errors = store.errors.iter().map(|(kind, count)| ([("kind", *kind)], *count));
        let help = "Calls and connections that failed";
        counters(encoder, ("flowgate_store_errors", help), errors)?;
        let trips = Histogram {
            bounds: &ROUND_TRIP_BOUNDS,
            buckets: &store.round_trips,
            sum: store.waited,
        };
        let none: [Label<'_>; 0] = [];
        if self.snapshot.has_synced_rules() {
            let help = "Whether states are synced with other gateways";
            gauge(encoder, ("flowgate_store_sync_up", help), &u64::from(store.is_syncing))?;
        }

        let kinds = [("what", "sent"), ("what", "taken")].map(|kind| [kind]);
        let states = kinds.into_iter().zip(store.synced_states);
        let help = "States that gateways synced";
        counters(encoder, ("flowgate_store_sync_states", help), states)?;
        let bounds = self.excess_bounds(store.divisor);
        let help = "Most that all gateways let pass beyond a limit whose counts they sync";
        gauges(encoder, ("flowgate_flow_excess_bound", help), bounds)?;
        let help =
            "Requests that the gateway rejected itself because the store had said until when";
        counter(encoder, ("flowgate_store_cached_rejections", help), &store.cached_rejections)?;
        let ends = store.settlements.iter().map(|(result, count)| ([("result", *result)], *count));
        let help = "Settlements of costs that the store has applied, or that were dropped";
        counters(encoder, ("flowgate_store_settlements", help), ends)?;
        let help = "Settlements of costs that the store has not confirmed yet";
        gauge(encoder, ("flowgate_store_settlements_waiting", help), &store.waiting_settlements)?;
        let help = "What a decision of the store takes";
        histograms(encoder, ("flowgate_store_round_trip", help), [(none, trips)])
    }

    fn gateway(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let counted = &*self.counters;
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        info(encoder, ("flowgate_build", "What runs"), &version)?;
        let hash = [("hash", &*self.snapshot.hash)];
        info(encoder, ("flowgate_config", "The configuration in force"), &hash)?;
        let reloads = results(&counted.reloads_ok, &counted.reloads_failed);
        counters(encoder, ("flowgate_config_reloads", "Edits of the configuration"), reloads)?;
        let name = "flowgate_config_last_reload_success_timestamp_seconds";
        let help = "When a configuration was last taken";
        gauge(encoder, (name, help), &get(&counted.last_reload_seconds))?;
        self.certificates(encoder)?;
        self.geo(encoder)?;
        self.acme(encoder)?;
        let handshakes = results(&counted.tls_handshakes, &counted.tls_failures);
        counters(encoder, ("flowgate_tls_handshakes", "TLS handshakes of clients"), handshakes)?;
        let accepted = get(&counted.connections_accepted);
        counter(encoder, ("flowgate_connections_accepted", "Client connections"), &accepted)?;
        let active = get(&counted.connections_active);
        gauge(encoder, ("flowgate_connections_active", "Open client connections"), &active)?;
        let waiting = get(&counted.upload_buffers);
        let help = "Bytes of uploads over HTTP/2 that no upstream has taken yet";
        gauge(encoder, ("flowgate_upload_buffer_bytes", help), &waiting)?;

        let dropped = get(&counted.access_log_dropped);
        let help = "Lines lost because they could not be written in time";
        counter(encoder, ("flowgate_access_log_dropped", help), &dropped)?;
        let dropped = get(&counted.log_dropped);
        counter(encoder, ("flowgate_log_dropped", help), &dropped)?;
        let rejected = get(&counted.spans_rejected);
        let spans = [
            ("exported", get(&counted.spans_exported).saturating_sub(rejected)),
            ("dropped", get(&counted.spans_dropped)),
            ("failed", get(&counted.spans_failed)),
            ("rejected", rejected),
        ];
        let spans = spans.map(|(result, count)| ([("result", result)], count));
        counters(encoder, ("flowgate_trace_spans", "Spans of sampled requests"), spans)?;
        let rejected = AdminRejection::ALL
            .map(|reason| ([("reason", reason.label())], counted.admin_rejections.of(reason)));
        let help = "Requests that the admin listener rejected";
        counters(encoder, ("flowgate_admin_rejected", help), rejected)?;
        let steps = get(&counted.clock_steps);
        let help = "Steps of the wall clock, which windows of the clock and the calendar follow";
        counter(encoder, ("flowgate_clock_steps", help), &steps)?;
        let panics = get(&counted.panics);
        counter(encoder, ("flowgate_panics", "Panics while serving, each one a bug"), &panics)
    }

    /// Writes when each certificate ends.
    fn certificates(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let ends = self.snapshot.certificates().into_iter().map(|certificate| {
            let ShownCertificate { used_by, file, not_after, .. } = certificate;
            ([("file", file), ("used_by", used_by)], not_after)
        });
        // A listener may name a file twice.
        let ends: BTreeMap<[(&str, String); 2], u64> = ends.collect();
        let name = "flowgate_certificate_not_after_timestamp_seconds";
        let help = "When a certificate that the gateway shows ends";
        gauges(encoder, (name, help), ends)
    }

    /// Writes when the files were made that say where clients are.
    fn geo(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Some(geo) = &self.snapshot.settings.geo else { return Ok(()) };
        let files = [("country", &geo.country), ("asn", &geo.asn)];
        let built = files.into_iter().filter_map(|(name, file)| {
            let built = file.as_ref()?.built();
            Some(([("file", name)], built))
        });
        let help = "When the contents of a file of countries or autonomous systems were made";
        gauges(encoder, ("flowgate_geo_build_timestamp_seconds", help), built)
    }

    /// Writes the state of the certificates that flowgate gets.
    fn acme(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let orders = [("issued", self.acme.issued()), ("failed", self.acme.failed())];
        let orders = orders.map(|(result, count)| ([("result", result)], count));
        counters(encoder, ("flowgate_acme_orders", "Orders of certificates"), orders)?;

        let states = self.acme.certificates();
        if states.is_empty() {
            return Ok(());
        }
        let of = |name: &String| [("certificate", name.clone())];
        let failures = states.iter().map(|(name, state)| (of(name), u64::from(state.failures)));
        let help = "Failed orders of a certificate since it was last issued";
        gauges(encoder, ("flowgate_acme_failures", help), failures)?;
        let next = states
            .iter()
            .map(|(name, state)| (of(name), state.next_order.since(Instant::EPOCH).as_secs()));
        let name = "flowgate_acme_next_order_timestamp_seconds";
        gauges(encoder, (name, "When a certificate is ordered next"), next)
    }

    /// Writes the standard process metrics.
    fn process(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let Process { cpu, resident, fds, fds_max } = self.process;
        let started = self.started.since(Instant::EPOCH).as_secs_f64();
        gauge(encoder, ("process_start_time_seconds", "When the process started"), &started)?;
        counter(encoder, ("process_cpu_seconds", "Time spent on processors"), &cpu.as_secs_f64())?;
        let gauges = [
            (("process_resident_memory_bytes", "Memory in use"), resident),
            (("process_open_fds", "Open file descriptors"), fds),
            (("process_max_fds", "The most file descriptors there may be"), fds_max),
        ];
        gauges.into_iter().try_for_each(|(head, value)| match value {
            Some(value) => gauge(encoder, head, &value),
            None => Ok(()),
        })
    }
}

impl Collector for Metrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.flow(&mut encoder)?;
        self.budgets(&mut encoder)?;
        auto_limits::encode(&self.auto_limits(), &mut encoder)?;
        self.http(&mut encoder)?;
        self.forward_auth(&mut encoder)?;
        self.mirrors(&mut encoder)?;
        self.upstreams(&mut encoder)?;
        self.store(&mut encoder)?;
        self.gateway(&mut encoder)?;
        self.process(&mut encoder)
    }
}

/// Returns the rejections by reason. The rule's usual reason is included at zero, so that its
/// series exists from the start.
fn rejections<'a>(
    rule: &RuleObservation,
    counts: &'a ByReason,
) -> impl Iterator<Item = (&'static str, u64)> + use<'a> {
    let own = match rule.algorithm {
        "concurrency" if rule.waiting.is_some() => ReasonKind::Queue,
        "concurrency" => ReasonKind::Concurrency,
        "pacing" => ReasonKind::Queue,
        "breaker" => ReasonKind::Breaker,
        _ => ReasonKind::Rate,
    };
    let others = counts.each().filter(move |(kind, _)| *kind != own);
    [(own, counts.of(own))].into_iter().chain(others).map(|(kind, count)| (kind.word(), count))
}

fn ends(seen: &Observation) -> [(&'static str, u64); 3] {
    let sums = seen.totals;
    [("completed", sums.completed), ("failed", sums.failed), ("cancelled", sums.cancelled)]
}

fn results(ok: &AtomicU64, failed: &AtomicU64) -> [([Label<'static>; 1], u64); 2] {
    [([("result", "ok")], get(ok)), ([("result", "failed")], get(failed))]
}

fn get(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
