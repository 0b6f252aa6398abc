//! One request with its upstream: which server, which connection, how long, and
//! what may be tried again.

use super::{
    balance::{Tried, pick},
    body::{RequestBody, Upload, upload},
    pool::Lease,
    service::Worker,
};
use crate::{
    clock::Elapsed,
    config::{Route, Server},
    flow::Instant,
};
use core::{pin::pin, sync::atomic::Ordering::Relaxed};
use http::{Method, Request, Response};
use hyper::body::Incoming;
use std::sync::Arc;

/// Servers that are asked for one request at most: enough to pass over a dead one
/// or two, few enough that a dead upstream is answered for soon.
const SERVERS_MAX: u32 = 3;

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

/// The answer's head, with the connection that its body comes over.
pub(super) type Answer = (Response<Incoming>, Lease);

/// What is known about a request before it is sent.
pub(super) struct Exchange<'a> {
    pub(super) worker: &'a Arc<Worker>,
    pub(super) route: &'a Route,
    /// When the whole request must have ended.
    pub(super) deadline: Instant,
    /// Whether it may change the connection's protocol.
    pub(super) upgrades: bool,
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
            let (place, server) = match chosen.take() {
                Some(same) => same,
                None => pick(upstream, tried, |below| fastrand::usize(..below.max(1)))
                    .filter(|_| self.attempts < SERVERS_MAX)
                    .ok_or(Failure::Unreachable)?,
            };
            self.attempts += 1;
            let Ok(mut lease) = Lease::take(self.worker, upstream, server, fresh).await else {
                tried.add(place);
                continue;
            };
            lease.upload.clone_from(&sent);
            let copy = (harmless && lease.reused && !again).then(|| copy_of(&request));
            server.meter.requests.fetch_add(1, Relaxed);
            match self.exchange(&mut lease, request, sent.as_deref()).await {
                Ok(response) => return Ok((response, lease)),
                Err(Fault::Unsent(unsent)) => {
                    request = *unsent;
                    self.attempts -= 1;
                }
                Err(Fault::Elapsed) => {
                    server.meter.failures.fetch_add(1, Relaxed);
                    return Err(Failure::Timeout);
                }
                Err(Fault::Broken(error)) => {
                    if let Some(copy) = copy.filter(|_| closed_meanwhile(&error)) {
                        request = copy;
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

    async fn exchange(
        &self,
        lease: &mut Lease,
        request: Request<RequestBody>,
        sent: Option<&Upload>,
    ) -> Result<Response<Incoming>, Fault> {
        let Some(sender) = lease.sender() else { return Err(Fault::Unsent(Box::new(request))) };
        let answer = pin!(sender.try_send_request(request));
        match self.in_time(answer, sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(mut error)) => Err(match error.take_message() {
                Some(request) => Fault::Unsent(Box::new(request)),
                None => Fault::Broken(error.into_error()),
            }),
            Err(Elapsed) => Err(Fault::Elapsed),
        }
    }

    /// Waits for the answer's head: `first_byte` long from the end of the request.
    /// While its body is under way, the body's own limits hold.
    async fn in_time<F: Future>(
        &self,
        mut answer: core::pin::Pin<&mut F>,
        sent: Option<&Upload>,
    ) -> Result<F::Output, Elapsed> {
        let clock = &self.worker.clock;
        let limit = self.route.timeouts.first_byte;
        let mut timer = pin!(clock.timer(self.deadline.min(clock.now() + limit)));
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(answer),
                () = &mut timer => {
                    let now = clock.now();
                    let sending = sent.is_some_and(|sent| sent.state() == upload::UNDER_WAY);
                    if !sending || now >= self.deadline {
                        return Err(Elapsed);
                    }
                    timer.as_mut().reset(clock.to_tokio(self.deadline.min(now + limit)));
                }
            }
        }
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

/// How one attempt failed.
enum Fault {
    /// Nothing was written: the request as it was.
    Unsent(Box<Request<RequestBody>>),
    Elapsed,
    Broken(hyper::Error),
}

/// Methods that ask for nothing to be done (RFC 9110, 9.2.1).
fn is_harmless(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS)
}

fn copy_of(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut copy = Request::new(RequestBody::Empty);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.version_mut() = request.version();
    copy.headers_mut().clone_from(request.headers());
    copy
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
