//! One request with its upstream: which server, which connection, how long, and
//! what may be tried again.

use super::forward::{self, Forward};
use crate::proxy::message::{
    request::{Request, RequestHead},
    response::Response,
};
use crate::proxy::{
    body::{
        request_body::RequestBody,
        upload::{self, Upload},
    },
    log_entry::LogEntry,
    message::hop_by_hop::strip_hop_by_hop,
    peer::Peer,
    placeholders::{self, Values},
    request_log::FailedAttempt,
    response::failure::Failure,
    timeouts::{streams::Stream, timeout::Timeout},
    upstream::{
        balance::{Picked, Tried, pick},
        cause::cause,
        error::{Unanswered, Why},
        health,
        lease::{Lease, Wanted, is_given_up},
        reservation::binds_login,
        retry::{Failed, Next, Retries},
    },
};
use crate::{
    config::{Route, Server, Upstream},
    flow::Instant,
    http1::FieldKind,
    traces::{Recording, TRACEPARENT},
};
use core::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll, Waker},
};
use http::{HeaderValue, Method, StatusCode, header};
use std::{io, sync::Arc};

/// How many parts of an answer are read that is given up.
const DROPPED_PARTS: u32 = 8;

/// What is known about a request before it is sent.
pub(crate) struct UpstreamAttempt<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) route: &'a Route,
    pub(crate) upstream: &'a Arc<Upstream>,
    /// What the route's placeholders stand for.
    pub(crate) values: Option<&'a Values>,
    /// What it is forwarded with.
    pub(crate) forward: &'a Forward,
    /// When it began.
    pub(crate) start: Instant,
    /// When the whole request must have ended.
    pub(crate) deadline: Instant,
    /// Whether the client set that, and not the route.
    pub(crate) is_clients_deadline: bool,
    /// Whether it is a call of gRPC, whose client may wait for answers before it sends more.
    pub(crate) is_grpc: bool,
    /// The client's stream, in HTTP/2.
    pub(crate) stream: Option<&'a Arc<Stream>>,
    /// How many servers have been asked.
    pub(crate) attempts: u32,
    /// Decides what is sent again.
    pub(crate) retries: Retries<'a>,
    /// What the access log will say of it.
    pub(crate) entry: Option<&'a mut LogEntry>,
    /// Which limit it failed by, if it took too long.
    pub(crate) timeout: Option<Timeout>,
}

