//! The demo's upstream: an HTTP/1.1 server that shows what it received.
//!
//! | path | answers |
//! |---|---|
//! | `/delay/500` | as below, after 500 ms |
//! | `/bytes/1000000` | so many bytes, streamed; byte `i` is `PATTERN[i % 64]` |
//! | `/status/503` | that status |
//! | `/trailers` | a chunked body with a trailer field |
//! | `/ws` | a WebSocket that echoes messages of up to 1 MiB |
//! | any other | the request as JSON: method, path, query, headers, body size |
//!
//! Only the end of a path counts: `/slow/delay/500` waits too, so that every route of the demo can
//! use each of them.
//!
//! HTTP bodies are streamed and never held in memory.

mod websocket;

use crate::{
    clock::Clock,
    small_http::{self, Limits, Socket},
};
use bytes::Bytes;
use http::{HeaderMap, Request, Response, StatusCode, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Empty, Full, combinators::UnsyncBoxBody};
use hyper::body::Incoming;
use serde::Serialize;
use std::{
    collections::BTreeMap,
    convert::Infallible,
    fs, io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    pin::Pin,
    task::{Context, Poll},
    thread::{self, JoinHandle},
    time::Duration,
};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use websocket::WebSockets;

/// The default address.
pub const UPSTREAM: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9000);

/// Room for a load generator. Idle connections outlive the gateway's 4 s.
const LIMITS: Limits = Limits {
    connections: 16_384,
    idle: Duration::from_secs(75),
    stall: Duration::from_mins(10),
    age: Duration::MAX,
};

/// The longest `/delay/…`: ten minutes.
const LONGEST_DELAY: Duration = Duration::from_mins(10);

/// The 64 bytes that `/bytes/…` repeats, so that a lost or repeated chunk is visible unless its
/// size is a multiple of 64.
pub const PATTERN: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ+\n";

/// One chunk of `/bytes/…`.
static CHUNK: [u8; 65_536] = {
    let mut chunk = [0; 65_536];
    let mut at = 0;
    while at < chunk.len() {
        chunk[at] = PATTERN[at % PATTERN.len()];
        at += 1;
    }
    chunk
};

type Reply = UnsyncBoxBody<Bytes, Infallible>;

/// A running upstream on its own thread; dropping it stops it.
#[derive(Debug)]
pub struct Upstream {
    address: SocketAddr,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

impl Upstream {
    /// Starts listening on `address`; port 0 means any free port.
    ///
    /// # Errors
    ///
    /// The address cannot be listened on, or the system has no thread left.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let listener = {
            let _inside = runtime.enter();
            TcpListener::from_std(listener)?
        };
        let thread = thread::Builder::new().name("demo-upstream".to_owned()).spawn(move || {
            runtime.block_on(serve(listener, Clock::start(), stopped.cancelled_owned()));
        })?;
        Ok(Self { address, stop, thread: Some(thread) })
    }

    /// Returns where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(Err(_)) = self.thread.take().map(JoinHandle::join) {
            tracing::error!("the demo's upstream panicked");
        }
    }
}

/// Serves on `listener` until `shutdown` is ready. Requests then in flight have two seconds to end.
pub async fn serve(listener: TcpListener, clock: Clock, shutdown: impl Future<Output = ()>) {
    let site = Site { clock, server: listener.local_addr().ok() };
    let websockets = WebSockets::default();
    let handler = {
        let websockets = websockets.clone();
        move |request: Request<Incoming>| {
            let site = site.clone();
            let websockets = websockets.clone();
            async move {
                if request.uri().path().ends_with("/ws") {
                    return websockets.upgrade(request).map(|()| Empty::new().boxed_unsync());
                }
                site.answer(request).await
            }
        }
    };
    let handed_over = core::future::pending();
    let socket = Socket { listener, tls: || None };
    small_http::serve(socket, LIMITS, handler, handed_over, shutdown).await;
    websockets.close().await;
}

/// State for all answers.
#[derive(Clone, Debug)]
struct Site {
    clock: Clock,
    /// The answering server, which shows load balancing.
    server: Option<SocketAddr>,
}

