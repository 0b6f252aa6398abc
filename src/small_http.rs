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
use std::{convert::Infallible, error::Error, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long the requests in flight may take to end once the server stops.
const GRACE: Duration = Duration::from_secs(2);

/// How long idle connections stay open after the listener was handed over.
const IDLE_GRACE: Duration = Duration::from_secs(5);

/// The pause after a failed accept, which usually means that no file descriptor is free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a client may take over the first byte of its first request.
const FIRST_BYTE: Duration = Duration::from_secs(5);

/// The bounds of one server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once. Further clients wait in the listener's backlog.
    pub connections: usize,
    /// How long a connection may take to send a request's head, or idle between two requests.
    pub idle: Duration,
    /// How long a client may leave bytes of its answer unacknowledged; the kernel enforces it.
    pub stall: Duration,
    /// How long a connection may live. It then closes after its current answer.
    pub age: Duration,
}

/// Answers every request on `listener` with `handler` until `shutdown` is ready. Requests then in
/// flight have two seconds to end. When `handed_over` is ready, another process accepts connections:
/// each connection's next answer is its last, and idle ones close after a few seconds.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    limits: Limits,
    handler: H,
    handed_over: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
) where
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
        let Some((stream, permit)) = accepted else {
            if timeout(ACCEPT_PAUSE, &mut shutdown).await.is_ok() {
                break;
            }
            continue;
        };
        let ends = Ends { stop: stop.clone(), retired: retired.clone() };
        let served = connection(stream, limits, handler.clone(), ends);
        tasks.spawn(async move {
            served.await;
            drop(permit);
        });
    }
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// Waits until a connection may be open, then for a client; `None` if either fails.
async fn accept(
    listener: &TcpListener,
    free: &Arc<Semaphore>,
) -> Option<(TcpStream, OwnedSemaphorePermit)> {
    let permit = Arc::clone(free).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, permit)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            None
        }
    }
}

/// When connections end.
struct Ends {
    /// At once, but for a request in flight.
    stop: CancellationToken,
    /// After the next answer.
    retired: CancellationToken,
}

/// Serves one connection until it ends, reaches its age or is to end.
async fn connection<H, F, B>(
    stream: TcpStream,
    limits: Limits,
    handler: H,
    Ends { stop, retired }: Ends,
) where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let stalled = || SockRef::from(&stream).set_tcp_user_timeout(Some(limits.stall));
    if let Err(error) = stream.set_nodelay(true).and_then(|()| stalled()) {
        tracing::debug!(%error, "cannot set up a connection");
    }
    let first = timeout(FIRST_BYTE, stop.run_until_cancelled(stream.peek(&mut [0]))).await;
    if !matches!(first, Ok(Some(Ok(1..)))) {
        return;
    }
    let service = service_fn(move |request| {
        let is_last = retired.is_cancelled();
        let answer = handler(request);
        async move {
            let mut answer = answer.await;
            if is_last {
                answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            }
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
    drop(timeout(GRACE, connection).await);
}

/// Returns an answer whose body has this `content_type`.
pub fn response<B>(status: StatusCode, content_type: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
