//! An explanation, as JSON.

use super::auto_limit::AutoState;
use crate::{
    flow::{ReasonKind, Verdict},
    route::key_words,
    terminal_text::terminal_text,
};
use core::{
    fmt::{self, Display, Formatter},
    time::Duration,
};
use serde::{Deserialize, Serialize};

/// The treatment that a request would get.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explanation {
    /// The configuration in force.
    pub config_version: u64,
    /// Its hash.
    pub config_hash: String,
    /// The request as routes and rules see it.
    pub request: ExplainedRequest,
    /// The route that it would take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<ExplainedRoute>,
    /// The decision about it.
    pub decision: ExpectedDecision,
    /// Why it would be rejected, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that would reject it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// The delay that it would get.
    pub wait_ms: f64,
    /// The wait after which a retry could succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<f64>,
    /// The status of the gateway's own response, before any rule is asked or once the rules let it pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Each rule's part, in the order of the route.
    pub rules: Vec<ExplainedRule>,
    /// The server that it would be sent to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<ExplainedUpstream>,
    /// The gateway's own action in place of a server's response, in words, if the rules let it pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_response: Option<String>,
    /// A note for people.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The decision about a request, or that of one rule.
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
pub struct ExplainedRequest {
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
    /// The country of that address, if the file of countries knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub country: Option<String>,
    /// The number of its autonomous system, if the file of those knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
}

/// A route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedRoute {
    /// Its name.
    pub name: String,
    /// Its conditions.
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
    /// Its conditions.
    pub r#match: String,
    /// Why the other route comes first.
    pub because: String,
}

/// A rule's part in the decision.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedRule {
    /// Its name.
    pub name: String,
    /// The condition of an override.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<String>,
    /// Its algorithm.
    pub algorithm: String,
    /// Its key, if it counts separately.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The request's own key, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// The fingerprint of that key, as in the access log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    /// Its decision.
    pub decision: ExpectedDecision,
    /// Why it rejects, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The most that may be used; absent for a breaker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The usage, this request included if it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// The cost of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// True if the cost is a reserve, which is settled after the response.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_reserve: bool,
    /// The usage beyond the limit: what earlier requests cost more than was reserved for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debt: Option<u64>,
    /// The delay that it gives the request.
    #[serde(default)]
    pub wait_ms: f64,
    /// Time until nothing is used if no request comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reset_ms: Option<f64>,
    /// A limit that finds itself: what it has seen, and its latest change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoState>,
    /// A note for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// Where the request would be sent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedUpstream {
    /// The upstream.
    pub name: String,
    /// The server; absent if chance decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Why that one, or how one is picked.
    pub because: String,
    /// The number of its healthy servers; absent from an older gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy: Option<usize>,
    /// The first 16 servers.
    pub servers: Vec<ExplainedServer>,
}

/// A server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainedServer {
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

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let request = &self.request;
        writeln!(f, "{} {}", terminal_text(&request.method), terminal_text(&request.path))?;
        let host = terminal_text(&request.host);
        let listener = &request.listener;
        let client = &request.client;
        let country = request.country.as_ref().map(|country| format!("country {country}"));
        let asn = request.asn.map(|asn| format!("asn {asn}"));
        let place: Vec<_> = country.into_iter().chain(asn).collect();
        let place =
            if place.is_empty() { String::new() } else { format!(" ({})", place.join(", ")) };
        writeln!(f, "  host {host}, listener {listener}, client {client}{place}\n")?;
        if let Some(route) = &self.route {
            writeln!(f, "route {}  {}", route.name, route.r#match)?;
            match &route.runner_up {
                Some(other) => {
                    writeln!(f, "  before {}  {}: {}", other.name, other.r#match, other.because)?;
                }
                None => writeln!(f, "  no other route matches")?,
            }
        }
        self.rules.iter().try_for_each(|rule| write!(f, "\n{rule}"))?;
        if let Some(upstream) = &self.upstream {
            write!(f, "\n{upstream}")?;
        }
        writeln!(f)?;
        self.notes.iter().try_for_each(|note| writeln!(f, "note: {}", terminal_text(note)))?;
        self.write_decision(f)
    }
}

