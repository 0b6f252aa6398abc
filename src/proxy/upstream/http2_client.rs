//! HTTP/2 to upstream servers: one connection carries the requests of many clients.

use super::{
    connection_settings::ConnectionSettings,
    error::{Unanswered, UpstreamError, Why},
    io::BoxedIo,
    shared_body::{SharedBody, Total, Upload},
};
use crate::proxy::body::request_body::RequestBody;
use crate::proxy::message::{request::Request, response::Response};
use crate::{
    config::{AnswerLimits, Server},
    flow::Instant,
};
use bytes::Bytes;
use core::{
    error::Error,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll},
    time::Duration,
};
use h2::Reason;
use http::{
    HeaderMap, HeaderValue, Uri, Version,
    header::{CONNECTION, HOST, TRANSFER_ENCODING},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::{Body as _, Frame, SizeHint};
use hyper::{
    body::Incoming,
    client::conn::http2::{self, SendRequest},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};
use tokio::sync::Notify;

/// Requests on one connection at once, if the server allows as many.
pub(crate) const STREAMS_MAX: usize = 100;

/// What a server may send of one answer before its client takes it, in bytes.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// The same of all answers: room for each, so that a client that takes nothing keeps no other
/// one waiting.
const CONNECTION_WINDOW: u32 = STREAM_WINDOW * 100;

/// What hyper may hold of one request's body, in bytes.
const STREAM_SEND_BUFFER: usize = 64 * 1024;

/// By how much a header may be larger than the limit to be refused here, with an explanation.
const EXPLAINED_BYTES: usize = 16 * 1024;

type Driver = http2::Connection<TokioIo<BoxedIo>, SharedBody, TokioExecutor>;

/// A connection that several requests share.
pub(crate) struct Connection {
    sender: SendRequest<SharedBody>,
    settings: ConnectionSettings,
    /// What moves its bytes; `None` once it has ended, with the requests that were not sent yet.
    driver: Arc<Mutex<Option<Driver>>>,
    streams: AtomicUsize,
    /// Whether it takes no more requests.
    is_retired: AtomicBool,
    /// Whether there was a request since it was last looked at.
    is_used: AtomicBool,
    idle_since: AtomicU64,
    /// How much is kept of the bodies that it carries.
    kept: Total,
}

impl Connection {
    /// Begins to speak over `stream`. The server has allowed `streams` requests at once before; it
    /// says anew how many.
    pub(super) async fn open(
        stream: BoxedIo,
        settings: ConnectionSettings,
        streams: usize,
    ) -> io::Result<Arc<Self>> {
        let list = settings.limits.header_bytes + EXPLAINED_BYTES;
        let (sender, driver) = http2::Builder::new(TokioExecutor::new())
            .initial_max_send_streams(streams)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(STREAM_SEND_BUFFER)
            .max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX))
            .handshake(TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        let driver = Arc::new(Mutex::new(Some(driver)));
        let shared = Arc::clone(&driver);
        tokio::spawn(async move {
            // Ends with the connection, or when no request and no pool has it any more. Its error
            // reaches the requests.
            poll_fn(|context| {
                let mut shared = lock(&shared);
                let Some(driver) = &mut *shared else { return Poll::Ready(()) };
                let ended = Pin::new(driver).poll(context).map(drop);
                if ended.is_ready() {
                    *shared = None;
                }
                ended
            })
            .await;
        });
        Ok(Arc::new(Self {
            sender,
            settings,
            driver,
            streams: AtomicUsize::new(0),
            is_retired: AtomicBool::new(false),
            is_used: AtomicBool::new(true),
            idle_since: AtomicU64::new(0),
            kept: Total::default(),
        }))
    }

    /// Returns what it was opened for.
    pub(crate) fn settings(&self) -> &ConnectionSettings {
        &self.settings
    }

    /// Returns how many requests the server allows at once.
    pub(crate) fn streams_max(&self) -> usize {
        let driver = lock(&self.driver);
        driver.as_ref().map_or(0, Driver::current_max_send_streams).min(STREAMS_MAX)
    }

    /// Whether another request can begin now.
    pub(crate) fn has_room(&self) -> bool {
        self.streams.load(Relaxed) < self.streams_max()
    }

    /// Whether it takes no more requests; those that it carries may go on.
    pub(crate) fn is_over(&self) -> bool {
        self.is_retired.load(Relaxed) || self.sender.is_closed()
    }

    /// Gives it no more requests.
    pub(crate) fn retire(&self) {
        self.is_retired.store(true, Relaxed);
    }

    /// Whether it has carried no request for `limit`. To be asked now and then.
    pub(crate) fn is_idle(&self, now: Instant, limit: Duration) -> bool {
        if self.streams.load(Relaxed) > 0 || self.is_used.swap(false, Relaxed) {
            self.idle_since.store(now.as_nanos(), Relaxed);
            return false;
        }
        now.since(Instant::from_nanos(self.idle_since.load(Relaxed))) >= limit
    }
}

fn lock(driver: &Mutex<Option<Driver>>) -> MutexGuard<'_, Option<Driver>> {
    driver.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("streams", &self.streams).finish_non_exhaustive()
    }
}

