//! The events of `/live`, which the gateway writes, and `flowgate top` and the dashboard read.
//!
//! A reader leaves out fields that it does not know, and takes the default for fields that are missing:
//! the gateway may have another version.

use super::keys_view::{self, BansView, KeyView, RejectedKeysView};
use crate::{
    config::{Balance, Diagnostic, ShownCertificate},
    explain::AutoState,
    worst_paths::PathList,
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap};

/// A word of the program.
pub(crate) type Word = Cow<'static, str>;

/// One second, as one client requested it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sample {
    /// Seconds since the Unix epoch.
    pub at: u64,
    /// Seconds since the start of the gateway.
    pub uptime: u64,
    pub ready: bool,
    pub all: Point,
    pub reasons: BTreeMap<Word, u64>,
    pub rejecting: Vec<RejectingRule>,
    pub failing: Failing,
    pub routes: RouteList,
    #[serde(skip_serializing_if = "BudgetList::is_empty")]
    pub budgets: BudgetList,
    pub upstreams: UpstreamList,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreState>,
    /// A number that changes with the contents of [`ConfigState`].
    pub edits: u64,
}

/// The five minutes before, of all routes and of those on the page.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct History {
    /// The time of the last sample of each column; the others are a second apart.
    pub at: u64,
    pub samples: usize,
    pub all: Columns,
    pub routes: BTreeMap<String, Columns>,
}

/// Samples by column, oldest first, as charts take them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Columns {
    pub passed: Vec<u32>,
    pub delayed: Vec<u32>,
    pub rejected: Vec<u32>,
    pub failed: Vec<u32>,
    /// Milliseconds.
    pub p50: Vec<Option<f64>>,
    pub p99: Vec<Option<f64>>,
    pub in_flight: Vec<u32>,
    pub waiting: Vec<u32>,
}

/// Requests in a second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Point {
    pub passed: u64,
    pub delayed: u64,
    pub rejected: u64,
    /// Admitted requests that got a status of 500 to 599.
    pub failed: u64,
    /// Milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p50: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub p99: Option<f64>,
    pub in_flight: u64,
    pub waiting: u64,
}

/// A rule that rejects.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RejectingRule {
    /// Empty for a rule that several routes share.
    pub route: String,
    /// The place of a rule that several routes share, as in `budget site`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<String>,
    pub rule: String,
    pub reason: Word,
    /// Over the last ten seconds.
    pub per_second: f64,
    /// True if it only counts the requests that it would reject.
    pub dry_run: bool,
}

