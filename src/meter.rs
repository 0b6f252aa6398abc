//! The process's counters for `/metrics` and `/routes`.
//!
//! Recording takes a few relaxed atomic additions, without locks, and allocates only for a route's
//! first request. A reading is exact per number, not across numbers.

mod exemplar;
mod histogram;
mod pairs;

/// The atomics that threads share; `tests/models.rs` has loom's in their place.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed};
}

pub use exemplar::{Exemplar, ExemplarId};
pub use histogram::{BUCKETS, DURATION_BOUNDS, Durations};

use exemplar::ExemplarCell;
use histogram::Histogram;
use http::{Method, StatusCode};
use pairs::Pairs;
use std::{
    array,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// Pairs of method and status per route. An upstream with more statuses fills the table, and
/// further ones count in [`RouteReading::others`].
const PAIRS: usize = 64;

/// The methods counted by name; others count under the last name.
const METHODS: [&str; 10] =
    ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH", "other"];

/// Counts the answers of one route.
#[derive(Debug, Default)]
pub struct RouteMeter {
    /// Allocated by the first request: most of many routes may be idle.
    cells: OnceLock<Box<Cells>>,
    /// The same for the requests to its auth service.
    auth: OnceLock<Box<AuthCells>>,
    /// The same for the copies of its requests.
    copies: OnceLock<Box<[AtomicU64; CopyOutcome::ALL.len()]>>,
}

/// The end of a copy of a request for the mirror of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyOutcome {
    /// The server has responded with a status below 500.
    Ok,
    /// It has responded with 500 to 599.
    ServerError,
    /// No server can be reached, or the response is not valid.
    Failed,
    /// The response has not ended in time.
    Timeout,
    /// Too many copies are in flight, or their bodies take too much memory.
    Dropped,
    /// The body is longer than the route copies.
    TooLong,
    /// The body has not come to its end.
    Incomplete,
}

labels! {
    /// Returns the outcome as a metric label.
    pub fn label(CopyOutcome) {
        Ok => "ok",
        ServerError => "server_error",
        Failed => "failed",
        Timeout => "timeout",
        Dropped => "dropped",
        TooLong => "too_long",
        Incomplete => "incomplete",
    }
}

/// The end of a request to an auth service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuthOutcome {
    /// The service lets the request pass.
    Allowed,
    /// The client gets the service's response.
    Denied,
    /// The service cannot be reached, or its response is not valid.
    Error,
    /// It has not responded in time.
    Timeout,
    /// The client left before.
    Cancelled,
}

labels! {
    /// Returns the outcome as a metric label.
    pub fn label(AuthOutcome) {
        Allowed => "allowed",
        Denied => "denied",
        Error => "error",
        Timeout => "timeout",
        Cancelled => "cancelled",
    }
}

#[derive(Debug, Default)]
struct AuthCells {
    outcomes: [AtomicU64; AuthOutcome::ALL.len()],
    durations: Histogram,
}

#[derive(Debug)]
struct Cells {
    pairs: Pairs<PAIRS>,
    durations: Histogram,
    /// Those of `durations` whose requests were not admitted.
    rejected: Histogram,
    /// Admitted requests that got a status of 500 to 599.
    failed: AtomicU64,
    first_bytes: Histogram,
    /// By bucket of the durations.
    exemplars: [ExemplarCell; BUCKETS],
}

/// A reading of a [`RouteMeter`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteReading {
    /// Answers by method and status, sorted.
    pub answers: Vec<Answers>,
    /// Answers that found the table of pairs full.
    pub others: u64,
    /// From the arrival of requests to the end of their answers.
    pub durations: Durations,
    /// From the arrival of requests to the heads of their answers.
    pub first_bytes: Durations,
}

/// A request that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The status of its answer.
    pub status: StatusCode,
    /// From its arrival to the head of its answer; `None` if there was none.
    pub first_byte: Option<Duration>,
    /// From its arrival to the end of its answer.
    pub duration: Duration,
    /// The time of its end, since the Unix epoch.
    pub at: Duration,
    /// True if its route's rules let it pass.
    pub is_admitted: bool,
}

/// Answers of one method and status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Answers {
    /// The method in capitals, or `other`.
    pub method: &'static str,
    /// The status code.
    pub status: u16,
    /// The number of answers.
    pub count: u64,
}

