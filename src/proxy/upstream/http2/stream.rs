//! One request over a connection of HTTP/2.

use super::{connection::Connection, sending::Sending};
use crate::proxy::{
    body::request_body::RequestBody,
    message::{Request, Response},
    upstream::{
        error::{NoResponseReason, Unanswered, UpstreamError},
        http1::INTERIM_MAX,
    },
};
use crate::{
    config::{AnswerLimits, Server},
    http1::{
        BodyLength, FieldKind, LengthField, RequestKind,
        framing::{for_request, has_body},
    },
    traces::TRACEPARENT,
};
use bytes::Bytes;
use core::{
    future::poll_fn,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};
use h2::{Reason, RecvStream, client::ResponseFuture};
use http::{
    HeaderMap, HeaderValue, StatusCode, Uri, Version,
    header::{CONTENT_LENGTH, HOST},
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::{Body as _, Frame, SizeHint};
use std::sync::Arc;
use tokio::{sync::Notify, task::AbortHandle};

/// A request on a connection of HTTP/2, and its response. Dropping it ends the request: the stream is
/// reset unless it is over.
#[derive(Debug)]
pub(crate) struct Stream {
    connection: Arc<Connection>,
    /// True if the connection carried no other request when this one took its place.
    was_idle: bool,
    /// Notified when the request is over.
    room: Arc<Notify>,
    server: Arc<Server>,
    /// The bytes that the connection had written when the request began.
    written: u64,
    /// `None` without a body.
    sending: Option<Sending>,
    /// The task that sends the rest of the body once the response has begun: a client may read nothing
    /// of the response until it has sent all.
    rest: Option<AbortHandle>,
    response: Option<ResponseFuture>,
    /// The number of interim responses so far, and their bytes.
    interim_total: (usize, usize),
    /// The interim responses that the client may receive.
    interim: Vec<Response<()>>,
    /// The response's body, once its head has come.
    body: Option<RecvStream>,
    /// The bytes of it that are still to come, if the server has declared its length.
    left: Option<u64>,
    /// The kind of the request, which decides whether its response has a body.
    request: RequestKind,
}

impl Stream {
    /// Takes a place on `connection`; `room` is notified when it is free again.
    pub(crate) fn on(
        connection: &Arc<Connection>,
        room: &Arc<Notify>,
        server: &Arc<Server>,
    ) -> Box<Self> {
        let was_idle = connection.idle_since().is_some();
        connection.add_stream();
        Box::new(Self {
            was_idle,
            connection: Arc::clone(connection),
            room: Arc::clone(room),
            server: Arc::clone(server),
            written: 0,
            sending: None,
            rest: None,
            response: None,
            interim_total: (0, 0),
            interim: Vec::new(),
            body: None,
            left: None,
            request: RequestKind::Other,
        })
    }

    /// True if the connection carried no other request when this one took its place.
    pub(crate) fn was_idle(&self) -> bool {
        self.was_idle
    }

    /// Begins a request with `body`, whose head is in the form of HTTP/1.1. [`Self::poll_response`]
    /// sends the body.
    ///
    /// # Errors
    ///
    /// It cannot be sent over this connection. The body is returned if another connection can take it.
    pub(crate) fn begin(
        &mut self,
        request: &Request<RequestBody>,
        body: RequestBody,
    ) -> Result<(), Unanswered> {
        let Some(head) = head(request, &body, &self.server) else {
            return Err(Unanswered { why: NoResponseReason::Unsendable, unprocessed: None });
        };
        self.written = self.connection.written();
        self.request = RequestKind::of(request.method().as_str().as_bytes());

        // There is room: since the pool looked, no other task has run.
        match self.connection.sender().send_request(head, body.is_end_stream()) {
            Ok((response, stream)) => {
                self.response = Some(response);
                let connection = &self.connection;
                self.sending = Sending::new(stream, body, &connection.kept, &connection.pings);
                Ok(())
            }
            Err(error) if error.is_io() || error.is_go_away() => {
                self.connection.retire();
                Err(Unanswered {
                    why: NoResponseReason::Broken(error.into()),
                    unprocessed: Some(body),
                })
            }
            Err(_) => Err(Unanswered { why: NoResponseReason::Unsendable, unprocessed: None }),
        }
    }

    /// Sends a request, and waits for the head of its response.
    ///
    /// # Errors
    ///
    /// See [`Self::poll_response`].
    pub(crate) async fn send(
        &mut self,
        mut request: Request<RequestBody>,
    ) -> Result<Response<()>, Unanswered> {
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        self.begin(&request, body)?;
        poll_fn(|context| self.poll_response(context)).await
    }

    /// Sends the request's body, and polls for the head of the response, which may come before all of
    /// the body has left.
    ///
    /// # Errors
    ///
    /// There is no response. The body is returned if the server has not processed the request.
    pub(crate) fn poll_response(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Response<()>, Unanswered>> {
        let sent = self.sending.as_mut().map(|sending| sending.poll(context));
        if let Some(Poll::Ready(Err(cut))) = sent {
            return Poll::Ready(Err(UpstreamError::Upload(cut).into()));
        }

        self.poll_interim(context)?;
        let Some(response) = &mut self.response else { return Poll::Pending };
        let response = match ready!(Pin::new(response).poll(context)) {
            Ok(response) => response,
            Err(error) => return Poll::Ready(Err(self.failed(error))),
        };

        if let Some(sending) = &mut self.sending {
            sending.settle();
            if sent.is_some_and(|sent| sent.is_pending()) {
                self.rest = self.sending.take().map(Sending::finish);
            }
        }

        let is_fit = fits(response.headers(), self.connection.settings().limits);
        // Some applications send a body where HTTP has none; it is dropped, which resets the stream.
        let has_body = has_body(response.status(), self.request);
        self.left = declared_length(response.headers()).filter(|_| has_body);
        let response = response.map(|body| self.body = Some(body).filter(|_| has_body));
        let too_large = Unanswered { why: NoResponseReason::TooLarge, unprocessed: None };
        Poll::Ready(if is_fit { Ok(response.into()) } else { Err(too_large) })
    }

    /// Takes the interim responses that have come since the last call, except for 100.
    pub(crate) fn take_interim(&mut self) -> Option<Vec<Response<()>>> {
        (!self.interim.is_empty()).then(|| mem::take(&mut self.interim))
    }

    /// Polls for the next part of the response's body.
    ///
    /// # Errors
    ///
    /// The body breaks off.
    pub(crate) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        while let Some(data) = ready!(body.poll_data(context)) {
            let data = match data {
                Ok(data) if data.is_empty() => continue,
                Ok(data) => data,
                Err(error) => return Poll::Ready(self.broken_off(error)),
            };
            // An error would mean that the stream is over.
            drop(body.flow_control().release_capacity(data.len()));
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        Poll::Ready(match ready!(body.poll_trailers(context)) {
            Ok(trailers) => trailers.map(|trailers| Ok(Frame::trailers(trailers))),
            Err(error) => self.broken_off(error),
        })
    }

    /// True if all of the response has been read.
    pub(crate) fn is_end(&self) -> bool {
        self.body.as_ref().is_none_or(RecvStream::is_end_stream)
    }

    /// Returns the size of the rest of the response's body, as far as it is known.
    pub(crate) fn size_hint(&self) -> SizeHint {
        match &self.body {
            None => SizeHint::with_exact(0),
            Some(_) => self.left.map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }

    /// Gives its connection no more requests.
    pub(crate) fn retire(&self) {
        self.connection.retire();
    }

    /// Notes the interim responses that have come. An error of the stream is that of the response, too.
    fn poll_interim(&mut self, context: &mut Context<'_>) -> Result<(), UpstreamError> {
        let Some(response) = &mut self.response else { return Ok(()) };
        while let Poll::Ready(Some(Ok(interim))) = response.poll_informational(context) {
            self.interim_total =
                (self.interim_total.0 + 1, self.interim_total.1 + size(interim.headers()));
            if self.interim_total.0 > INTERIM_MAX.0 || self.interim_total.1 > INTERIM_MAX.1 {
                return Err(UpstreamError::Interim);
            }
            let status = interim.status();
            // HTTP/2 has no 101.
            if ![StatusCode::CONTINUE, StatusCode::SWITCHING_PROTOCOLS].contains(&status) {
                self.interim.push(interim.into());
            }
        }
        Ok(())
    }

    #[cold]
    fn failed(&mut self, error: h2::Error) -> Unanswered {
        let is_refused = is_refused(&error);
        let is_unprocessed = is_refused || is_above_last(&error);
        if is_unprocessed && !is_refused {
            self.connection.retire();
        }

        // A server may end a connection before the request is written.
        let is_unsent = error.is_io() && self.connection.written() == self.written;
        let unprocessed = match self.sending.take() {
            _ if !is_unprocessed && !is_unsent => None,
            None => Some(RequestBody::Empty),
            Some(sending) => sending.take_back(),
        };

        let error = error.into();
        let why = if is_refused && !self.connection.is_overloaded() {
            NoResponseReason::Rejected(error)
        } else {
            NoResponseReason::Broken(error)
        };
        Unanswered { why, unprocessed }
    }

    /// Ends the response's body. If its declared length has come, the server may have ended the connection
    /// without waiting for the rest of the request.
    #[cold]
    fn broken_off<T>(&self, error: h2::Error) -> Option<Result<T, UpstreamError>> {
        (self.left != Some(0)).then(|| Err(error.into()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.rest.iter().for_each(AbortHandle::abort);
        self.connection.remove_stream();
        self.room.notify_one();
    }
}

/// Returns the head of a request to `server` in the form of HTTP/2.
fn head(
    request: &Request<RequestBody>,
    body: &RequestBody,
    server: &Server,
) -> Option<http::Request<()>> {
    let fields = request.headers();
    let mut headers = fields.to_map(|kind| match kind {
        // The target has the host.
        FieldKind::Host => false,
        // The client's own were left out before, except for `te: trailers`: these are set by the route.
        FieldKind::Te | FieldKind::OtherHop => true,
        FieldKind::Trailer => body.sends_trailers_in_http2(),
        FieldKind::ContentLength
        | FieldKind::ContentType
        | FieldKind::TransferEncoding
        | FieldKind::Connection
        | FieldKind::Upgrade
        | FieldKind::Expect
        | FieldKind::Cookie
        | FieldKind::Forwarded
        | FieldKind::UnderscoreFraming
        | FieldKind::EndToEnd => !kind.is_hop_by_hop(),
    });

    let exact = body.size_hint().exact();
    // Some servers end the connection at a length with leading zeros.
    let has_zeros = |length: &HeaderValue| length.len() > 1 && length.as_bytes().starts_with(b"0");
    if let Some(length) = exact
        && headers.get(CONTENT_LENGTH).is_some_and(has_zeros)
    {
        headers.insert(CONTENT_LENGTH, length.into());
    }

    let length = match exact {
        Some(0) => BodyLength::None,
        Some(length) => BodyLength::Exactly(length),
        None => BodyLength::Chunked,
    };
    if let LengthField::ContentLength(length) = for_request(request.method(), length)
        && !headers.contains_key(CONTENT_LENGTH)
    {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    if let Some(trace) = &request.head().trace {
        headers.insert(TRACEPARENT, trace.header());
    }

    let mut head = http::Request::new(());
    *head.method_mut() = request.method().clone();
    *head.uri_mut() = target(request.target(), fields.get(&HOST), server)?;
    *head.version_mut() = Version::HTTP_2;
    *head.headers_mut() = headers;
    Some(head)
}

/// Returns the target with scheme and authority.
fn target(path: Option<&PathAndQuery>, host: Option<&[u8]>, server: &Server) -> Option<Uri> {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(if server.is_tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(Authority::try_from(host?).ok()?);
    let path = path.cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    parts.path_and_query = Some(path);
    Uri::from_parts(parts).ok()
}

/// True if the header of a response is within `limits`.
fn fits(headers: &HeaderMap, limits: AnswerLimits) -> bool {
    headers.len() <= limits.headers && size(headers) <= limits.header_bytes
}

/// Returns the size of a header as HTTP/2 counts it (RFC 9113, 6.5.2).
fn size(headers: &HeaderMap) -> usize {
    const OVERHEAD: usize = 32;
    let size = |(name, value): (&http::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + OVERHEAD
    };
    headers.iter().map(size).sum()
}

/// Returns the declared length of the response's body. h2 has checked that it is one number.
fn declared_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// True if the server has refused the stream: it has not processed the request (RFC 9113, 8.7).
fn is_refused(error: &h2::Error) -> bool {
    error.is_remote() && error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM)
}

/// True if the server has ended the connection without processing the request. h2 reports the end only
/// for streams above the last one that the server named.
fn is_above_last(error: &h2::Error) -> bool {
    error.is_remote() && error.is_go_away()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::proxy::{
        body::{
            client_body::{ClientBody, channel},
            request_body::Again,
        },
        tests::live,
        upstream::transport::ConnectionSettings,
    };
    use core::{task::Waker, time::Duration};
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
        time::timeout,
    };

    /// Begins a POST over a new connection, and returns it with the server's side, which has written
    /// `server_preface` and read what the connection begins with.
    async fn begun(parts: usize, server_preface: &[u8]) -> (Stream, DuplexStream) {
        let (_, live) = live(
            "listeners: [{ name: web, listen: '127.0.0.1:0' }]\n\
             upstreams: [{ name: up, servers: [{ url: 'http://127.0.0.1:9' }], protocol: h2 }]\n\
             routes: [{ name: all, match: { path_prefix: / }, upstream: up }]\n",
        );
        let live = live.load();
        let upstream = Arc::clone(&live.upstreams[0]);
        let server = Arc::clone(&upstream.servers()[0]);
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let settings = ConnectionSettings::of(&server, &upstream);
        let connection =
            Connection::open(Box::new(near), settings, 100, &Clock::start()).await.expect("begun");
        far.write_all(server_preface).await.expect("no error");
        let mut bytes = vec![0; 64 * 1024];
        // The preface, and whatever else a connection begins with.
        tokio::task::yield_now().await;
        assert!(far.read(&mut bytes).await.expect("no error") > 24);
        tokio::task::yield_now().await;
        let mut body = RequestBody::Empty;
        if parts > 0 {
            let (sender, incoming) = channel(None, &Context::from_waker(Waker::noop()));
            let incoming = ClientBody::Http1(incoming);
            let clock = Clock::start();
            body = RequestBody::new(incoming, &live.routes[0], None, &clock, None, None);
            body.begin_again(vec![PART; parts].into_iter().map(Again::Data).collect());
            sender.end(None);
        }
        let mut stream = *Stream::on(&connection, &Arc::default(), &server);
        let request = http::Request::post("/").header(HOST, "shop.test").body(RequestBody::Empty);
        let request = request.expect("whole").into();
        stream.begin(&request, body).map_err(|_| ()).expect("a stream");
        (stream, far)
    }

    async fn is_unprocessed(stream: &mut Stream) -> bool {
        let unanswered = poll_fn(|context| stream.poll_response(context)).await.err();
        unanswered.expect("no answer").unprocessed.is_some()
    }

    #[tokio::test]
    async fn a_post_is_sent_again_only_if_nothing_of_it_was_written() {
        for is_read in [false, true] {
            let (mut stream, mut far) = begun(0, &[]).await;
            if is_read {
                assert!(far.read(&mut [0; 1024]).await.expect("no error") > 0);
            }
            drop(far);
            assert_eq!(is_unprocessed(&mut stream).await, !is_read);
        }
    }

    /// A frame of HTTP/2.
    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("small").to_be_bytes();
        let id = stream.to_be_bytes();
        [&length[1..], &[kind, flags], &id[..], payload].concat()
    }

    #[tokio::test]
    async fn small_frames_that_no_client_takes_do_not_end_the_connection_of_others() {
        const READERS: u32 = 8;
        const STATUS_200: &[u8] = &[0x88];
        let (first, mut far) = begun(0, &frame(4, 0, 0, &[])).await;
        let request = || {
            let request = http::Request::get("/").header(HOST, "shop.test");
            request.body(RequestBody::Empty).expect("whole").into()
        };
        let mut others = Vec::new();
        for _ in 0..READERS {
            let mut stream = Stream::on(&first.connection, &first.room, &first.server);
            stream.begin(&request(), RequestBody::Empty).map_err(|_| ()).expect("a stream");
            others.push(stream);
        }
        assert!(far.read(&mut [0; 1024]).await.expect("no error") > 0);
        // All but the last fill their windows with frames of 24 bytes, which are not read.
        for number in 0..READERS {
            let id = 2 * number + 1;
            far.write_all(&frame(1, 4, id, STATUS_200)).await.expect("no error");
            for _ in 0..super::super::connection::STREAM_WINDOW / 24 {
                far.write_all(&frame(0, 0, id, &[b'x'; 24])).await.expect("the connection lives");
            }
        }
        far.write_all(&frame(1, 5, 2 * READERS + 1, STATUS_200)).await.expect("no error");
        let last = others.last_mut().expect("a stream");
        let response = poll_fn(|context| last.poll_response(context)).await;
        assert_eq!(response.map_err(|_| ()).expect("a response").status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn a_body_where_http_has_none_is_dropped() {
        const STATUS_204: &[u8] = &[0x89];
        let (mut stream, mut far) = begun(0, &frame(4, 0, 0, &[])).await;
        assert!(far.read(&mut [0; 1024]).await.expect("no error") > 0);
        far.write_all(&frame(1, 4, 1, STATUS_204)).await.expect("no error");
        far.write_all(&frame(0, 1, 1, b"body")).await.expect("no error");
        let response = poll_fn(|context| stream.poll_response(context)).await;
        assert_eq!(response.map_err(|_| ()).expect("a response").status(), StatusCode::NO_CONTENT);
        assert!(stream.is_end());
        assert_eq!(stream.size_hint().exact(), Some(0));
    }

    const MIB: usize = 1024 * 1024;

    const PART: Bytes = Bytes::from_static(&[b'x'; MIB / 16]);

    /// A server's `SETTINGS_INITIAL_WINDOW_SIZE` and `WINDOW_UPDATE`, both of 16 MiB.
    const LARGE_WINDOWS: [u8; 28] =
        [0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0, 0, 4, 8, 0, 0, 0, 0, 0, 1, 0, 0, 0];

    /// `RST_STREAM` of the first request, with `REFUSED_STREAM`.
    const REFUSAL: [u8; 13] = [0, 0, 4, 3, 0, 0, 0, 0, 1, 0, 0, 0, 7];

    /// Sends 12 MiB to a server that acknowledges no ping, and refuses the request when nothing has
    /// come for `pause`. Returns how much had come, and whether the request can be sent again.
    async fn refused_after(pause: Duration) -> (usize, bool) {
        let (mut stream, mut far) = begun(12 * 16, &LARGE_WINDOWS).await;
        let server = async move {
            let mut all = 0;
            let mut bytes = vec![0; MIB];
            while let Ok(read) = timeout(pause, far.read(&mut bytes)).await {
                all += read.expect("no error");
            }
            far.write_all(&REFUSAL).await.expect("no error");
            (all, far)
        };
        let ((all, _far), is_unprocessed) = tokio::join!(server, is_unprocessed(&mut stream));
        (all, is_unprocessed)
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_body_waits_for_the_acknowledgment_of_a_ping_as_long_as_it_may() {
        let (all, is_unprocessed) = refused_after(Duration::from_secs(1)).await;
        assert!((8 * MIB..=8 * MIB + MIB / 4).contains(&all), "{all}");
        assert!(is_unprocessed);
        let (all, is_unprocessed) = refused_after(Duration::from_secs(3)).await;
        assert!(all > 12 * MIB, "{all}");
        assert!(!is_unprocessed);
    }
}
