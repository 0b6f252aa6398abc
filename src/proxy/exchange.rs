//! One request with its upstream: which server, which connection, how long, and
//! what may be tried again.

use super::{
    balance::{Tried, pick},
    body::{RequestBody, Upload, upload},
    complaints::FailedAttempt,
    connection::Protocol,
    entry::Entry,
    headers::{self, Forward},
    health,
    peer::Peer,
    timeout::Timeout,
    upstream::{
        connect::cause,
        copied::Copied,
        error::{Unanswered, Why},
        pool::{Lease, Wanted},
        wire::Wire,
    },
};
use crate::{
    config::{Route, Server},
    flow::Instant,
};
use core::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::atomic::Ordering::Relaxed,
    task::Poll,
};
use http::{Method, Request, Response};
use std::{io, sync::Arc};

/// Attempts for one request at most: enough to pass over a dead server or two and a
/// connection that was just closed, few enough that a dead upstream is answered for
/// soon.
const ATTEMPTS_MAX: u32 = 4;

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failure {
    /// No server could be reached.
    Unreachable,
    /// The server did not answer in time.
    Timeout,
    /// The server's answer was not HTTP, or the connection broke.
    Broken,
    /// The header of the server's answer is larger than the upstream's limits allow.
    HeadTooLarge,
    /// The request's body is longer than the route allows.
    TooLong,
    /// The client stopped sending its body, or sent no valid one.
    ClientStalled,
    /// The client's body broke off or was malformed.
    ClientBroken,
}

impl Failure {
    /// Returns whether it was the client's doing, and says nothing of the server.
    pub(super) const fn is_of_client(self) -> bool {
        match self {
            Self::TooLong | Self::ClientStalled | Self::ClientBroken => true,
            Self::Unreachable | Self::Timeout | Self::Broken | Self::HeadTooLarge => false,
        }
    }
}

/// The answer's head, with the connection that its body comes over.
pub(super) type Answer = (Response<()>, Lease);

/// What is known about a request before it is sent.
pub(super) struct Exchange<'a> {
    pub(super) peer: &'a Peer,
    pub(super) route: &'a Route,
    /// What it is forwarded with.
    pub(super) forward: &'a Forward,
    /// When it began.
    pub(super) start: Instant,
    /// When the whole request must have ended.
    pub(super) deadline: Instant,
    /// What the client speaks.
    pub(super) protocol: Protocol,
    /// How many servers have been asked.
    pub(super) attempts: u32,
    /// What the access log will say of it.
    pub(super) entry: Option<&'a mut Entry>,
    /// Which limit it failed by, if it took too long.
    pub(super) timeout: Option<Timeout>,
}

