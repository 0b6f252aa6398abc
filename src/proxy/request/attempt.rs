//! The attempts at one request, one after another: which server gets it, and how long each wait may take.

use super::{admitted::Deadline, forward::Forward};
use crate::proxy::{
    body::{RequestBody, Upload, UploadState},
    gateway_error::Failure,
    message::{Request, Response, hop_by_hop::strip_hop_by_hop},
    peer::Peer,
    placeholders::{self, Values},
    record::Observers,
    timeouts::{streams::Stream, timeout::Timeout},
    upstream::{
        balance::{Picked, Tried, pick},
        error::Unanswered,
        lease::{ConnectionNeeds, Lease},
        proxy_header,
        reservation::binds_login,
        retry::{AttemptFailure, Retries, RetryTarget},
        sticky,
    },
};
use crate::{
    config::{Route, Upstream},
    flow::Instant,
};
use core::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    sync::atomic::Ordering::Relaxed,
    task::{Context, Poll, Waker},
    time::Duration,
};
use http::{Method, StatusCode, header};
use std::sync::Arc;

/// Sends one request to its upstream: counts the attempts, and decides what is sent again.
pub(crate) struct UpstreamRequest<'a> {
    pub(crate) peer: &'a Peer,
    pub(crate) route: &'a Route,
    pub(crate) upstream: &'a Arc<Upstream>,
    /// What the route's placeholders stand for.
    pub(crate) values: Option<&'a Values>,
    /// What it is forwarded with.
    pub(crate) forward: &'a Forward,
    /// The time when it began.
    pub(crate) start: Instant,
    pub(super) deadline: Deadline,
    /// True if it is a call of gRPC, whose client may wait for responses before it sends more.
    pub(crate) is_grpc: bool,
    /// The client's stream, in HTTP/2.
    pub(crate) stream: Option<&'a Arc<Stream>>,
    /// The number of servers that were tried.
    pub(crate) attempts: u32,
    /// The value of the client's cookie for sticky sessions, if it has one.
    pub(crate) sticky: Option<u64>,
    /// Decides what is sent again.
    pub(crate) retries: Retries<'a>,
    pub(super) observers: &'a mut Observers,
    /// Which limit it failed by, if it took too long.
    pub(crate) timeout: Option<Timeout>,
}

