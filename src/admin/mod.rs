//! The admin listener: health, metrics and what the gateway knows about itself.
//!
//! It is for operators and their tools, on loopback by default, and keeps no secrets from them. It
//! runs on the control thread and holds a route's lock as briefly as a request does.

mod encode;
mod exemplars;
mod exposition;
mod metrics;
mod preview;
mod process;
mod readiness;
mod routes;

pub use readiness::{Readiness, Reload};

use crate::{
    clock::Clock,
    cluster::Store,
    config::Live,
    flow::Instant,
    meter::Counters,
    preview::{Command, Previews},
    small_http::{self, Limits},
};
use bytes::Bytes;
use exposition::Format;
use http::{HeaderValue, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use std::{
    fmt::Write,
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use tokio::{
    net::TcpListener,
    sync::{OwnedSemaphorePermit, Semaphore, mpsc},
};

/// Scrapers and people are few. A client has ten seconds for a request's head and between requests,
/// and a minute in all.
const LIMITS: Limits = Limits {
    connections: 64,
    idle: Duration::from_secs(10),
    stall: Duration::from_secs(10),
    age: Duration::from_mins(1),
};

/// Large pages in flight: one of ten thousand busy routes takes 70 MB, which a slow reader holds.
const PAGES: usize = 4;

/// What the pages show, and the sender for reloads.
#[derive(Debug)]
pub struct State {
    /// The configuration in force.
    pub live: Arc<Live>,
    /// The process's counters.
    pub counters: Arc<Counters>,
    /// The state for `/readyz`.
    pub readiness: Arc<Readiness>,
    /// The shared store, if any.
    pub store: Option<Arc<Store>>,
    /// Receives a message when a client requests a reload.
    pub reload: mpsc::Sender<()>,
    /// The preview, if there is one.
    pub previews: Arc<Previews>,
    /// Receives what clients want of previews.
    pub preview: mpsc::Sender<Command>,
    /// The clock of the process.
    pub clock: Clock,
}

/// Serves the admin pages on `listener` until `shutdown` is ready. When `handed_over` is ready,
/// another process accepts connections.
pub async fn serve(
    listener: TcpListener,
    state: State,
    handed_over: impl Future<Output = ()>,
    shutdown: impl Future<Output = ()>,
) {
    let admin = Arc::new(Admin::new(state));
    let handler = move |request: Request<Incoming>| {
        let admin = Arc::clone(&admin);
        async move { admin.serve(request).await }
    };
    small_http::serve(listener, LIMITS, handler, handed_over, shutdown).await;
}

/// How long a client may take to send its body.
const BODY_TIME: Duration = Duration::from_secs(10);

struct Endpoint {
    path: &'static str,
    /// For the `Allow` header.
    methods: &'static str,
    /// Its description in the index.
    about: &'static str,
    answer: fn(&Admin, &Parts) -> Response<Full<Bytes>>,
}

const ENDPOINTS: [Endpoint; 6] = [
    Endpoint { path: "/", methods: "GET, HEAD", about: "this page", answer: |_, _| index() },
    Endpoint {
        path: "/healthz",
        methods: "GET, HEAD",
        about: "200 as long as the process runs",
        answer: |_, _| plain(StatusCode::OK, "ok\n"),
    },
    Endpoint {
        path: "/readyz",
        methods: "GET, HEAD",
        about: "200 if requests should come, 503 if not; ?verbose describes the last reload",
        answer: Admin::readyz,
    },
    Endpoint {
        path: "/metrics",
        methods: "GET, HEAD",
        about: "every counter, for Prometheus",
        answer: Admin::metrics,
    },
    Endpoint {
        path: "/routes",
        methods: "GET, HEAD",
        about: "the routes as they match, their rules and what they have seen, as JSON",
        answer: Admin::routes,
    },
    Endpoint {
        path: "/reload",
        methods: "POST",
        about: "reads the configuration again, as SIGHUP does",
        answer: Admin::reload,
    },
];

#[derive(Debug)]
struct Admin {
    state: State,
    started: Instant,
    pages: Arc<Semaphore>,
}

impl Admin {
    fn new(state: State) -> Self {
        let started = state.clock.now();
        Self { state, started, pages: Arc::new(Semaphore::new(PAGES)) }
    }

    async fn serve(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (head, body) = request.into_parts();
        let path = head.uri.path();
        if path != preview::PATH && path != preview::APPLY {
            return self.answer(&head);
        }
        // Browsers send `Origin` for scripts; operators' tools do not.
        if head.headers.contains_key(header::ORIGIN) {
            return plain(StatusCode::FORBIDDEN, "not from a web page\n");
        }
        let read = Limited::new(body, preview::MOST_BODY).collect();
        let Ok(Ok(body)) = self.state.clock.timeout(BODY_TIME, read).await else {
            return plain(StatusCode::BAD_REQUEST, "the body is too long, or comes too slowly\n");
        };
        let State { previews, preview: sender, clock, .. } = &self.state;
        let control = preview::Control { previews, sender, now: clock.now() };
        let answer = if path == preview::PATH {
            let query = head.uri.query().unwrap_or_default();
            preview::answer(control, &head.method, query, &body.to_bytes()).await
        } else {
            preview::apply(control, &head.method).await
        };
        page(answer.status, answer.content_type, answer.text.into())
    }

    fn answer(&self, head: &Parts) -> Response<Full<Bytes>> {
        let Some(endpoint) = ENDPOINTS.iter().find(|known| known.path == head.uri.path()) else {
            return plain(StatusCode::NOT_FOUND, "no such page; / lists those there are\n");
        };
        if !endpoint.methods.split(", ").any(|method| method == head.method.as_str()) {
            let mut response =
                plain(StatusCode::METHOD_NOT_ALLOWED, "this page takes another method\n");
            let allowed = HeaderValue::from_static(endpoint.methods);
            response.headers_mut().insert(header::ALLOW, allowed);
            return response;
        }
        (endpoint.answer)(self, head)
    }

    fn readyz(&self, head: &Parts) -> Response<Full<Bytes>> {
        let (status, mut page) = if self.state.readiness.is_ready() {
            (StatusCode::OK, "ready\n".to_owned())
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "not ready: starting or draining\n".to_owned())
        };
        if head.uri.query().is_some_and(|query| query.split('&').any(|word| word == "verbose")) {
            page.push_str(&self.configuration());
        }
        plain(status, page)
    }

    /// Describes the configuration in force and the last edit.
    fn configuration(&self) -> String {
        let snapshot = self.state.live.load();
        let mut page = format!("configuration v{}, hash {}\n", snapshot.version, snapshot.hash);
        let Some(Reload { at, outcome }) = self.state.readiness.last_reload() else {
            page.push_str("no reload since the start\n");
            return page;
        };
        let at = humantime::format_rfc3339_seconds(UNIX_EPOCH + at.since(Instant::EPOCH));
        _ = match outcome {
            Ok(summary) => writeln!(page, "last reload: taken at {at}\n{summary}"),
            Err(problems) => writeln!(
                page,
                "last reload: rejected at {at}; v{} stays in force\n\n{problems}",
                snapshot.version
            ),
        };
        page
    }

    fn metrics(&self, head: &Parts) -> Response<Full<Bytes>> {
        let format = Format::negotiate(&head.headers);
        self.large(format.content_type(), || {
            let State { live, counters, clock, store, .. } = &self.state;
            let snapshot = Arc::clone(&live.load());
            let counters = Arc::clone(counters);
            let store = store.as_ref().map(|store| store.read());
            let page = metrics::Metrics::read(snapshot, counters, store, self.started, clock.now());
            page.write(format).ok().map(String::into_bytes)
        })
    }

    fn routes(&self, _: &Parts) -> Response<Full<Bytes>> {
        self.large("application/json", || {
            let snapshot = Arc::clone(&self.state.live.load());
            routes::write(&snapshot, self.state.clock.now()).ok()
        })
    }

    /// Answers with a large page, unless too many are in flight.
    fn large(
        &self,
        content_type: &'static str,
        write: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Response<Full<Bytes>> {
        let Ok(permit) = Arc::clone(&self.pages).try_acquire_owned() else {
            return plain(StatusCode::SERVICE_UNAVAILABLE, "too many pages are being read\n");
        };
        let Some(text) = write() else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR, "the page cannot be written\n");
        };
        page(StatusCode::OK, content_type, Bytes::from_owner(PageBody { text, permit }))
    }

    fn reload(&self, head: &Parts) -> Response<Full<Bytes>> {
        // Browsers send `Origin` for scripts; operators' tools do not.
        if head.headers.contains_key(header::ORIGIN) {
            return plain(StatusCode::FORBIDDEN, "not from a web page\n");
        }
        match self.state.reload.try_send(()) {
            // Full: a reload is requested already and has yet to read the file.
            Ok(()) | Err(mpsc::error::TrySendError::Full(())) => {
                plain(StatusCode::ACCEPTED, "reload requested; /readyz?verbose shows its result\n")
            }
            Err(mpsc::error::TrySendError::Closed(())) => {
                plain(StatusCode::SERVICE_UNAVAILABLE, "the gateway ends\n")
            }
        }
    }
}

fn index() -> Response<Full<Bytes>> {
    let version = env!("CARGO_PKG_VERSION");
    let mut page = format!("flowgate {version}\n\n");
    for Endpoint { path, methods, about, .. } in ENDPOINTS {
        let method = methods.split(", ").next().unwrap_or_default();
        // Writing to a String cannot fail.
        _ = writeln!(page, "{method:<4} {path:<9} {about}");
    }
    plain(StatusCode::OK, page)
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    page(status, "text/plain; charset=utf-8", text.into())
}

fn page(status: StatusCode, content_type: &'static str, text: Bytes) -> Response<Full<Bytes>> {
    let mut response = small_http::response(status, content_type, Full::new(text));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A large page, which counts as in flight until its last byte is sent or the connection has ended.
struct PageBody {
    text: Vec<u8>,
    #[expect(dead_code, reason = "held, not read")]
    permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for PageBody {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests;
