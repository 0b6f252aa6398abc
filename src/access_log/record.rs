//! A line of the access log.

use crate::{
    flow::{Instant, Key, LimitChange, Sharer},
    route::fingerprint_text,
};
use http::HeaderName;
use serde::{Deserialize, Serialize, Serializer};
use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

/// A request's log record; absent values leave their field out.
#[derive(Debug, Serialize)]
pub struct AccessRecord<'a> {
    /// The time of arrival; RFC 3339 with nanoseconds, in UTC.
    #[serde(serialize_with = "timestamp")]
    pub ts: Instant,
    /// The method.
    pub method: &'a str,
    /// The host for routing, or what was received if that is invalid.
    pub host: &'a str,
    /// The path as received, without the query, which may contain secrets.
    pub path: &'a str,
    /// The route's name, if one matched.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<&'a str>,
    /// The response's status.
    pub status: u16,
    /// From the arrival to the response's head; absent if the client left or the gateway ended
    /// before.
    #[serde(rename = "answered_ms", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "millis")]
    pub answered: Option<Duration>,
    /// From the arrival to the end of the response.
    #[serde(rename = "duration_ms", serialize_with = "millis")]
    pub duration: Duration,
    /// The end of the response.
    pub outcome: ResponseOutcome,
    /// The timeout that ended it, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<&'static str>,
    /// The client's address, by the trusted proxies.
    pub client_ip: IpAddr,
    /// The country of that address; absent without `geo`, or if it is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub country: Option<&'a str>,
    /// The number of its autonomous system, in the same way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
    /// The authenticated user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<&'a str>,
    /// The decision of the route's auth service; absent if none was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub auth: Option<&'static str>,
    /// From the request to the auth service to the header of its response; absent if none was asked.
    #[serde(rename = "auth_ms", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "millis")]
    pub auth_duration: Option<Duration>,
    /// The last server called, as `host:port`; absent if the client's body failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream: Option<&'a str>,
    /// From the first attempt's start to the upstream's response head or the last attempt's end;
    /// absent if the client left or the gateway ended before, or `upstream` is absent.
    #[serde(rename = "upstream_ms", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "millis")]
    pub upstream_duration: Option<Duration>,
    /// The duration of the request's body until the response's head; absent without a body or a
    /// response.
    #[serde(rename = "upload_ms", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "millis")]
    pub upload_duration: Option<Duration>,
    /// The number of servers that were tried, including unreachable ones.
    pub attempts: u32,
    /// The cause of the last failed attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upstream_error: Option<&'a str>,
    /// Bytes of the request's body read for the upstream.
    pub bytes_in: u64,
    /// Bytes of the response's body given to the connection.
    pub bytes_out: u64,
    /// The reason of a response by the gateway itself, if flow control did not reject.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<&'a str>,
    /// The id of the request, unless ids are off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<&'a str>,
    /// The trace of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<&'a str>,
    /// The listener's name.
    pub listener: &'a str,
    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`; absent if the request could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    /// The header fields that `access_log_headers` names, as far as the request has them.
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "fields")]
    pub headers: &'a [(HeaderName, String)],
    /// The configuration that decided.
    pub config_hash: &'a str,
    /// The decision of flow control; absent if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flow: Option<FlowRecord<'a>>,
    /// The decision of a new file about the request, while `flowgate preview` runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<PreviewRecord<'a>>,
}

/// The decision of a new file about a request.
#[derive(Debug, Serialize)]
pub struct PreviewRecord<'a> {
    /// The route of the new file, if one matches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route: Option<&'a str>,
    /// The status of its response, if no rule was checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The decision of its rules, with the fields of `flow`.
    #[serde(flatten)]
    pub flow: Option<FlowRecord<'a>>,
}

/// The end of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ResponseOutcome {
    /// It was sent completely.
    Completed,
    /// flowgate closed the connection, or the stream, without one.
    Closed,
    /// It broke off.
    Failed,
    /// The client left.
    Cancelled,
    /// The gateway ended.
    Cut,
}

/// A rule's key of the request that no other field of the log shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedKey {
    /// The rule, with the condition of an override.
    pub rule: Arc<str>,
    /// The key's fingerprint under the secret of this process, from which the key cannot be found.
    /// `None`: the rule was not checked.
    pub key: Option<Key>,
    /// True if the request had priority.
    pub priority: bool,
    /// The plan of the request, if the rule has plans: its name, or its hash.
    pub plan: Option<Box<str>>,
}

/// The part of a request in the order of a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedSharer {
    /// The rule, with the condition of an override.
    pub rule: Arc<str>,
    /// Its part.
    pub sharer: Sharer,
}

/// The limit of a rule that finds itself, in a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedLimit {
    /// The rule, with the condition of an override.
    pub rule: Arc<str>,
    /// The limit.
    pub limit: u64,
    /// Its latest change, if no request has reported that before.
    pub change: Option<LimitChange>,
}

/// The cost of a request in a rule that settles it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCost {
    /// The rule, with the condition of an override.
    pub rule: Arc<str>,
    /// The cost that was charged at admission.
    pub reserved: u64,
    /// The charges while the response passed: the time of each since the arrival, and everything that
    /// was charged by then.
    pub charges: Vec<(Duration, u64)>,
    /// The cost in the end; `None`: what was charged stays charged.
    pub settled: Option<u64>,
}

/// The decision of flow control in an [`AccessRecord`].
#[derive(Debug, Serialize)]
pub struct FlowRecord<'a> {
    /// `passed`, `delayed` or `rejected`.
    pub decision: &'static str,
    /// The reason of a rejection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<&'static str>,
    /// The rule that rejected it, or the tightest one that passed it; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<&'a str>,
    /// The first rule in dry run that would have rejected it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dry_run: Option<&'a str>,
    /// That rule's limit; absent for a breaker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The used part of it, including this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
    /// The cost of this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u64>,
    /// The costs that were reserved, by rule.
    #[serde(skip_serializing_if = "<[LoggedCost]>::is_empty", serialize_with = "reserved")]
    pub reserved: &'a [LoggedCost],
    /// The charges while the response passed, by rule: the time of each since the arrival in
    /// milliseconds, and everything that was charged by then.
    #[serde(skip_serializing_if = "has_no_charge", serialize_with = "charges")]
    pub charges: &'a [LoggedCost],
    /// The costs that were settled, by rule.
    #[serde(skip_serializing_if = "has_no_settlement", serialize_with = "settled")]
    pub settled: &'a [LoggedCost],
    /// The delay of the request.
    #[serde(rename = "wait_ms", serialize_with = "millis")]
    pub wait: Duration,
    /// True if the client left while the request waited for its start.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub left: bool,
    /// Time until a retry can succeed.
    #[serde(rename = "retry_after_ms", skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "millis")]
    pub retry_after: Option<Duration>,
    /// Keys of rules that use headers, cookies or the query.
    #[serde(skip_serializing_if = "<[LoggedKey]>::is_empty", serialize_with = "keys")]
    pub keys: &'a [LoggedKey],
    /// Those of these rules for which the request has priority.
    #[serde(skip_serializing_if = "has_no_priority", serialize_with = "priority_rules")]
    pub priority: &'a [LoggedKey],
    /// The plans of the request, by rule.
    #[serde(skip_serializing_if = "has_no_plan", serialize_with = "plans")]
    pub plans: &'a [LoggedKey],
    /// Its parts in the order of queues, by rule.
    #[serde(skip_serializing_if = "<[LoggedSharer]>::is_empty", serialize_with = "sharers")]
    pub sharers: &'a [LoggedSharer],
    /// The limits that find themselves, by rule.
    #[serde(skip_serializing_if = "<[LoggedLimit]>::is_empty", serialize_with = "limits")]
    pub limits: &'a [LoggedLimit],
    /// The latest changes of these limits, by rule.
    #[serde(skip_serializing_if = "has_no_change", serialize_with = "limit_changes")]
    pub limit_changes: &'a [LoggedLimit],
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn timestamp<S: Serializer>(instant: &Instant, serializer: S) -> Result<S::Ok, S::Error> {
    let time = UNIX_EPOCH + Duration::from_nanos(instant.as_nanos());
    serializer.collect_str(&humantime::format_rfc3339_nanos(time))
}

/// Returns milliseconds with nanosecond precision, by which `replay` orders ends.
#[expect(clippy::cast_precision_loss, reason = "exact up to 104 days")]
fn in_millis(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e6
}

fn millis<S, D>(duration: &D, serializer: S) -> Result<S::Ok, S::Error>
where
    S: Serializer,
    D: Into<Option<Duration>> + Copy,
{
    match (*duration).into() {
        Some(duration) => serializer.serialize_f64(in_millis(duration)),
        None => serializer.serialize_none(),
    }
}

fn fields<S: Serializer>(
    fields: &&[(HeaderName, String)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(fields.iter().map(|(name, value)| (name.as_str(), value)))
}

fn keys<S: Serializer>(keys: &&[LoggedKey], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(keys.iter().map(|key| {
        let word = key.key.map(|key| match key {
            Key::Shared => "shared".to_owned(),
            Key::Missing => "missing".to_owned(),
            Key::Duplicate => "duplicate".to_owned(),
            Key::Of(fingerprint) => fingerprint_text(fingerprint),
        });
        (&*key.rule, word)
    }))
}

fn sharers<S: Serializer>(sharers: &&[LoggedSharer], serializer: S) -> Result<S::Ok, S::Error> {
    let text = |sharer: &LoggedSharer| {
        let Sharer { key, weight, class } = sharer.sharer;
        format!("{key:016x} {weight} {class}")
    };
    serializer.collect_map(sharers.iter().map(|sharer| (&*sharer.rule, text(sharer))))
}

fn limits<S: Serializer>(limits: &&[LoggedLimit], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(limits.iter().map(|logged| (&*logged.rule, logged.limit)))
}

fn has_no_change(limits: &&[LoggedLimit]) -> bool {
    limits.iter().all(|logged| logged.change.is_none())
}

/// A change of a limit, as the log has it.
#[derive(Serialize)]
struct ChangeRecord {
    from: u32,
    to: u32,
    reason: &'static str,
    elasticity: f64,
    trend: f64,
    unloaded_ms: f64,
    slot_ms: f64,
}

impl From<LimitChange> for ChangeRecord {
    fn from(change: LimitChange) -> Self {
        Self {
            from: change.from,
            to: change.to,
            reason: change.reason.words(),
            elasticity: f64::from(change.elasticity) / 1e3,
            trend: f64::from(change.trend) / 1e3,
            unloaded_ms: change.unloaded.as_secs_f64() * 1e3,
            slot_ms: change.slot.as_secs_f64() * 1e3,
        }
    }
}

fn limit_changes<S: Serializer>(limits: &&[LoggedLimit], serializer: S) -> Result<S::Ok, S::Error> {
    let changes = limits.iter().filter_map(|logged| Some((&*logged.rule, logged.change?)));
    serializer.collect_map(changes.map(|(rule, change)| (rule, ChangeRecord::from(change))))
}

fn reserved<S: Serializer>(costs: &&[LoggedCost], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(costs.iter().map(|cost| (&*cost.rule, cost.reserved)))
}

fn has_no_charge(costs: &[LoggedCost]) -> bool {
    costs.iter().all(|cost| cost.charges.is_empty())
}

fn charges<S: Serializer>(costs: &&[LoggedCost], serializer: S) -> Result<S::Ok, S::Error> {
    let charged = costs.iter().filter(|cost| !cost.charges.is_empty());
    serializer.collect_map(charged.map(|cost| (&*cost.rule, Charges(&cost.charges))))
}

/// The charges of one rule, each as its milliseconds and the total.
struct Charges<'a>(&'a [(Duration, u64)]);

impl Serialize for Charges<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let charge = |&(after, total): &(Duration, u64)| (in_millis(after), total);
        serializer.collect_seq(self.0.iter().map(charge))
    }
}

fn has_no_settlement(costs: &[LoggedCost]) -> bool {
    costs.iter().all(|cost| cost.settled.is_none())
}

fn settled<S: Serializer>(costs: &&[LoggedCost], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(costs.iter().filter_map(|cost| Some((&*cost.rule, cost.settled?))))
}

fn has_no_priority(keys: &&[LoggedKey]) -> bool {
    keys.iter().all(|key| !key.priority)
}

fn priority_rules<S: Serializer>(keys: &&[LoggedKey], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(keys.iter().filter(|key| key.priority).map(|key| &*key.rule))
}

fn has_no_plan(keys: &&[LoggedKey]) -> bool {
    keys.iter().all(|key| key.plan.is_none())
}

fn plans<S: Serializer>(keys: &&[LoggedKey], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(keys.iter().filter_map(|key| Some((&*key.rule, key.plan.as_deref()?))))
}

/// Returns a record whose path is `path`.
#[cfg(test)]
pub(crate) fn sample(path: &str) -> AccessRecord<'_> {
    AccessRecord {
        ts: Instant::from_nanos(1_795_237_200_125_000_000),
        method: "GET",
        host: "shop.example.com",
        path,
        route: Some("checkout"),
        listener: "web",
        protocol: Some("HTTP/2"),
        status: 429,
        answered: Some(Duration::from_nanos(12_000_001)),
        duration: Duration::from_micros(12_345),
        outcome: ResponseOutcome::Completed,
        timeout: None,
        client_ip: [192, 0, 2, 7].into(),
        country: Some("DE"),
        asn: Some(64_500),
        user: None,
        auth: None,
        auth_duration: None,
        upstream: None,
        upstream_duration: None,
        upload_duration: None,
        attempts: 0,
        upstream_error: None,
        bytes_in: 0,
        bytes_out: 17,
        error: None,
        request_id: None,
        trace_id: None,
        headers: &[],
        config_hash: "00d1ce",
        flow: Some(FlowRecord {
            decision: "rejected",
            reason: Some("rate"),
            rule: Some("per-client"),
            dry_run: None,
            limit: Some(10),
            used: Some(10),
            cost: Some(1),
            reserved: &[],
            charges: &[],
            settled: &[],
            wait: Duration::ZERO,
            left: false,
            retry_after: Some(Duration::from_millis(1500)),
            keys: &[],
            priority: &[],
            plans: &[],
            sharers: &[],
            limits: &[],
            limit_changes: &[],
        }),
        preview: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flow::ChangeReason;
    use serde_json::{Value, json};

    #[test]
    fn a_record_is_one_line_of_json_with_the_documented_fields() {
        let line = serde_json::to_string(&sample("/a\"b\n\u{7f}\u{2028}ü\\")).unwrap();
        assert!(!line.contains('\n'), "{line}");
        let expected = json!({
            "ts": "2026-11-21T05:00:00.125000000Z", "method": "GET", "host": "shop.example.com",
            "path": "/a\"b\n\u{7f}\u{2028}ü\\", "route": "checkout", "listener": "web", "protocol": "HTTP/2", "status": 429,
            "answered_ms": 12.000_001, "duration_ms": 12.345, "outcome": "completed",
            "client_ip": "192.0.2.7", "country": "DE", "asn": 64_500, "attempts": 0,
            "bytes_in": 0, "bytes_out": 17, "config_hash": "00d1ce",
            "flow": { "decision": "rejected", "reason": "rate", "rule": "per-client", "limit": 10, "used": 10,
                "cost": 1, "wait_ms": 0.0, "retry_after_ms": 1500.0 },
        });
        assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), expected);
    }

    fn limit() -> LoggedLimit {
        let change = LimitChange {
            at: Instant::EPOCH,
            reason: ChangeReason::MorePays,
            from: 8,
            to: 9,
            elasticity: 500,
            trend: 250,
            unloaded: Duration::from_millis(20),
            slot: Duration::from_millis(134),
        };
        LoggedLimit { rule: "r".into(), limit: 9, change: Some(change) }
    }

    #[test]
    fn a_limit_that_finds_itself_is_logged_with_its_change() {
        let limits = [limit()];
        let mut record = sample("/");
        let flow = record.flow.as_mut().unwrap();
        flow.limits = &limits;
        flow.limit_changes = &limits;
        let line = serde_json::to_value(record).unwrap();
        let expected = json!({
            "from": 8, "to": 9, "reason": "more pays", "elasticity": 0.5, "trend": 0.25,
            "unloaded_ms": 20.0, "slot_ms": 134.0,
        });
        assert_eq!(line["flow"]["limit_changes"], json!({ "r": expected }));
        assert_eq!(line["flow"]["limits"], json!({ "r": 9 }));
    }

    #[test]
    fn every_field_is_in_the_documentation() {
        let keys =
            [LoggedKey { rule: "r".into(), key: None, priority: true, plan: Some("gold".into()) }];
        let charges = vec![(Duration::from_micros(1_500), 2)];
        let costs = [LoggedCost { rule: "r".into(), reserved: 1, charges, settled: Some(2) }];
        let sharers = [LoggedSharer { rule: "r".into(), sharer: Sharer::default() }];
        let limits = [limit()];
        let mut record = sample("/");
        record.upstream = Some("a:80");
        record.trace_id = Some("0af7");
        record.request_id = Some("5bd1");
        record.user = Some("alice");
        record.auth = Some("allowed");
        record.auth_duration = Some(Duration::ZERO);
        record.error = Some("Host is missing or empty");
        record.upstream_error = Some("cannot connect: Connection refused (os error 111)");
        record.upstream_duration = Some(Duration::ZERO);
        record.upload_duration = Some(Duration::ZERO);
        record.timeout = Some("timeouts.idle");
        let fields = [(http::header::USER_AGENT, "curl/8.5".to_owned())];
        record.headers = &fields;
        let flow = record.flow.as_mut().unwrap();
        flow.keys = &keys;
        flow.priority = &keys;
        flow.plans = &keys;
        flow.sharers = &sharers;
        flow.limits = &limits;
        flow.limit_changes = &limits;
        flow.reserved = &costs;
        flow.charges = &costs;
        flow.settled = &costs;
        flow.dry_run = Some("trial");
        flow.left = true;
        record.preview = Some(PreviewRecord { route: Some("r"), status: Some(404), flow: None });
        let line = serde_json::to_value(record).unwrap();
        assert_eq!(line["flow"]["charges"], json!({ "r": [[1.5, 2]] }));
        let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        let mut logged = names(&line);
        logged.retain(|name| name != "flow" && name != "preview");
        logged.extend(names(&line["flow"]).iter().map(|name| format!("flow.{name}")));
        logged.extend(names(&line["preview"]).iter().map(|name| format!("preview.{name}")));
        logged.sort();
        let page = include_str!("../../docs/access-log.md");
        let (_, section) = page.split_once("\n## Fields\n").unwrap();
        let rows = section.lines().filter_map(|row| row.strip_prefix("| `"));
        let mut documented: Vec<_> =
            rows.filter_map(|row| row.split_once('`')).map(|(name, _)| name).collect();
        documented.sort_unstable();
        assert_eq!(logged, documented);
    }

    #[test]
    fn keys_are_logged_by_their_fingerprints() {
        let mut record = sample("/");
        record.duration = Duration::from_nanos(1_000_000_001);
        let keys = [("a", Some(Key::Of(255))), ("b", None), ("c", Some(Key::Shared))].map(
            |(rule, key)| LoggedKey {
                rule: rule.into(),
                key,
                priority: rule == "c",
                plan: (rule == "a").then(|| "gold".into()),
            },
        );
        let flow = record.flow.as_mut().unwrap();
        flow.keys = &keys;
        flow.priority = &keys;
        flow.plans = &keys;
        let line = serde_json::to_value(record).unwrap();
        assert_eq!(
            line["flow"]["keys"],
            json!({ "a": "fp:000000000000000000000000000000ff", "b": null, "c": "shared" })
        );
        assert_eq!(line["flow"]["priority"], json!(["c"]));
        assert_eq!(line["flow"]["plans"], json!({ "a": "gold" }));
        assert_eq!(line["duration_ms"].to_string(), "1000.000001");
    }
}