impl Site {
    /// Reads the whole request and answers by its path.
    async fn answer<B: Body>(&self, request: Request<B>) -> Response<Reply> {
        let (head, body) = request.into_parts();
        let Ok(received) = drain(body).await else {
            return plain(StatusCode::BAD_REQUEST, "the body ends early\n");
        };
        // Of `/slow/delay/500` these are "500" and "delay".
        let mut words = head.uri.path().rsplit('/');
        let last = words.next().unwrap_or_default();
        let before = words.next().unwrap_or_default();
        match (before, last.parse::<u64>(), last) {
            ("bytes", Ok(left), _) => Response::new(Repeat { left }.boxed_unsync()),
            ("status", Ok(code), _) => status(code),
            ("delay", Ok(millis), _) => {
                let delay = Duration::from_millis(millis).min(LONGEST_DELAY);
                self.clock.sleep_until(self.clock.now() + delay).await;
                echo(&head, &received, self.server)
            }
            ("bytes" | "delay" | "status", Err(_), _) => {
                plain(StatusCode::BAD_REQUEST, "a number must follow, as in /delay/500\n")
            }
            (_, _, "trailers") => trailers(),
            _ => echo(&head, &received, self.server),
        }
    }
}

/// A request's body size and trailers.
#[derive(Default)]
struct Received {
    bytes: u64,
    trailers: HeaderMap,
}

/// Reads `body` to its end, frame by frame.
async fn drain<B: Body>(body: B) -> Result<Received, B::Error> {
    let mut body = std::pin::pin!(body);
    let mut received = Received::default();
    while let Some(frame) = body.frame().await {
        match frame?.into_data() {
            Ok(data) => received.bytes += bytes::Buf::remaining(&data) as u64,
            Err(frame) => received.trailers = frame.into_trailers().unwrap_or_default(),
        }
    }
    Ok(received)
}

/// The request as JSON.
#[derive(Serialize)]
struct Echo<'a> {
    method: &'a str,
    path: &'a str,
    query: Option<&'a str>,
    version: String,
    headers: BTreeMap<&'a str, Field>,
    body_bytes: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    trailers: BTreeMap<&'a str, Field>,
    server: Option<SocketAddr>,
}

/// A header's value, or a list if it came more than once.
#[derive(Serialize)]
#[serde(untagged)]
enum Field {
    Once(String),
    Repeated(Vec<String>),
}

fn echo(
    head: &http::request::Parts,
    received: &Received,
    server: Option<SocketAddr>,
) -> Response<Reply> {
    let echo = Echo {
        method: head.method.as_str(),
        path: head.uri.path(),
        query: head.uri.query(),
        version: format!("{:?}", head.version),
        headers: fields(&head.headers),
        body_bytes: received.bytes,
        trailers: fields(&received.trailers),
        server,
    };
    let mut json = serde_json::to_vec_pretty(&echo).unwrap_or_default();
    json.push(b'\n');
    small_http::response(StatusCode::OK, "application/json", Full::from(json).boxed_unsync())
}

fn fields(headers: &HeaderMap) -> BTreeMap<&str, Field> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let field = |name| {
        let mut values: Vec<String> = headers.get_all(name).iter().map(text).collect();
        if values.len() > 1 { Field::Repeated(values) } else { Field::Once(values.remove(0)) }
    };
    headers.keys().map(|name| (name.as_str(), field(name))).collect()
}

/// Answers with `code`, unless it is a 1xx, which hyper does not send.
fn status(code: u64) -> Response<Reply> {
    let status = u16::try_from(code).ok().filter(|code| *code >= 200);
    match status.and_then(|code| StatusCode::from_u16(code).ok()) {
        // These have no body.
        Some(status @ (StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED)) => {
            let mut response = Response::new(Empty::new().boxed_unsync());
            *response.status_mut() = status;
            response
        }
        Some(status) => plain(status, "as you asked\n"),
        None => plain(StatusCode::BAD_REQUEST, "a status is a number from 200 to 999\n"),
    }
}

fn plain(status: StatusCode, text: &'static str) -> Response<Reply> {
    let body = Full::from(text).boxed_unsync();
    small_http::response(status, "text/plain; charset=utf-8", body)
}

/// Answers in chunks with a trailer, which clients get that send `TE: trailers`.
fn trailers() -> Response<Reply> {
    let name = header::HeaderName::from_static("x-demo-trailer");
    let fields = HeaderMap::from_iter([(name, http::HeaderValue::from_static("the end"))]);
    let data = Bytes::from_static(b"a body, and then a trailer\n");
    let frames = Frames([Frame::trailers(fields), Frame::data(data)].into());
    let mut response = Response::new(frames.boxed_unsync());
    let announced = http::HeaderValue::from_static("x-demo-trailer");
    response.headers_mut().insert(header::TRAILER, announced);
    response
}

/// A body of unknown length with these frames, the last first.
struct Frames(Vec<Frame<Bytes>>);

impl Body for Frames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop().map(Ok))
    }
}