impl RouteMeter {
    /// Counts a request. `id` is what its exemplar is found by; it is asked for if one is due.
    pub fn record(&self, ended: &Ended<'_>, id: impl FnOnce() -> Option<ExemplarId>) {
        let cells = self.cells.get_or_init(Box::default);
        cells.pairs.count(tag(ended.method, ended.status));
        if let Some(first_byte) = ended.first_byte {
            cells.first_bytes.record(nanos(first_byte));
        }
        let nanos = nanos(ended.duration);
        let bucket = cells.durations.record(nanos);
        if !ended.is_admitted {
            cells.rejected.record(nanos);
        } else if ended.status.is_server_error() {
            cells.failed.fetch_add(1, Relaxed);
        }
        cells.exemplars[bucket].offer(nanos, ended.at, id);
    }

    /// Counts a request to the route's auth service.
    pub fn record_auth(&self, outcome: AuthOutcome, took: Duration) {
        let cells = self.auth.get_or_init(Box::default);
        cells.outcomes[outcome as usize].fetch_add(1, Relaxed);
        cells.durations.record(nanos(took));
    }

    /// Reads the ends of the requests to its auth service, and how long they took; `None` if there was
    /// none.
    pub fn auth(&self) -> Option<([(AuthOutcome, u64); AuthOutcome::ALL.len()], Durations)> {
        let cells = self.auth.get()?;
        let count = |outcome: AuthOutcome| cells.outcomes[outcome as usize].load(Relaxed);
        let counts = AuthOutcome::ALL.map(|outcome| (outcome, count(outcome)));
        Some((counts, cells.durations.read()))
    }

    /// Counts a copy of a request.
    pub fn count_copy(&self, outcome: CopyOutcome) {
        let counts = self.copies.get_or_init(Box::default);
        counts[outcome as usize].fetch_add(1, Relaxed);
    }

    /// Reads the ends of the copies of its requests; `None` if there was none.
    pub fn copies(&self) -> Option<[(CopyOutcome, u64); CopyOutcome::ALL.len()]> {
        let counts = self.copies.get()?;
        Some(CopyOutcome::ALL.map(|outcome| (outcome, counts[outcome as usize].load(Relaxed))))
    }

    /// Reads how long requests took: all, and those that were not admitted.
    pub fn durations(&self) -> (Durations, Durations) {
        let Some(cells) = self.cells.get() else { return Default::default() };
        (cells.durations.read(), cells.rejected.read())
    }

    /// Returns how many admitted requests got a status of 500 to 599.
    pub fn failed(&self) -> u64 {
        self.cells.get().map_or(0, |cells| cells.failed.load(Relaxed))
    }

    /// Reads all numbers.
    pub fn read(&self) -> RouteReading {
        let Some(cells) = self.cells.get() else { return RouteReading::default() };
        let mut answers: Vec<Answers> =
            cells.pairs.read().filter_map(|(tag, count)| Answers::of(tag, count)).collect();
        answers.sort_unstable();
        RouteReading {
            answers,
            others: cells.pairs.others(),
            durations: cells.durations.read(),
            first_bytes: cells.first_bytes.read(),
        }
    }

    /// Reads the latest exemplar of each bucket of the durations, from the lowest bucket on.
    pub fn exemplars(&self) -> [Option<Exemplar>; BUCKETS] {
        let cells = self.cells.get();
        array::from_fn(|bucket| cells?.exemplars[bucket].read())
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Default for Cells {
    fn default() -> Self {
        Self {
            pairs: Pairs::default(),
            durations: Histogram::default(),
            rejected: Histogram::default(),
            failed: AtomicU64::new(0),
            first_bytes: Histogram::default(),
            exemplars: array::from_fn(|_| ExemplarCell::default()),
        }
    }
}

impl Answers {
    fn of(tag: u64, count: u64) -> Option<Self> {
        let method = METHODS.get(usize::try_from(tag / 1000).ok()?)?;
        let status = u16::try_from(tag % 1000).ok()?;
        Some(Self { method, status, count })
    }
}

/// Packs a method and a status (100 to 999) into one number above zero.
fn tag(method: &Method, status: StatusCode) -> u64 {
    let method = match *method {
        Method::GET => 0,
        Method::HEAD => 1,
        Method::POST => 2,
        Method::PUT => 3,
        Method::DELETE => 4,
        Method::CONNECT => 5,
        Method::OPTIONS => 6,
        Method::TRACE => 7,
        Method::PATCH => 8,
        _ => 9,
    };
    method * 1000 + u64::from(status.as_u16())
}

/// Counters of one upstream server.
#[derive(Debug, Default)]
pub struct ServerMeter {
    /// Requests, retries included, also those for which no connection could be opened.
    pub requests: AtomicU64,
    /// Those of the requests that got no complete answer.
    pub failures: AtomicU64,
    /// Those of the requests that got a response with a status of 500 to 599.
    pub server_errors: AtomicU64,
    /// Attempts to open a connection.
    pub connects: AtomicU64,
    /// Connections that could not be opened.
    pub connect_failures: AtomicU64,
    resent: [AtomicU64; Resent::ALL.len()],
}

/// Why the admin listener rejected a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRejection {
    /// Its address asks too often.
    Rate,
    /// `Host` is not a name of the listener.
    Host,
    /// A page of another site sent it.
    Site,
    /// It proves no operator, or the wrong one.
    Auth,
}

/// Counts [`AdminRejection`]s.
#[derive(Debug, Default)]
pub struct AdminRejections([AtomicU64; AdminRejection::ALL.len()]);

labels! {
    /// Returns the reason as a metric label.
    pub fn label(AdminRejection) {
        Rate => "rate",
        Host => "host",
        Site => "site",
        Auth => "auth",
    }
}

impl AdminRejections {
    /// Counts a rejection.
    pub fn count(&self, reason: AdminRejection) {
        self.0[reason as usize].fetch_add(1, Relaxed);
    }

