//! The admin listener over real sockets.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use flowgate::{
    admin::{self, Readiness},
    clock::Clock,
    config::{self, Live},
};
use std::{fs, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::mpsc,
    task::JoinHandle,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// Longer than any of these tests takes.
const DEADLINE: Duration = Duration::from_mins(5);

/// The most connections that the admin listener has open at once.
const CONNECTIONS: usize = 64;

const CONFIG: &str = "
listeners: [{ name: web, listen: 127.0.0.1:0 }]
upstreams: [{ name: shop, servers: [{ url: http://127.0.0.1:9 }] }]
routes: [{ name: all, match: { path_prefix: / }, upstream: shop }]
";

struct Served {
    address: SocketAddr,
    readiness: Arc<Readiness>,
    asked: mpsc::Receiver<()>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

#[tokio::test]
async fn each_page_is_served_and_head_is_its_head() {
    let served = Served::start().await;
    let metrics = served.ask("GET /metrics").await;
    assert!(metrics.starts_with("HTTP/1.1 200 OK\r\n"), "{metrics}");
    assert!(metrics.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    let head = served.ask("HEAD /routes").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    assert!(head.contains("content-length: ") && !head.contains("content-length: 0"), "{head}");
    assert!(served.ask("GET /none").await.starts_with("HTTP/1.1 404 "));
    assert!(served.ask("PUT /metrics").await.contains("allow: GET, HEAD\r\n"));
    served.end().await;
}

#[tokio::test]
async fn readiness_turns_and_a_reload_is_passed_on() {
    let mut served = Served::start().await;
    assert!(served.ask("GET /readyz").await.starts_with("HTTP/1.1 503 "));
    served.readiness.set_ready(true);
    assert!(served.ask("GET /readyz").await.starts_with("HTTP/1.1 200 "));
    assert!(served.ask("POST /reload").await.starts_with("HTTP/1.1 202 "));
    assert_eq!(served.asked.try_recv(), Ok(()));
    served.end().await;
}

#[tokio::test]
async fn a_client_that_stalls_holds_up_neither_another_nor_the_end() {
    let served = Served::start().await;
    let mut stalled = TcpStream::connect(served.address).await.unwrap();
    stalled.write_all(b"GET /metrics HT").await.unwrap();
    assert!(served.ask("GET /healthz").await.ends_with("ok\n"));
    served.end().await;
    assert_eq!(timeout(DEADLINE, stalled.read(&mut [0])).await.unwrap().unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_nothing_block_a_probe_for_five_seconds_at_most() {
    let served = Served::start().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(TcpStream::connect(served.address).await.unwrap());
    }
    assert_eq!(served.seconds_to_answer().await, 5);
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_send_half_a_head_block_a_probe_for_the_header_timeout_at_most() {
    let served = Served::start().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(b"GET /healthz HT").await.unwrap();
        held.push(client);
    }
    assert_eq!(served.seconds_to_answer().await, 10);
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn idle_clients_block_a_probe_for_the_header_timeout_at_most() {
    let served = Served::start().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut client = TcpStream::connect(served.address).await.unwrap();
        client.write_all(b"GET /healthz HTTP/1.1\r\nhost: admin\r\n\r\n").await.unwrap();
        timeout(DEADLINE, client.read(&mut [0])).await.unwrap().unwrap();
        held.push(client);
    }
    assert_eq!(served.seconds_to_answer().await, 10);
    served.end().await;
}

#[tokio::test]
async fn unread_pages_count_until_their_clients_leave() {
    let route = |i| format!("{{ name: r{i}, match: {{ path: /{i} }}, upstream: shop }}, ");
    let many: String = (0..8_000).map(route).collect();
    let served = Served::with(&CONFIG.replace("routes: [", &format!("routes: [{many}"))).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut client = socket.connect(served.address).await.unwrap();
        client.write_all(b"GET /routes HTTP/1.1\r\nhost: admin\r\n\r\n").await.unwrap();
        timeout(DEADLINE, client.read(&mut [0])).await.unwrap().unwrap();
        held.push(client);
    }
    assert!(served.ask("GET /routes").await.starts_with("HTTP/1.1 503 "));
    assert!(served.ask("GET /healthz").await.ends_with("ok\n"));
    held.clear();
    let again = async { while !served.ask("GET /routes").await.starts_with("HTTP/1.1 200 ") {} };
    timeout(DEADLINE, again).await.unwrap();
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_nothing_is_let_go_after_a_moment() {
    let served = Served::start().await;
    let clock = Clock::start();
    let began = clock.now();
    let mut silent = TcpStream::connect(served.address).await.unwrap();
    assert_eq!(silent.read(&mut [0]).await.unwrap(), 0);
    let took = clock.now().since(began);
    assert!(took < Duration::from_secs(6), "{took:?}");
    served.end().await;
}

impl Served {
    async fn start() -> Self {
        Self::with(CONFIG).await
    }

    async fn with(config: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("gateway.yaml");
        fs::write(&path, config).unwrap();
        let clock = Clock::start();
        let live = Live::start(config::read(&path).unwrap(), clock.now());
        let readiness = Arc::<Readiness>::default();
        let (reload, asked) = mpsc::channel(1);
        let state = admin::State {
            previews: Arc::default(),
            preview: mpsc::channel(1).0,
            store: None,
            live: Arc::new(live),
            counters: Arc::default(),
            readiness: Arc::clone(&readiness),
            reload,
            clock,
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(admin::serve(
            listener,
            state,
            std::future::pending(),
            stop.clone().cancelled_owned(),
        ));
        Self { address, readiness, asked, stop, task }
    }

    /// Sends a request on a connection of its own, and returns the whole answer.
    async fn ask(&self, line: &str) -> String {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\nhost: admin\r\nconnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(DEADLINE, client.read_to_string(&mut answer)).await.unwrap().unwrap();
        answer
    }

    /// Returns after how many whole seconds of virtual time a probe has its answer.
    async fn seconds_to_answer(&self) -> u64 {
        let clock = Clock::start();
        let began = clock.now();
        assert!(self.ask("GET /healthz").await.ends_with("ok\n"));
        clock.now().since(began).as_secs()
    }

    async fn end(self) {
        self.stop.cancel();
        timeout(DEADLINE, self.task).await.unwrap().unwrap();
    }
}
