//! What the access log will say of a request, gathered on its way.

use super::observers::Event;
use crate::proxy::{body::Upload, message::Request, peer::Peer, worker::Worker};
use crate::{
    access_log::{
        AccessRecord, DecisionRecord, FlowRecord, LoggedCost, LoggedKey, LoggedLimit, LoggedSharer,
        ResponseOutcome,
    },
    config::{Claims, Route, Server, Snapshot, Tracing},
    flow::{Instant, Rejection, Report},
    geo::{Asn, Country, Place},
    http1::{self, FieldList},
    meter::AuthOutcome,
    preview::TrialRecord,
    traces::{Client, Recording, Trace, TraceParent},
};
use core::{net::IpAddr, time::Duration};
use http::{HeaderName, StatusCode, Version, header::HOST};
use std::{borrow::Cow, sync::Arc};

/// Made only if there is an access log, or if the request's trace is recorded.
#[derive(Debug)]
pub(crate) struct LogEntry {
    snapshot: Arc<Snapshot>,
    /// As it came, until routing has read it.
    host: Arc<str>,
    path: String,
    trace_id: Option<u128>,
    headers: Vec<(HeaderName, String)>,
    /// What its spans say, if its trace is recorded.
    pub(super) recording: Option<Box<Recording>>,
    pub(super) client: IpAddr,
    place: Place,
    /// The authenticated user.
    user: Option<Arc<str>>,
    /// The end of the request to the auth service, and the time that it took.
    auth: Option<(AuthOutcome, Duration)>,
    upstream: UpstreamNotes,
    /// The progress of the request's body.
    upload: Option<Arc<Upload>>,
    /// The time that the body took until the response's head.
    pub(super) upload_duration: Option<Duration>,
    pub(super) decision: DecisionNotes,
    /// Why the gateway answered in place of the upstream, if no rule did.
    error: Option<Cow<'static, str>>,
}

/// The decisions about a request.
#[derive(Debug, Default)]
pub(super) struct DecisionNotes {
    flow: Option<DecisionRecord>,
    /// True if the client left while the request waited for its start.
    pub(super) has_left: bool,
    keys: Vec<LoggedKey>,
    /// The costs of rules that settle them.
    pub(super) costs: Vec<LoggedCost>,
    /// The parts of the request in the order of queues, if it has waited.
    pub(super) sharers: Vec<LoggedSharer>,
    /// The limits that find themselves.
    limits: Vec<LoggedLimit>,
    /// The decision of a new file, while there is a preview.
    pub(super) preview: Option<Box<TrialRecord>>,
}

/// The attempts at a request.
#[derive(Debug, Default)]
struct UpstreamNotes {
    /// The server that was tried last.
    server: Option<Arc<Server>>,
    attempts: u32,
    sent_at: Option<Instant>,
    /// The time of the upstream's response, or of the end of the wait for it.
    returned_at: Option<Instant>,
    /// The cause of the last failed attempt.
    error: Option<String>,
}

/// The end of a response, as the completion of a request knows it.
pub(crate) struct End<'a> {
    pub(crate) route: Option<&'a Route>,
    pub(crate) method: &'a str,
    pub(crate) listener: &'a str,
    pub(crate) version: Version,
    pub(crate) arrival: Instant,
    pub(crate) request_id: Option<&'a str>,
    /// The time of the wall's clock then.
    pub(crate) ts: Instant,
    pub(crate) status: StatusCode,
    /// From the arrival to the head of the response.
    pub(crate) answered: Option<Duration>,
    pub(crate) duration: Duration,
    pub(crate) outcome: ResponseOutcome,
    pub(crate) bytes_out: u64,
    /// The setting that ended it.
    pub(crate) timeout: Option<&'static str>,
}

impl LogEntry {
    pub(crate) fn new<B>(request: &Request<B>, snapshot: &Arc<Snapshot>, client: IpAddr) -> Self {
        let host = request.headers().get(&HOST).and_then(http1::text);
        let host = request.uri().authority().map(http::uri::Authority::as_str).or(host);

        Self {
            headers: logged_fields(request.headers(), &snapshot.settings.logged_headers),
            snapshot: Arc::clone(snapshot),
            host: Arc::from(host.unwrap_or_default()),
            path: request.uri().path().to_owned(),
            trace_id: TraceParent::of(request.headers().into()).map(|parent| parent.trace_id),
            recording: None,
            client,
            place: Place::default(),
            user: None,
            auth: None,
            upstream: UpstreamNotes::default(),
            upload: None,
            upload_duration: None,
            decision: DecisionNotes::default(),
            error: None,
        }
    }