/// A request's place on a connection.
#[derive(Debug)]
pub(crate) struct Place {
    connection: Arc<Connection>,
    /// Notified when a place is free.
    room: Arc<Notify>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connection.streams.fetch_sub(1, Relaxed);
        self.room.notify_one();
    }
}

/// One request over a connection.
#[derive(Debug)]
pub(crate) struct Stream {
    place: Arc<Place>,
    server: Arc<Server>,
    upload: Option<Arc<Upload>>,
    /// The answer's body, once its head was there.
    answer: Option<Incoming>,
}

impl Stream {
    /// Takes a place on `connection`; `room` is notified when it is free again.
    pub(crate) fn on(
        connection: &Arc<Connection>,
        room: &Arc<Notify>,
        server: &Arc<Server>,
    ) -> Self {
        connection.streams.fetch_add(1, Relaxed);
        connection.is_used.store(true, Relaxed);
        let connection = Arc::clone(connection);
        let room = Arc::clone(room);
        let place = Arc::new(Place { connection, room });
        Self { place, server: Arc::clone(server), upload: None, answer: None }
    }

    /// Sends a request, which is in the form of HTTP/1.1, and waits for the head of its answer.
    ///
    /// # Errors
    ///
    /// There is none. The request is returned if the server has not processed it.
    pub(crate) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<()>, Unanswered> {
        let connection = &self.place.connection;
        let copy = Box::new(request.head().clone());
        let (mut head, body) = request.into_parts();
        let Some(uri) = target(&head.uri, head.headers.get(&HOST), &self.server) else {
            return Err(Unanswered { why: Why::Unsendable, request: None });
        };
        head.uri = uri;
        head.version = Version::HTTP_2;
        for name in [HOST, CONNECTION, TRANSFER_ENCODING] {
            head.headers.remove(&name);
        }
        let (body, upload) =
            SharedBody::new(body, Arc::<Place>::clone(&self.place), &connection.kept);
        self.upload.clone_from(&upload);
        let sent =
            connection.sender.clone().try_send_request(Request::from_parts(head, body).into_http());
        match sent.await {
            Ok(response) => {
                if let Some(upload) = upload {
                    upload.settle();
                }
                let is_fit = fits(response.headers(), connection.settings.limits);
                let response = response.map(|body| self.answer = Some(body));
                is_fit
                    .then(|| response.into())
                    .ok_or(Unanswered { why: Why::TooLarge, request: None })
            }
            Err(mut error) => {
                let is_unsent = error.take_message().is_some();
                let error = error.into_error();
                let is_refused = is_refused(&error);
                if is_refused {
                    connection.retire();
                }
                let request = (is_unsent || is_refused).then(|| match &upload {
                    None => Some(Request::from_parts(copy, RequestBody::Empty)),
                    Some(upload) => Some(Request::from_parts(copy, upload.take_back()?)),
                });
                Err(Unanswered { why: Why::Broken(error.into()), request: request.flatten() })
            }
        }
    }

    /// Polls for the next part of the answer's body.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let Some(answer) = &mut self.answer else { return Poll::Ready(None) };
        let polled = Pin::new(answer).poll_frame(context);
        polled.map(|frame| frame.map(|frame| frame.map_err(UpstreamError::Http2)))
    }

    /// Whether all of the answer has been read.
    pub(crate) fn is_end(&self) -> bool {
        self.answer.as_ref().is_none_or(Incoming::is_end_stream)
    }

    /// Returns how much of the answer's body is left, as far as that is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        self.answer.as_ref().map_or_else(|| SizeHint::with_exact(0), Incoming::size_hint)
    }

    /// Gives its connection no more requests.
    pub(crate) fn retire(&self) {
        self.place.connection.retire();
    }
}

impl Drop for Stream {
    /// Ends the request.
    fn drop(&mut self) {
        if let Some(upload) = &self.upload {
            upload.give_up();
        }
    }
}

/// Returns the target with scheme and authority.
fn target(uri: &Uri, host: Option<&[u8]>, server: &Server) -> Option<Uri> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(if server.is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    let host = host.filter(|host| !host.is_empty());
    // A request of HTTP/1.0 may name no host.
    parts.authority = Some(match host {
        Some(host) => Authority::try_from(host).ok()?,
        None if server.socket().is_some() => Authority::from_static("localhost"),
        None => Authority::try_from(server.authority()).ok()?,
    });
    let path = uri.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    Uri::from_parts(parts).ok()
}

/// Whether the header of an answer is within `limits`. Its size is counted as HTTP/2 does (RFC 9113,
/// 6.5.2).
fn fits(headers: &HeaderMap, limits: AnswerLimits) -> bool {
    const OVERHEAD: usize = 32;
    let size = |(name, value): (&http::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + OVERHEAD
    };
    headers.len() <= limits.headers
        && headers.iter().map(size).sum::<usize>() <= limits.header_bytes
}

/// Whether the server says that it has not processed the request (RFC 9113, 8.7): it has refused the
/// stream, or ended the connection before it. h2 reports the latter only of streams above the last
/// one that the server named.
fn is_refused(error: &hyper::Error) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    cause.is_some_and(|cause| {
        let is_refused = cause.is_reset() && cause.reason() == Some(Reason::REFUSED_STREAM);
        cause.is_remote() && (cause.is_go_away() || is_refused)
    })
}