    /// Returns the rejections counted for `reason`.
    pub fn of(&self, reason: AdminRejection) -> u64 {
        self.0[reason as usize].load(Relaxed)
    }
}

/// Why a request was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resent {
    /// No connection could be opened.
    Connect,
    /// An idle connection was closed before a response began.
    Idle,
    /// The server did not process it.
    Unprocessed,
    /// A new connection was closed before a response began.
    Reset,
    /// The response did not begin in time.
    Timeout,
    /// The response had a status that the route tries again.
    Status,
}

labels! {
    /// Returns the reason as a metric label.
    pub fn label(Resent) {
        Connect => "connect",
        Idle => "idle",
        Unprocessed => "unprocessed",
        Reset => "reset",
        Timeout => "timeout",
        Status => "status",
    }
}

impl ServerMeter {
    /// Counts a request that is sent again, to this server or another one, after this one failed it.
    pub fn resend(&self, reason: Resent) {
        self.resent[reason as usize].fetch_add(1, Relaxed);
    }

    /// Returns how many requests were sent again for `reason`.
    pub fn resent(&self, reason: Resent) -> u64 {
        self.resent[reason as usize].load(Relaxed)
    }
}

/// Counters of the whole process.
#[derive(Debug, Default)]
pub struct Counters {
    /// Client connections accepted.
    pub connections_accepted: AtomicU64,
    /// Client connections open; see [`Counters::connection`].
    pub connections_active: AtomicU64,
    /// Bytes of HTTP/2 uploads not yet taken by an upstream.
    pub upload_buffers: AtomicU64,
    /// TLS handshakes that ended well.
    pub tls_handshakes: AtomicU64,
    /// TLS handshakes that failed or took too long.
    pub tls_failures: AtomicU64,
    /// Configurations applied, without the first.
    pub reloads_ok: AtomicU64,
    /// Configurations rejected.
    pub reloads_failed: AtomicU64,
    /// The time at which a configuration was last applied, in seconds since the Unix epoch.
    pub last_reload_seconds: AtomicU64,
    /// Access log lines dropped because they could not be written in time.
    pub access_log_dropped: AtomicU64,
    /// Lines of the gateway's log dropped because they could not be written in time.
    pub log_dropped: AtomicU64,
    /// Requests whose `X-Forwarded-For` names no client, so that the proxy counted as the client.
    pub unread_clients: AtomicU64,
    /// Requests cut off when the gateway ended, for its log.
    pub cut_off: AtomicU64,
    /// Spans that the collector of traces has taken.
    pub spans_exported: AtomicU64,
    /// Spans dropped because too many waited for their export.
    pub spans_dropped: AtomicU64,
    /// Spans that could not be exported.
    pub spans_failed: AtomicU64,
    /// Spans that the collector rejected when it took others.
    pub spans_rejected: AtomicU64,
    /// Requests that the admin listener rejected.
    pub admin_rejections: AdminRejections,
    /// Steps of the wall clock.
    pub clock_steps: AtomicU64,
    /// Panics caught while serving.
    pub panics: AtomicU64,
    rejections: [AtomicU64; HttpRejection::ALL.len()],
}

