//! Servers that answer nothing, as behind a network that drops packets: which requests wait.

use super::{TestProxy, read_head, secs};
use crate::{
    clock::Clock,
    proxy::{Connector, upstream::connect::SimulatedNetwork},
};
use core::{sync::atomic::Ordering::Relaxed, time::Duration};
use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};
use tokio::io::{AsyncWriteExt, duplex};

/// How long a connection takes to open.
const CONNECT: Duration = Duration::from_millis(2);

/// The ports whose connections never open.
type Dead = Arc<Mutex<BTreeSet<u16>>>;

/// A gateway in front of servers at ports from 1 up, to which each request opens a connection.
fn proxy(servers: u16, keys: &str) -> (TestProxy, Dead) {
    proxy_of((1..=servers).map(|port| format!("127.0.0.1:{port}")), keys)
}

/// The same with servers at these places.
fn proxy_of(servers: impl Iterator<Item = String>, keys: &str) -> (TestProxy, Dead) {
    let urls: Vec<_> = servers.map(|place| format!("{{ url: 'http://{place}' }}")).collect();
    let text = format!(
        "listeners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
         upstreams: [{{ name: up, servers: [{}], max_idle: 0, connect_timeout: 3s{keys} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
        urls.join(", ")
    );
    let clock = Clock::start();
    let dead = Dead::default();
    let network = {
        let clock = clock.clone();
        let dead = Arc::clone(&dead);
        SimulatedNetwork::new(move |port| {
            let clock = clock.clone();
            let is_dead = dead.lock().expect("no panic").contains(&port);
            Box::pin(async move {
                if is_dead {
                    core::future::pending::<()>().await;
                }
                clock.sleep_until(clock.now() + CONNECT).await;
                let (near, mut far) = duplex(1024);
                tokio::spawn(async move {
                    while read_head(&mut far).await.is_some() {
                        let answer = b"HTTP/1.1 204 No Content\r\n\r\n";
                        if far.write_all(answer).await.is_err() {
                            return;
                        }
                    }
                });
                Ok(near)
            })
        })
    };
    (TestProxy::of(clock, &text, Connector::Simulated(network), None), dead)
}

/// Sends a request, and returns how long it took.
async fn ask(proxy: &TestProxy) -> Duration {
    let begun = proxy.now();
    assert_eq!(proxy.client().get().await, 204);
    proxy.now().since(begun)
}

/// Sends so many requests that chance leaves out no server: all are known to be well. Then lets some
/// die.
async fn kill(proxy: &TestProxy, dead: &Dead, ports: &[u16]) {
    for _ in 0..90 {
        assert!(ask(proxy).await < secs(1));
    }
    dead.lock().expect("no panic").extend(ports);
}

#[tokio::test(start_paused = true)]
async fn each_dead_server_costs_one_request_its_connect_timeout() {
    for (servers, ports) in [(2, &[2][..]), (3, &[1, 3]), (5, &[1, 2, 4])] {
        let (proxy, dead) = proxy(servers, "");
        kill(&proxy, &dead, ports).await;
        let mut slow = Vec::new();
        // Less than the first period of an ejection.
        for _ in 0..60 {
            proxy.pass(Duration::from_millis(20)).await;
            slow.extend(Some(ask(&proxy).await).filter(|took| *took >= Duration::from_millis(250)));
        }
        // One request may meet several.
        let total: Duration = slow.iter().sum();
        let most = secs(3) * u32::try_from(ports.len()).expect("few") + secs(1);
        assert!(total <= most && slow.len() <= ports.len(), "{servers} {ports:?}: {slow:?}");
        let is_out = |proxy: &TestProxy| {
            let snapshot = proxy.worker.live.load_full();
            let members = snapshot.upstreams[0].members();
            members.servers.iter().filter(|server| server.health.is_out()).count()
        };
        assert_eq!(is_out(&proxy), ports.len());
        // They come back.
        dead.lock().expect("no panic").clear();
        proxy.pass(secs(60)).await;
        for _ in 0..60 {
            proxy.pass(secs(1)).await;
            assert!(ask(&proxy).await < Duration::from_millis(250));
        }
        assert_eq!(is_out(&proxy), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn of_requests_at_once_one_waits_for_a_dead_server() {
    for keys in ["", ", balance: random", ", balance: least_request"] {
        let (proxy, dead) = proxy(3, keys);
        kill(&proxy, &dead, &[1, 2]).await;
        let clock = &proxy.worker.clock;
        let begun = clock.now();
        let requests: Vec<_> = (0..60)
            .map(|_| {
                let mut client = proxy.client();
                let clock = clock.clone();
                tokio::spawn(async move {
                    assert_eq!(client.get().await, 204);
                    clock.now().since(begun)
                })
            })
            .collect();
        let mut slow = Vec::new();
        for request in requests {
            slow.extend(Some(request.await.expect("no panic")).filter(|took| *took >= secs(1)));
        }
        assert!(slow.len() <= 2, "{keys}: {slow:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_an_address_that_its_name_loses_goes_to_the_new_one() {
    for (before, after) in [(&[1][..], &[2][..]), (&[1, 2], &[3]), (&[1], &[2, 3])] {
        let (proxy, dead) = proxy_of(core::iter::once("shop:1".to_owned()), "");
        let resolve = |last: &[u8]| {
            let addresses: Vec<_> = last.iter().map(|last| [10, 0, 0, *last].into()).collect();
            proxy.worker.live.resolve(&"shop".into(), &addresses.into());
        };
        resolve(before);
        dead.lock().expect("no panic").insert(1);
        let mut client = proxy.client();
        client.send("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await;
        proxy.pass(secs(1)).await;
        resolve(after);
        dead.lock().expect("no panic").clear();
        assert_eq!(client.status().await, Some(204), "{before:?} to {after:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_of_the_client_says_nothing_about_a_server_that_it_has_no_time_for() {
    let (proxy, _) = proxy(2, "");
    for _ in 0..60 {
        let mut client = proxy.client();
        client
            .send(
                "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\
                 content-type: application/grpc\r\ngrpc-timeout: 1n\r\n\r\n",
            )
            .await;
        let head = read_head(&mut client.stream).await.expect("an answer");
        assert!(head.contains("grpc-status: 4\r\n"), "{head}");
    }
    let snapshot = proxy.worker.live.load_full();
    for server in snapshot.upstreams[0].servers() {
        assert_eq!(server.meter.connect_failures.load(Relaxed), 0);
        assert_eq!(server.meter.failures.load(Relaxed), 0);
        assert_eq!(server.health.word(), "healthy");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_far_away_is_waited_for() {
    // Nothing is known of how long a connection takes: all wait.
    let (proxy, dead) = proxy(2, "");
    dead.lock().expect("no panic").extend([1, 2]);
    let begun = proxy.now();
    let mut clients: Vec<_> = (0..4).map(|_| proxy.client()).collect();
    for client in &mut clients {
        client.send("GET / HTTP/1.1\r\nhost: a\r\n\r\n").await;
    }
    for client in &mut clients {
        assert_eq!(client.status().await, Some(502));
        assert!(proxy.now().since(begun) >= secs(3));
    }
}
