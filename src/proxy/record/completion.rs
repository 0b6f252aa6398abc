//! The end of a request: what is recorded exactly once, whether the response was delivered, broke off or
//! was never begun.

use super::{
    log_entry::{End, LogEntry},
    shown_keys::ShownKeys,
};
use crate::proxy::{
    body::{EarlyEnd, Upload, UploadState},
    message::request_id::RequestId,
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
    config::{Route, Snapshot, outcome},
    flow::{
        Instant, Outcome, Permit,
        limiter::breaker::{Phase, Transition},
    },
    http1::FieldList,
    meter::{Ended, ExemplarId},
    preview::Trial,
    worst_paths::{BadEnd, PathShape, SLOW},
};
use bytes::Bytes;
use core::{
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll},
    time::Duration,
};
use http::{Method, StatusCode, Version};
use http_body::{Frame, SizeHint};
use std::sync::Arc;

/// The status that is recorded if there was no response, as the client left or the gateway
/// ended; nginx's word for the former, never sent.
const CLIENT_GONE: u16 = 499;

/// The status that is recorded if flowgate closed the connection without a response; nginx's word for
/// that, never sent.
const CLOSED: u16 = 444;

/// Everything that must be recorded once when a request ends. Dropping it records the end.
#[derive(Debug)]
pub(crate) struct Completion {
    pub(crate) peer: Arc<Peer>,
    pub(crate) route: Option<Arc<Route>>,
    pub(crate) permit: Option<Permit>,
    /// The decision of a new file, while there is a preview.
    pub(crate) trial: Option<Box<Trial>>,
    /// Its keys, until it is decided, if they may be shown.
    pub(crate) shown_keys: Option<Box<ShownKeys>>,
    /// The connection that the upstream's response comes over.
    pub(crate) lease: Option<Lease>,
    /// The request's body, once it may be sent, if it has one.
    pub(crate) upload: Option<Arc<Upload>>,
    /// What the request holds of rules that gateways share.
    pub(crate) held: Option<Box<Held>>,
    pub(crate) method: Method,
    pub(crate) version: Version,
    /// The client's path, if the request failed or was slow.
    pub(crate) bad_path: Option<PathShape>,
    pub(crate) started: Instant,
    /// By which logs name it, unless that is off.
    pub(crate) request_id: Option<RequestId>,
    /// The number of servers that were tried.
    pub(crate) attempts: u32,
    /// What the route's placeholders stand for, if it has any.
    pub(crate) values: Option<Box<Values>>,
    /// The fields with the client's quotas.
    pub(crate) quota: Option<RateLimitFields>,
    /// Of the response that was begun.
    status: Option<StatusCode>,
    /// The time when the response was begun.
    answered_at: Option<Instant>,
    ending: Ending,
    bytes_out: u64,
    /// What the access log wants to know; only if there is one.
    pub(crate) entry: Option<Box<LogEntry>>,
    /// True if the connection of a response of the gateway's own ends with it, in HTTP/1.
    pub(crate) closes: bool,
    /// Which limit ended it, as far as the request knows.
    pub(crate) timeout: Option<Timeout>,
    /// True if another completion records the request, as a tunnel's does in HTTP/2.
    silent: bool,
    /// True if there is a request.
    is_begun: bool,
    /// Its stream, in HTTP/2.
    pub(crate) stream: Option<Arc<Stream>>,
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
        self.status.unwrap_or(gone)
    }

    /// Returns one for the next request. It is in a box because it is large, and moved often.
    pub(crate) fn new(peer: Arc<Peer>) -> Box<Self> {
        Box::new(Self::unused(peer))
    }

    fn unused(peer: Arc<Peer>) -> Self {
        Self {
            peer,
            route: None,
            permit: None,
            trial: None,
            shown_keys: None,
            lease: None,
            upload: None,
            held: None,
            method: Method::GET,
            version: Version::HTTP_11,
            bad_path: None,
            started: Instant::EPOCH,
            request_id: None,
            attempts: 0,
            values: None,
            quota: None,
            status: None,
            answered_at: None,
            ending: Ending::Cancelled,
            bytes_out: 0,
            entry: None,
            closes: false,
            timeout: None,
            silent: false,
            is_begun: false,
            stream: None,
        }
    }

    /// Begins a request.
    pub(crate) fn begin(&mut self, method: Method, version: Version, started: Instant) {
        self.peer.on_request();
        self.method = method;
        self.version = version;
        self.started = started;
        self.is_begun = true;
    }

    /// True if the response that has begun is a failure or slow.
    pub(crate) fn is_bad(&self) -> bool {
        let is_slow = |begun: Instant| begun.since(self.started) >= SLOW;
        self.status.is_some_and(|status| status.is_server_error())
            || self.answered_at.is_some_and(is_slow)
    }

    /// Counts a path whose response came after `waited`, or whose request ended then without one.
    #[cold]
    fn count_path(&self, path: &PathShape, status: StatusCode, waited: Duration, at: Instant) {
        let Some(route) = &self.route else { return };
        // A slow upload is the client's.
        let uploading = |upload: &Arc<Upload>| upload.duration(self.answered_at.unwrap_or(at));
        let uploading = self.upload.as_ref().map_or(Duration::ZERO, uploading);

        let end = BadEnd {
            status: status.as_u16(),
            is_failed: status.is_server_error(),
            duration: waited.saturating_sub(uploading),
        };
        self.peer.worker.worst_paths.record(&route.name, path, &end, at);
    }

    /// Ends the request, and returns the memory, without anything of it, for the next one of its
    /// connection.
    pub(crate) fn renew(mut self: Box<Self>) -> Box<Self> {
        let unused = Self::unused(Arc::clone(&self.peer));
        *self = unused;
        self
    }

    /// Ends a response of HTTP/2 whose request goes on as a tunnel.
    pub(crate) fn of_head_only(&mut self) -> Box<Self> {
        let mut completion = Self::new(Arc::clone(&self.peer));
        completion.begin(self.method.clone(), self.version, self.started);
        completion.silent = true;
        completion.stream = self.stream.take();
        completion
    }

    /// Gives the request an id, if the configuration says so.
    pub(crate) fn assign_id(&mut self, headers: &FieldList, snapshot: &Snapshot) {
        let peer = &self.peer;
        let setting = snapshot.settings.request_ids;
        let is_trusted = || peer.is_trusted(snapshot);
        self.request_id = peer.worker.request_ids.identify(headers, setting, is_trusted);
    }

    /// Writes the request's id into the head of its response.
    pub(crate) fn write_id(&self, headers: &mut FieldList) {
        if let Some(id) = &self.request_id {
            id.write(headers);
        }
    }

    /// Notes the response's status.
    pub(crate) fn answered(&mut self, status: StatusCode) {
        self.status = Some(status);
        if self.route.is_none() && self.entry.is_none() {
            return;
        }
        let now = self.peer.read_clock();
        self.answered_at = Some(now);
        let upload = self.upload.as_deref();
        let uploading = || upload.map_or(Duration::ZERO, |upload| upload.duration(now));
        if let Some(entry) = &mut self.entry {
            entry.upload_duration = upload.map(|_| uploading());
        }
        if let Some(trial) = &mut self.trial {
            trial.answered(outcome(status, now), uploading());
        }
        let permit = self.permit.as_mut().filter(|permit| permit.awaits_answer());
        if let Some(permit) = permit {
            let turn = permit.answered(outcome(status, now), uploading());
            self.log(turn);
        }
    }

    /// Notes that the request gets no response.
    #[cold]
    pub(crate) fn close(&mut self) {
        self.status = StatusCode::from_u16(CLOSED).ok();
        self.ending = Ending::Closed { at: self.peer.now() };
    }

    /// Notes that the client caused the failure, so that it does not count against the service.
    #[cold]
    pub(crate) fn blame_client(&mut self) {
        if let Some(entry) = &mut self.entry {
            entry.clear_upstream();
        }
        if let Some(permit) = &mut self.permit {
            let turn = permit.answered(Outcome::Cancelled, Duration::ZERO);
            self.log(turn);
        }
        if let Some(trial) = &mut self.trial {
            trial.answered(Outcome::Cancelled, Duration::ZERO);
        }
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
        match self.lease.as_mut().and_then(Lease::connection_mut) {
            Some(connection) => connection.poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn connection(&self) -> Option<&UpstreamConnection> {
        self.lease.as_ref().and_then(Lease::connection)
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
        if self.ending == Ending::Cancelled {
            self.ending = Ending::Complete { at: now };
        }
        if let Some(lease) = &mut self.lease {
            lease.give_back(now, &self.peer.reservation);
        }
    }

    /// Returns what the end of a response must wait for: its client, if that is still sending what
    /// the upstream does not want. The upstream is let go.
    #[inline(never)]
    pub(crate) fn early_end(&mut self) -> Option<EarlyEnd> {
        let is_error =
            self.status.is_some_and(|status| status.is_client_error() || status.is_server_error());
        if self.version != Version::HTTP_2 || !is_error {
            return None;
        }
        let upload = self.lease.take()?.early_upload().filter(|upload| !upload.is_declared)?;
        Some(EarlyEnd::of(upload, self.peer.worker.clock.clone()))
    }

    /// Logs that the upstream's response broke off, unless it did because the client broke off its upload.
    #[cold]
    pub(crate) fn note_broken_off(&mut self, why: &UpstreamError) {
        if self.lease.as_ref().is_some_and(Lease::is_cut) {
            return;
        }
        self.note_bad_answer(&format!("its answer broke off: {}", cause(why)));
    }

    /// Logs why the upstream's response is of no use.
    #[cold]
    pub(crate) fn note_bad_answer(&mut self, cause: &str) {
        if let (Some(lease), Some(route)) = (&self.lease, &self.route) {
            let worker = &self.peer.worker;
            let server = lease.server();
            let upstream = &lease.upstream().name;
            let number = self.attempts;
            let failed = FailedAttempt { route: &route.name, upstream, server, number, cause };
            worker.request_log.attempt_failed(worker.clock.now(), &failed);
            if let Some(entry) = &mut self.entry {
                entry.attempt_failed(cause, worker.clock.now());
            }
        }
    }

    /// Notes that the response broke off. If that is because the client broke its upload off,
    /// it counts as left.
    pub(crate) fn fail(&mut self) {
        if self.ending == Ending::Failed || self.lease.as_ref().is_some_and(Lease::is_cut) {
            return;
        }
        self.ending = Ending::Failed;
        if let Some(lease) = &self.lease {
            lease.on_failure();
        }
    }

    /// Notes that the response broke off, and gives up its connection: its client gets an end that
    /// the upstream did not send.
    #[cold]
    pub(crate) fn cut_off(&mut self) {
        self.fail();
        self.lease = None;
    }

    /// Returns which limit ended the request, if one did, and logs it.
    fn timed_out(&self, at: Instant) -> Option<Timeout> {
        let upload = self.lease.as_ref().and_then(Lease::upload_state);
        let timeout = match self.timeout.or_else(|| upload.and_then(UploadState::timeout)) {
            None if self.ending == Ending::Cancelled => {
                let reset = self.stream.as_ref().and_then(|stream| stream.timeout());
                reset.or_else(|| self.peer.http2.get()?.timeout())?
            }
            timeout => timeout?,
        };
        if let Some(route) = &self.route {
            self.peer.worker.timeout_log.log(timeout, &route.name, at);
        }
        Some(timeout)
    }

    /// Returns what the request is found by: its trace if that is recorded, or its id.
    fn exemplar_id(&self) -> Option<ExemplarId> {
        let recorded = self.entry.as_ref().and_then(|entry| entry.recording.as_ref());
        if let Some(recorded) = recorded {
            return Some(ExemplarId::Trace(recorded.trace_id()));
        }
        self.request_id.as_ref().and_then(RequestId::number).map(ExemplarId::Request)
    }

    /// Ends an admitted request for its rules.
    fn end(&self, permit: Permit, status: StatusCode, at: Instant) {
        let ended = match self.ending {
            // Another request may already have its place in the queue.
            Ending::Cancelled if at < permit.start() => {
                permit.leave(at);
                None
            }
            Ending::Cancelled => permit.finish(Outcome::Cancelled),
            Ending::Complete { .. } | Ending::Closed { .. } => permit.finish(outcome(status, at)),
            Ending::Failed => permit.finish(Outcome::Failure { at }),
        };
        self.log(ended);
    }

    pub(crate) fn add_bytes(&mut self, bytes: usize) {
        self.bytes_out += bytes as u64;
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
        if !self.is_begun {
            return;
        }
        let at = match self.ending {
            Ending::Complete { at } | Ending::Closed { at } => at,
            Ending::Cancelled | Ending::Failed => self.peer.worker.clock.now(),
        };
        if let Some(activity) = self.peer.http2.get() {
            activity.on_answered(self.stream.as_ref(), at);
        }
        if self.silent {
            return;
        }
        let worker = &self.peer.worker;
        let is_cut_off = self.ending == Ending::Cancelled && worker.connections.are_cut_off();
        if is_cut_off {
            worker.counters.cut_off.fetch_add(1, Relaxed);
        }
        let status = self.final_status();
        end_trial(self.trial.take(), self.ending, status, at);
        let is_admitted = self.permit.is_some();
        if let Some(permit) = self.permit.take() {
            if let Some(entry) = &mut self.entry {
                entry.has_left = self.ending == Ending::Cancelled && at < permit.start();
            }
            self.end(permit, status, at);
        }
        let duration = at.since(self.started);
        let first_byte = self.answered_at.map(|answered| answered.since(self.started));
        if let Some(path) = self.bad_path.take() {
            self.count_path(&path, status, first_byte.unwrap_or(duration), at);
        }
        let timeout = self.timed_out(at);
        if let Some(route) = &self.route {
            let at = worker.clock.wall(at).since(Instant::EPOCH);
            let ended =
                Ended { method: &self.method, status, first_byte, duration, at, is_admitted };
            route.meter.record(&ended, || self.exemplar_id());
        }
        if let Some(entry) = &self.entry {
            let end = End {
                route: self.route.as_deref(),
                method: self.method.as_str(),
                listener: &self.peer.listener,
                version: self.version,
                arrival: self.started,
                request_id: self.request_id.as_ref().map(RequestId::as_str),
                ts: worker.clock.wall(self.started),
                status,
                answered: first_byte,
                duration,
                outcome: self.ending.outcome(is_cut_off),
                bytes_out: self.bytes_out,
                timeout: timeout.map(Timeout::setting),
            };
            entry.finish(&end, worker);
        }
    }
}
