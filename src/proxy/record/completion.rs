//! The end of a request, which is recorded exactly once, whether the response was delivered, broke off or
//! never began.

use super::{
    log_entry::End,
    observers::{Event, Observers},
    settlement::{FieldNumbers, SharedReserve},
};
use crate::proxy::{
    body::{EarlyEnd, Upload, UploadState},
    message::{RequestHead, request_id::RequestId},
    peer::Peer,
    placeholders::Values,
    rate_limit_headers::RateLimitFields,
    request_log::FailedAttempt,
    timeouts::{streams::Stream, timeout::Timeout},
    upstream::{
        connection::UpstreamConnection,
        error::{UpstreamError, cause},
        lease::Lease,
    },
};
use crate::{
    access_log::ResponseOutcome,
    cluster::Held,
    config::{Coding, Route, Snapshot, outcome},
    flow::{
        Instant, Outcome, Permit,
        limiter::breaker::{Phase, Transition},
    },
    http1::FieldList,
    meter::{Ended, ExemplarId},
    preview::Trial,
    usage::Reader,
    worst_paths::{BadEnd, PathShape, SLOW},
};
use bytes::Bytes;
use core::{
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll},
    time::Duration,
};
use http::{HeaderValue, Method, StatusCode, Version, header::SET_COOKIE};
use http_body::{Frame, SizeHint};
use std::sync::Arc;

/// The status that is recorded if there was no response, as the client left or the gateway
/// ended; nginx's word for the former, never sent.
const CLIENT_GONE: u16 = 499;

/// The status that is recorded if flowgate closed the connection without a response; nginx's word for
/// that, never sent.
const CLOSED: u16 = 444;

/// The record of one request. Dropping it records the end, exactly once.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) peer: Arc<Peer>,
    pub(crate) arrival: Arrival,
    /// The route, once it is found.
    pub(crate) route: Option<Arc<Route>>,
    /// The values of the route's placeholders, if it has any.
    pub(crate) values: Option<Box<Values>>,
    pub(crate) decision: Decision,
    pub(crate) upstream: UpstreamUse,
    pub(crate) observers: Observers,
    /// The `Set-Cookie` lines of the auth service, for the client's response.
    pub(crate) auth_cookies: Vec<HeaderValue>,
    /// The origin of the script that may read the response, if `cors` of the route allows it.
    pub(crate) origin: Option<Box<HeaderValue>>,
    /// The encoding that the client likes best, if `compress` of the route has one.
    pub(crate) coding: Option<Coding>,
    pub(super) response: ResponseProgress,
    /// True if the connection of a response of the gateway's own ends with it, in HTTP/1.
    pub(crate) closes: bool,
    scope: Scope,
}

/// The facts about a request that are known when its head is there.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) method: Method,
    pub(crate) version: Version,
    pub(crate) at: Instant,
    /// The id that names the request in logs, unless that is off.
    pub(crate) request_id: Option<RequestId>,
    /// Its stream, in HTTP/2.
    pub(crate) stream: Option<Arc<Stream>>,
}

/// The results of an admission by the rules.
#[derive(Debug, Default)]
pub(crate) struct Decision {
    pub(crate) permit: Option<Permit>,
    /// That of the rules that decided before the auth service was asked, if it holds anything.
    pub(crate) early_permit: Option<Permit>,
    /// The request's share of rules that gateways share.
    pub(crate) held: Option<Box<Held>>,
    /// The charges in the store that the end of the request settles.
    pub(crate) shared_reserves: Vec<SharedReserve>,
    /// The fields with the client's quotas.
    pub(crate) quota: Option<RateLimitFields>,
}

/// The use that a request makes of its upstream.
#[derive(Debug, Default)]
pub(crate) struct UpstreamUse {
    /// The connection that the response comes over.
    pub(crate) lease: Option<Lease>,
    /// The progress of the request's body, if it has one and it may be sent.
    pub(crate) upload: Option<Arc<Upload>>,
    /// The number of servers that were tried.
    pub(crate) attempts: u32,
    /// The value of the client's cookie for sticky sessions, if it has one.
    pub(crate) sticky: Option<u64>,
    /// The limit that ended the request, as far as the request knows.
    pub(crate) timeout: Option<Timeout>,
}

