//! One request with its upstream: which server, which connection, how long, and
//! what may be tried again.

use super::{
    balance::{Tried, pick},
    body::{RequestBody, Upload, upload},
    connection::Protocol,
    peer::Peer,
    pool::Lease,
};
use crate::{
    clock::Elapsed,
    config::{Route, Server},
    flow::Instant,
};
use core::{
    future::poll_fn,
    pin::{Pin, pin},
    sync::atomic::Ordering::Relaxed,
    task::Poll,
};
use http::{HeaderName, HeaderValue, Method, Request, Response, Uri};
use hyper::body::Incoming;

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
            Self::Unreachable | Self::Timeout | Self::Broken => false,
        }
    }
}

/// The answer's head, with the connection that its body comes over.
pub(super) type Answer = (Response<Incoming>, Lease);

/// What is known about a request before it is sent.
pub(super) struct Exchange<'a> {
    pub(super) peer: &'a Peer,
    pub(super) route: &'a Route,
    /// When the whole request must have ended.
    pub(super) deadline: Instant,
    /// Whether it may change the connection's protocol.
    pub(super) upgrades: bool,
    /// What the client speaks.
    pub(super) protocol: Protocol,
    /// How many servers have been asked.
    pub(super) attempts: u32,
}

impl Exchange<'_> {
    /// Sends `request` and waits for the head of its answer.
    ///
    /// What was not written is sent again to another server or over another
    /// connection. What was written is sent again only if it can do no harm: once,
    /// without a body, with a method that asks for nothing to be done, and only if
    /// the connection had served before, so that the server may have closed it
    /// just then.
    ///
    /// # Errors
    ///
    /// See [`Failure`].
    pub(super) async fn send(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<Answer, Failure> {
        let sent = request.body().upload();
        let harmless = sent.is_none() && !self.upgrades && is_harmless(request.method());
        let (mut tried, mut fresh, mut again) = (Tried::default(), false, false);
        let upstream = &self.route.upstream;
        let mut chosen = None;
        loop {
            let (place, server) = chosen
                .take()
                .or_else(|| pick(upstream, tried, |below| fastrand::usize(..below.max(1))))
                .filter(|_| self.attempts < ATTEMPTS_MAX)
                .ok_or(Failure::Unreachable)?;
            self.attempts += 1;
            let worker = &self.peer.worker;
            let Ok(mut lease) = Lease::take(worker, upstream, server, fresh, self.deadline).await
            else {
                if worker.clock.now() >= self.deadline {
                    return Err(Failure::Timeout);
                }
                tried.add(place);
                continue;
            };
            lease.upload.clone_from(&sent);
            let copy = (harmless && lease.reused && !again).then(|| Copied::of(&request));
            server.meter.requests.fetch_add(1, Relaxed);
            let Some(wire) = lease.wire() else { return Err(Failure::Broken) };
            let answer = pin!(wire.sender.try_send_request(request));
            match self.in_time(answer, sent.as_deref()).await {
                Ok(Ok(response)) => return Ok((response, lease)),
                Err(Elapsed) => {
                    server.meter.failures.fetch_add(1, Relaxed);
                    return Err(Failure::Timeout);
                }
                Ok(Err(mut error)) => {
                    let (unsent, error) = (error.take_message(), error.into_error());
                    if let Some(unsent) = unsent {
                        request = unsent;
                    } else if let Some(copy) = copy.filter(|_| closed_meanwhile(&error)) {
                        request = copy.restore();
                        again = true;
                        server.meter.retries.fetch_add(1, Relaxed);
                    } else {
                        tracing::debug!(route = %self.route.name, server = %server.host, %error, "upstream failed");
                        return Err(Self::blame(sent.as_deref(), server));
                    }
                }
            }
            fresh = true;
            chosen = Some((place, server));
        }
    }

    /// Waits for the answer's head: `first_byte` long from the end of the request.
    /// While its body is under way, the body's own limits hold.
    async fn in_time<F: Future>(
        &self,
        answer: Pin<&mut F>,
        sent: Option<&Upload>,
    ) -> Result<F::Output, Elapsed> {
        match self.protocol {
            Protocol::Http1 => self.watched(answer, sent).await,
            Protocol::Http2 => Box::pin(self.timed(answer, sent)).await,
        }
    }

    /// Lets the connection's own timer watch, as there is no other request on it.
    async fn watched<F: Future>(
        &self,
        mut answer: Pin<&mut F>,
        sent: Option<&Upload>,
    ) -> Result<F::Output, Elapsed> {
        let activity = &self.peer.activity;
        let mut watching = false;
        let answered = poll_fn(|context| {
            if let Poll::Ready(answer) = answer.as_mut().poll(context) {
                return Poll::Ready(Ok(answer));
            }
            if !watching || activity.is_overdue() {
                let now = self.peer.worker.clock.now();
                if watching && self.is_over(sent, now) {
                    return Poll::Ready(Err(Elapsed));
                }
                watching = true;
                activity.answer_by(self.next_look(now));
            }
            Poll::Pending
        });
        let answered = answered.await;
        activity.on_answer();
        answered
    }

    /// Watches with a timer of its own.
    async fn timed<F: Future>(
        &self,
        mut answer: Pin<&mut F>,
        sent: Option<&Upload>,
    ) -> Result<F::Output, Elapsed> {
        let clock = &self.peer.worker.clock;
        let mut timer = pin!(clock.timer(self.next_look(clock.now())));
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = &mut timer => {
                    let now = clock.now();
                    if self.is_over(sent, now) {
                        return Err(Elapsed);
                    }
                    timer.as_mut().reset(clock.to_tokio(self.next_look(now)));
                }
            }
        }
    }

    fn next_look(&self, now: Instant) -> Instant {
        self.deadline.min(now + self.route.timeouts.first_byte)
    }

    /// Whether the wait is over, now that the deadline has come that was set when
    /// it began or was last looked at.
    fn is_over(&self, sent: Option<&Upload>, now: Instant) -> bool {
        let sending = sent.is_some_and(|sent| sent.state() == upload::UNDER_WAY);
        !sending || now >= self.deadline
    }

    /// Says whose fault a broken exchange is.
    fn blame(sent: Option<&Upload>, server: &Server) -> Failure {
        match sent.map_or(upload::DONE, Upload::state) {
            upload::TOO_LONG => Failure::TooLong,
            upload::STALLED => Failure::ClientStalled,
            upload::BROKEN => Failure::ClientBroken,
            _ => {
                server.meter.failures.fetch_add(1, Relaxed);
                Failure::Broken
            }
        }
    }
}

