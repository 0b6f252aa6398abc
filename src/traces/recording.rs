//! The recording of a sampled request, noted on its way, and its spans.

use super::{
    context::{TraceContext, TraceParent},
    otlp::{Attribute, Decimal, Kind, Link, Span, SpanEvent, SpanId, Status, StatusCode, TraceId},
};
use crate::{
    access_log::{AccessRecord, ResponseOutcome},
    config::Server,
    flow::Instant,
    http1::{self, Fields},
};
use core::{net::IpAddr, time::Duration};
use http::{Version, header::USER_AGENT};
use std::{borrow::Cow, sync::Arc};

/// The parent is of another process (`SpanFlags`).
const HAS_IS_REMOTE: u32 = 0x100;
const IS_REMOTE: u32 = 0x200;
/// The trace is sampled.
const SAMPLED: u32 = 1;

/// Methods that attributes have by name.
const METHODS: [&str; 9] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"];

/// A request of a trace that is recorded.
#[derive(Debug)]
pub struct Recording {
    /// The trace, and the span of the request itself.
    own: TraceParent,
    /// The span that called, or the one that is linked to.
    caller: Option<TraceParent>,
    /// True if the trace is the caller's.
    is_continued: bool,
    trace_state: String,
    user_agent: Option<String>,
    client: Client,
    attempts: Vec<Attempt>,
}

/// The client's connection.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// The address of its other end.
    pub address: IpAddr,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// The version of HTTP.
    pub version: Version,
}

/// A request to a server.
#[derive(Debug)]
struct Attempt {
    span_id: u64,
    server: Arc<Server>,
    path: String,
    started: Instant,
    ended: Option<Instant>,
    status: Option<u16>,
    /// The failure in a word.
    failure: Option<&'static str>,
    /// The failure in a sentence.
    cause: Option<String>,
}

impl Recording {
    pub(super) fn new(
        own: TraceParent,
        caller: Option<TraceParent>,
        is_continued: bool,
        trace_state: String,
        headers: Fields<'_>,
        client: Client,
    ) -> Self {
        let user_agent = headers.get(USER_AGENT.as_str());
        let user_agent = user_agent.and_then(http1::text);
        Self {
            own,
            caller,
            is_continued,
            trace_state,
            user_agent: user_agent.map(str::to_owned),
            client,
            attempts: Vec::new(),
        }
    }

    /// Returns the trace.
    pub const fn trace_id(&self) -> u128 {
        self.own.trace_id
    }

    /// Notes an attempt: a request for `path` to `server`. Returns the context that the server
    /// receives, with the attempt's span.
    pub fn attempt(&mut self, server: &Arc<Server>, path: String, now: Instant) -> TraceContext {
        self.end_attempt(now);
        let span_id = fastrand::u64(1..);
        self.attempts.push(Attempt {
            span_id,
            server: Arc::clone(server),
            path,
            started: now,
            ended: None,
            status: None,
            failure: None,
            cause: None,
        });
        TraceContext::new(TraceParent { span_id, ..self.own }, self.is_continued)
    }

