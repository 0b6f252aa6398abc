//! The admin listener over real sockets.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on says where")]

#[path = "admin/client.rs"]
mod client;

use flowgate::{
    access_log::{Output, Sink},
    admin::{self, Readiness},
    clock::Clock,
    config::{self, AccessLog, Live},
    small_http,
};
use std::{fs, net::SocketAddr, num::NonZeroUsize, sync::Arc, time::Duration};
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
        client.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
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
        client.write_all(b"GET /routes HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
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

#[tokio::test]
async fn pages_of_other_sites_read_and_change_nothing() {
    let mut served = Served::start().await;
    for (field, expected) in [
        ("host: localhost\r\norigin: http://evil.example", "403"),
        ("host: evil.example:9901", "403"),
        ("host: localhost\r\nsec-fetch-site: cross-site", "403"),
        ("host: localhost\r\norigin: http://localhost", "202"),
    ] {
        let answer = served.ask_with("POST /reload", field).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {expected} ")), "{field}: {answer}");
        assert!(!answer.contains("access-control-"), "{answer}");
        assert!(answer.contains("x-content-type-options: nosniff\r\n"), "{answer}");
    }
    assert_eq!(served.asked.try_recv(), Ok(()));
    assert!(served.asked.try_recv().is_err(), "asked for once only");
    let preflight =
        "host: localhost\r\norigin: http://evil.example\r\naccess-control-request-method: POST";
    assert!(served.ask_with("OPTIONS /reload", preflight).await.starts_with("HTTP/1.1 403 "));
    served.end().await;
}

/// An authority, and a certificate that it signed for `name`.
fn signed(name: &str) -> (String, String, String) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    let ca = authority.self_signed(&key).unwrap();
    let issuer = rcgen::Issuer::new(authority, key);
    let own = rcgen::KeyPair::generate().unwrap();
    let certificate = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = certificate.signed_by(&own, &issuer).unwrap();
    (ca.pem(), certificate.pem(), own.serialize_pem())
}

#[tokio::test]
async fn over_tls_a_certificate_or_a_token_opens_the_pages() {
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject};
    let directory = tempfile::tempdir().unwrap();
    let (ca, cert, key) = signed("gateway.internal");
    let (client_ca, client_cert, client_key) = signed("operator");
    let (_, stranger_cert, stranger_key) = signed("operator");
    for (name, text) in [("cert", &cert), ("key", &key), ("ca", &client_ca)] {
        fs::write(directory.path().join(name), text).unwrap();
    }
    fs::write(directory.path().join("token"), "0123456789abcdef\n").unwrap();
    let admin = "admin: { listen: '127.0.0.1:0', token_file: token, tls: { cert: cert, key: key, client_ca: ca } }";
    let served = Served::within(directory, &format!("{CONFIG}{admin}\n")).await;
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca.as_bytes()).unwrap()).unwrap();
    let ask = async |identity: Option<(&str, &str)>, host: &str, field: &str| {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots.clone());
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        let stream = TcpStream::connect(served.address).await.unwrap();
        let name = ServerName::try_from("gateway.internal").unwrap();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.ok()?;
        let request =
            format!("GET /routes HTTP/1.1\r\nhost: {host}\r\n{field}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = Vec::new();
        timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().ok()?;
        Some(String::from_utf8_lossy(&answer).get(9..12)?.to_owned())
    };
    let name = "gateway.internal:9901";
    assert_eq!(ask(None, name, "").await.as_deref(), Some("401"));
    let token = "authorization: Bearer 0123456789abcdef\r\n";
    assert_eq!(ask(None, name, token).await.as_deref(), Some("200"));
    let operator = Some((client_cert.as_str(), client_key.as_str()));
    assert_eq!(ask(operator, name, "").await.as_deref(), Some("200"));
    assert_eq!(ask(operator, "evil.example", "").await.as_deref(), Some("403"));
    let stranger = Some((stranger_cert.as_str(), stranger_key.as_str()));
    assert_eq!(ask(stranger, name, "").await, None, "no handshake");
    served.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_stream_of_events_outlives_its_connections_age() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let limits = small_http::Limits {
        connections: 4,
        idle: Duration::from_secs(10),
        stall: Duration::from_secs(10),
        age: Duration::from_mins(1),
    };
    let handler = |_: http::Request<hyper::body::Incoming>| async {
        let ticks = futures_util::stream::unfold((), |()| async {
            let clock = Clock::start();
            clock.sleep_until(clock.now() + Duration::from_secs(45)).await;
            let frame = http_body::Frame::data(bytes::Bytes::from_static(b"tick\n"));
            Some((Ok::<_, std::convert::Infallible>(frame), ()))
        });
        let mut response = http::Response::new(http_body_util::StreamBody::new(ticks));
        response.extensions_mut().insert(small_http::Endless);
        response
    };
    let until = stop.clone().cancelled_owned();
    let task = tokio::spawn(small_http::serve(
        small_http::Socket { listener, tls: || None },
        limits,
        handler,
        std::future::pending(),
        until,
    ));
    let mut client = TcpStream::connect(address).await.unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    while answer.windows(4).filter(|part| part == b"tick").count() < 5 {
        let mut piece = [0; 512];
        let count = timeout(DEADLINE, client.read(&mut piece)).await.unwrap().unwrap();
        assert_ne!(count, 0, "cut off: {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&piece[..count]);
    }
    stop.cancel();
    timeout(DEADLINE, task).await.unwrap().unwrap();
}

impl Served {
    async fn start() -> Self {
        Self::with(CONFIG).await
    }

    async fn with(config: &str) -> Self {
        Self::within(tempfile::tempdir().unwrap(), config).await
    }

    async fn within(directory: tempfile::TempDir, config: &str) -> Self {
        let path = directory.path().join("gateway.yaml");
        fs::write(&path, config).unwrap();
        let clock = Clock::start();
        let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
        let live = Live::start(plan, clock.now());
        let readiness = Arc::<Readiness>::default();
        let (reload, asked) = mpsc::channel(1);
        let output = Output::open(&AccessLog::Off).unwrap();
        let access_log = Sink::start(output, NonZeroUsize::MIN, Arc::default()).unwrap();
        let state = admin::State {
            previews: Arc::default(),
            preview: mpsc::channel(1).0,
            saves: mpsc::channel(1).0,
            rejections: Arc::default(),
            worst_paths: Arc::default(),
            watching: access_log.watching(),
            seed: flowgate::route::Seed::new([1, 2]),
            key_names: Arc::default(),
            acme: Arc::default(),
            store: None,
            live: Arc::new(live),
            counters: Arc::default(),
            readiness: Arc::clone(&readiness),
            reload,
            started: clock.now(),
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
        self.ask_with(line, "host: localhost").await
    }

    /// The same with these fields.
    async fn ask_with(&self, line: &str, fields: &str) -> String {
        let mut client = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{line} HTTP/1.1\r\n{fields}\r\nconnection: close\r\n\r\n");
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
