//! How much a worker does in one go, counted on its own thread: what waits for its turn meanwhile
//! waits as long.

use crate::common::{PATIENCE, yaml};
use core::{future::poll_fn, num::NonZeroUsize, task::Poll};
use flowgate::{
    access_log::{Output, Sink},
    clock::Clock,
    config::{self, AccessLog, Live},
    meter::Counters,
    proxy::{Bound, Connections, Connector, Descriptors, Pools, Worker, bind},
    route::Seed,
    workers::Handle,
};
use std::{
    io::Write,
    net::TcpStream,
    os::unix::net::UnixStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
};
use tokio::io::AsyncReadExt;
use tokio_util::task::TaskTracker;

/// Starts a worker, and `watcher` with its counters as one of its tasks.
fn start<F>(watcher: impl FnOnce(Arc<Counters>) -> F + Send + 'static) -> (Handle, Sink)
where
    F: Future<Output = ()> + Send + 'static,
{
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("gateway.yaml");
    let nowhere = "127.0.0.1:9".parse().expect("an address");
    let route = "  - { name: all, match: { path_prefix: / }, upstream: up }";
    std::fs::write(&path, yaml(nowhere, route)).expect("written");
    let plan = config::read(&path).expect("in order");
    let (clock, counters) = (Clock::start(), Arc::<Counters>::default());
    let off = Output::open(&AccessLog::Off).expect("nothing to open");
    let log = Sink::start(off, NonZeroUsize::MIN, Arc::clone(&counters)).expect("a thread");
    let access_log = log.handle(0);
    let live = Arc::new(Live::start(plan, clock.now()));
    let worker = Handle::start(0, clock, move |clock| {
        tokio::spawn(watcher(Arc::clone(&counters)));
        Worker {
            clock,
            live,
            pools: Pools::default(),
            connector: Connector::default(),
            tasks: TaskTracker::new(),
            counters,
            access_log,
            descriptors: Descriptors::new(None),
            connections: Connections::default(),
            seed: Seed::random(),
            store: None,
        }
    });
    (worker.expect("a thread"), log)
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
    let (told, most) = mpsc::channel();
    let (worker, _log) = start(move |counters| async move {
        let (mut before, mut most) = (0, 0);
        while before < CLIENTS {
            turn().await;
            let now = counters.connections_accepted.load(SeqCst);
            most = most.max(now - before);
            before = now;
        }
        told.send(most).expect("the test waits");
    });
    let any = "127.0.0.1:0".parse().expect("an address");
    let (address, mut sockets) = bind(any, 1, false).expect("bound");
    let _clients: Vec<_> =
        (0..CLIENTS).map(|_| TcpStream::connect(address).expect("connected")).collect();
    let socket = sockets.pop().expect("one");
    worker.listen(Bound { name: "web".into(), socket, tls: None });
    assert_eq!(most.recv_timeout(PATIENCE).expect("all are accepted"), 8);
    worker.stop();
}

#[test]
fn a_worker_looks_at_its_sockets_and_timers_after_32_tasks_at_the_latest() {
    let (told, most) = mpsc::channel();
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
        told.send(most).expect("the test waits");
    });
    let most = most.recv_timeout(PATIENCE).expect("it reads");

    assert!((30..=33).contains(&most), "{most}");
    worker.stop();
}