    /// Notes the status of the latest attempt's response.
    pub fn answered(&mut self, status: u16) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.status = Some(status);
        }
    }

    /// Notes that the latest attempt has failed, in a word.
    pub fn failed_by(&mut self, failure: &'static str) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.failure = Some(failure);
        }
    }

    /// Notes the cause of the latest attempt's failure.
    pub fn failed(&mut self, cause: &str, now: Instant) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.cause = Some(cause.to_owned());
        }
        self.end_attempt(now);
    }

    fn end_attempt(&mut self, now: Instant) {
        if let Some(attempt) = self.attempts.last_mut() {
            attempt.ended.get_or_insert(now);
        }
    }

    /// Writes the spans as JSON, with commas between them. The request arrived at `arrival`, which
    /// is `record.ts` by the wall clock. Returns their number.
    pub(super) fn write(
        &self,
        record: &AccessRecord<'_>,
        arrival: Instant,
        spans: &mut Vec<u8>,
    ) -> u64 {
        let times = Times { arrival, ts: record.ts.as_nanos(), duration: record.duration };
        // Writing to memory cannot fail.
        drop(serde_json::to_writer(&mut *spans, &self.server_span(record, &times)));
        for (index, attempt) in self.attempts.iter().enumerate() {
            spans.push(b',');
            let span = self.client_span(index, attempt, record, &times);
            drop(serde_json::to_writer(&mut *spans, &span));
        }
        1 + self.attempts.len() as u64
    }

    fn server_span<'a>(&'a self, record: &'a AccessRecord<'a>, times: &Times) -> Span<'a> {
        let method = method(record.method).unwrap_or("HTTP");
        let name = record
            .route
            .map_or_else(|| Cow::from(method), |route| Cow::from(format!("{method} {route}")));

        // The decision of flow control, and its wait as an event.
        let mut attributes = self.server_attributes(record);
        let mut events = Vec::new();
        if let Some(flow) = &record.flow {
            attributes.push(Attribute::text("flowgate.decision", flow.decision));
            push_texts(
                &mut attributes,
                [("flowgate.reason", flow.reason), ("flowgate.rule", flow.rule)],
            );
            attributes.push(Attribute::millis("flowgate.wait_ms", flow.wait));
            if !flow.wait.is_zero() {
                events.push(SpanEvent {
                    time_unix_nano: Decimal(times.ts),
                    name: "flowgate.delayed",
                    attributes: vec![Attribute::millis("flowgate.wait_ms", flow.wait)],
                });
            }
        }

        let is_error = record.status >= 500 || record.outcome == ResponseOutcome::Failed;
        let parent = self.caller.filter(|_| self.is_continued);
        let link = self.caller.filter(|_| !self.is_continued);
        let remote = if parent.is_some() { IS_REMOTE } else { 0 };

        Span {
            trace_id: TraceId(self.own.trace_id),
            span_id: SpanId(self.own.span_id),
            trace_state: &self.trace_state,
            parent_span_id: parent.map(|parent| SpanId(parent.span_id)),
            flags: SAMPLED | HAS_IS_REMOTE | remote,
            name,
            kind: Kind::Server,
            start_time_unix_nano: Decimal(times.ts),
            end_time_unix_nano: Decimal(times.end()),
            attributes,
            events,
            links: link.map(linked).into_iter().collect(),
            status: status(is_error, record.error.or(record.upstream_error)),
        }
    }

    /// Returns the attributes that OpenTelemetry's conventions require of a server's span, and those
    /// that name the request.
    fn server_attributes<'a>(&'a self, record: &'a AccessRecord<'a>) -> Vec<Attribute<'a>> {
        let mut attributes = vec![
            Attribute::text("http.request.method", method(record.method).unwrap_or("_OTHER")),
            Attribute::text("url.scheme", self.client.scheme),
            Attribute::text("url.path", record.path),
            Attribute::number("http.response.status_code", record.status),
            Attribute::text("client.address", record.client_ip.to_string()),
            Attribute::text("network.peer.address", self.client.address.to_string()),
            Attribute::text("network.protocol.version", version(self.client.version)),
            Attribute::number("http.request.body.size", record.bytes_in),
            Attribute::number("http.response.body.size", record.bytes_out),
        ];

        let is_known = method(record.method).is_some();
        let texts = [
            ("http.request.method_original", Some(record.method).filter(|_| !is_known)),
            ("server.address", Some(record.host).filter(|host| !host.is_empty())),
            ("user_agent.original", self.user_agent.as_deref()),
            ("flowgate.route", record.route),
            ("flowgate.request_id", record.request_id),
            ("flowgate.timeout", record.timeout),
        ];
        push_texts(&mut attributes, texts);

        if let Some(error) = error_type(record) {
            attributes.push(Attribute::text("error.type", error));
        }
        attributes
    }

    fn client_span<'a>(
        &'a self,
        index: usize,
        attempt: &'a Attempt,
        record: &'a AccessRecord<'a>,
        times: &Times,
    ) -> Span<'a> {
        let method = method(record.method);
        let server = &attempt.server;
        let mut attributes = vec![
            Attribute::text("http.request.method", method.unwrap_or("_OTHER")),
            Attribute::text("server.address", &*server.host),
        ];

        if server.socket().is_none() {
            let scheme = if server.is_tls { "https" } else { "http" };
            let url = format!("{scheme}://{}{}", server.authority(), attempt.path);
            attributes.push(Attribute::number("server.port", server.port));
            attributes.push(Attribute::text("url.full", url));
        }
        if let Some(ip) = server.ip {
            attributes.push(Attribute::text("network.peer.address", ip.to_string()));
            attributes.push(Attribute::number("network.peer.port", server.port));
        }

        if let Some(status) = attempt.status {
            attributes.push(Attribute::number("http.response.status_code", status));
        }
        if index > 0 {
            attributes.push(Attribute::number("http.request.resend_count", index as u64));
        }
        if method.is_none() {
            attributes.push(Attribute::text("http.request.method_original", record.method));
        }

        let is_last = index + 1 == self.attempts.len();
        let error = attempt.error_type(is_last.then_some(record));
        if let Some(error) = error.clone() {
            attributes.push(Attribute::text("error.type", error));
        }

        Span {
            trace_id: TraceId(self.own.trace_id),
            span_id: SpanId(attempt.span_id),
            trace_state: &self.trace_state,
            parent_span_id: Some(SpanId(self.own.span_id)),
            flags: SAMPLED | HAS_IS_REMOTE,
            name: method.unwrap_or("HTTP").into(),
            kind: Kind::Client,
            start_time_unix_nano: Decimal(times.wall(attempt.started)),
            end_time_unix_nano: Decimal(
                attempt.ended.map_or_else(|| times.end(), |at| times.wall(at)),
            ),
            attributes,
            events: Vec::new(),
            links: Vec::new(),
            status: status(error.is_some(), attempt.cause.as_deref()),
        }
    }
}