impl Explanation {
    fn write_decision(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let rule = self.rule.as_deref();
        let reason = self.reason.as_deref();

        match self.decision {
            ExpectedDecision::Rejected | ExpectedDecision::DryRunRejected => {
                let rule = rule.unwrap_or_default();
                let reason = reason.unwrap_or_default();
                write!(f, "→ rejected by {rule} ({reason})")?;
                match self.retry_after_ms {
                    Some(wait) => writeln!(f, ", retry after {}", spelled(wait)),
                    None => writeln!(f),
                }
            }
            ExpectedDecision::Delayed if self.wait_ms <= 0.0 => {
                writeln!(f, "→ passed once a place is free{}", self.sequel())
            }
            ExpectedDecision::Delayed => {
                writeln!(f, "→ passed after {}{}", spelled(self.wait_ms), self.sequel())
            }
            ExpectedDecision::NotAsked => {
                writeln!(f, "→ answered with {}", self.status.unwrap_or_default())
            }
            ExpectedDecision::Undecided => {
                writeln!(
                    f,
                    "→ passed by the rules of this gateway; the store was not asked{}",
                    self.sequel()
                )
            }
            ExpectedDecision::Passed if self.sequel().is_empty() => writeln!(f, "→ passed"),
            ExpectedDecision::Passed => writeln!(f, "→ passed by the rules{}", self.sequel()),
        }
    }

    /// Says why a request that the rules pass gets no response of a server, or may get none.
    fn sequel(&self) -> String {
        match (&self.own_response, &self.upstream) {
            (Some(own), _) => format!("; {own}"),
            (None, Some(ExplainedUpstream { healthy: Some(0), .. })) => {
                "; no server is healthy".to_owned()
            }
            (None, _) => String::new(),
        }
    }
}

impl Display for ExplainedRule {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "rule {}", self.name)?;
        if let Some(when) = &self.when {
            write!(f, " when {when}")?;
        }
        write!(f, "  {}", self.algorithm)?;
        if let Some(key) = &self.key {
            write!(f, "  {}", key_words(key))?;
        }
        if let Some(value) = &self.value {
            write!(f, " = {}", terminal_text(value))?;
        }
        write!(f, "\n  {}", self.decision.word())?;
        if let Some(reason) = &self.reason {
            write!(f, " ({reason})")?;
        }

        if let (Some(limit), Some(used)) = (self.limit, self.used) {
            write!(f, ": {used} of {limit} used")?;
        }
        if let Some(debt) = self.debt {
            write!(f, ", debt {debt}")?;
        }
        if let Some(cost) = self.cost.filter(|cost| *cost != 1 || self.is_reserve) {
            let word = if self.is_reserve { "reserve" } else { "cost" };
            write!(f, ", {word} {cost}")?;
        }
        if self.wait_ms > 0.0 {
            write!(f, ", wait {}", spelled(self.wait_ms))?;
        }
        if let Some(reset) = self.reset_ms.filter(|reset| *reset > 0.0) {
            write!(f, ", all free again in {}", spelled(reset))?;
        }
        if let Some(note) = &self.note {
            write!(f, "; {note}")?;
        }
        if let Some(auto) = &self.auto {
            write!(f, "\n  auto: {}", terminal_text(&auto.to_string()))?;
        }
        writeln!(f)
    }
}

impl Display for ExplainedUpstream {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let server = self.server.as_deref().unwrap_or("one of its servers");
        writeln!(f, "upstream {}: {server}, {}", self.name, self.because)?;
        self.servers.iter().try_for_each(|server| {
            let address = &server.address;
            let health = &server.health;
            let in_flight = server.in_flight;
            writeln!(f, "  {address}  {health}, {in_flight} in flight")
        })
    }
}

/// Returns milliseconds in words, to the millisecond.
fn spelled(millis: f64) -> String {
    let nanos = Duration::try_from_secs_f64(millis / 1e3).unwrap_or(Duration::MAX);
    // Up: after that time it is so.
    let whole = nanos.as_nanos().div_ceil(1_000_000);
    let whole = Duration::from_millis(u64::try_from(whole).unwrap_or(u64::MAX));
    humantime::format_duration(whole).to_string()
}
