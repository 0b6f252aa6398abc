//! The observers of a request, which have no effect on it: the access log, its trace, a new file in preview,
//! the names of keys, and the worst paths.
//!
//! The road of a request reports to [`Observers`], and knows none of them.

use super::{
    completion::Completion,
    log_entry::{End, LogEntry, begin_trace},
    preview,
    shown_keys::ShownKeys,
};
use crate::proxy::{
    body::{RequestBody, Upload},
    message::Request,
    peer::Peer,
    worker::Worker,
};
use crate::{
    access_log::{LoggedCost, LoggedSharer},
    config::{Claims, Route, Server, Snapshot},
    flow::{Instant, Outcome, Rejection, Report, Sharer, SlotId},
    geo::Located,
    http1::FieldList,
    meter::{AuthOutcome, ExemplarId},
    preview::Trial,
    route::{Identity, Target},
    traces::{TRACEPARENT, Trace},
    worst_paths::PathShape,
};
use core::{net::IpAddr, time::Duration};
use http::{StatusCode, Uri, uri::PathAndQuery};
use std::{borrow::Cow, sync::Arc};

/// The observers of one request. Each is there only if the configuration asks for it.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    /// Writes the line of the access log, and records the trace.
    pub(super) entry: Option<Box<LogEntry>>,
    /// The decision of a new file, while there is a preview.
    pub(super) trial: Option<Box<Trial>>,
    /// The names of its keys, until it is decided.
    pub(super) shown_keys: Option<Box<ShownKeys>>,
    /// The client's path, if the request failed or was slow.
    pub(super) bad_path: Option<PathShape>,
}

