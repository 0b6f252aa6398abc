//! A small HTTP/1.1 server for the admin pages and the demo upstream.
//!
//! The gateway's own listeners are in `proxy`; this server trades their speed for brevity. It
//! bounds its connections, the size and time of a request's head, and how long a connection may
//! idle, stall or live.

use http::{
    HeaderValue, Request, Response, StatusCode,
    header::{CONNECTION, CONTENT_TYPE},
};
use http_body::Body;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use std::{
    convert::Infallible,
    error::Error,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// The time in which requests in flight must end once the server stops.
const GRACE: Duration = Duration::from_secs(2);

/// The time for which idle connections stay open after the listener was handed over.
const IDLE_GRACE: Duration = Duration::from_secs(5);

/// The pause after a failed accept, which usually means that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The longest time until the first byte of a client's first request.
const FIRST_BYTE: Duration = Duration::from_secs(5);

/// The bounds of one server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once. Further clients wait in the listener's backlog.
    pub connections: usize,
    /// The longest time for a request's head, and the longest pause between two requests.
    pub idle: Duration,
    /// The longest time for which bytes of a response stay unacknowledged; the kernel enforces it.
    pub stall: Duration,
    /// The longest life of a connection. It then closes after its current response, unless that is
    /// [`Endless`].
    pub age: Duration,
}

/// Where a server accepts connections.
#[derive(Debug)]
pub struct Socket<T> {
    /// The listener.
    pub listener: TcpListener,
    /// Returns the TLS of each new connection; `None`: cleartext.
    pub tls: T,
}

/// The client of a request, among the request's extensions.
#[derive(Clone, Copy, Debug)]
pub struct Client {
    /// Where it connects from.
    pub address: SocketAddr,
    /// True if it has shown a certificate that the listener trusts.
    pub is_certified: bool,
}

/// Marks an answer, as one of its extensions, that may outlive its connection's age: a stream of
/// events.
#[derive(Clone, Copy, Debug)]
pub struct Endless;

/// Among a request's extensions: cancelled when the server stops. An [`Endless`] answer then has two
/// seconds for its end.
#[derive(Clone, Debug)]
pub struct Stopping(pub CancellationToken);

/// Answers every request on a listener with `handler` until `shutdown` is ready. Requests then in
/// flight have two seconds to end. When `handed_over` is ready, another process accepts connections: each connection's next answer
/// is its last, and idle ones close after a few seconds.
pub async fn serve<T, H, F, B>(
    Socket { listener, tls }: Socket<T>,
    limits: Limits,
    handler: H,
    handed_over: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
) where
    T: Fn() -> Option<Arc<ServerConfig>>,
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let free = Arc::new(Semaphore::new(limits.connections));
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let retired = CancellationToken::new();

    let mut shutdown = pin!(shutdown);
    let mut handed_over = pin!(handed_over);

    loop {
        let accepted = tokio::select! {
            biased;
            () = &mut shutdown => break,
            () = &mut handed_over => {
                drop(listener);
                retired.cancel();
                tasks.close();
                let shutdown = timeout(IDLE_GRACE, shutdown);
                tokio::select! {
                    () = tasks.wait() => return,
                    _late_or_ended = shutdown => break,
                }
            }
            accepted = accept(&listener, &free) => accepted,
        };

        let Some((stream, address, permit)) = accepted else {
            if timeout(ACCEPT_PAUSE, &mut shutdown).await.is_ok() {
                break;
            }
            continue;
        };

        let ends = Ends { stop: stop.clone(), retired: retired.clone() };
        let opened = Opened { stream, address, tls: tls(), ends };
        let served = connection(opened, limits, handler.clone());
        tasks.spawn(async move {
            served.await;
            drop(permit);
        });
    }

    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// A connection that was accepted.
struct Opened {
    stream: TcpStream,
    address: SocketAddr,
    tls: Option<Arc<ServerConfig>>,
    ends: Ends,
}

/// Waits until a connection may be open, then for a client; `None` if either fails.
async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = Arc::clone(free).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, address)) => Some((stream, address, permit)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            None
        }
    }
}

/// The end of connections.
struct Ends {
    /// At once, but for a request in flight.
    stop: CancellationToken,
    /// After the next answer.
    retired: CancellationToken,
}

/// Sets up one connection, and serves it.
async fn connection<H, F, B>(opened: Opened, limits: Limits, handler: H)
where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let Opened { stream, address, tls, ends } = opened;
    let stalled = || SockRef::from(&stream).set_tcp_user_timeout(Some(limits.stall));
    if let Err(error) = stream.set_nodelay(true).and_then(|()| stalled()) {
        tracing::debug!(%error, "cannot set up a connection");
    }

    let first = timeout(FIRST_BYTE, ends.stop.run_until_cancelled(stream.peek(&mut [0]))).await;
    if !matches!(first, Ok(Some(Ok(1..)))) {
        return;
    }

    let Some(tls) = tls else {
        let client = Client { address, is_certified: false };
        return exchange(stream, client, limits, handler, ends).await;
    };

    let accepted = TlsAcceptor::from(tls).accept(stream);
    if let Ok(Some(Ok(stream))) =
        timeout(limits.idle, ends.stop.run_until_cancelled(accepted)).await
    {
        let is_certified = stream.get_ref().1.peer_certificates().is_some();
        let client = Client { address, is_certified };
        exchange(stream, client, limits, handler, ends).await;
    }
}

/// Serves one connection until it ends, reaches its age or is to end.
async fn exchange<S, H, F, B>(
    stream: S,
    client: Client,
    limits: Limits,
    handler: H,
    Ends { stop, retired }: Ends,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let is_endless = Arc::new(AtomicBool::new(false));
    let endless = Arc::clone(&is_endless);
    let stopping = Stopping(stop.clone());

    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(client);
        request.extensions_mut().insert(stopping.clone());

        let is_last = retired.is_cancelled();
        let answer = handler(request);
        let endless = Arc::clone(&endless);
        async move {
            let mut answer = answer.await;
            if is_last {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
            endless.store(answer.extensions().get::<Endless>().is_some(), Relaxed);
            Ok::<_, Infallible>(answer)
        }
    });

    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);

    let served = timeout(limits.age, stop.run_until_cancelled(connection.as_mut())).await;
    if let Ok(Some(_)) = served {
        return;
    }

    connection.as_mut().graceful_shutdown();
    if is_endless.load(Relaxed) && stop.run_until_cancelled(connection.as_mut()).await.is_some() {
        return;
    }

    drop(timeout(GRACE, connection).await);
}

/// Returns an answer whose body has this `content_type`.
pub fn response<B>(status: StatusCode, content_type: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