/// A body of known length that repeats [`PATTERN`].
struct Repeat {
    left: u64,
}

impl Body for Repeat {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let size = usize::try_from(self.left).map_or(CHUNK.len(), |left| left.min(CHUNK.len()));
        self.left -= size as u64;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&CHUNK[..size])))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// The folder, relative to where the demo starts.
pub const FOLDER: &str = "flowgate-demo";

/// The demo's configuration.
const GATEWAY: &str = include_str!("../../gateway.yaml");

/// A copy of the demo's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The file.
    pub path: PathBuf,
    /// True if it was written now; an existing file stays unchanged.
    pub is_new: bool,
}

/// Writes the demo's configuration into `folder`, with its schema for editors.
///
/// # Errors
///
/// A file that cannot be written.
pub fn prepare(folder: &Path, schema: &str) -> io::Result<Copy> {
    let path = folder.join("gateway.yaml");
    let is_new = !path.exists();
    if is_new {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("gateway.schema.json"), schema)?;
        fs::write(&path, GATEWAY)?;
    }
    Ok(Copy { path, is_new })
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Method;
    use tokio::time::timeout;

    #[tokio::test]
    async fn a_request_is_shown_as_json() {
        let request = Request::builder()
            .method(Method::POST)
            .uri("/a/b?x=1&y")
            .header("x-one", "1")
            .header("x-two", "first")
            .header("x-two", "second")
            .body(Full::from("twelve bytes"))
            .unwrap();
        let (status, body) = answered(request).await;
        let json: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(status, StatusCode::OK);
        let expected = serde_json::json!({
            "method": "POST", "path": "/a/b", "query": "x=1&y", "version": "HTTP/1.1",
            "headers": { "x-one": "1", "x-two": ["first", "second"] },
            "body_bytes": 12, "server": "127.0.0.1:9000",
        });
        assert_eq!(json, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_takes_as_long_as_asked() {
        let short = Duration::from_millis(499);
        let long = Duration::from_millis(501);
        timeout(short, answered(get("/delay/500"))).await.unwrap_err();
        assert_eq!(timeout(long, answered(get("/delay/500"))).await.unwrap().0, StatusCode::OK);
    }

    #[tokio::test]
    async fn bytes_are_as_many_as_asked_and_each_is_known_by_its_place() {
        let (_, body) = answered(get("/bytes/200001")).await;
        assert_eq!(body.len(), 200_001);
        let known = |(place, byte): (usize, &u8)| *byte == PATTERN[place % 64];
        assert!(body.iter().enumerate().all(known));
        assert_eq!(answered(get("/bytes/0")).await.1, "");
        assert_eq!(answered(get("/bytes/many")).await.0, StatusCode::BAD_REQUEST);
    }

    #[tokio::test]
    async fn a_status_is_answered_if_it_is_a_final_one() {
        for status in [200, 204, 304, 404, 429, 503, 999] {
            assert_eq!(answered(get(&format!("/status/{status}"))).await.0.as_u16(), status);
        }
        assert_eq!(answered(get("/any/route/status/418")).await.0, StatusCode::IM_A_TEAPOT);
        for path in ["/status/101", "/status/1000", "/status/", "/status/ok"] {
            assert_eq!(answered(get(path)).await.0, StatusCode::BAD_REQUEST);
        }
    }

    fn get(path: &str) -> Request<Full<Bytes>> {
        Request::builder().uri(path).body(Full::default()).unwrap()
    }

    async fn answered(request: Request<Full<Bytes>>) -> (StatusCode, Bytes) {
        let server = Some(([127, 0, 0, 1], 9000).into());
        let response = Site { clock: Clock::start(), server }.answer(request).await;
        let status = response.status();
        (status, response.into_body().collect().await.unwrap().to_bytes())
    }
}

#[cfg(test)]
mod folder_tests {
    use super::*;

    #[test]
    fn a_copy_is_written_once_and_then_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join(FOLDER);
        let path = folder.join("gateway.yaml");
        let copy = prepare(&folder, "{}").unwrap();
        assert_eq!(copy, Copy { path: path.clone(), is_new: true });
        assert_eq!(fs::read_to_string(&path).unwrap(), GATEWAY);
        assert_eq!(fs::read_to_string(folder.join("gateway.schema.json")).unwrap(), "{}");
        fs::write(&path, "mine").unwrap();
        assert_eq!(prepare(&folder, "{}").unwrap(), Copy { path: path.clone(), is_new: false });
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(prepare(&file, "{}").is_err());
    }
}