impl UpstreamAttempt<'_> {
    /// Sends the client's request and waits for the head of its answer, whose body comes over the
    /// connection on `lease` then. [`Retries`] decides what is sent again after a failure.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) async fn send(
        &mut self,
        request: &mut Option<Request<RequestBody>>,
        lease: &mut Option<Lease>,
    ) -> Result<Response<()>, Failure> {
        let sent = request.as_ref().and_then(|request| request.body().upload());
        let is_repeatable = request.as_mut().is_some_and(|request| self.prepare(request));
        self.retries.allow_repetition(is_repeatable);
        let mut tried = Tried::default();
        let mut now = self.start;
        let http1 = self.forward.upgrade.is_some();
        let mut wanted = Wanted {
            fresh: false,
            http1,
            once: !is_repeatable,
            soon: false,
            deadline: self.deadline,
        };
        let worker = &self.peer.worker;
        let upstream = self.upstream;
        if self.route.options.retry.is_some() {
            upstream.retries.count();
        }
        let reservation = &self.peer.reservation;
        let mut chosen = if reservation.is_used() { self.reserved(now) } else { None };
        loop {
            let Picked { place, server, is_other_left } = chosen
                .take()
                .or_else(|| {
                    let random = |below: usize| fastrand::usize(..below.max(1));
                    pick(upstream, tried, now, self.forward.key, random)
                })
                .ok_or(Failure::Unreachable)?;
            self.turn_to(&server, request);
            let on = lease.insert(Lease::new(worker, upstream, server, sent.clone(), now));
            wanted.soon = self.retries.may_go_elsewhere(is_other_left);
            let is_reserved = reservation.is_used() && on.resume(reservation, wanted);
            let found = if is_reserved { Ok(()) } else { on.find(wanted).await };
            let next = match found {
                Err(error) => {
                    self.note_unconnected(on.server(), &error, worker.clock.now())?;
                    self.next(Failed::Connect, on.server(), is_other_left)
                        .ok_or(Failure::Unreachable)?
                }
                Ok(()) => {
                    wanted.fresh = true;
                    match self.attempt(on, request, sent.as_deref(), is_other_left).await? {
                        Ok(answer) => return Ok(answer),
                        Err(next) => next,
                    }
                }
            };
            let server = Arc::clone(on.server());
            *lease = None;
            now = worker.clock.now();
            match next {
                Next::Same => chosen = Some(Picked { place, server, is_other_left }),
                // Places are those of the list that it is in.
                Next::Other if upstream.is_at(place, &server) => tried.add(place),
                Next::Other => tried = Tried::default(),
                Next::Any(wait) => {
                    let end = self.deadline.min(now + wait);
                    // In a box because it is rare, and would make every request's future larger.
                    Box::pin(worker.clock.sleep_until(end)).await;
                    tried = Tried::default();
                    now = worker.clock.now();
                    if now >= self.deadline {
                        self.timeout = Some(Timeout::Request);
                        return Err(Failure::Timeout);
                    }
                }
            }
        }
    }

    /// Sends the request over what is on `lease`. Returns the answer, or where the request goes next.
    ///
    /// # Errors
    ///
    /// There is no answer, and the request goes nowhere.
    async fn attempt(
        &mut self,
        lease: &mut Lease,
        request: &mut Option<Request<RequestBody>>,
        sent: Option<&Upload>,
        is_other_left: bool,
    ) -> Result<Result<Response<()>, Next>, Failure> {
        lease.server().meter.requests.fetch_add(1, Relaxed);
        let headers = request.as_ref().map(Request::headers);
        if headers.is_some_and(|headers| binds_login(headers, &header::AUTHORIZATION)) {
            self.reserve(lease, false);
        }
        // Left where it arrives: it is large, and would be moved from hand to hand.
        let mut answered = None;
        self.ask(lease, request, sent, &mut answered).await;
        match answered {
            Some(Ok(response)) => {
                lease.on_answer();
                if response.status() == StatusCode::UNAUTHORIZED
                    && binds_login(response.headers(), &header::WWW_AUTHENTICATE)
                {
                    self.reserve(lease, true);
                }
                let Some(next) = self.next_after(&response, lease, is_other_left) else {
                    return Ok(Ok(response));
                };
                self.drop_answer(lease);
                Ok(Err(next))
            }
            None => {
                let failure = self.note_late(lease, sent);
                self.next(Failed::Late, lease.server(), is_other_left).map(Err).ok_or(failure)
            }
            Some(Err(unanswered)) => {
                self.recover(unanswered, lease, is_other_left, request).map(Err)
            }
        }
    }

    /// Keeps the connection on `lease` from other clients, as the server may take their requests for
    /// this one's. It stays open only if the server asked for such a login: a client alone could hold
    /// connections to servers. A trusted proxy's connection, and one of HTTP/2, may carry requests of
    /// several clients.
    #[cold]
    fn reserve(&self, lease: &mut Lease, is_asked_for: bool) {
        let has_one_client = !self.forward.trusted && self.peer.http2.get().is_none();
        lease.keep_from_others(is_asked_for && has_one_client);
    }

    /// Returns the server of the connection that is reserved for the client's.
    #[cold]
    fn reserved(&self, now: Instant) -> Option<Picked> {
        if self.forward.trusted {
            // An edit has made the peer a proxy since.
            self.peer.reservation.clear();
        }
        let place = self.peer.reservation.place(self.upstream, now)?;
        let members = self.upstream.members();
        let server = Arc::clone(members.servers.get(place)?);
        let is_other_left = members.servers.len() > 1;
        Some(Picked { place, server, is_other_left })
    }

    /// Decides where the request goes after `server` failed it, and counts it there.
    #[cold]
    fn next(&mut self, failed: Failed, server: &Server, is_other_left: bool) -> Option<Next> {
        let now = self.peer.worker.clock.now();
        if let Some(recording) = self.recording() {
            recording.failed_by(failed.counted().label());
        }
        if now >= self.deadline {
            return None;
        }
        // Its name may have other addresses by now.
        let is_other_left = is_other_left || !self.upstream.has(server);
        let budget = &self.upstream.retries;
        let next = self.retries.next(failed, is_other_left, |percent| budget.take(now, percent))?;
        server.meter.resend(failed.counted());
        Some(next)
    }

    /// Decides where the request goes after an answer; `None`: nowhere, as the client gets it.
    fn next_after(
        &mut self,
        response: &Response<()>,
        lease: &Lease,
        is_other_left: bool,
    ) -> Option<Next> {
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
    ) -> Option<Next> {
        let status = response.status().as_u16();
        let says_when = response.headers().contains_key(&header::RETRY_AFTER);
        if let Some(recording) = self.recording() {
            recording.answered(status);
        }
        let server = lease.server();
        let next = self.next(Failed::Status { status, says_when }, server, is_other_left)?;
        self.note_failure(server, None, &format!("status {status}"));
        Some(next)
    }

    /// Gives up an answer. Its connection is kept if all of it is here already.
    #[cold]
    fn drop_answer(&self, lease: &mut Lease) {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(connection) = lease.connection_mut() {
            let mut parts = 0;
            while parts < DROPPED_PARTS
                && let Poll::Ready(Some(Ok(_))) = connection.poll_frame(&mut context)
            {
                parts += 1;
            }
            if connection.is_end() {
                lease.give_back(self.peer.worker.clock.now(), &self.peer.reservation);
            }
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
        let since = lease.since;
        let (Some(connection), Some(request)) = (lease.connection_mut(), request) else { return };
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        let begun = connection.begin(request, body, || self.peer.spare_heads.response());
        if let Err(unanswered) = begun {
            *answered = Some(Err(unanswered));
            return;
        }
        let arrival = poll_fn(|context| {
            let answer = connection.poll_answer(context);
            if let Some(early) = connection.take_early() {
                self.pass_on(early);
            }
            answer.map(|answer| *answered = Some(answer))
        });
        self.wait(pin!(arrival), sent, since).await;
    }

    /// Passes interim answers on, without what was for this gateway only.
    #[cold]
    fn pass_on(&self, early: Vec<Response<()>>) {
        let edits = &self.route.options.response_headers;
        for mut response in early {
            let headers = response.headers_mut();
            let fields = headers.set();
            strip_hop_by_hop(headers, fields);
            // No 1xx may have one (RFC 9110, 8.6), and clients of HTTP/2 take it for an error.
            headers.remove(&header::CONTENT_LENGTH);
            if fields.have_blanks() {
                headers.trim();
            }
            placeholders::edit(headers, edits, self.values);
            match (self.peer.http2.get(), self.stream) {
                (Some(activity), Some(stream)) => activity.respond_early(stream, response),
                _ => self.peer.interim.push(response),
            }
        }
    }

    /// Notes the server before it is asked, as the client may leave at any time.
    fn turn_to(&mut self, server: &Arc<Server>, request: &mut Option<Request<RequestBody>>) {
        self.attempts += 1;
        self.timeout = None;
        if self.forward.authority.value.is_empty() {
            self.name_host(server, request);
        }
        if self.entry.is_some() {
            self.note_turn(server, request);
        }
    }

    /// Gives a request of HTTP/1.0 that names no host the server's address as its `Host`, unless the
    /// route sets another.
    #[cold]
    fn name_host(&self, server: &Server, request: &mut Option<Request<RequestBody>>) {
        let rewrite = self.route.options.rewrite.as_ref();
        if rewrite.is_none_or(|rewrite| rewrite.host.is_none())
            && let Some(request) = request
            && let Ok(host) = HeaderValue::try_from(server.host_field())
        {
            request.headers_mut().insert(header::HOST, host);
        }
    }

    /// Notes the server for the access log and the trace.
    #[inline(never)]
    fn note_turn(&mut self, server: &Arc<Server>, request: &mut Option<Request<RequestBody>>) {
        let Some(entry) = &mut self.entry else { return };
        entry.asked(server, self.attempts);
        if let (Some(recording), Some(request)) = (&mut entry.recording, request) {
            let now = self.peer.worker.clock.now();
            let path = request.uri().path().to_owned();
            // What the route set in its place is not that of this attempt.
            request.headers_mut().remove(&TRACEPARENT);
            request.head_mut().trace = Some(recording.attempt(server, path, now));
        }
    }

    /// Returns what records the request's trace, if that is recorded.
    fn recording(&mut self) -> Option<&mut Recording> {
        self.entry.as_mut()?.recording.as_deref_mut()
    }

    /// Makes the client's request the upstream's. Returns whether it does no harm to send it again.
    fn prepare(&self, request: &mut Request<RequestBody>) -> bool {
        if self.forward.fields.has(FieldKind::Expect)
            && let (Some(activity), Some(stream)) = (self.peer.http2.get(), self.stream)
        {
            request.body_mut().expect(activity, stream);
        }
        let is_repeatable = matches!(request.body(), RequestBody::Empty)
            && self.forward.upgrade.is_none()
            && match &self.route.options.retry {
                None => is_harmless(request.method()),
                Some(policy) => policy.methods.contains(request.method()),
            };
        let rewrite = self.route.options.rewrite.as_ref();
        let host = rewrite.and_then(|rewrite| rewrite.host.as_ref());
        forward::prepare(request, self.peer, self.forward, host);
        let edits = &self.route.options.request_headers;
        let RequestHead { headers, trace, .. } = request.head_mut();
        if trace.is_some()
            && edits.names(&TRACEPARENT)
            && let Some(trace) = trace.take()
        {
            headers.insert(&TRACEPARENT, trace.header());
        }
        placeholders::edit(headers, edits, self.values);
        is_repeatable
    }

    /// Decides where a request goes that has no answer, and puts it back if it was not processed.
    ///
    /// # Errors
    ///
    /// Nowhere, for this reason.
    #[cold]
    fn recover(
        &mut self,
        unanswered: Unanswered,
        lease: &Lease,
        is_other_left: bool,
        request: &mut Option<Request<RequestBody>>,
    ) -> Result<Next, Failure> {
        let server = lease.server();
        if let (Some(body), Some(request)) = (unanswered.unprocessed, request) {
            *request.body_mut() = body;
            let failed = Failed::Unprocessed { was_used: lease.reused || lease.is_shared() };
            return self.next(failed, server, is_other_left).ok_or(Failure::Unreachable);
        }
        let error = match unanswered.why {
            Why::Broken(error) => error,
            Why::TooLarge => {
                lease.on_failure();
                return Err(self.head_too_large(server));
            }
            Why::Unsendable => return Err(Failure::Broken),
        };
        let failed = if lease.reused { Failed::Idle } else { Failed::Reset };
        let next = error.is_closed().then(|| self.next(failed, server, is_other_left));
        let next = next.flatten();
        if failed == Failed::Idle
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
        self.timeout = state.and_then(upload::timeout);
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
        worker.request_log.attempt_failed(now, &failed);
        if let Some(entry) = &mut self.entry {
            entry.attempt_failed(cause, now);
        }
        if let Some(failure) = failure {
            health::failed(self.upstream, server, now, failure, cause);
        }
    }

    /// Logs an answer whose head is too large.
    #[cold]
    fn head_too_large(&self, server: &Server) -> Failure {
        let worker = &self.peer.worker;
        let limits = &self.upstream.options.limits;
        let why = format!(
            "its header is larger than `limits` of the upstream {} allows: header_bytes {}, headers {}",
            self.upstream.name, limits.header_bytes, limits.headers
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
        mut answer: Pin<&mut impl Future<Output = ()>>,
        sent: Option<&Upload>,
        since: Instant,
    ) {
        let mut look = None;
        poll_fn(|context| {
            if answer.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut at = *look.get_or_insert_with(|| self.next_look(sent, since, since));
            while self.peer.poll_deadline(self.stream, at, context).is_ready() {
                let now = self.peer.worker.clock.now();
                at = self.next_look(sent, since, now);
                look = Some(at);
                if at <= now {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Returns when to look again at the request that was begun at `since`: if that is
    /// not after `now`, the wait is over.
    ///
    /// While its body is under way, the server must go on taking it. The look comes early
    /// enough for a body that ends, or of which a part is taken, just after `now`.
    fn next_look(&self, sent: Option<&Upload>, since: Instant, now: Instant) -> Instant {
        let timeouts = &self.route.options.timeouts;
        let first_byte = timeouts.first_byte;
        let idle = timeouts.idle;
        let taken = sent.and_then(Upload::taken).unwrap_or(since).max(since);
        let look = match sent.map_or(upload::DONE, Upload::state) {
            upload::UNDER_WAY => (taken + idle).min(now + first_byte),
            // The client has a limit of its own.
            upload::AWAITED => now + first_byte.min(idle),
            _ => taken + first_byte,
        };
        self.deadline.min(look)
    }

    /// Notes the limit that ended the wait for the answer's head, and returns how the request failed.
    /// The client is to blame if its body was awaited. If its own deadline has passed, neither side is.
    /// Only a server that had the whole request counts as failing.
    #[cold]
    fn note_late(&mut self, lease: &Lease, sent: Option<&Upload>) -> Failure {
        let server = lease.server();
        let is_over = self.peer.worker.clock.now() >= self.deadline;
        let state = sent.map_or(upload::DONE, Upload::state);
        let timeout = match state {
            _ if is_over => Timeout::Request,
            upload::UNDER_WAY => Timeout::Idle,
            _ => Timeout::FirstByte,
        };
        self.timeout = Some(timeout);
        let is_awaited = state == upload::AWAITED;
        if is_over && is_awaited && !self.is_grpc {
            return Failure::ClientStalled;
        }
        if is_over && (is_awaited || self.is_clients_deadline) {
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
        let is_servers = !is_over && !health::is_own_shortage(error) && !is_given_up(error);
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
        match sent.map_or(upload::DONE, Upload::state) {
            upload::TOO_LONG => Failure::TooLong,
            upload::STALLED | upload::SLOW => Failure::ClientStalled,
            upload::BROKEN => Failure::ClientBroken,
            _ => Failure::Broken,
        }
    }
}

/// Methods that ask for nothing to be done (RFC 9110, 9.2.1).
fn is_harmless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}