/// Why a request or connection was rejected before any rule was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpRejection {
    /// The connection limit is reached.
    Connections,
    /// The request violates HTTP: framing, headers, target.
    Malformed,
    /// Too many or too long headers.
    TooLarge,
    /// The head was not complete in time.
    HeaderTimeout,
    /// No host, two hosts, or an invalid one.
    Host,
    /// A path that an upstream might read differently.
    Path,
    /// A method that is never forwarded: `CONNECT`, `TRACE`.
    Method,
    /// No route matches.
    NoRoute,
    /// The client's address may not use the route.
    Access,
    /// The client has not proved what the route asks for.
    Auth,
    /// The client has too many connections.
    ConnectionsPerClient,
    /// A connection begins with no valid PROXY header.
    ProxyProtocol,
}

labels! {
    /// Returns the reason as a metric label.
    pub fn label(HttpRejection) {
        Connections => "connections",
        Malformed => "malformed",
        TooLarge => "too_large",
        HeaderTimeout => "header_timeout",
        Host => "host",
        Path => "path",
        Method => "method",
        NoRoute => "no_route",
        Access => "access",
        Auth => "auth",
        ConnectionsPerClient => "connections_per_client",
        ProxyProtocol => "proxy_protocol",
    }
}

impl Counters {
    /// Counts an accepted connection, active until the guard is dropped. `None` if `limit` are
    /// active.
    pub fn connection(self: &Arc<Self>, limit: u64) -> Option<Connection> {
        pairs::take(&self.connections_active, limit).then(|| {
            self.connections_accepted.fetch_add(1, Relaxed);
            Connection { counters: Arc::clone(self) }
        })
    }

    /// Counts a rejection before any rule was asked.
    pub fn count_rejection(&self, reason: HttpRejection) {
        self.rejections[reason as usize].fetch_add(1, Relaxed);
    }

    /// Returns the rejections counted for `reason`.
    pub fn rejections(&self, reason: HttpRejection) -> u64 {
        self.rejections[reason as usize].load(Relaxed)
    }
}