/// The progress of the response to the client.
#[derive(Debug)]
pub(super) struct ResponseProgress {
    pub(super) status: Option<StatusCode>,
    begun_at: Option<Instant>,
    ending: Ending,
    bytes: u64,
    /// Finds the numbers in the body by which rules settle, if any does.
    pub(super) usage: Option<Box<Reader>>,
    /// True if what it has cost so far is charged while it passes.
    pub(super) charges_so_far: bool,
    /// True if flowgate responds because the upstream failed.
    stands_for_upstream: bool,
    /// The numbers in its fields that are costs.
    pub(super) numbers: FieldNumbers,
}

impl ResponseProgress {
    /// Returns the bytes of its body that were sent.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns whether its last byte was handed over.
    pub(super) const fn is_whole(&self) -> bool {
        matches!(self.ending, Ending::Complete { .. })
    }

    /// Returns whether flowgate ended the request without a response.
    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.ending, Ending::Closed { .. })
    }
}

/// The part of a request that the end of a [`Completion`] records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    /// Nothing: there is no request yet.
    Nothing,
    /// The end of the stream alone: another completion records the request, as a tunnel's does.
    Stream,
    Request,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    Cancelled,
    Complete {
        at: Instant,
    },
    /// flowgate ended it without a response.
    Closed {
        at: Instant,
    },
    Failed,
}

impl Ending {
    /// Returns the outcome of the response. A client that left was cut off if flowgate ended.
    fn outcome(self, is_cut_off: bool) -> ResponseOutcome {
        match self {
            Self::Cancelled if is_cut_off => ResponseOutcome::Cut,
            Self::Cancelled => ResponseOutcome::Cancelled,
            Self::Complete { .. } => ResponseOutcome::Completed,
            Self::Closed { .. } => ResponseOutcome::Closed,
            Self::Failed => ResponseOutcome::Failed,
        }
    }
}

impl Completion {
    /// Returns the status that is recorded.
    fn final_status(&self) -> StatusCode {
        let gone = StatusCode::from_u16(CLIENT_GONE).unwrap_or(StatusCode::BAD_REQUEST);
        self.response.status.unwrap_or(gone)
    }

    /// Returns one for the next request. It is in a box because it is large, and moved often.
    pub(crate) fn new(peer: Arc<Peer>) -> Box<Self> {
        Box::new(Self::unused(peer))
    }

    fn unused(peer: Arc<Peer>) -> Self {
        Self {
            peer,
            arrival: Arrival {
                method: Method::GET,
                version: Version::HTTP_11,
                at: Instant::EPOCH,
                request_id: None,
                stream: None,
            },
            route: None,
            values: None,
            decision: Decision::default(),
            upstream: UpstreamUse::default(),
            observers: Observers::default(),
            auth_cookies: Vec::new(),
            origin: None,
            coding: None,
            response: ResponseProgress {
                status: None,
                begun_at: None,
                ending: Ending::Cancelled,
                bytes: 0,
                usage: None,
                charges_so_far: false,
                stands_for_upstream: false,
                numbers: Vec::new(),
            },
            closes: false,
            scope: Scope::Nothing,
        }
    }

    /// Begins a request with this head, which came at `now`.
    pub(crate) fn begin(&mut self, head: &RequestHead, snapshot: &Snapshot, now: Instant) {
        self.peer.on_request();
        self.scope = Scope::Request;
        let peer = &self.peer;
        let setting = snapshot.settings.request_ids;
        let is_trusted = || peer.is_trusted(snapshot);
        self.arrival = Arrival {
            method: head.method.clone(),
            version: head.version,
            at: now,
            request_id: peer.worker.records.request_ids.identify(
                &head.headers,
                setting,
                is_trusted,
            ),
            stream: peer.on_stream(),
        };
    }

    /// Counts a path whose response came after `waited`, or whose request ended then without one.
    #[cold]
    fn count_path(&self, path: &PathShape, status: StatusCode, waited: Duration, at: Instant) {
        let Some(route) = &self.route else { return };
        // A slow upload is the client's.
        let uploading =
            |upload: &Arc<Upload>| upload.duration(self.response.begun_at.unwrap_or(at));
        let uploading = self.upstream.upload.as_ref().map_or(Duration::ZERO, uploading);

        let end = BadEnd {
            status: status.as_u16(),
            is_failed: status.is_server_error(),
            duration: waited.saturating_sub(uploading),
        };
        self.peer.worker.records.worst_paths.record(&route.name, path, &end, at);
    }