    /// Notes the trace that the request belongs to, and what records it.
    pub(crate) fn trace(&mut self, id: u128, recording: Option<Box<Recording>>) {
        self.trace_id = Some(id);
        self.recording = recording;
    }

    /// Notes what the rules count the request by, where the log has nothing else of it.
    pub(crate) fn claimed(&mut self, route: &Route, claims: &Claims) {
        let keys = route.hidden_claims(claims).map(|(rule, claim)| LoggedKey {
            rule: Arc::clone(&rule.identity),
            key: claim.map(|claim| claim.key),
            priority: claim.is_some_and(|claim| !claim.patience.is_zero()),
            plan: claim.and_then(|claim| Some(rule.plans.as_ref()?.shown(claim.plan?).into())),
        });
        self.decision.keys = keys.collect();
    }

    /// Notes an admission by `route`: the wait, and the rule that has least left.
    pub(crate) fn admitted(&mut self, report: &Report, route: &Route) {
        self.decision.flow = Some(DecisionRecord::admitted(report, route));
        self.note_limits(report, route);
    }

    /// Notes the limits that find themselves. Of a request that waits they are those of its arrival, and
    /// their changes those until its start.
    #[inline]
    pub(super) fn note_limits(&mut self, report: &Report, route: &Route) {
        if route.auto.is_empty() {
            return;
        }
        let limits = auto_limits(report, route);
        if self.decision.limits.is_empty() {
            self.decision.limits = limits;
            return;
        }
        for later in limits {
            let mut noted = self.decision.limits.iter_mut();
            if let Some(noted) = noted.find(|noted| noted.rule == later.rule) {
                noted.change = later.change.or(noted.change);
            }
        }
    }

    /// Notes a rejection and the rule that it came from.
    pub(crate) fn rejected(&mut self, rejection: &Rejection, route: &Route) {
        self.decision.flow = Some(DecisionRecord::rejected(rejection));
        self.note_limits(&rejection.report, route);
    }

    /// Notes a step of the request.
    pub(super) fn note(&mut self, event: Event<'_>) {
        match event {
            Event::Host(host) => self.host = Arc::clone(host),
            Event::Client(client, located) => {
                self.client = client;
                self.place = located.place();
            }
            Event::Identified(identity) => self.user = identity.user().cloned(),
            Event::Authorized { outcome, took } => self.auth = Some((outcome, took)),
            Event::Rewritten(headers) => {
                self.headers = logged_fields(headers, &self.snapshot.settings.logged_headers);
            }
            Event::Sent { upload, at } => {
                self.upload = upload;
                self.upstream.sent_at = Some(at);
            }
            Event::AttemptFailed { cause, at } => self.attempt_failed(cause, at),
            Event::FailedBy(failure) => {
                if let Some(recording) = &mut self.recording {
                    recording.failed_by(failure);
                }
            }
            Event::Discarded(status) => {
                if let Some(recording) = &mut self.recording {
                    recording.answered(status);
                }
            }
            Event::Returned { status, at } => self.returned(status, at),
            Event::Error(error) => self.error = Some(error),
        }
    }

    /// Notes that `server` is asked next.
    pub(crate) fn asked(&mut self, server: &Arc<Server>, attempts: u32) {
        self.upstream.server = Some(Arc::clone(server));
        self.upstream.attempts = attempts;
    }

    /// Notes that the upstream's response is there, with its status, or that there will be none.
    fn returned(&mut self, status: Option<StatusCode>, now: Instant) {
        self.upstream.returned_at = Some(now);
        if let (Some(recording), Some(status)) = (&mut self.recording, status) {
            recording.answered(status.as_u16());
        }
    }

    /// Notes why the latest attempt failed.
    fn attempt_failed(&mut self, cause: &str, now: Instant) {
        self.upstream.error = Some(cause.to_owned());
        if let Some(recording) = &mut self.recording {
            recording.failed(cause, now);
        }
    }