/// Methods that ask for nothing to be done (RFC 9110, 9.2.1).
fn is_harmless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

/// What is needed to send a request without a body again. A list is copied in half
/// the time of a map, and hardly ever needed.
struct Copied {
    method: Method,
    uri: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Copied {
    fn of(request: &Request<RequestBody>) -> Self {
        let mut headers = Vec::with_capacity(request.headers().len());
        for (name, value) in request.headers() {
            headers.push((name.clone(), value.clone()));
        }
        Self { method: request.method().clone(), uri: request.uri().clone(), headers }
    }

    fn restore(self) -> Request<RequestBody> {
        let mut request = Request::new(RequestBody::Empty);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        for (name, value) in self.headers {
            request.headers_mut().append(name, value);
        }
        request
    }
}

/// Whether the server closed the connection before it began to answer.
fn closed_meanwhile(error: &hyper::Error) -> bool {
    use core::error::Error as _;
    let reset = error
        .source()
        .and_then(|source| source.downcast_ref::<std::io::Error>())
        .is_some_and(|error| {
            matches!(
                error.kind(),
                std::io::ErrorKind::ConnectionReset
                    | std::io::ErrorKind::BrokenPipe
                    | std::io::ErrorKind::ConnectionAborted
            )
        });
    reset || error.is_incomplete_message() || error.is_canceled() || error.is_closed()
}