    /// Ends the request, and returns the memory, without anything of it, for the next one of its
    /// connection.
    pub(crate) fn renew(mut self: Box<Self>) -> Box<Self> {
        let unused = Self::unused(Arc::clone(&self.peer));
        *self = unused;
        self
    }

    /// Returns the completion of a response of HTTP/2 whose request goes on as a tunnel.
    pub(crate) fn of_head_only(&mut self) -> Box<Self> {
        let mut completion = Self::new(Arc::clone(&self.peer));
        self.peer.on_request();
        completion.scope = Scope::Stream;
        completion.arrival.method = self.arrival.method.clone();
        completion.arrival.version = self.arrival.version;
        completion.arrival.at = self.arrival.at;
        completion.arrival.stream = self.arrival.stream.take();
        completion
    }

    /// Writes into the head of the response the request's id, and what the auth service sends with it.
    pub(crate) fn write_id(&self, headers: &mut FieldList) {
        if let Some(id) = &self.arrival.request_id {
            id.write(headers);
        }
        for cookie in &self.auth_cookies {
            headers.append(SET_COOKIE, cookie);
        }
    }

    /// Notes that the response begins, with this status.
    pub(crate) fn begin_response(&mut self, status: StatusCode) {
        self.response.status = Some(status);
        if self.route.is_none() && !self.observers.are_logging() {
            return;
        }
        let now = self.peer.read_clock();
        self.response.begun_at = Some(now);

        let upload = self.upstream.upload.as_deref();
        let uploading = upload.map(|upload| upload.duration(now));
        self.observers.note_response(outcome(status, now), uploading);

        let permit = self.decision.permit.as_mut().filter(|permit| permit.awaits_answer());
        if let Some(permit) = permit {
            let turn = permit.answered(outcome(status, now), uploading.unwrap_or(Duration::ZERO));
            self.log(turn);
        }
    }

    /// Notes that a server's response begins. Of the request's head, nothing but the path of a bad response
    /// is needed from then on.
    pub(crate) fn begin_forwarded_response(&mut self, status: StatusCode, head: Box<RequestHead>) {
        self.begin_response(status);
        let is_slow = |begun: Instant| begun.since(self.arrival.at) >= SLOW;
        if status.is_server_error() || self.response.begun_at.is_some_and(is_slow) {
            self.observers.keep_path(&head.uri);
        }
        if self.route.as_ref().is_some_and(|route| route.settling.while_streaming) {
            self.begin_charges();
        }
        self.peer.keep_head(head);
    }

    /// Notes that the request gets no response.
    #[cold]
    pub(crate) fn close(&mut self) {
        self.response.status = StatusCode::from_u16(CLOSED).ok();
        self.response.ending = Ending::Closed { at: self.peer.now() };
    }

    /// Notes that flowgate responds because the upstream, or the auth service, gave no response.
    #[cold]
    pub(crate) fn stand_for_upstream(&mut self) {
        self.response.stands_for_upstream = true;
    }

    /// Returns whether the upstream failed before its response began.
    pub(super) const fn has_failed_before_response(&self) -> bool {
        self.response.stands_for_upstream
    }

    /// Notes that the client caused the failure, so that it does not count against the service.
    #[cold]
    pub(crate) fn blame_client(&mut self) {
        if let Some(permit) = &mut self.decision.permit {
            let turn = permit.answered(Outcome::Cancelled, Duration::ZERO);
            self.log(turn);
        }
        self.observers.excuse_upstream();
    }

    /// Logs what the breaker turned to, if it did. No lock is held by then.
    pub(crate) fn log(&self, transition: Option<Transition>) {
        if let Some(transition) = transition {
            self.log_transition(transition);
        }
    }

    #[cold]
    fn log_transition(&self, transition: Transition) {
        if let Some(route) = &self.route {
            match transition.to {
                Phase::Open => tracing::warn!(route = %route.name, "breaker {transition}"),
                Phase::HalfOpen | Phase::Closed => {
                    tracing::info!(route = %route.name, "breaker {transition}");
                }
            }
        }
    }

    /// Polls for the next part of the upstream's response.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        match self.upstream.lease.as_mut().and_then(Lease::connection_mut) {
            Some(connection) => connection.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn connection(&self) -> Option<&UpstreamConnection> {
        self.upstream.lease.as_ref().and_then(Lease::connection)
    }