/// A step of a request that observers hear of.
pub(crate) enum Event<'a> {
    /// The client requests this host.
    Host(&'a Arc<str>),
    /// The request comes from this client, which is there.
    Client(IpAddr, Located<'a>),
    /// The client is authenticated.
    Identified(&'a Identity),
    /// The auth service has decided, or has not, and took so long.
    Authorized { outcome: AuthOutcome, took: Duration },
    /// The fields of the request are others from here on.
    Rewritten(&'a FieldList),
    /// The request is sent to the upstream from now on.
    Sent { upload: Option<Arc<Upload>>, at: Instant },
    /// A server gave no response, or none that the client could have.
    AttemptFailed { cause: &'a str, at: Instant },
    /// An attempt failed in this way.
    FailedBy(&'static str),
    /// A server's response, which the client does not get, has this status.
    Discarded(u16),
    /// The upstream's response is there, or there will be none.
    Returned { status: Option<StatusCode>, at: Instant },
    /// The gateway responds in place of the upstream.
    Error(Cow<'static, str>),
}

impl Observers {
    /// Begins to observe a request. Writes into it the trace that its server is to receive.
    #[inline]
    pub(crate) fn begin<B>(
        peer: &Peer,
        request: &mut Request<B>,
        snapshot: &Arc<Snapshot>,
    ) -> Self {
        if snapshot.settings.tracing.is_none() && !peer.worker.records.access_log.is_on() {
            return Self::default();
        }
        Self { entry: begin_entry(peer, request, snapshot), ..Self::default() }
    }

    /// Returns whether the access log or a trace has the request.
    pub(crate) fn are_logging(&self) -> bool {
        self.entry.is_some()
    }

    /// Notes a step of the request.
    #[inline]
    pub(crate) fn note(&mut self, event: Event<'_>) {
        if let Some(entry) = &mut self.entry {
            entry.note(event);
        }
    }

    /// Notes the reserve of a rule, and the cost in the end.
    pub(super) fn note_cost(&mut self, cost: LoggedCost) {
        if let Some(entry) = &mut self.entry {
            entry.decision.costs.push(cost);
        }
    }

    /// Notes the parts of the request in the order of queues.
    pub(crate) fn note_sharers(&mut self, route: &Route, sharers: &[(SlotId, Sharer)]) {
        if let Some(entry) = &mut self.entry {
            let logged = sharers.iter().filter_map(|(slot, sharer)| {
                let rule = route.rules.iter().find(|rule| rule.slot == *slot)?;
                Some(LoggedSharer { rule: Arc::clone(&rule.identity), sharer: *sharer })
            });
            entry.decision.sharers = logged.collect();
        }
    }

    /// Notes the values that the rules count the request by.
    #[inline]
    pub(crate) fn note_claims(&mut self, route: &Route, claims: &Claims) {
        if let Some(entry) = &mut self.entry {
            entry.claimed(route, claims);
        }
    }

    /// Notes the names of the request's keys, which operators may see.
    pub(crate) fn note_keys(
        &mut self,
        worker: &Worker,
        route: &Route,
        claims: &Claims,
        target: &Target<'_>,
        client: IpAddr,
    ) {
        self.shown_keys = ShownKeys::of(worker, route, claims, target, client);
    }

    /// Notes that a server is tried next. Writes into the request the trace of this attempt.
    #[inline]
    pub(crate) fn note_attempt(
        &mut self,
        worker: &Worker,
        server: &Arc<Server>,
        number: u32,
        request: &mut Request<RequestBody>,
    ) {
        if let Some(entry) = &mut self.entry {
            begin_attempt(entry, worker, server, number, request);
        }
    }

    /// Keeps the client's path of a request that failed or is slow.
    #[cold]
    pub(crate) fn keep_path(&mut self, uri: &Uri) {
        self.bad_path = Some(PathShape::of(uri.path()));
    }

    /// Notes that the response begins. The body of the request took `uploading` until then.
    pub(super) fn note_response(&mut self, outcome: Outcome, uploading: Option<Duration>) {
        if let Some(entry) = &mut self.entry {
            entry.upload_duration = uploading;
        }
        if let Some(trial) = &mut self.trial {
            trial.answered(outcome, uploading.unwrap_or(Duration::ZERO));
        }
    }

    /// Notes that the client caused the failure, which says nothing of the upstream.
    #[cold]
    pub(super) fn excuse_upstream(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.clear_upstream();
        }
        if let Some(trial) = &mut self.trial {
            trial.answered(Outcome::Cancelled, Duration::ZERO);
        }
    }

    /// Notes that a request waits for its places.
    pub(crate) fn note_queued(&mut self, report: &Report, route: &Route) {
        if let Some(entry) = &mut self.entry {
            entry.note_limits(report, route);
        }
    }

    /// Notes the wait of a request that has left before its start.
    pub(super) fn note_wait(&mut self, report: &Report, route: &Route) {
        if let Some(entry) = &mut self.entry {
            entry.admitted(report, route);
        }
    }

    /// Notes that the client left while the request waited for its start.
    pub(super) fn note_left(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.decision.has_left = true;
        }
    }

    /// Returns the trace that has the request, if it is recorded.
    pub(super) fn exemplar(&self) -> Option<ExemplarId> {
        let recording = self.entry.as_ref()?.recording.as_ref()?;
        Some(ExemplarId::Trace(recording.trace_id()))
    }

    /// Writes the line of the access log, and ends the trace.
    pub(super) fn end(&self, end: &End<'_>, worker: &Worker) {
        if let Some(entry) = &self.entry {
            entry.finish(end, worker);
        }
    }

    fn keep_shown_keys(&mut self, worker: &Worker, report: &Report) {
        if let Some(shown) = self.shown_keys.take() {
            shown.keep(worker, report);
        }
    }
}

impl Completion {
    /// Reports an admission to the observers.
    pub(crate) fn observe_admission(
        &mut self,
        route: &Route,
        report: &Report,
        request: &Request<RequestBody>,
    ) {
        if let Some(entry) = &mut self.observers.entry {
            entry.admitted(report, route);
        }
        preview::admitted(report, request, self);
        self.observers.keep_shown_keys(&self.peer.worker, report);
    }

    /// Reports a rejection to the observers, and keeps it for operators.
    pub(crate) fn observe_rejection(
        &mut self,
        route: &Route,
        rejection: &Rejection,
        request: &Request<RequestBody>,
    ) {
        if let Some(entry) = &mut self.observers.entry {
            entry.rejected(rejection, route);
        }
        preview::rejected(rejection, request, self);

        // Operators see of the client only what the access log would have.
        let worker = &self.peer.worker;
        let logged =
            self.observers.entry.as_ref().filter(|_| worker.records.access_log.is_written());
        let client = logged.map(|entry| entry.client);
        worker.records.rejections.record(
            route,
            rejection,
            client,
            worker.clock.wall(self.arrival.at),
        );

        self.observers.keep_shown_keys(&self.peer.worker, &rejection.report);
    }
}

/// Begins the trace of a request, and its line of the access log, as far as there are any.
#[inline(never)]
fn begin_entry<B>(
    peer: &Peer,
    request: &mut Request<B>,
    snapshot: &Arc<Snapshot>,
) -> Option<Box<LogEntry>> {
    let tracing = snapshot.settings.tracing.as_deref();
    let trace = tracing.map(|tracing| begin_trace(peer, tracing, request, snapshot));
    let is_recorded = trace.as_ref().is_some_and(|trace| trace.recording.is_some());
    let is_logged = is_recorded || peer.worker.records.access_log.is_on();

    let mut entry = is_logged.then(|| Box::new(LogEntry::new(request, snapshot, peer.address)));
    if let Some(Trace { id, recording, context }) = trace {
        if let Some(entry) = &mut entry {
            entry.trace(id, recording);
        }
        request.head_mut().trace = Some(context);
    }
    entry
}

/// Notes a server that is tried next, in the access log and in the trace.
#[inline(never)]
fn begin_attempt(
    entry: &mut LogEntry,
    worker: &Worker,
    server: &Arc<Server>,
    number: u32,
    request: &mut Request<RequestBody>,
) {
    entry.asked(server, number);
    if let Some(recording) = &mut entry.recording {
        let path = request.target().map_or("/", PathAndQuery::path).to_owned();
        // The field that the route set in its place is not of this attempt.
        request.headers_mut().remove(&TRACEPARENT);
        request.head_mut().trace = Some(recording.attempt(server, path, worker.clock.now()));
    }
}