impl Exchange<'_> {
    /// Sends the client's request and waits for the head of its answer. It is `None`
    /// while it is on its way.
    ///
    /// What was not written, or what the server says that it has not processed, is sent again to
    /// another server or over another connection. What was written is sent again only if it can do no harm: without a
    /// body, with a method that asks for nothing to be done, when the connection was
    /// closed before the head of an answer was whole. If it had served before, the server may have closed
    /// it just then, and is asked once more; if not, another server is.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(super) async fn send(
        &mut self,
        request: &mut Option<Request<RequestBody>>,
    ) -> Result<Answer, Failure> {
        let sent = request.as_ref().and_then(|request| request.body().upload());
        let copy = request.as_mut().and_then(|request| self.prepare(request));
        let (mut tried, mut now) = (Tried::default(), self.start);
        let http1 = self.forward.upgrade.is_some();
        let mut wanted = Wanted { fresh: false, http1, once: copy.is_none() };
        let upstream = &self.route.upstream;
        let mut chosen = None;
        loop {
            let (place, server) = chosen
                .take()
                .or_else(|| pick(upstream, tried, now, |below| fastrand::usize(..below.max(1))))
                .filter(|_| self.attempts < ATTEMPTS_MAX)
                .ok_or(Failure::Unreachable)?;
            self.turn_to(server);
            let worker = &self.peer.worker;
            let lease = Lease::take(worker, upstream, server, wanted, now..self.deadline).await;
            let mut lease = match lease {
                Ok(lease) => lease,
                Err(error) => {
                    now = worker.clock.now();
                    self.note_unconnected(server, &error, now)?;
                    tried.add(place);
                    continue;
                }
            };
            lease.upload.clone_from(&sent);
            server.meter.requests.fetch_add(1, Relaxed);
            // Left where it arrives: it is large, and would be moved from hand to hand.
            let mut answered = None;
            self.ask(&mut lease, request, sent.as_deref(), &mut answered).await;
            match answered {
                Some(Ok(response)) => {
                    lease.on_answer();
                    return Ok((response, lease));
                }
                None => {
                    lease.on_timeout();
                    server.meter.failures.fetch_add(1, Relaxed);
                    self.note_late(server, sent.as_deref());
                    return Err(Failure::Timeout);
                }
                Some(Err(unanswered)) => {
                    let is_refused = unanswered.request.is_some() && lease.is_shared();
                    *request = Some(self.recover(unanswered, &lease, copy.as_ref())?);
                    if lease.reused || is_refused {
                        chosen = Some((place, server));
                    } else {
                        tried.add(place);
                    }
                }
            }
            now = worker.clock.now();
            wanted.fresh = true;
        }
    }

    /// Sends the request over what is on `lease`, and waits until it is `answered`, or must be given up.
    async fn ask(
        &self,
        lease: &mut Lease,
        request: &mut Option<Request<RequestBody>>,
        sent: Option<&Upload>,
        answered: &mut Option<Result<Response<()>, Unanswered>>,
    ) {
        let Some(request) = request.take() else { return };
        let since = lease.since;
        match lease.wire_mut() {
            None => {}
            Some(Wire::Http1(connection)) => {
                connection.begin(request);
                let arrival = poll_fn(|context| {
                    let answer = connection.poll_answer(context);
                    answer.map(|answer| *answered = Some(answer.map_err(Unanswered::from)))
                });
                self.wait(pin!(arrival), sent, since).await;
            }
            Some(Wire::Http2(stream)) => {
                let arrival = async { *answered = Some(stream.send(request).await) };
                self.wait(Box::pin(arrival).as_mut(), sent, since).await;
            }
        }
    }

    /// Notes who is asked before it is, as the client may leave at any time.
    fn turn_to(&mut self, server: &Arc<Server>) {
        self.attempts += 1;
        self.timeout = None;
        if let Some(entry) = &mut self.entry {
            entry.asked(server, self.attempts);
        }
    }

    /// Makes the client's request the upstream's. Returns a copy of the client's, if
    /// it does no harm to send it again.
    fn prepare(&self, request: &mut Request<RequestBody>) -> Option<Copied> {
        let harmless = matches!(request.body(), RequestBody::Empty)
            && self.forward.upgrade.is_none()
            && is_harmless(request.method());
        let copy = harmless.then(|| Copied::of(request));
        headers::prepare(request, self.peer, self.forward);
        headers::edit(request.headers_mut(), &self.route.options.request_headers);
        copy
    }

    /// Returns what may be sent again.
    fn recover(
        &mut self,
        unanswered: Unanswered,
        lease: &Lease,
        copy: Option<&Copied>,
    ) -> Result<Request<RequestBody>, Failure> {
        let server = lease.server();
        if let Some(unsent) = unanswered.request {
            if lease.is_shared() {
                server.meter.retries.fetch_add(1, Relaxed);
            }
            return Ok(unsent);
        }
        let error = match unanswered.why {
            Why::Broken(error) => error,
            Why::TooLarge => {
                lease.on_failure();
                return Err(self.head_too_large(server));
            }
            Why::Unsendable => return Err(Failure::Broken),
        };
        let others = self.route.upstream.servers.len() > 1;
        if let Some(copy) = copy.filter(|_| (lease.reused || others) && error.is_closed()) {
            if !lease.reused {
                server.meter.failures.fetch_add(1, Relaxed);
                self.note_failure(server, Some(health::Failure::Response), &cause(&error));
            }
            let mut request = copy.restore(RequestBody::Empty);
            self.prepare(&mut request);
            server.meter.retries.fetch_add(1, Relaxed);
            return Ok(request);
        }
        lease.on_failure();
        let failure = Self::blame(lease.upload.as_deref());
        if !failure.is_of_client() {
            self.note_failure(server, Some(health::Failure::Response), &cause(&error));
        }
        self.timeout = (failure == Failure::ClientStalled).then_some(Timeout::Idle);
        Err(failure)
    }

    /// Notes that an attempt failed, for `cause`. `failure` is what it says of the server's health.
    fn note_failure(&mut self, server: &Server, failure: Option<health::Failure>, cause: &str) {
        let (worker, route) = (&self.peer.worker, self.route);
        let now = worker.clock.now();
        let failed = FailedAttempt { route: &route.name, server, number: self.attempts, cause };
        worker.request_log.attempt_failed(now, &failed);
        if let Some(entry) = &mut self.entry {
            entry.upstream_error = Some(cause.to_owned());
        }
        if let Some(failure) = failure {
            health::failed(&route.upstream, server, now, failure, cause);
        }
    }

    /// Logs an answer whose head is too large.
    fn head_too_large(&self, server: &Server) -> Failure {
        let (worker, limits) = (&self.peer.worker, &self.route.upstream.options.limits);
        let why = format!(
            "its header is larger than `limits` of the upstream {} allows: header_bytes {}, headers {}",
            self.route.upstream.name, limits.header_bytes, limits.headers
        );
        let now = worker.clock.now();
        worker.request_log.answer_rejected(now, &self.route.name, &server.address(), &why);
        Failure::HeadTooLarge
    }

    /// Waits for the answer's head: `first_byte` long from the end of the request,
    /// which was begun at `since`. While its body is under way, neither the client nor the
    /// server may let it stand still for `idle`.
    async fn wait(
        &self,
        answer: Pin<&mut impl Future<Output = ()>>,
        sent: Option<&Upload>,
        since: Instant,
    ) {
        match self.protocol {
            Protocol::Http1 => self.watched(answer, sent, since).await,
            Protocol::Http2 => Box::pin(self.timed(answer, sent, since)).await,
        }
    }

    /// Lets the connection's own timer watch, as there is no other request on it.
    async fn watched(
        &self,
        mut answer: Pin<&mut impl Future<Output = ()>>,
        sent: Option<&Upload>,
        since: Instant,
    ) {
        let activity = &self.peer.activity;
        let mut watching = false;
        poll_fn(|context| {
            if answer.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            if !watching {
                watching = true;
                activity.answer_by(self.next_look(sent, since, since));
            } else if activity.is_overdue() {
                let now = self.peer.worker.clock.now();
                let next = self.next_look(sent, since, now);
                if next <= now {
                    return Poll::Ready(());
                }
                activity.answer_by(next);
            }
            Poll::Pending
        })
        .await;
        activity.on_answer();
    }

    /// Watches with a timer of its own.
    async fn timed(
        &self,
        mut answer: Pin<&mut impl Future<Output = ()>>,
        sent: Option<&Upload>,
        since: Instant,
    ) {
        let clock = &self.peer.worker.clock;
        let mut timer = pin!(clock.timer(self.next_look(sent, since, since)));
        loop {
            tokio::select! {
                biased;
                () = &mut answer => return,
                () = &mut timer => {
                    let now = clock.now();
                    let next = self.next_look(sent, since, now);
                    if next <= now {
                        return;
                    }
                    timer.as_mut().reset(clock.to_tokio(next));
                }
            }
        }
    }

    /// Returns when to look again at the request that was begun at `since`: if that is
    /// not after `now`, the wait is over.
    ///
    /// While its body is under way, the server must go on taking it. The look comes early
    /// enough for a body that ends, or of which a part is taken, just after `now`.
    fn next_look(&self, sent: Option<&Upload>, since: Instant, now: Instant) -> Instant {
        let timeouts = &self.route.options.timeouts;
        let (first_byte, idle) = (timeouts.first_byte, timeouts.idle);
        let taken = sent.and_then(Upload::taken).unwrap_or(since).max(since);
        let look = match sent.map_or(upload::DONE, Upload::state) {
            upload::UNDER_WAY => (taken + idle).min(now + first_byte),
            // The client has a limit of its own.
            upload::AWAITED => now + first_byte.min(idle),
            _ => taken + first_byte,
        };
        self.deadline.min(look)
    }

    /// Notes the limit that ended the wait for the answer's head. Only a server that had the whole
    /// request is to blame for it.
    fn note_late(&mut self, server: &Server, sent: Option<&Upload>) {
        let is_over = self.peer.worker.clock.now() >= self.deadline;
        let timeout = match sent.map_or(upload::DONE, Upload::state) {
            _ if is_over => Timeout::Request,
            upload::UNDER_WAY => Timeout::Idle,
            _ => Timeout::FirstByte,
        };
        self.timeout = Some(timeout);
        let failure = (timeout == Timeout::FirstByte).then_some(health::Failure::Response);
        self.note_failure(server, failure, &format!("no answer within {}", timeout.setting()));
    }

    /// Logs that there is no connection to `server`, and notes whether it took too long.
    ///
    /// # Errors
    ///
    /// There is no time for another server.
    fn note_unconnected(
        &mut self,
        server: &Server,
        error: &io::Error,
        now: Instant,
    ) -> Result<(), Failure> {
        let is_late = error.kind() == io::ErrorKind::TimedOut;
        let is_over = now >= self.deadline;
        let timeout = if is_over { Timeout::Request } else { Timeout::Connect };
        self.timeout = (is_late || is_over).then_some(timeout);
        let is_servers = !is_over && !health::is_own_shortage(error);
        let cause = if is_late {
            format!("no connection within {}", timeout.setting())
        } else {
            format!("cannot connect: {}", cause(error))
        };
        self.note_failure(server, is_servers.then_some(health::Failure::Connect), &cause);
        if is_over { Err(Failure::Timeout) } else { Ok(()) }
    }

    /// Says whose fault a broken exchange is.
    fn blame(sent: Option<&Upload>) -> Failure {
        match sent.map_or(upload::DONE, Upload::state) {
            upload::TOO_LONG => Failure::TooLong,
            upload::STALLED => Failure::ClientStalled,
            upload::BROKEN => Failure::ClientBroken,
            _ => Failure::Broken,
        }
    }
}

/// Methods that ask for nothing to be done (RFC 9110, 9.2.1).
fn is_harmless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