/// Counts an open client connection until it is dropped.
#[derive(Debug)]
pub struct Connection {
    counters: Arc<Counters>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.counters.connections_active.fetch_sub(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn record(meter: &RouteMeter, method: &Method, status: StatusCode, duration: Duration) {
        let at = Duration::from_secs(5);
        let ended =
            Ended { method, status, first_byte: Some(duration), duration, at, is_admitted: true };
        meter.record(&ended, || None);
    }

    #[test]
    fn requests_fail_with_the_statuses_from_500_to_599_if_they_were_admitted() {
        let meter = RouteMeter::default();
        assert_eq!(meter.failed(), 0);
        for status in [200, 404, 499, 500, 502, 502, 599, 600] {
            let status = StatusCode::from_u16(status).unwrap();
            record(&meter, &Method::GET, status, Duration::ZERO);
        }
        assert_eq!(meter.failed(), 4);
        let rejected = Ended {
            method: &Method::GET,
            status: StatusCode::SERVICE_UNAVAILABLE,
            first_byte: None,
            duration: Duration::ZERO,
            at: Duration::ZERO,
            is_admitted: false,
        };
        meter.record(&rejected, || None);
        assert_eq!(meter.failed(), 4);
    }

    #[test]
    fn answers_are_counted_by_method_and_status() {
        let meter = RouteMeter::default();
        record(&meter, &Method::GET, StatusCode::OK, Duration::from_millis(1));
        record(&meter, &Method::GET, StatusCode::OK, Duration::from_millis(2));
        record(&meter, &Method::GET, StatusCode::NOT_FOUND, Duration::ZERO);
        let purge = Method::from_bytes(b"PURGE").unwrap();
        record(&meter, &purge, StatusCode::OK, Duration::from_hours(1));
        let reading = meter.read();
        let answers = |method, status, count| Answers { method, status, count };
        assert_eq!(
            reading.answers,
            [answers("GET", 200, 2), answers("GET", 404, 1), answers("other", 200, 1)]
        );
        assert_eq!(reading.durations.sum, Duration::from_millis(3) + Duration::from_hours(1));
        assert_eq!(reading.durations.buckets[DURATION_BOUNDS.len()], 1);
        assert_eq!(reading.first_bytes, reading.durations);
    }

    #[test]
    fn a_request_without_a_first_byte_counts_in_the_durations_only() {
        let meter = RouteMeter::default();
        let method = &Method::GET;
        let status = StatusCode::OK;
        let duration = Duration::from_secs(1);
        let at = Duration::ZERO;
        meter.record(
            &Ended { method, status, first_byte: None, duration, at, is_admitted: true },
            || None,
        );
        let reading = meter.read();
        assert_eq!((reading.durations.count(), reading.first_bytes.count()), (1, 0));
    }

    #[test]
    fn a_bucket_keeps_an_exemplar_a_second() {
        let meter = RouteMeter::default();
        let ended = |millis: u64, id| {
            let ended = Ended {
                method: &Method::GET,
                status: StatusCode::OK,
                first_byte: None,
                duration: Duration::from_micros(300),
                at: Duration::from_millis(millis),
                is_admitted: true,
            };
            let mut is_asked = false;
            meter.record(&ended, || {
                is_asked = true;
                id
            });
            is_asked
        };
        let kept = || meter.exemplars()[2].map(|kept| (kept.id, kept.at.as_millis()));
        assert_eq!(meter.exemplars(), [None; BUCKETS]);
        assert!(ended(10_000, None), "nothing is kept without an id");
        assert_eq!(kept(), None);
        let first = ExemplarId::Request(u128::MAX - 1);
        assert!(ended(10_001, Some(first)));
        assert!(!ended(11_000, Some(ExemplarId::Trace(2))), "the first is recent");
        assert_eq!(kept(), Some((first, 10_001)));
        let second = ExemplarId::Trace(u128::MAX << 64 | 5);
        assert!(ended(11_001, Some(second)));
        assert_eq!(kept(), Some((second, 11_001)));
        assert!(ended(5, Some(first)), "the clock was set back");
        let kept = meter.exemplars()[2].unwrap();
        assert_eq!(kept, Exemplar { id: first, nanos: 300_000, at: Duration::from_millis(5) });
    }

    #[test]
    fn rejected_requests_are_counted_apart_from_admitted_ones() {
        let meter = RouteMeter::default();
        for (millis, is_admitted) in [(1, false), (20, true), (1, false)] {
            let duration = Duration::from_millis(millis);
            let at = Duration::ZERO;
            let method = &Method::GET;
            let status = StatusCode::OK;
            let ended = Ended { method, status, first_byte: None, duration, at, is_admitted };
            meter.record(&ended, || None);
        }
        let (all, rejected) = meter.durations();
        assert_eq!((all.count(), rejected.count()), (3, 2));
        assert_eq!(all.since(&rejected).sum, Duration::from_millis(20));
    }

    #[test]
    fn an_idle_route_holds_no_table() {
        let meter = RouteMeter::default();
        assert_eq!(meter.read(), RouteReading::default());
        assert!(meter.cells.get().is_none());
    }

    #[test]
    fn a_full_table_counts_the_rest_together() {
        let meter = RouteMeter::default();
        for status in 100..=999 {
            let status = StatusCode::from_u16(status).unwrap();
            record(&meter, &Method::GET, status, Duration::ZERO);
        }
        let reading = meter.read();
        assert_eq!(reading.answers.len(), PAIRS);
        assert_eq!(reading.others, 900 - PAIRS as u64);
    }

    #[test]
    fn no_count_is_lost_among_threads() {
        const ROUNDS: usize = 20_000;
        let meter = RouteMeter::default();
        let statuses = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS, StatusCode::BAD_GATEWAY];
        let methods = [Method::GET, Method::POST, Method::PUT, Method::PATCH];
        thread::scope(|scope| {
            for start in 0..4 {
                let meter = &meter;
                let methods = &methods;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let step = round + start;
                        let duration = Duration::from_nanos(step as u64 % 7 * 400_000);
                        record(meter, &methods[step % 4], statuses[step % 3], duration);
                    }
                });
            }
        });
        let reading = meter.read();
        assert_eq!(reading.answers.len(), 12);
        assert_eq!(reading.answers.iter().map(|a| a.count).sum::<u64>(), 4 * ROUNDS as u64);
        assert_eq!(reading.durations.count(), 4 * ROUNDS as u64);
    }

    #[test]
    fn a_connection_is_active_until_it_is_dropped() {
        let counters = Arc::new(Counters::default());
        let first = counters.connection(u64::MAX);
        let second = counters.connection(u64::MAX);
        drop(first);
        assert_eq!(counters.connections_active.load(Relaxed), 1);
        assert!(counters.connection(1).is_none(), "there is no more room");
        drop(second);
        assert_eq!(counters.connections_active.load(Relaxed), 0);
        assert_eq!(counters.connections_accepted.load(Relaxed), 2);
    }

    #[test]
    fn rejections_are_counted_by_reason() {
        let counters = Counters::default();
        for (times, reason) in HttpRejection::ALL.into_iter().enumerate() {
            for _ in 0..times {
                counters.count_rejection(reason);
            }
        }
        let counted = HttpRejection::ALL.map(|reason| counters.rejections(reason));
        assert_eq!(counted, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11]);
    }
}
