//! What follows a failed attempt: where the request goes next, and what is logged and counted.

use super::attempt::UpstreamRequest;
use crate::proxy::{
    body::{RequestBody, Upload, UploadState},
    gateway_error::Failure,
    message::{Request, Response},
    record::Event,
    request_log::FailedAttempt,
    timeouts::timeout::Timeout,
    upstream::{
        error::{NoResponseReason, Unanswered, cause},
        health,
        lease::{Lease, is_given_up, is_without_room},
        retry::{AttemptFailure, RetryTarget},
    },
};
use crate::{config::Server, flow::Instant};
use core::sync::atomic::Ordering::Relaxed;
use http::header;
use std::io;

impl UpstreamRequest<'_> {
    /// Decides where the request goes after `server` failed it, and counts it there.
    #[cold]
    pub(super) fn next(
        &mut self,
        failed: AttemptFailure,
        server: &Server,
        is_other_left: bool,
    ) -> Option<RetryTarget> {
        let now = self.peer.worker.clock.now();
        self.observers.note(Event::FailedBy(failed.counted().label()));
        if now >= self.deadline.at {
            return None;
        }
        // Its name may have other addresses by now.
        let is_other_left = is_other_left || !self.upstream.has(server);
        let budget = &self.upstream.retries;
        let next = self.retries.next(failed, is_other_left, |percent| budget.take(now, percent))?;
        server.meter.resend(failed.counted());
        Some(next)
    }

    /// Decides where the request goes after a response; `None`: nowhere, as the client gets it.
    pub(super) fn next_after(
        &mut self,
        response: &Response<()>,
        lease: &Lease,
        is_other_left: bool,
    ) -> Option<RetryTarget> {
        let policy = self.route.options.retry.as_ref()?;
        let status = response.status().as_u16();
        let is_failure = policy.statuses.contains(&status);
        if is_failure { self.next_after_failure(response, lease, is_other_left) } else { None }
    }

    #[cold]
    fn next_after_failure(
        &mut self,
        response: &Response<()>,
        lease: &Lease,
        is_other_left: bool,
    ) -> Option<RetryTarget> {
        let status = response.status().as_u16();
        let says_when = response.headers().contains_key(&header::RETRY_AFTER);
        self.observers.note(Event::Discarded(status));
        let server = lease.server();
        let next =
            self.next(AttemptFailure::Status { status, says_when }, server, is_other_left)?;
        self.note_failure(server, None, &format!("status {status}"));
        Some(next)
    }

    /// Decides where a request goes that has no response, and puts it back if it was not processed.
    ///
    /// # Errors
    ///
    /// Nowhere, for this reason.
    #[cold]
    pub(super) fn recover(
        &mut self,
        unanswered: Unanswered,
        lease: &Lease,
        is_other_left: bool,
        request: &mut Request<RequestBody>,
    ) -> Result<RetryTarget, Failure> {
        let server = lease.server();
        if let Some(body) = unanswered.unprocessed {
            *request.body_mut() = body;
            let failed = match unanswered.why {
                NoResponseReason::Rejected(_) => AttemptFailure::Rejected,
                NoResponseReason::Broken(_)
                | NoResponseReason::TooLarge
                | NoResponseReason::Unsendable => {
                    AttemptFailure::Unprocessed { was_used: lease.reused || lease.is_shared() }
                }
            };
            let next = self.next(failed, server, is_other_left);
            // Connections end often, and are replaced without a line in the log.
            if next != Some(RetryTarget::Same) {
                self.note_failure(server, None, &unanswered.why.to_string());
            }
            if failed == AttemptFailure::Rejected || next.is_none() {
                server.meter.failures.fetch_add(1, Relaxed);
            }
            return next.ok_or(Failure::Broken);
        }

        let error = match unanswered.why {
            NoResponseReason::Broken(error) | NoResponseReason::Rejected(error) => error,
            NoResponseReason::TooLarge => {
                lease.on_failure();
                return Err(self.head_too_large(server));
            }
            NoResponseReason::Unsendable => return Err(Failure::Broken),
        };

        let failed = if lease.reused { AttemptFailure::Idle } else { AttemptFailure::Reset };
        let next = error.is_closed().then(|| self.next(failed, server, is_other_left));
        let next = next.flatten();
        if failed == AttemptFailure::Idle
            && let Some(next) = next
        {
            return Ok(next);
        }

        lease.on_failure();
        let failure = Self::blame(lease.upload.as_deref());
        if !failure.is_of_client() {
            self.note_failure(server, Some(health::ServerFailure::Response), &cause(&error));
        }

        let state = lease.upload.as_deref().map(Upload::state);
        self.timeout = state.and_then(UploadState::timeout);
        next.ok_or(failure)
    }

    /// Notes that an attempt failed, for `cause`. `failure` is what it says of the server's health.
    #[cold]
    fn note_failure(
        &mut self,
        server: &Server,
        failure: Option<health::ServerFailure>,
        cause: &str,
    ) {
        let worker = &self.peer.worker;
        let route = self.route;
        let now = worker.clock.now();
        let upstream = &self.upstream.name;
        let number = self.attempts;
        let failed = FailedAttempt { route: &route.name, upstream, server, number, cause };
        worker.records.request_log.attempt_failed(now, &failed);
        self.observers.note(Event::AttemptFailed { cause, at: now });
        if let Some(failure) = failure {
            health::failed(self.upstream, server, now, failure, cause);
        }
    }

    /// Logs a response whose head is too large.
    #[cold]
    fn head_too_large(&self, server: &Server) -> Failure {
        let worker = &self.peer.worker;
        let limits = &self.upstream.options.limits;
        let why = format!(
            "its header is larger than `limits` of the upstream {} allows: header_bytes {}, headers {}",
            self.upstream.name, limits.header_bytes, limits.headers
        );
        let now = worker.clock.now();
        worker.records.request_log.answer_rejected(now, &self.route.name, &server.address(), &why);
        Failure::HeadTooLarge
    }

    /// Notes the limit that ended the wait for the response's head, and returns how the request failed.
    /// The client is to blame if its body was awaited. If its own deadline has passed, neither side is.
    /// Only a server that had the whole request counts as failing.
    #[cold]
    pub(super) fn note_late(&mut self, lease: &Lease, sent: Option<&Upload>) -> Failure {
        let server = lease.server();
        let is_over = self.peer.worker.clock.now() >= self.deadline.at;
        let state = sent.map_or(UploadState::Done, Upload::state);
        let timeout = match state {
            _ if is_over => Timeout::Request,
            UploadState::UnderWay => Timeout::Idle,
            UploadState::Done
            | UploadState::TooLong
            | UploadState::Stalled
            | UploadState::Broken
            | UploadState::Awaited
            | UploadState::Slow => Timeout::FirstByte,
        };
        self.timeout = Some(timeout);

        let is_awaited = state == UploadState::Awaited;
        if is_over && is_awaited && !self.is_grpc {
            return Failure::ClientStalled;
        }
        if is_over && (is_awaited || self.deadline.is_clients) {
            self.note_failure(server, None, "no answer before the deadline of the call");
            return Failure::Timeout;
        }

        lease.on_timeout();
        server.meter.failures.fetch_add(1, Relaxed);
        let failure = (timeout == Timeout::FirstByte).then_some(health::ServerFailure::Response);
        self.note_failure(server, failure, &format!("no answer within {}", timeout.setting()));
        Failure::Timeout
    }

    /// Logs that there is no connection to `server`, and notes whether it took too long.
    ///
    /// # Errors
    ///
    /// There is no time for another server.
    #[cold]
    pub(super) fn note_unconnected(
        &mut self,
        server: &Server,
        error: &io::Error,
        now: Instant,
    ) -> Result<(), Failure> {
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        let is_over = now >= self.deadline.at;
        let timeout = if is_over { Timeout::Request } else { Timeout::Connect };
        self.timeout = (is_late || is_over).then_some(timeout);

        let is_own = health::is_own_shortage(error) || is_given_up(error) || is_without_room(error);
        let is_servers = !is_over && !is_own;
        let cause = if is_late {
            format!("no connection within {}", timeout.setting())
        } else if is_given_up(error) {
            "the connection takes longer than usual; another server is asked".to_owned()
        } else {
            format!("cannot connect: {}", cause(error))
        };

        if is_servers {
            server.meter.requests.fetch_add(1, Relaxed);
            server.meter.failures.fetch_add(1, Relaxed);
        }
        self.note_failure(server, is_servers.then_some(health::ServerFailure::Connect), &cause);
        if is_over { Err(Failure::Timeout) } else { Ok(()) }
    }

    /// Says whether the client or the server broke an attempt.
    fn blame(sent: Option<&Upload>) -> Failure {
        match sent.map_or(UploadState::Done, Upload::state) {
            UploadState::TooLong => Failure::TooLong,
            UploadState::Stalled | UploadState::Slow => Failure::ClientStalled,
            UploadState::Broken => Failure::ClientBroken,
            UploadState::UnderWay | UploadState::Done | UploadState::Awaited => Failure::Broken,
        }
    }
}