    /// Notes that the response says nothing of the upstream: `replay` sees by it which ones
    /// a breaker heard of.
    pub(crate) fn clear_upstream(&mut self) {
        self.upstream.server = None;
        self.upstream.returned_at = None;
    }

    /// Hands the finished record to the access log, and to what records the trace.
    pub(crate) fn finish(&self, end: &End<'_>, worker: &Worker) {
        let server = self.upstream.server.as_ref().map(|server| server.address());
        let trace_id = self.trace_id.map(|id| format!("{id:032x}"));
        let record = AccessRecord {
            ts: end.ts,
            method: end.method,
            host: &self.host,
            path: &self.path,
            route: end.route.map(|route| &*route.name),
            listener: end.listener,
            protocol: Some(match end.version {
                Version::HTTP_2 => "HTTP/2",
                Version::HTTP_10 => "HTTP/1.0",
                _ => "HTTP/1.1",
            }),
            status: end.status.as_u16(),
            answered: end.answered,
            duration: end.duration,
            outcome: end.outcome,
            timeout: end.timeout,
            client_ip: self.client,
            country: self.place.country.as_ref().map(Country::as_str),
            asn: self.place.asn.map(|Asn(number)| number),
            user: self.user.as_deref(),
            auth: self.auth.map(|(outcome, _)| outcome.label()),
            auth_duration: self.auth.map(|(_, took)| took),
            upstream: server.as_deref(),
            upstream_duration: self
                .upstream
                .returned_at
                .zip(self.upstream.sent_at)
                .map(|(end, start)| end.since(start)),
            upload_duration: self.upload_duration,
            attempts: self.upstream.attempts,
            upstream_error: self.upstream.error.as_deref(),
            bytes_in: self.upload.as_ref().map_or(0, |upload| upload.bytes()),
            bytes_out: end.bytes_out,
            error: self.error.as_deref(),
            request_id: end.request_id,
            trace_id: trace_id.as_deref(),
            headers: &self.headers,
            config_hash: &self.snapshot.hash,
            flow: self.decision.flow.map(|flow| FlowRecord {
                left: self.decision.has_left,
                reserved: &self.decision.costs,
                charges: &self.decision.costs,
                settled: &self.decision.costs,
                sharers: &self.decision.sharers,
                limits: &self.decision.limits,
                limit_changes: &self.decision.limits,
                ..flow.record(end.route, &self.decision.keys)
            }),
            preview: self.decision.preview.as_ref().map(|preview| preview.record()),
        };

        worker.records.access_log.log(&record, self.snapshot.settings.access_log_format);
        if let Some(recording) = &self.recording {
            worker.records.traces.finish(recording, &record, end.arrival);
        }
    }
}

/// Returns the limits of a decision that find themselves, with their latest changes.
#[cold]
fn auto_limits(report: &Report, route: &Route) -> Vec<LoggedLimit> {
    let limits = report.quotas.iter().filter_map(|quota| {
        let rule = route.rules.iter().find(|rule| rule.slot == quota.slot && rule.is_auto)?;
        let change = report.change.filter(|change| change.slot == quota.slot);
        let change = change.map(|change| change.change);
        Some(LoggedLimit { rule: Arc::clone(&rule.identity), limit: quota.limit, change })
    });
    limits.collect()
}

/// Returns the fields that the access log has, as far as a request has them.
fn logged_fields(headers: &FieldList, names: &[HeaderName]) -> Vec<(HeaderName, String)> {
    let logged = names.iter().filter_map(|name| {
        let values: Vec<_> = headers.get_all(name).map(String::from_utf8_lossy).collect();
        (!values.is_empty()).then(|| (name.clone(), values.join(", ")))
    });
    logged.collect()
}

/// Returns the trace of a request that has arrived.
pub(crate) fn begin_trace<B>(
    peer: &Peer,
    tracing: &Tracing,
    request: &Request<B>,
    snapshot: &Snapshot,
) -> Trace {
    let is_secured = peer.scheme.as_bytes() == b"https";
    let client = Client {
        address: peer.address,
        scheme: if is_secured { "https" } else { "http" },
        version: request.version(),
    };
    let is_trusted = || peer.is_trusted(snapshot);
    peer.worker.records.traces.begin(tracing, request.headers().into(), client, is_trusted)
}
