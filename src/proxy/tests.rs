//! Requests in memory and in virtual time: what waits, and what happens when it
//! has waited too long.

mod dead_servers;
mod early;
mod extended_connect;
mod http2_uploads;
mod idle;
mod idle_servers;
mod rejections;
mod replayed;
mod simulation;
mod slow_readers;
mod streams;
mod timeouts;
mod uploads;
mod woken;

pub(super) use woken::Woken;

use crate::proxy::{
    BodyMemory, Connections, Connector, CopyPlaces, DateCache, Descriptors, EncoderPlaces, Pools,
    Records, RequestIdMaker, RequestLog, ServerConnections, TimeoutLog, Worker,
    connections::registry::{ConnectionHandle, ConnectionOptions, Protocol},
    downstream::{ReadAhead, begin::detect_and_serve, serve},
    io::ClientIo,
    peer::{self, Peer},
};
use crate::{
    access_log,
    clock::Clock,
    config::{self, Live},
    flow::Instant,
    geo::Located,
    meter::{Counters, HttpRejection},
    route::{KeyPart, KeySpec, Seed, Target},
    traces,
    worst_paths::{PathList, WorstPaths},
};
use core::{net::IpAddr, num::NonZeroUsize, time::Duration};
use http::{HeaderMap, Method};
use std::{
    path::Path,
    sync::{Arc, Weak},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt, DuplexStream, duplex},
    sync::mpsc,
    task::JoinHandle,
};
use tokio_util::task::TaskTracker;

/// Puts a configuration in force.
pub(super) fn live(text: &str) -> (Clock, Arc<Live>) {
    let clock = Clock::start();
    let live = live_at(&clock, text);
    (clock, live)
}

fn live_at(clock: &Clock, text: &str) -> Arc<Live> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("gateway.yaml");
    std::fs::write(&path, text).expect("written");
    let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
    Arc::new(Live::start(plan, clock.now()))
}

/// A worker whose clients and upstream are in this process.
pub(super) struct TestProxy {
    pub(super) worker: Arc<Worker>,
    upstream: mpsc::UnboundedReceiver<DuplexStream>,
    log: access_log::Sink,
    worst_paths: WorstPaths,
}

impl TestProxy {
    /// `route` is what follows the upstream's name in the only route.
    pub(super) fn new(route: &str) -> Self {
        Self::with_settings("", route)
    }

