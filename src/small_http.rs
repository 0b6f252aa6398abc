//! A small HTTP/1.1 server: for the admin pages and for the demo's upstream.
//!
//! The gateway's own listeners are in `proxy`; this one trades their speed for
//! brevity. Everything it holds is bounded: connections, the head of a request,
//! how long a connection may idle and how long it may live.

use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::Body;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, error::Error, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long the requests in flight may take to end once the server stops.
const GRACE: Duration = Duration::from_secs(2);

/// The pause after a failed accept: the usual cause, no free file descriptor, does
/// not pass any sooner by asking again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What one server may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once; more wait in the listener's backlog.
    pub connections: usize,
    /// How long a connection may take over a request's head, or send nothing.
    pub idle: Duration,
    /// How long a connection may live; then it ends with its current answer.
    pub age: Duration,
}

/// Answers every request on `listener` by `handler`, until `shutdown` is ready and
/// the requests in flight have ended or had two seconds to.
pub async fn serve<H, F, B>(
    listener: TcpListener,
    limits: Limits,
    handler: H,
    shutdown: impl Future<Output = ()>,
) where
    H: Fn(Request<Incoming>) -> F + Clone + Send + 'static,
    F: Future<Output = Response<B>> + Send + 'static,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let places = Arc::new(Semaphore::new(limits.connections));
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, place)) = accepted else {
            if timeout(ACCEPT_PAUSE, &mut shutdown).await.is_ok() {
                break;
            }
            continue;
        };
        let connection = connection(stream, limits, handler.clone(), stop.clone());
        tasks.spawn(async move {
            connection.await;
            drop(place);
        });
    }
    drop(listener);
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// Waits for a place and then for a client; `None` if either fails.
async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let place = Arc::clone(places).acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, place)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            None
        }
    }
}

/// Serves one connection until it ends, grows too old or has to stop.
async fn connection<H, F, B>(stream: TcpStream, limits: Limits, handler: H, stop: CancellationToken)
where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let service = service_fn(move |request| {
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let served = timeout(limits.age, stop.run_until_cancelled(connection.as_mut())).await;
    // How a connection ends is its client's affair: nobody else is told.
    if let Ok(Some(_)) = served {
        return;
    }
    connection.as_mut().graceful_shutdown();
    drop(timeout(GRACE, connection).await);
}

/// Makes an answer whose body is of `content_type`.
pub fn response<B>(status: StatusCode, content_type: &'static str, body: B) -> Response<B> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