/// The routes and paths that fail or are slow.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Failing {
    /// Failed requests of all routes in the last ten seconds, as a share of the admitted ones.
    pub share: f64,
    /// Failed requests per second in this time.
    pub per_second: f64,
    /// True if so many fail that an operator should look.
    pub many: bool,
    pub routes: Vec<FailingRoute>,
    pub slowest: Vec<SlowRoute>,
    /// The paths that fail the most, and those that are slow the most.
    pub paths: PathList,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FailingRoute {
    pub route: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    pub per_second: f64,
    pub share: f64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct SlowRoute {
    pub route: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    /// Milliseconds.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// A page of the routes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RouteList {
    pub total: usize,
    pub found: usize,
    pub page: usize,
    pub pages: usize,
    pub rows: Vec<RouteRow>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RouteRow {
    pub name: String,
    pub matches: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    pub now: Point,
    pub in_flight_max: u64,
    pub rules: Vec<RuleRow>,
    #[serde(skip_serializing_if = "is_zero")]
    pub more_rules: usize,
    /// The rules that it shares with other routes, as in `budget site`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Word>,
}

/// The rules that several routes share: budgets, and rules of the file, listeners and upstreams.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BudgetList {
    pub total: usize,
    /// Those that reject the most first.
    pub rows: Vec<BudgetRow>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BudgetRow {
    /// Its place in the file and its name, as in `budget site`.
    pub name: String,
    /// The budget that is charged together with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// The routes whose requests meet it.
    pub routes: Vec<String>,
    #[serde(skip_serializing_if = "is_zero")]
    pub more_routes: usize,
    pub rules: Vec<RuleRow>,
}

impl BudgetList {
    fn is_empty(&self) -> bool {
        self.total == 0
    }
}

/// A rule with its usage, and its rates over the last ten seconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RuleRow {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    pub algorithm: Word,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quota: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    pub dry_run: bool,
    pub shared: bool,
    pub limit: u64,
    /// The usage of the fullest key, or of all requests together.
    pub used: u64,
    /// The most that a client owes, if costs are settled after the response.
    #[serde(skip_serializing_if = "keys_view::is_zero")]
    pub debt: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<KeyCount>,
    /// Only for the dashboard.
    #[serde(skip_deserializing, skip_serializing_if = "Vec::is_empty")]
    pub fullest: Vec<KeyView>,
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub rejected_keys: Option<RejectedKeysView>,
    /// Only for the dashboard.
    #[serde(skip_deserializing, skip_serializing_if = "BansView::is_empty")]
    pub bans: BansView,
    pub passed: f64,
    pub delayed: f64,
    pub rejected: f64,
    pub would_reject: f64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub reasons: BTreeMap<Word, f64>,
    pub rejected_total: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub breaker: Option<BreakerState>,
    /// The state of a limit that finds itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoState>,
}

/// The keys of a rule.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeyCount {
    pub live: u64,
    pub max: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct BreakerState {
    pub state: Word,
    pub opened: u64,
    pub answers: u64,
    pub failed: u64,
    pub slow: u64,
}

/// The upstreams, those in trouble first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UpstreamList {
    pub total: usize,
    /// Servers that are not healthy.
    pub out: usize,
    /// Servers that get requests, of which at least half fail.
    pub failing: usize,
    pub rows: Vec<UpstreamRow>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct UpstreamRow {
    pub name: String,
    /// Only for the dashboard.
    #[serde(skip_deserializing)]
    pub balance: Option<Balance>,
    pub out: usize,
    pub servers_total: usize,
    pub servers: Vec<ServerRow>,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ServerRow {
    pub address: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `healthy`, `not asked yet`, `ejected`, `unreachable` or `unhealthy`.
    pub health: Word,
    pub weight: u32,
    pub in_flight: u64,
    pub requests: u64,
    /// Requests without a complete response.
    pub failures: u64,
    /// Responses with a status of 500 to 599.
    #[serde(rename = "server_errors")]
    pub bad_statuses: u64,
    /// The share of its latest requests that failed, if at least half of them did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failing: Option<f64>,
    pub ejections: u64,
}

/// The store that gateways share.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct StoreState {
    pub up: bool,
    /// While it fails: since when and why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    pub gateways: u64,
    pub divisor: u32,
    pub syncing: bool,
    pub errors: u64,
    pub cached_rejections: u64,
}

/// The configuration in force, and the edits before it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ConfigState {
    /// The version of the program.
    pub flowgate: Word,
    pub version: u64,
    pub hash: String,
    pub routes: usize,
    pub upstreams: usize,
    pub listeners: Vec<String>,
    pub started: u64,
    /// The time when it was applied.
    pub applied: u64,
    /// Its differences from the configuration before it.
    pub changes: String,
    /// True if the latest edit was rejected.
    pub is_behind: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rejected: Option<RejectedEdit>,
    /// True if the file may be edited here.
    pub edit: bool,
    /// The times at which edits were applied (true) or rejected.
    pub edits: Vec<(u64, bool)>,
    /// Those that end first.
    pub certificates: Vec<ShownCertificate>,
    pub more_certificates: usize,
    /// True if keys are shown by name.
    pub shows_keys: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct RejectedEdit {
    pub at: u64,
    pub count: usize,
    pub problems: Vec<Diagnostic>,
    /// The problems with their lines, as `flowgate check` prints them.
    pub drawing: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}
