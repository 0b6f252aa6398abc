//! How much a worker does in one go, counted on its own thread: what waits for its turn meanwhile
//! waits as long.

use crate::{
    common::{
        PATIENCE,
        http::{Client, head},
        yaml,
    },
    port::free_port,
};
use core::{future::poll_fn, num::NonZeroUsize, task::Poll};
use flowgate::{
    access_log::{Output, Sink},
    clock::Clock,
    config::{self, AccessLog, Live},
    meter::Counters,
    proxy::{
        Acceptor, BodyMemory, Bound, Connections, Connector, CopyPlaces, DateCache, Descriptors,
        EncoderPlaces, ListenSocket, ListenerConfig, Passwords, Pools, Records, RequestIdMaker,
        RequestLog, ServerConnections, TimeoutLog, Worker, bind,
    },
    route::Seed,
    traces::{self, Recorder},
    workers::WorkerHandle,
};
use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
};
use tokio::{io::AsyncReadExt, sync::watch};
use tokio_util::task::TaskTracker;

/// Starts a worker, and `watcher` with its counters as one of its tasks.
fn start<F>(watcher: impl FnOnce(Arc<Counters>) -> F + Send + 'static) -> (WorkerHandle, Sink)
where
    F: Future<Output = ()> + Send + 'static,
{
    let clock = Clock::start();
    let counters = Arc::<Counters>::default();
    let off = Output::open(&AccessLog::Off).expect("nothing to open");
    let log = Sink::start(off, NonZeroUsize::MIN, Arc::clone(&counters)).expect("a thread");
    let access_log = log.handle(0);
    let live = live(&clock);
    let worker = WorkerHandle::start(0, clock, move |clock| {
        tokio::spawn(watcher(Arc::clone(&counters)));
        Worker {
            live,
            servers: Arc::new(ServerConnections {
                clock: clock.clone(),
                pools: Pools::default(),
                connector: Connector::default(),
            }),
            clock,
            tasks: TaskTracker::new(),
            records: Records {
                request_ids: RequestIdMaker::default(),
                access_log,
                traces: Recorder::new(traces::queue(Arc::clone(&counters)).0),
                request_log: RequestLog::default(),
                timeout_log: TimeoutLog::default(),
                preview: Arc::<flowgate::preview::Previews>::default().handle(0),
                rejections: flowgate::rejections::Rejections::default().recorder(),
                worst_paths: flowgate::worst_paths::WorstPaths::default().recorder(),
                key_names: Arc::default(),
            },
            counters,
            descriptors: Descriptors::new(None),
            connections: Connections::default(),
            dates: DateCache::default(),
            bodies: BodyMemory::default(),
            encoders: EncoderPlaces::default(),
            copies: CopyPlaces::default(),
            challenges: flowgate::acme::Challenges::default(),
            seed: Seed::random(),
            store: None,
            passwords: Arc::new(Passwords::new(NonZeroUsize::MIN)),
            clients: Arc::default(),
        }
    });
    (worker.expect("a thread"), log)
}

/// Rules with one route, whose upstream is not there.
fn live(clock: &Clock) -> Arc<Live> {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("gateway.yaml");
    let nowhere = (Ipv4Addr::LOCALHOST, free_port()).into();
    let route = "  - { name: all, match: { path_prefix: / }, upstream: up }";
    std::fs::write(&path, yaml(nowhere, route)).expect("written");
    let plan = config::read(&path).expect("in order");
    Arc::new(Live::start(plan, clock.now()))
}

/// Lets each of the other tasks that can go on have its turn.
async fn turn() {
    let mut is_over = false;
    poll_fn(|context| {
        if is_over {
            return Poll::Ready(());
        }
        is_over = true;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

#[test]
fn of_many_clients_that_come_at_once_eight_are_accepted_before_all_else_has_its_turn() {
    const CLIENTS: u64 = 60;
    let (results, most) = mpsc::channel();
    let (worker, _log) = start(move |counters| async move {
        let mut before = 0;
        let mut most = 0;
        while before < CLIENTS {
            turn().await;
            let now = counters.connections_accepted.load(SeqCst);
            most = most.max(now - before);
            before = now;
        }
        results.send(most).expect("the test waits");
    });
    let any = "127.0.0.1:0".parse().expect("an address");
    let (address, mut sockets) = bind(any, 1, false).expect("bound");
    let _clients: Vec<_> =
        (0..CLIENTS).map(|_| TcpStream::connect(address).expect("connected")).collect();
    let socket = sockets.pop().expect("one");
    let (_face, shown) = watch::channel(ListenerConfig {
        name: "web".into(),
        tls: None,
        proxy_protocol: false,
        is_handed_over: false,
    });
    worker.listen(Bound { socket: ListenSocket::Tcp(socket), listener_config: shown });
    assert_eq!(most.recv_timeout(PATIENCE).expect("all are accepted"), 8);
    worker.stop();
}

/// Has sixty clients ask a worker whose listener speaks cleartext. Once some of them were accepted
/// `edit` is given what changes the listener, and returns what it keeps. Returns how many were,
/// and where answers begin with a status line.
fn edited<T: Send + 'static>(
    edit: impl FnOnce(watch::Sender<ListenerConfig>) -> T + Send + 'static,
) -> (usize, Vec<bool>, SocketAddr) {
    let (listener_config, shown) = watch::channel(ListenerConfig {
        name: "web".into(),
        tls: None,
        proxy_protocol: false,
        is_handed_over: false,
    });
    let (results, before) = mpsc::channel();
    let (worker, _log) = start(move |counters| async move {
        let accepted = || counters.connections_accepted.load(SeqCst);
        while accepted() == 0 {
            turn().await;
        }
        let before = accepted();
        let _kept = edit(listener_config);
        while accepted() < 60 {
            turn().await;
        }
        results.send(before).expect("the test waits");
        core::future::pending::<()>().await;
    });
    let free = (Ipv4Addr::LOCALHOST, free_port()).into();
    let (address, mut sockets) = bind(free, 1, false).expect("bound");
    let mut clients: Vec<_> = (0..60).map(|_| Client::new(address)).collect();
    for client in &mut clients {
        client.send(head("GET", "/", &[("Connection", "close")]));
    }
    worker.listen(Bound {
        socket: ListenSocket::Tcp(sockets.pop().expect("one")),
        listener_config: shown,
    });
    let before = before.recv_timeout(PATIENCE).expect("all are accepted");
    let is_answered = |client: &mut Client| {
        let mut answer = Vec::new();
        drop(client.stream.read_to_end(&mut answer));
        let answer = String::from_utf8_lossy(&answer);
        // A client that should speak TLS gets an answer that says so.
        answer.starts_with("HTTP/1.1 ") && !answer.contains("use https://")
    };
    let answered = clients.iter_mut().map(is_answered).collect();
    worker.stop();
    (usize::try_from(before).expect("at most 60"), answered, address)
}

#[test]
fn a_client_that_waits_in_the_queue_of_a_listener_that_is_given_tls_is_spoken_to_in_tls() {
    let clock = Clock::start();
    let tls = Acceptor::new(live(&clock), "front".into()).expect("randomness");
    let (before, answered, _) = edited(|listener_config| {
        listener_config.send_replace(ListenerConfig {
            name: "front".into(),
            tls: Some(tls),
            proxy_protocol: false,
            is_handed_over: false,
        });
        listener_config
    });
    assert_eq!(before, 8);
    let cleartext = answered.iter().take_while(|is_answered| **is_answered).count();
    assert_eq!(cleartext, before, "in the order in which they came");
    assert!(!answered[before..].contains(&true), "{answered:?}");
}

#[test]
fn a_client_that_waits_in_the_queue_of_a_listener_that_goes_is_answered() {
    let (before, answered, address) = edited(drop);
    assert_eq!((before, answered), (8, vec![true; 60]));
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_worker_looks_at_its_sockets_and_timers_after_32_tasks_at_the_latest() {
    let (results, most) = mpsc::channel();
    let (worker, _log) = start(move |_| async move {
        let (mut near, far) = UnixStream::pair().expect("a pair");
        far.set_nonblocking(true).expect("set");
        let mut far = tokio::net::UnixStream::from_std(far).expect("a socket");
        let seen = Arc::new(AtomicBool::new(false));
        let reader = Arc::clone(&seen);
        tokio::spawn(async move {
            while far.read_u8().await.is_ok() {
                reader.store(true, SeqCst);
            }
        });
        let mut most = 0;
        // Written at any place between two looks.
        for place in 0..200 {
            for _ in 0..place {
                turn().await;
            }
            near.write_all(b"x").expect("written");
            let mut turns = 0;
            while !seen.swap(false, SeqCst) {
                turn().await;
                turns += 1;
            }
            most = most.max(turns);
        }
        results.send(most).expect("the test waits");
    });
    let most = most.recv_timeout(PATIENCE).expect("it reads");

    assert!((30..=33).contains(&most), "{most}");
    worker.stop();
}
