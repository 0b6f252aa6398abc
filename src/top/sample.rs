//! The events of `/live`, as far as they are shown. Fields may be added to them at any time.

use crate::worst_paths::PathList;
use serde::Deserialize;
use std::collections::BTreeMap;

/// One second.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Sample {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// Seconds since the start of the gateway.
    pub uptime: u64,
    pub ready: bool,
    pub all: Point,
    pub failing: Failing,
    pub routes: Routes,
    pub upstreams: Upstreams,
    pub store: Option<Store>,
}

/// What fails, over the last ten seconds.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Failing {
    /// Of the admitted requests.
    pub share: f64,
    pub per_second: f64,
    /// Whether so many fail that an operator should look.
    pub many: bool,
    pub routes: Vec<FailingRoute>,
    pub paths: PathList,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FailingRoute {
    pub route: String,
    pub share: f64,
}

/// Requests in a second.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Point {
    pub passed: u64,
    pub delayed: u64,
    pub rejected: u64,
    /// Admitted requests that got a status of 500 to 599.
    pub failed: u64,
    /// Milliseconds.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
    pub in_flight: u64,
    pub waiting: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Routes {
    pub total: usize,
    pub found: usize,
    pub rows: Vec<Route>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Route {
    pub name: String,
    pub matches: String,
    pub upstream: Option<String>,
    pub answer: Option<String>,
    pub now: Point,
    pub rules: Vec<Rule>,
    pub more_rules: usize,
    pub breaker: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rule {
    pub name: String,
    pub algorithm: String,
    pub quota: Option<String>,
    pub key: Option<String>,
    pub dry_run: bool,
    pub shared: bool,
    pub limit: u64,
    pub used: u64,
    pub keys: Option<Keys>,
    pub passed: f64,
    pub delayed: f64,
    pub rejected: f64,
    pub would_reject: f64,
    pub reasons: BTreeMap<String, f64>,
    pub breaker: Option<Breaker>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Keys {
    pub live: u64,
    pub max: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Breaker {
    pub state: String,
    pub answers: u64,
    pub failed: u64,
    pub slow: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Upstreams {
    pub total: usize,
    pub out: usize,
    pub failing: usize,
    pub rows: Vec<Upstream>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Upstream {
    pub name: String,
    pub servers_total: usize,
    pub servers: Vec<Server>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Server {
    pub address: String,
    pub name: Option<String>,
    pub health: String,
    pub in_flight: u64,
    pub requests: u64,
    pub failures: u64,
    /// Responses with a status of 500 to 599.
    #[serde(rename = "server_errors")]
    pub bad_statuses: u64,
    /// The share of its latest requests that failed, if at least half of them did.
    pub failing: Option<f64>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Store {
    pub up: bool,
    /// While it fails: since when and why.
    pub failure: Option<String>,
    pub gateways: u64,
    pub errors: u64,
}

/// The configuration in force, and the last rejected edit.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Config {
    pub flowgate: String,
    pub version: u64,
    pub hash: String,
    pub routes: usize,
    pub upstreams: usize,
    pub listeners: Vec<String>,
    pub applied: u64,
    pub changes: String,
    pub is_behind: bool,
    pub rejected: Option<Rejected>,
    /// Those that end first.
    pub certificates: Vec<Certificate>,
    pub more_certificates: usize,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Certificate {
    pub used_by: String,
    pub file: String,
    pub valid_until: String,
    /// Seconds since 1970.
    pub not_after: u64,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rejected {
    pub at: u64,
    pub count: usize,
    pub problems: Vec<Problem>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Problem {
    pub file: String,
    pub line: u64,
    pub column: u64,
    pub message: String,
    pub help: String,
}

/// The five minutes before, by column, oldest first.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct History {
    pub all: Columns,
    pub routes: BTreeMap<String, Columns>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Columns {
    pub passed: Vec<u64>,
    pub delayed: Vec<u64>,
    pub rejected: Vec<u64>,
}