impl Attempt {
    /// Returns its failure in a word. `last_of` is the record of the request whose last attempt it is.
    fn error_type(&self, last_of: Option<&AccessRecord<'_>>) -> Option<Cow<'static, str>> {
        let status = self.status.filter(|status| *status >= 400);
        if let Some(status) = status {
            return Some(status.to_string().into());
        }
        if let Some(failure) = self.failure {
            return Some(failure.into());
        }

        let record = last_of?;
        if record.timeout.is_some() {
            return Some("timeout".into());
        }
        match record.outcome {
            ResponseOutcome::Cancelled | ResponseOutcome::Cut => Some(word(record.outcome).into()),
            ResponseOutcome::Failed => Some("failed".into()),
            ResponseOutcome::Completed | ResponseOutcome::Closed => {
                self.cause.is_some().then_some(Cow::from("failed"))
            }
        }
    }
}

/// A request's times by the wall clock, in nanoseconds since the Unix epoch.
struct Times {
    arrival: Instant,
    ts: u64,
    duration: Duration,
}

impl Times {
    fn wall(&self, at: Instant) -> u64 {
        self.ts.saturating_add(nanos(at.since(self.arrival)))
    }

    fn end(&self) -> u64 {
        self.ts.saturating_add(nanos(self.duration))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn push_texts<'a, const N: usize>(
    attributes: &mut Vec<Attribute<'a>>,
    texts: [(&'static str, Option<&'a str>); N],
) {
    let known = texts.into_iter().filter_map(|(key, text)| Some(Attribute::text(key, text?)));
    attributes.extend(known);
}

fn linked(caller: TraceParent) -> Link {
    Link {
        trace_id: TraceId(caller.trace_id),
        span_id: SpanId(caller.span_id),
        flags: u32::from(caller.is_sampled) | HAS_IS_REMOTE | IS_REMOTE,
    }
}

fn status(is_error: bool, message: Option<&str>) -> Status<'_> {
    let code = if is_error { StatusCode::Error } else { StatusCode::Unset };
    Status { code, message: message.filter(|_| is_error) }
}

/// Returns the failure of the request in a word.
fn error_type(record: &AccessRecord<'_>) -> Option<Cow<'static, str>> {
    if record.timeout.is_some() {
        return Some("timeout".into());
    }
    if record.status >= 500 {
        return Some(record.status.to_string().into());
    }
    match record.outcome {
        // A connection closed by `respond: close` is no failure.
        ResponseOutcome::Completed | ResponseOutcome::Closed => None,
        ResponseOutcome::Failed | ResponseOutcome::Cancelled | ResponseOutcome::Cut => {
            Some(word(record.outcome).into())
        }
    }
}

const fn word(outcome: ResponseOutcome) -> &'static str {
    match outcome {
        ResponseOutcome::Completed => "completed",
        ResponseOutcome::Closed => "closed",
        ResponseOutcome::Failed => "failed",
        ResponseOutcome::Cancelled => "cancelled",
        ResponseOutcome::Cut => "cut",
    }
}

/// Returns the method, if it is a known one.
fn method(method: &str) -> Option<&'static str> {
    METHODS.into_iter().find(|known| *known == method)
}

fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_2 => "2",
        Version::HTTP_10 => "1.0",
        _ => "1.1",
    }
}
