//! A small HTTP/1.1 server: for the admin pages and for the demo's upstream.
//!
//! The gateway's own listeners are in `proxy`; this one trades their speed for
//! brevity. Everything it holds is bounded: connections, the head of a request,
//! how long a connection may idle or take nothing, and how long it may live.
//! Whoever holds connections and asks nothing keeps no client out: a new client takes
//! the place of the one that has been waited for longest.

use http::{HeaderValue, Request, Response, StatusCode, header::CONTENT_TYPE};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use std::{
    convert::Infallible,
    error::Error,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::{Notify, OwnedSemaphorePermit, Semaphore},
    time::timeout,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// How long the requests in flight may take to end once the server stops.
const GRACE: Duration = Duration::from_secs(2);

/// The pause after a failed accept: the usual cause, no free file descriptor, does
/// not pass any sooner by asking again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long a client may take over the first byte of its first request.
const FIRST_BYTE: Duration = Duration::from_secs(5);

/// What one server may hold.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections open at once. One more takes the place of the one that has been
    /// waited for longest, and waits while all are being answered.
    pub connections: usize,
    /// How long a connection may take over a request's head, or send nothing.
    pub idle: Duration,
    /// How long a client may take no byte of its answer; the kernel looks after it.
    pub stall: Duration,
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
    B: Body + Send + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut places = Places::new(limits.connections);
    let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            () = &mut shutdown => break,
            accepted = accept(&listener, &mut places) => accepted,
        };
        let Some((stream, place)) = accepted else {
            if timeout(ACCEPT_PAUSE, &mut shutdown).await.is_ok() {
                break;
            }
            continue;
        };
        let (handler, stop) = (handler.clone(), stop.clone());
        let client = Arc::clone(&place.client);
        tasks.spawn(place.hold(connection(stream, limits, handler, client, stop)));
    }
    drop(listener);
    stop.cancel();
    tasks.close();
    tasks.wait().await;
}

/// Waits for a client and then for a place; `None` if either fails.
async fn accept(listener: &TcpListener, places: &mut Places) -> Option<(TcpStream, Place)> {
    match listener.accept().await {
        Ok((stream, _)) => Some((stream, places.take().await?)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            None
        }
    }
}

/// The places of a server's connections.
struct Places {
    count: usize,
    free: Arc<Semaphore>,
    taken: Vec<Arc<Client>>,
    turns: Arc<Turns>,
}

/// Counts the waits for requests, and reports each that begins.
#[derive(Debug, Default)]
struct Turns {
    count: AtomicU64,
    begun: Notify,
}

/// One connection's place.
struct Place {
    client: Arc<Client>,
    #[expect(dead_code, reason = "held, not read")]
    permit: OwnedSemaphorePermit,
}

/// Whether a connection is waited for, and a way to end it.
#[derive(Debug)]
struct Client {
    /// The turn in which the wait for its request began; [`ANSWERING`] while it is answered.
    waiting: AtomicU64,
    left: CancellationToken,
    turns: Arc<Turns>,
}

const ANSWERING: u64 = u64::MAX;

impl Places {
    fn new(count: usize) -> Self {
        let free = Arc::new(Semaphore::new(count));
        Self { count, free, taken: Vec::new(), turns: Arc::default() }
    }

    /// Takes a free place, or that of the client that has been waited for longest.
    async fn take(&mut self) -> Option<Place> {
        if self.taken.len() >= self.count {
            // Whoever has left holds its own no more.
            self.taken.retain(|client| Arc::strong_count(client) > 1);
        }
        let turns = Arc::clone(&self.turns);
        let permit = loop {
            let free = Arc::clone(&self.free);
            if free.available_permits() > 0 || self.make_room() {
                break free.acquire_owned().await.ok()?;
            }
            // All are answered: the first that ends or begins to wait makes room.
            tokio::select! {
                permit = free.acquire_owned() => break permit.ok()?,
                () = turns.begun.notified() => {}
            }
        };
        let client =
            Arc::new(Client { waiting: AtomicU64::new(0), left: CancellationToken::new(), turns });
        client.wait();
        self.taken.push(Arc::clone(&client));
        Some(Place { client, permit })
    }

    /// Ends the connection that has been waited for longest, if any is waited for.
    fn make_room(&self) -> bool {
        let waiting = |client: &Client| client.waiting.load(Relaxed);
        let clients = self.taken.iter().filter(|client| !client.left.is_cancelled());
        let waited_for = clients.filter(|client| waiting(client) != ANSWERING);
        let eldest = waited_for.min_by_key(|client| waiting(client));
        if let Some(client) = eldest {
            client.left.cancel();
        }
        eldest.is_some()
    }
}

impl Place {
    /// Is taken until the connection has been served, or another needs the place.
    async fn hold(self, served: impl Future<Output = ()>) {
        self.client.left.run_until_cancelled(served).await;
    }
}

impl Client {
    /// Notes that its next request is waited for.
    fn wait(&self) {
        self.waiting.store(self.turns.count.fetch_add(1, Relaxed), Relaxed);
        self.turns.begun.notify_one();
    }

    /// Notes that a request of its is answered, until the value is dropped.
    fn answer(self: &Arc<Self>) -> Answering {
        self.waiting.store(ANSWERING, Relaxed);
        Answering(Arc::clone(self))
    }
}

/// An answer under way.
struct Answering(Arc<Client>);

impl Drop for Answering {
    fn drop(&mut self) {
        self.0.wait();
    }
}

/// The body of an answer, which is under way until it ends.
struct Answered<B> {
    body: B,
    #[expect(dead_code, reason = "held, not read")]
    answering: Answering,
}

impl<B: Body + Unpin> Body for Answered<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Serves one connection until it ends, grows too old or has to stop.
async fn connection<H, F, B>(
    stream: TcpStream,
    limits: Limits,
    handler: H,
    client: Arc<Client>,
    stop: CancellationToken,
) where
    H: Fn(Request<Incoming>) -> F,
    F: Future<Output = Response<B>>,
    B: Body + Unpin + 'static,
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
        let answering = client.answer();
        let answer = handler(request);
        async move { Ok::<_, Infallible>(answer.await.map(|body| Answered { body, answering })) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut connection = pin!(connection);
    let served = timeout(limits.age, stop.run_until_cancelled(connection.as_mut())).await;
    // How a connection ends is its client's affair: nothing else needs to know.
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