    /// Returns whether all of the upstream's response has been read.
    pub(crate) fn is_read(&self) -> bool {
        self.connection().is_none_or(UpstreamConnection::is_end)
    }

    /// Returns how much is left of its body, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.connection().map_or_else(|| SizeHint::with_exact(0), UpstreamConnection::size_hint)
    }

    /// Notes that the response's last byte was handed over, and gives its connection back.
    pub(crate) fn complete(&mut self) {
        let now = self.peer.now();
        if self.response.ending == Ending::Cancelled {
            self.response.ending = Ending::Complete { at: now };
        }
        self.settle_costs(now);
        if let Some(lease) = &mut self.upstream.lease {
            lease.give_back(now, &self.peer.reservation);
        }
    }

    /// Returns what the end of a response must wait for: its client, if that is still sending what
    /// the upstream does not want. The upstream is let go.
    #[inline(never)]
    pub(crate) fn early_end(&mut self) -> Option<EarlyEnd> {
        let is_error = self
            .response
            .status
            .is_some_and(|status| status.is_client_error() || status.is_server_error());
        if self.arrival.version != Version::HTTP_2 || !is_error {
            return None;
        }
        let upload =
            self.upstream.lease.take()?.early_upload().filter(|upload| !upload.is_declared)?;
        Some(EarlyEnd::of(upload, self.peer.worker.clock.clone()))
    }

    /// Logs that the upstream's response broke off, unless it did because the client broke off its upload.
    #[cold]
    pub(crate) fn note_broken_off(&mut self, why: &UpstreamError) {
        if self.upstream.lease.as_ref().is_some_and(Lease::is_cut) {
            return;
        }
        self.note_bad_response(&format!("its answer broke off: {}", cause(why)));
    }

    /// Logs why the upstream's response is of no use.
    #[cold]
    pub(crate) fn note_bad_response(&mut self, cause: &str) {
        if let (Some(lease), Some(route)) = (&self.upstream.lease, &self.route) {
            let worker = &self.peer.worker;
            let server = lease.server();
            let upstream = &lease.upstream().name;
            let number = self.upstream.attempts;
            let failed = FailedAttempt { route: &route.name, upstream, server, number, cause };
            worker.records.request_log.attempt_failed(worker.clock.now(), &failed);
            let at = worker.clock.now();
            self.observers.note(Event::AttemptFailed { cause, at });
        }
    }

    /// Notes that the response broke off. If that is because the client broke its upload off,
    /// it counts as left.
    pub(crate) fn fail(&mut self) {
        if self.response.ending == Ending::Failed
            || self.upstream.lease.as_ref().is_some_and(Lease::is_cut)
        {
            return;
        }
        self.response.ending = Ending::Failed;
        if let Some(lease) = &self.upstream.lease {
            lease.on_failure();
        }
    }

    /// Notes that the response broke off, and gives up its connection: its client gets an end that
    /// the upstream did not send.
    #[cold]
    pub(crate) fn cut_off(&mut self) {
        self.fail();
        self.upstream.lease = None;
    }

    /// Notes a part of the body that is handed to the client.
    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        self.response.bytes += bytes as u64;
        if self.response.charges_so_far {
            self.charge_so_far();
        }
    }

    /// Notes a part of a server's response, as it comes.
    pub(crate) fn read_part(&mut self, part: &[u8]) {
        if self.response.usage.is_some() {
            self.read_usage(part);
        }
    }

    /// Returns the limit that ended the request, if one did, and logs it.
    fn timed_out(&self, at: Instant) -> Option<Timeout> {
        let upload = self.upstream.lease.as_ref().and_then(Lease::upload_state);
        let known = self.upstream.timeout.or_else(|| upload.and_then(UploadState::timeout));
        let timeout = match known {
            None if self.response.ending == Ending::Cancelled => {
                let reset = self.arrival.stream.as_ref().and_then(|stream| stream.timeout());
                reset.or_else(|| self.peer.http2.get()?.timeout())?
            }
            timeout => timeout?,
        };

        if let Some(route) = &self.route {
            self.peer.worker.records.timeout_log.log(timeout, &route.name, at);
        }
        Some(timeout)
    }

    /// Returns the name that the request is found by: its trace if that is recorded, or its id.
    fn exemplar_id(&self) -> Option<ExemplarId> {
        let id = || self.arrival.request_id.as_ref().and_then(RequestId::number);
        self.observers.exemplar().or_else(|| id().map(ExemplarId::Request))
    }

    /// Ends the request for its rules, and for a new file in preview. Returns whether it was admitted.
    fn end_decision(&mut self, status: StatusCode, at: Instant) -> bool {
        self.settle_costs(at);
        self.log_unsettled();
        let ending = self.response.ending;
        end_trial(self.observers.trial.take(), ending, status, at);

        if let Some(early) = self.decision.early_permit.take() {
            let outcome = match ending {
                Ending::Cancelled => Outcome::Cancelled,
                Ending::Complete { .. } | Ending::Closed { .. } => outcome(status, at),
                Ending::Failed => Outcome::Failure { at },
            };
            early.finish(outcome);
        }

        let Some(mut permit) = self.decision.permit.take() else { return false };
        if permit.is_waiting() {
            // Its client has left, or flowgate has ended.
            let report = permit.withdraw(at);
            self.observers.note_left();
            if let Some(route) = &self.route {
                self.observers.note_wait(&report, route);
            }
        }
        let ended = match ending {
            // Another request may already have its place in the queue.
            Ending::Cancelled if at < permit.start() => {
                self.observers.note_left();
                permit.leave(at);
                None
            }
            Ending::Cancelled => permit.finish(Outcome::Cancelled),
            Ending::Complete { .. } | Ending::Closed { .. } => permit.finish(outcome(status, at)),
            Ending::Failed => permit.finish(Outcome::Failure { at }),
        };
        self.log(ended);
        true
    }

    /// Records a request that ended at `at`: for its rules, in the metrics, and for its observers.
    fn record(&mut self, at: Instant) {
        let is_cancelled = self.response.ending == Ending::Cancelled;
        let is_cut_off = is_cancelled && self.peer.worker.connections.are_cut_off();
        if is_cut_off {
            self.peer.worker.counters.cut_off.fetch_add(1, Relaxed);
        }

        let status = self.final_status();
        let is_admitted = self.end_decision(status, at);

        let worker = &self.peer.worker;
        let Arrival { method, version, at: arrival, request_id, .. } = &self.arrival;
        let duration = at.since(*arrival);
        let first_byte = self.response.begun_at.map(|begun| begun.since(*arrival));
        if let Some(path) = &self.observers.bad_path {
            self.count_path(path, status, first_byte.unwrap_or(duration), at);
        }
        let timeout = self.timed_out(at);
        if let Some(route) = &self.route {
            let at = worker.clock.wall(at).since(Instant::EPOCH);
            let ended = Ended { method, status, first_byte, duration, at, is_admitted };
            route.meter.record(&ended, || self.exemplar_id());
        }

        if self.observers.are_logging() {
            let end = End {
                route: self.route.as_deref(),
                method: method.as_str(),
                listener: &self.peer.listener,
                version: *version,
                arrival: *arrival,
                request_id: request_id.as_ref().map(RequestId::as_str),
                ts: worker.clock.wall(*arrival),
                status,
                answered: first_byte,
                duration,
                outcome: self.response.ending.outcome(is_cut_off),
                bytes_out: self.response.bytes,
                timeout: timeout.map(Timeout::setting),
            };
            self.observers.end(&end, worker);
        }
    }
}

/// Ends a request in the preview, if it is in one.
#[inline(never)]
fn end_trial(trial: Option<Box<Trial>>, ending: Ending, status: StatusCode, at: Instant) {
    let Some(trial) = trial else { return };
    match ending {
        Ending::Cancelled => trial.leave(at),
        Ending::Complete { .. } | Ending::Closed { .. } => trial.finish(outcome(status, at)),
        Ending::Failed => trial.finish(Outcome::Failure { at }),
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.scope == Scope::Nothing {
            return;
        }
        let at = match self.response.ending {
            Ending::Complete { at } | Ending::Closed { at } => at,
            Ending::Cancelled | Ending::Failed => self.peer.worker.clock.now(),
        };
        if let Some(activity) = self.peer.http2.get() {
            activity.on_answered(self.arrival.stream.as_ref(), at);
        }

        if self.scope == Scope::Request {
            self.record(at);
        }
    }
}
