//! What an explanation has, as JSON.

use crate::flow::{ReasonKind, Verdict};
use core::time::Duration;
use serde::{Deserialize, Serialize};

/// What the gateway would do with a request.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The configuration in force.
    pub config_version: u64,
    /// Its hash.
    pub config_hash: String,
    /// The request as routes and rules see it.
    pub request: RequestView,
    /// The route that it would take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<RouteView>,
    /// What would become of it.
    pub decision: ExpectedDecision,
    /// Why it would be rejected, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that would reject it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// How long it would be delayed.
    pub wait_ms: f64,
    /// When a retry could succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<f64>,
    /// The status that it would be answered with before any rule is asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Each rule's part, in the order of the route.
    pub rules: Vec<RuleView>,
    /// The server that it would be sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<UpstreamView>,
    /// What else to know, for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// What would become of a request, or of its part in a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedDecision {
    /// It passes at once.
    Passed,
    /// It passes after a wait.
    Delayed,
    /// A rule rejects it.
    Rejected,
    /// A rule in dry run would reject it.
    DryRunRejected,
    /// No rule of this gateway rejects it, and the store was not asked.
    Undecided,
    /// It is answered before any rule is asked; or the rule is not asked.
    NotAsked,
}

/// A request as routes and rules see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RequestView {
    /// Its method.
    pub method: String,
    /// Its path in the form in which routes compare it, without the query.
    pub path: String,
    /// Its host in that form.
    pub host: String,
    /// The listener that it comes by.
    pub listener: String,
    /// The client's address, behind trusted proxies.
    pub client: String,
}

/// A route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteView {
    /// Its name.
    pub name: String,
    /// What it matches.
    pub r#match: String,
    /// The route that would get the request without this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runner_up: Option<RunnerUp>,
}

/// A route that matches too.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunnerUp {
    /// Its name.
    pub name: String,
    /// What it matches.
    pub r#match: String,
    /// Why the other route comes first.
    pub because: String,
}

/// A rule's part in the decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RuleView {
    /// Its name.
    pub name: String,
    /// The condition of an override.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Its algorithm.
    pub algorithm: String,
    /// What it counts separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The request's own key, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The fingerprint of that key, as in the access log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// What it decides.
    pub decision: ExpectedDecision,
    /// Why it rejects, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The most that may be used; absent for a breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// What is used, this request included if it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// What the request costs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// How long it delays the request.
    #[serde(default)]
    pub wait_ms: f64,
    /// Time until nothing is used if no request comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_ms: Option<f64>,
    /// What else to know, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where the request would be sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UpstreamView {
    /// The upstream.
    pub name: String,
    /// The server; absent if chance decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Why that one, or how one is picked.
    pub because: String,
    /// How many of its servers are healthy; absent from an older gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<usize>,
    /// The first 16 servers.
    pub servers: Vec<ServerView>,
}

/// A server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ServerView {
    /// Its address.
    pub address: String,
    /// `healthy`, `ejected`, `unreachable` or `unhealthy`.
    pub health: String,
    /// Requests that it works on.
    pub in_flight: u32,
}

impl ExpectedDecision {
    /// Returns its word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Delayed => "delayed",
            Self::Rejected => "rejected",
            Self::DryRunRejected => "rejected, but for dry_run",
            Self::Undecided => "undecided",
            Self::NotAsked => "not asked",
        }
    }

    /// Returns what a slot decided, and why it rejects.
    pub(super) const fn of(verdict: Verdict) -> (Self, Option<ReasonKind>) {
        match verdict {
            Verdict::Passed => (Self::Passed, None),
            Verdict::Delayed => (Self::Delayed, None),
            Verdict::Rejected(kind) => (Self::Rejected, Some(kind)),
            Verdict::DryRunRejected(kind) => (Self::DryRunRejected, Some(kind)),
        }
    }
}

/// Returns milliseconds with the precision of nanoseconds, as the access log has them.
#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
pub(super) fn millis(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}