    /// `settings` are lines before the rest of the configuration.
    pub(super) fn with_settings(settings: &str, route: &str) -> Self {
        let text = format!(
            "{settings}listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
             upstreams: [{{ name: up, servers: [{{ url: \"http://127.0.0.1:9\" }}] }}]\n\
             routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up{route} }}]\n"
        );
        let (accept, upstream) = mpsc::unbounded_channel();
        Self { upstream, ..Self::of(Clock::start(), &text, Connector::Memory(accept), None) }
    }

    /// Puts a whole configuration in force. Its requests go where `connector` leads, and their lines
    /// into the file at `log`.
    fn of(clock: Clock, text: &str, connector: Connector, log: Option<&Path>) -> Self {
        let live = live_at(&clock, text);
        let counters = Arc::<Counters>::default();
        let log = log.map_or(config::AccessLog::Off, |path| config::AccessLog::File(path.into()));
        let log = access_log::Output::open(&log).expect("it can be opened");
        let log = access_log::Sink::start(log, NonZeroUsize::MIN, Arc::clone(&counters));
        let log = log.expect("a thread");
        let worst_paths = WorstPaths::default();
        let worker = Arc::new(Worker {
            store: None,
            live,
            servers: Arc::new(ServerConnections {
                clock: clock.clone(),
                pools: Pools::default(),
                connector,
            }),
            clock,
            tasks: TaskTracker::new(),
            records: Records {
                request_ids: RequestIdMaker::seeded([3, 4]),
                access_log: log.handle(0),
                traces: traces::Recorder::new(traces::queue(Arc::clone(&counters)).0),
                request_log: RequestLog::default(),
                timeout_log: TimeoutLog::default(),
                preview: Arc::<crate::preview::Previews>::default().handle(0),
                rejections: crate::rejections::Rejections::default().recorder(),
                worst_paths: worst_paths.recorder(),
                key_names: Arc::default(),
            },
            counters,
            descriptors: Descriptors::new(None),
            passwords: Arc::new(crate::proxy::Passwords::new(NonZeroUsize::MIN)),
            clients: Arc::default(),
            connections: Connections::default(),
            dates: DateCache::default(),
            bodies: BodyMemory::default(),
            encoders: EncoderPlaces::default(),
            copies: CopyPlaces::default(),
            // Their lengths in HTTP/2 depend on their digits.
            challenges: crate::acme::Challenges::default(),
            seed: Seed::new([1, 2]),
        });
        Self { worker, upstream: mpsc::unbounded_channel().1, log, worst_paths }
    }

    pub(super) fn now(&self) -> Instant {
        self.worker.clock.now()
    }

    /// Connects a client.
    fn client(&self) -> Client {
        self.client_of(Protocol::Http1)
    }

    fn client_of(&self, protocol: Protocol) -> Client {
        let (near, far) = duplex(64 * 1024);
        let (served, peer) = self.serve(far, protocol);
        Client { stream: near, served, peer }
    }

    /// Connects a client of which nothing is known, as to a cleartext listener.
    fn stranger(&self) -> Client {
        let (near, far) = duplex(64 * 1024);
        let (served, peer) = self.welcome(|peer, options| async move {
            if let Some(serving) = detect_and_serve(far, peer, options).await {
                serving.await;
            }
        });
        Client { stream: near, served, peer }
    }

    /// Serves a connection; its peer is shared by the task and what serves requests.
    fn serve<T>(&self, io: T, protocol: Protocol) -> (JoinHandle<()>, Weak<Peer>)
    where
        T: ClientIo + 'static,
    {
        self.welcome(|peer, options| serve(io, ReadAhead::default(), protocol, peer, options))
    }

    fn welcome<F>(
        &self,
        serve: impl FnOnce(Arc<Peer>, ConnectionOptions) -> F,
    ) -> (JoinHandle<()>, Weak<Peer>)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let open = self.worker.counters.connection(u64::MAX).expect("no limit");
        let handle = ConnectionHandle::new(&self.worker.clock, open);
        let place = self.worker.connections.enter(&handle);
        let worker = Arc::clone(&self.worker);
        let client = test_client();
        let peer = Arc::new(Peer::new(Arc::clone(&worker), handle, client, None, "web".into()));
        let options = ConnectionOptions::of(&worker.live.load().settings);
        let weak = Arc::downgrade(&peer);
        let serving = serve(peer, options);
        let served = tokio::spawn(async move {
            serving.await;
            worker.connections.leave(place);
        });
        (served, weak)
    }

    /// Lets time pass.
    async fn pass(&self, time: Duration) {
        self.worker.clock.sleep_until(self.now() + time).await;
    }

    /// Answers every request on every connection, and sends when each arrived.
    fn answer(&mut self) -> mpsc::UnboundedReceiver<Instant> {
        let (arrived, arrivals) = mpsc::unbounded_channel();
        let clock = self.worker.clock.clone();
        let (_, none) = mpsc::unbounded_channel();
        let mut connections = core::mem::replace(&mut self.upstream, none);
        tokio::spawn(async move {
            while let Some(mut stream) = connections.recv().await {
                let arrived = arrived.clone();
                let clock = clock.clone();
                tokio::spawn(async move {
                    while read_head(&mut stream).await.is_some() {
                        arrived.send(clock.now()).expect("the test listens");
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        if stream.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        arrivals
    }

    /// Answers the next request with more than anybody reads.
    async fn flood(&mut self) -> JoinHandle<()> {
        let mut stream = self.upstream.recv().await.expect("a connection");
        read_head(&mut stream).await.expect("a head");
        tokio::spawn(async move {
            let head = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n";
            if stream.write_all(head).await.is_ok() {
                let block = [0; 8_192];
                while stream.write_all(&block).await.is_ok() {}
            }
        })
    }

    /// What was rejected before a route was found.
    fn rejected(&self) -> Vec<(HttpRejection, u64)> {
        let counts =
            HttpRejection::ALL.map(|reason| (reason, self.worker.counters.rejections(reason)));
        counts.into_iter().filter(|(_, count)| *count > 0).collect()
    }

    /// Returns the paths of failed requests, and those of slow ones, with status and count.
    fn bad_paths(&self) -> [Vec<(String, u16, u64)>; 2] {
        let PathList { failed, slow } = self.worst_paths.list(self.now());
        [failed, slow].map(|list| {
            list.into_iter().map(|listed| (listed.path, listed.status, listed.count)).collect()
        })
    }

    fn in_flight(&self) -> u64 {
        let snapshot = self.worker.live.load();
        snapshot.routes.iter().map(|route| route.gate.observe(self.now()).in_flight).sum()
    }
}

struct Client {
    stream: DuplexStream,
    served: JoinHandle<()>,
    peer: Weak<Peer>,
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("sent");
    }

    /// Sends a GET and returns the answer's status.
    async fn get(&mut self) -> u16 {
        self.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
        self.status().await.expect("an answer")
    }

    async fn status(&mut self) -> Option<u16> {
        let head = read_head(&mut self.stream).await?;
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "))
            .map_or(0, |length| length.parse().expect("a length"));
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).await.ok()?;
        head.split(' ').nth(1)?.parse().ok()
    }
}

/// Reads up to the empty line.
pub(super) async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[tokio::test(start_paused = true)]
async fn paced_requests_reach_the_upstream_one_interval_apart() {
    let mut proxy = TestProxy::new(", pacing: { rate: 10/1s, max_wait: 10s, max_queue: 100 }");
    let mut arrivals = proxy.answer();
    let clients: Vec<_> = (0..5)
        .map(|_| {
            let mut client = proxy.client();
            tokio::spawn(async move { client.get().await })
        })
        .collect();
    for client in clients {
        assert_eq!(client.await.expect("no panic"), 200);
    }
    let mut times = Vec::new();
    while let Ok(at) = arrivals.try_recv() {
        times.push(at);
    }
    let gaps: Vec<_> = times.windows(2).map(|pair| pair[1].since(pair[0]).as_millis()).collect();
    assert!(gaps.len() == 4 && gaps.iter().all(|&gap| (99..=101).contains(&gap)), "{gaps:?}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_the_queue_frees_its_permit() {
    let mut proxy = TestProxy::new(
        ", pacing: { rate: 1/30m, max_wait: 31m }, flow: [{ name: two, concurrency: 2 }]",
    );
    let _arrivals = proxy.answer();
    assert_eq!(proxy.client().get().await, 200);
    let mut waiting = proxy.client();
    waiting.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    proxy.worker.clock.sleep_until(proxy.now() + secs(1)).await;
    assert_eq!(proxy.in_flight(), 1);
    drop(waiting.stream);
    waiting.served.await.expect("no panic");
    assert_eq!(proxy.in_flight(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_rejected_for_what_is_in_flight_may_come_back_in_a_second() {
    let mut proxy = TestProxy::new(", flow: [{ name: one, concurrency: 1 }]");
    let mut first = proxy.client();
    first.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let _in_flight = proxy.upstream.recv().await.expect("a connection");
    let mut second = proxy.client();
    second.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let head = read_head(&mut second.stream).await.expect("an answer");
    assert!(head.starts_with("HTTP/1.1 503 ") && head.contains("retry-after: 1\r\n"), "{head}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_upstream_is_a_504_after_the_first_byte_timeout_and_not_before() {
    let mut proxy =
        TestProxy::new(", timeouts: { first_byte: 60s }, flow: [{ name: one, concurrency: 1 }]");
    let begun = proxy.now();
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    assert!(
        read_head(&mut upstream).await.is_some_and(|head| head.starts_with("GET / HTTP/1.1\r\n"))
    );
    assert_eq!(client.status().await, Some(504));
    let took = proxy.now().since(begun);
    assert!((secs(60)..secs(61)).contains(&took), "{took:?}");
    assert_eq!(proxy.in_flight(), 0);
}

fn test_client() -> peer::Client {
    let address = "192.0.2.1:4000".parse().expect("an address");
    peer::Client::new(address, false, None)
}

#[tokio::test(start_paused = true)]
async fn a_remembered_fingerprint_is_that_of_the_same_key_and_client() {
    let proxy = TestProxy::new("");
    let open = proxy.worker.counters.connection(u64::MAX).expect("no limit");
    let handle = ConnectionHandle::new(&proxy.worker.clock, open);
    let client = test_client();
    let peer = Peer::new(Arc::clone(&proxy.worker), handle, client, None, "web".into());
    let method = Method::GET;
    let headers = HeaderMap::new();
    let target = Target {
        listener: None,
        certificate: None,
        place: Located::default(),
        identity: None,
        body: None,
        host: "a",
        path: "/",
        query: None,
        method: &method,
        headers: (&headers).into(),
    };
    let own = |v4_prefix| vec![KeyPart::ClientIp { v6_prefix: 64, v4_prefix }];
    let known = |parts, client: [u8; 4]| {
        let key = KeySpec::new(parts).expect("a key");
        let client = IpAddr::from(client);
        let known = peer.fingerprint(&key, &target, client);
        known.map(|print| Ok(print) == key.fingerprint(&proxy.worker.seed, &target, client))
    };
    for (parts, client, expected) in [
        (vec![KeyPart::Host], [192, 0, 2, 1], None),
        (own(24), [192, 0, 2, 7], None),
        (own(32), [192, 0, 2, 1], Some(true)),
        (own(32), [192, 0, 2, 1], Some(true)),
        (own(32), [192, 0, 2, 7], None),
        (own(24), [192, 0, 2, 1], None),
        ([own(32), vec![KeyPart::Host]].concat(), [192, 0, 2, 1], None),
    ] {
        assert_eq!(known(parts.clone(), client), expected, "{parts:?} {client:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_client_is_disconnected_after_keep_alive() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut client = proxy.client();
    assert_eq!(client.get().await, 200);
    let idle = proxy.now();
    client.served.await.expect("no panic");
    let took = proxy.now().since(idle);
    assert!((secs(75)..secs(76)).contains(&took), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_is_cut_off_in_time() {
    let proxy = TestProxy::new("");
    let mut client = proxy.client();
    proxy.worker.clock.sleep_until(proxy.now() + secs(5)).await;
    let begun = proxy.now();
    client.send("GET / HT").await;
    client.served.await.expect("no panic");
    let took = proxy.now().since(begun);
    assert!((secs(10)..secs(11)).contains(&took), "{took:?}");
    assert_eq!(proxy.rejected(), [(HttpRejection::HeaderTimeout, 1)]);
}

#[tokio::test(start_paused = true)]
async fn what_is_rejected_unread_is_counted_by_its_reason() {
    for (header, status, reason) in [
        ("no colon".to_owned(), 400, HttpRejection::Malformed),
        (format!("x: {}", "y".repeat(70_000)), 431, HttpRejection::TooLarge),
        ("x: y\r\n".repeat(101), 431, HttpRejection::TooLarge),
    ] {
        let mut proxy = TestProxy::new("");
        let _arrivals = proxy.answer();
        let mut client = proxy.client();
        assert_eq!(client.get().await, 200);
        let request = format!("GET / HTTP/1.1\r\nhost: a\r\n{header}\r\n\r\n");
        // The gateway may close before all is sent.
        let _sent = client.stream.write_all(request.as_bytes()).await;
        assert_eq!(client.status().await, Some(status));
        client.served.await.expect("no panic");
        assert_eq!(proxy.rejected(), [(reason, 1)]);
    }
    let proxy = TestProxy::new("");
    let mut leaving = proxy.client();
    leaving.send("GET / HT").await;
    drop(leaving.stream);
    leaving.served.await.expect("no panic");
    assert_eq!(proxy.rejected(), [], "a client that leaves is not rejected");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_is_cut_off() {
    let mut proxy = TestProxy::new(
        ", timeouts: { idle: 10h, request: 10h }, flow: [{ name: one, concurrency: 1 }]",
    );
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let begun = proxy.now();
    let flood = proxy.flood().await;
    client.served.await.expect("no panic");
    let took = proxy.now().since(begun);
    assert!((secs(60)..secs(130)).contains(&took), "{took:?}");
    assert_eq!(proxy.in_flight(), 0);
    flood.await.expect("the upstream's connection is closed as well");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_stops_reading_is_cut_off_in_time_on_a_connection_used_before() {
    let mut proxy = TestProxy::new(", timeouts: { first_byte: 10h, idle: 10h, request: 10h }");
    let mut client = proxy.client();
    // The timer fires when a head would have been due, and is armed for keep_alive.
    proxy.pass(secs(12)).await;
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let begun = proxy.now();
    let flood = proxy.flood().await;
    client.served.await.expect("no panic");
    let took = proxy.now().since(begun);
    assert!((secs(60)..secs(61)).contains(&took), "{took:?}");
    flood.await.expect("the upstream's connection is closed as well");
}

#[tokio::test(start_paused = true)]
async fn a_draining_connection_ends_after_the_answer_under_way() {
    let mut proxy = TestProxy::new("");
    let idle = proxy.client();
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    proxy.worker.connections.drain();
    idle.served.await.expect("an idle connection ends at once");
    assert!(!client.served.is_finished());
    assert_eq!(proxy.in_flight(), 1);
    upstream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await.expect("sent");
    assert_eq!(client.status().await, Some(200));
    client.served.await.expect("the other after its answer");
    proxy.client().served.await.expect("and one that comes later too");
}

#[tokio::test(start_paused = true)]
async fn a_new_connection_may_ask_for_something_while_those_that_were_used_end() {
    let mut proxy = TestProxy::new("");
    let _arrivals = proxy.answer();
    let mut used = proxy.client();
    let mut new = proxy.client();
    assert_eq!(used.get().await, 200);
    proxy.worker.connections.drain_used();
    used.served.await.expect("it ends at once");
    assert_eq!(new.get().await, 200);
    proxy.worker.connections.drain();
    new.served.await.expect("no longer than the grace");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_for_ever_is_cut_off_at_the_requests_deadline() {
    let mut proxy =
        TestProxy::new(", timeouts: { request: 90s }, flow: [{ name: one, concurrency: 1 }]");
    let mut client = proxy.client();
    client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let begun = proxy.now();
    let flood = proxy.flood().await;
    let clock = proxy.worker.clock.clone();
    let mut stream = client.stream;
    let reader = tokio::spawn(async move {
        let mut block = [0; 512];
        while stream.read_exact(&mut block).await.is_ok() {
            clock.sleep_until(clock.now() + secs(1)).await;
        }
    });
    client.served.await.expect("no panic");
    let took = proxy.now().since(begun);
    assert!((secs(90)..secs(92)).contains(&took), "{took:?}");
    assert_eq!(proxy.in_flight(), 0);
    flood.await.expect("the upstream's connection is closed as well");
    reader.abort();
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_is_let_go_when_it_has_answered() {
    let mut proxy = TestProxy::new("");
    let mut client = proxy.client();
    client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000\r\n\r\n").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    let mut stream = client.stream;
    let flood = tokio::spawn(async move {
        let block = [0; 8_192];
        while stream.write_all(&block).await.is_ok() {}
    });
    upstream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
    // Nothing reads the upload; the gateway's side must close all the same.
    proxy.worker.clock.sleep_until(proxy.now() + secs(1)).await;
    assert!(upstream.write_all(b"x").await.is_err(), "the connection is cut off");
    flood.abort();
    client.served.abort();
}

#[tokio::test(start_paused = true)]
async fn the_paths_of_failed_and_slow_requests_are_kept_as_the_client_sent_them() {
    let mut proxy = TestProxy::new(
        ", rewrite: { strip_prefix: /api }, timeouts: { first_byte: 60s }, retry: { attempts: 1 }",
    );
    let mut client = proxy.client();
    let mut ask = async |path: &str, wait: Duration, status: &str| {
        client.send(&format!("GET {path} HTTP/1.1\r\nhost: a\r\n\r\n")).await;
        let mut upstream = proxy.upstream.recv().await.expect("a connection");
        read_head(&mut upstream).await.expect("a head");
        proxy.pass(wait).await;
        let response =
            format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        // One that comes too late finds its connection closed.
        let _sent = upstream.write_all(response.as_bytes()).await;
        client.status().await.expect("a response")
    };
    assert_eq!(ask("/api/fine", Duration::from_millis(999), "200 OK").await, 200);
    assert_eq!(ask("/api/gone", Duration::ZERO, "404 Not Found").await, 404);
    assert_eq!(ask("/api/pay/17?card=1", Duration::ZERO, "500 No").await, 500);
    assert_eq!(ask("/api/slow", secs(1), "200 OK").await, 200);
    assert_eq!(ask("/api/dead", secs(61), "200 OK").await, 504);

    let [failed, slow] = proxy.bad_paths();
    let listed = |path: &str, status| (path.to_owned(), status, 1);
    assert_eq!(failed, [listed("/api/dead", 504), listed("/api/pay/*", 500)]);
    assert_eq!(slow, [listed("/api/dead", 504), listed("/api/slow", 200)]);
}

#[tokio::test(start_paused = true)]
async fn a_path_is_slow_if_its_client_leaves_after_a_second() {
    for (wait, expected) in [(secs(1), 1), (Duration::from_millis(900), 0)] {
        let mut proxy = TestProxy::new("");
        let mut client = proxy.client();
        client.send("GET /hangs HTTP/1.1\r\nhost: a\r\n\r\n").await;
        let _upstream = proxy.upstream.recv().await.expect("a connection");
        proxy.pass(wait).await;
        drop(client.stream);
        client.served.await.expect("no panic");
        let [failed, slow] = proxy.bad_paths();
        assert_eq!((failed.len(), slow.len()), (0, expected), "{slow:?}");
        assert!(slow.iter().all(|(path, status, _)| path == "/hangs" && *status == 499));
    }
}

#[tokio::test(start_paused = true)]
async fn a_slow_upload_and_a_rejection_with_503_make_no_bad_path() {
    let mut proxy = TestProxy::new(", flow: [{ name: one, concurrency: 1 }]");
    let mut client = proxy.client();
    client.send("POST /upload HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nx").await;
    let mut upstream = proxy.upstream.recv().await.expect("a connection");
    read_head(&mut upstream).await.expect("a head");
    assert_eq!(proxy.client().get().await, 503);

    proxy.pass(secs(5)).await;
    client.send("y").await;
    upstream.read_exact(&mut [0; 2]).await.expect("the body");
    upstream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.expect("sent");
    assert_eq!(client.status().await, Some(200));
    assert_eq!(proxy.bad_paths(), [vec![], vec![]]);
}