impl UpstreamRequest<'_> {
    /// Sends the client's request and waits for the head of its response, whose body comes over the
    /// connection on `lease` then. [`Retries`] decides what is sent again after a failure.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(crate) async fn send(
        &mut self,
        request: &mut Request<RequestBody>,
        lease: &mut Option<Lease>,
    ) -> Result<Response<()>, Failure> {
        let sent = request.body().upload();
        let is_repeatable = self.prepare(request);
        if let Some(mirror) = &self.forward.mirror
            && self.forward.upgrade.is_none()
        {
            mirror.begin(request);
        }
        self.retries.allow_repetition(is_repeatable);

        let mut tried = Tried::default();
        let mut now = self.start;
        let mut needs = self.needs(is_repeatable);
        let worker = &self.peer.worker;
        let upstream = self.upstream;
        if self.route.options.retry.is_some() {
            upstream.retries.count();
        }

        let reservation = &self.peer.reservation;
        let mut chosen = if reservation.is_used() { self.reserved(now) } else { None };
        if let (None, Some(wanted)) = (&chosen, self.sticky) {
            chosen = sticky::find(&worker.cookie_seed(), upstream, wanted, now);
        }
        loop {
            let picked = chosen.take().or_else(|| self.pick(tried, now));
            let Picked { place, server, is_other_left } = picked.ok_or(Failure::Unreachable)?;

            self.begin_attempt(&server, request);
            let on = lease.insert(Lease::new(&worker.servers, upstream, server, sent.clone(), now));
            if let Some(version) = upstream.options.send_proxy_protocol {
                let of = self.forward.proxied.as_deref().copied().flatten();
                on.introduce(proxy_header::header(version, of), !self.forward.trusted);
            }
            needs.soon = self.retries.may_go_elsewhere(is_other_left);
            let is_reserved = reservation.is_used() && on.resume(reservation, needs);
            let found = if is_reserved { Ok(()) } else { on.find(needs).await };

            let next = if let Err(error) = found {
                self.note_unconnected(on.server(), &error, worker.clock.now())?;
                self.next(AttemptFailure::Connect, on.server(), is_other_left)
                    .ok_or(Failure::Unreachable)?
            } else {
                needs.fresh = true;
                match self.send_once(on, request, sent.as_deref(), is_other_left).await? {
                    Ok(response) => return Ok(response),
                    Err(next) => next,
                }
            };

            let server = Arc::clone(on.server());
            *lease = None;
            now = worker.clock.now();
            match next {
                RetryTarget::Same => chosen = Some(Picked { place, server, is_other_left }),
                // Places are those of the list that it is in.
                RetryTarget::Other if upstream.is_at(place, &server) => tried.add(place),
                RetryTarget::Other => tried = Tried::default(),
                RetryTarget::Any(wait) => {
                    // In a box because it is rare, and would make every request's future larger.
                    now = Box::pin(self.wait_for_retry(wait, now)).await?;
                    tried = Tried::default();
                }
            }
        }
    }

    /// Returns what the first connection must be like.
    fn needs(&self, is_repeatable: bool) -> ConnectionNeeds {
        let http1 = self.forward.upgrade.is_some();
        let once = !is_repeatable;
        ConnectionNeeds { fresh: false, http1, once, soon: false, deadline: self.deadline.at }
    }

    fn pick(&self, tried: Tried, now: Instant) -> Option<Picked> {
        let random = |below: usize| fastrand::usize(..below.max(1));
        pick(self.upstream, tried, now, self.forward.key, random)
    }

    /// Sends the request over what is on `lease`. Returns the response, or where the request goes next.
    ///
    /// # Errors
    ///
    /// There is no response, and the request goes nowhere.
    async fn send_once(
        &mut self,
        lease: &mut Lease,
        request: &mut Request<RequestBody>,
        sent: Option<&Upload>,
        is_other_left: bool,
    ) -> Result<Result<Response<()>, RetryTarget>, Failure> {
        lease.server().meter.requests.fetch_add(1, Relaxed);
        if binds_login(request.headers(), &header::AUTHORIZATION) {
            self.reserve(lease, false);
        }
        if sent.is_some() && !expects_body(request.method()) {
            lease.on_unexpected_body();
        }

        // Left where it arrives: it is large, and would be moved from hand to hand.
        let mut answered = None;
        self.await_response(lease, request, sent, &mut answered).await;

        match answered {
            Some(Ok(response)) => {
                lease.on_response();
                if response.status().is_server_error() {
                    lease.server().meter.server_errors.fetch_add(1, Relaxed);
                }
                if response.status() == StatusCode::UNAUTHORIZED
                    && binds_login(response.headers(), &header::WWW_AUTHENTICATE)
                {
                    self.reserve(lease, true);
                }
                let Some(next) = self.next_after(&response, lease, is_other_left) else {
                    return Ok(Ok(response));
                };
                self.discard_response(lease);
                Ok(Err(next))
            }
            None => {
                let failure = self.note_late(lease, sent);
                self.next(AttemptFailure::Late, lease.server(), is_other_left)
                    .map(Err)
                    .ok_or(failure)
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
        if has_one_client {
            lease.keep_from_others(is_asked_for);
        } else {
            lease.close_after_request();
        }
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
}

/// Returns whether servers read the body of a request with this method, as a rule: of others it has no
/// meaning (RFC 9110, 9.3). Nothing shows whether a server has read it before it answered.
pub(super) fn expects_body(method: &Method) -> bool {
    ![Method::GET, Method::HEAD, Method::DELETE, Method::OPTIONS].contains(method)
}

/// The most parts that are read of a response that is given up.
const DROPPED_PARTS: u32 = 8;

impl UpstreamRequest<'_> {
    /// Sends the request over what is on `lease`, and waits until it is `answered`, or must be given up.
    pub(super) async fn await_response(
        &self,
        lease: &mut Lease,
        request: &mut Request<RequestBody>,
        sent: Option<&Upload>,
        answered: &mut Option<Result<Response<()>, Unanswered>>,
    ) {
        let since = lease.since;
        let Some(connection) = lease.connection_mut() else { return };
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        let begun = connection.begin(request, body, || self.peer.spare_heads.response());
        if let Err(unanswered) = begun {
            *answered = Some(Err(unanswered));
            return;
        }
        let arrival = poll_fn(|context| {
            let response = connection.poll_response(context);
            if let Some(interim) = connection.take_interim() {
                self.forward_interim(interim);
            }
            response.map(|response| *answered = Some(response))
        });
        self.wait(pin!(arrival), sent, since).await;
    }

    /// Forwards interim responses, without what was for this gateway only.
    #[cold]
    fn forward_interim(&self, interim: Vec<Response<()>>) {
        let edits = &self.route.options.response_headers;
        for mut response in interim {
            let headers = response.headers_mut();
            let fields = headers.set();
            strip_hop_by_hop(headers, fields);
            // No 1xx may have one (RFC 9110, 8.6), and clients of HTTP/2 take it for an error.
            headers.remove(&header::CONTENT_LENGTH);
            if fields.have_blanks() {
                headers.trim();
            }
            placeholders::edit(headers, edits, self.values);
            match self.stream {
                Some(stream) => stream.push_interim(response.into_http()),
                None => self.peer.interim.push(response),
            }
        }
    }

    /// Waits for the response's head: `first_byte` long from the end of the request,
    /// which was begun at `since`. While its body is under way, neither the client nor the
    /// server may let it stand still for `idle`.
    async fn wait(
        &self,
        mut response: Pin<&mut impl Future<Output = ()>>,
        sent: Option<&Upload>,
        since: Instant,
    ) {
        let mut look = None;
        poll_fn(|context| {
            if response.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut at = *look.get_or_insert_with(|| self.next_check(sent, since, since));
            while self.peer.poll_deadline(self.stream, at, context).is_ready() {
                let now = self.peer.worker.clock.now();
                at = self.next_check(sent, since, now);
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
    fn next_check(&self, sent: Option<&Upload>, since: Instant, now: Instant) -> Instant {
        let timeouts = &self.route.options.timeouts;
        let first_byte = timeouts.first_byte;
        let idle = timeouts.idle;
        let taken = sent.and_then(Upload::taken).unwrap_or(since).max(since);
        let look = match sent.map_or(UploadState::Done, Upload::state) {
            UploadState::UnderWay => (taken + idle).min(now + first_byte),
            // The client has a limit of its own.
            UploadState::Awaited => now + first_byte.min(idle),
            UploadState::Done
            | UploadState::TooLong
            | UploadState::Stalled
            | UploadState::Broken
            | UploadState::Slow => taken + first_byte,
        };
        self.deadline.at.min(look)
    }

    /// Waits for `wait` from `now`, before the next attempt. Returns when it may begin.
    ///
    /// # Errors
    ///
    /// No time is left for it.
    pub(super) async fn wait_for_retry(
        &mut self,
        wait: Duration,
        now: Instant,
    ) -> Result<Instant, Failure> {
        let clock = &self.peer.worker.clock;
        clock.sleep_until(self.deadline.at.min(now + wait)).await;
        let now = clock.now();
        if now >= self.deadline.at {
            self.timeout = Some(Timeout::Request);
            return Err(Failure::Timeout);
        }
        Ok(now)
    }

    /// Gives up a response. Its connection is kept if all of it is here already.
    #[cold]
    pub(super) fn discard_response(&self, lease: &mut Lease) {
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
}
