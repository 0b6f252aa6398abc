//! What is sent again after a failure, and what never is.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Answer, Client, head},
        metrics, pause,
        upstream::{self, Script},
    },
    port::free_port,
};
use std::{
    collections::{HashMap, HashSet},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

fn config(servers: &[SocketAddr], upstream: &str, route: &str) -> String {
    let servers: Vec<_> =
        servers.iter().map(|address| format!("{{ url: \"http://{address}\" }}")).collect();
    format!(
        "workers: 1\nlisteners:\n  - {{ name: web, listen: 127.0.0.1:0 }}\nadmin: {{ listen: 127.0.0.1:0 }}\n\
         access_log: access.jsonl\n\
         upstreams:\n  - {{ name: up, servers: [{}]{upstream} }}\nroutes:\n  \
         - {{ name: all, match: {{ path_prefix: / }}, upstream: up{route} }}\n",
        servers.join(", ")
    )
}

/// A server that counts its requests and answers each with this.
fn saying(answer: &'static str) -> (Script, Arc<AtomicU32>) {
    let count = Arc::<AtomicU32>::default();
    let counted = Arc::clone(&count);
    let server = Script::answering(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        answer.into()
    });
    (server, count)
}

const BUSY: &str = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy";
const LATER: &str =
    "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 7\r\nContent-Length: 0\r\n\r\n";
const FINE: &str = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine";

fn ask(gateway: &Gateway, method: &str, fields: &[(&str, &str)], body: &str) -> Answer {
    let mut client = Client::new(gateway.web());
    client.send(head(method, "/", fields) + body);
    client.read(method)
}

fn retries(gateway: &Gateway, reason: &str) -> f64 {
    let all = metrics(gateway, "flowgate_upstream_retries_total");
    let label = format!("reason=\"{reason}\"");
    all.iter().filter(|(name, _)| name.contains(&label)).map(|(_, count)| count).sum()
}

#[test]
fn a_status_is_tried_elsewhere_only_if_the_route_says_so_and_the_method_allows() {
    let (busy, busy_count) = saying(BUSY);
    let (fine, _) = saying(FINE);
    let servers = [busy.address, fine.address];
    let gateway = Gateway::start(&config(&servers, "", ""));
    let statuses = |gateway: &Gateway, method: &str| -> Vec<u16> {
        let mut statuses: Vec<_> = (0..6).map(|_| ask(gateway, method, &[], "").status).collect();
        statuses.sort_unstable();
        statuses.dedup();
        statuses
    };
    assert_eq!(statuses(&gateway, "GET"), [200, 503], "without `retry`");
    let line = gateway.edit(&config(&servers, "", ", retry: {}"));
    assert!(line.contains("route all (retry)"), "{line}");
    let before = busy_count.load(Ordering::SeqCst);
    for method in ["GET", "HEAD", "OPTIONS"] {
        assert_eq!(statuses(&gateway, method), [200], "{method}");
    }
    let retried = busy_count.load(Ordering::SeqCst) - before;
    assert!(retried >= 6, "{retried}");
    assert_eq!(retries(&gateway, "status"), f64::from(retried));
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        assert_eq!(statuses(&gateway, method), [200, 503], "{method}");
    }
    assert_eq!(retries(&gateway, "status"), f64::from(retried));
    eventually("the access log has it", || {
        let log = std::fs::read_to_string(gateway.dir.path().join("access.jsonl")).ok()?;
        log.contains(r#""attempts":2,"upstream_error":"status 503""#).then_some(())
    });
    gateway.edit(&config(&servers, "", ", retry: { methods: [DELETE], on: 503 }"));
    assert_eq!(statuses(&gateway, "DELETE"), [200]);
    assert_eq!(statuses(&gateway, "GET"), [200, 503]);
    // A request with a body is not.
    let with_body: Vec<_> =
        (0..4).map(|_| ask(&gateway, "DELETE", &[("Content-Length", "2")], "hi").status).collect();
    assert!(with_body.contains(&503), "{with_body:?}");
}

#[test]
fn attempts_end_and_the_last_answer_is_the_clients() {
    let (busy, count) = saying(BUSY);
    let gateway = Gateway::start(&config(&[busy.address], "", ", retry: { attempts: 3 }"));
    let answer = http::get(gateway.web(), "/");
    assert_eq!((answer.status, answer.text().as_str()), (503, "busy"));
    assert_eq!(count.load(Ordering::SeqCst), 3);

    let (later, count) = saying(LATER);
    let (other, others) = saying(LATER);
    gateway.edit(&config(&[later.address, other.address], "", ", retry: { attempts: 5 }"));
    let answer = http::get(gateway.web(), "/");
    assert_eq!((answer.status, answer.header("retry-after")), (503, Some("7")));
    let counts = (count.load(Ordering::SeqCst), others.load(Ordering::SeqCst));
    assert_eq!(counts, (1, 1), "each was asked once");
}

#[test]
fn the_time_of_a_request_bounds_its_attempts() {
    let silent = Script::start(|_, mut connection| while connection.read().is_some() {});
    let route =
        ", retry: { attempts: 10, on: timeout }, timeouts: { first_byte: 100ms, request: 350ms }";
    let gateway = Gateway::start(&config(&[silent.address], "", route));
    assert_eq!(http::get(gateway.web(), "/").status, 504);
    let attempts = metrics(&gateway, "flowgate_upstream_requests_total").values().sum::<f64>();
    assert!((2.0..=4.0).contains(&attempts), "{attempts}");
    // The time may end between the decision to try again and the attempt.
    let retries = retries(&gateway, "timeout");
    assert!((attempts - 1.0..=attempts).contains(&retries), "{retries} {attempts}");
}

#[test]
fn the_only_server_is_asked_again_after_a_moment() {
    // It closes the first two connections without an answer.
    let closing = Script::start(|number, mut connection| {
        while connection.read().is_some() && number >= 2 {
            connection.write(upstream::ok("at last"));
        }
    });
    let gateway = Gateway::start(&config(&[closing.address], "", ", retry: { attempts: 3 }"));
    assert_eq!(http::get(gateway.web(), "/").text(), "at last");
    assert_eq!(retries(&gateway, "reset"), 2.0);
    // One that cannot be reached, for which `connect` is not wanted.
    let dead = [free_port(), free_port()].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    gateway.edit(&config(&dead, "", ", retry: { on: 503 }"));
    let failed =
        || metrics(&gateway, "flowgate_upstream_connect_failures_total").values().sum::<f64>();
    let before = failed();
    assert_eq!(http::get(gateway.web(), "/").status, 502);
    assert_eq!(failed() - before, 1.0);
}

#[test]
fn retries_stay_within_the_budget() {
    let (busy, count) = saying(BUSY);
    let (other, others) = saying(BUSY);
    let servers = [busy.address, other.address];
    let gateway = Gateway::start(&config(&servers, "", ", retry: { budget: 0% }"));
    let mut client = Client::new(gateway.web());
    for _ in 0..300 {
        assert_eq!(client.get("/").status, 503);
    }
    let sent = count.load(Ordering::SeqCst) + others.load(Ordering::SeqCst);
    let retried = retries(&gateway, "status");
    assert_eq!(f64::from(sent), 300.0 + retried);
    // The floor of ten a second: as many at once as in ten seconds.
    assert!(retried >= 100.0, "{retried}");
    let exhausted =
        || metrics(&gateway, "flowgate_upstream_retries_exhausted_total").values().sum::<f64>();
    assert!(exhausted() > 0.0 && retried + exhausted() >= 300.0, "{retried} and {}", exhausted());
    let page = http::ask(gateway.address("admin"), "/routes").json();
    assert_eq!(page["upstreams"][0]["retries_exhausted"].as_f64(), Some(exhausted()));
    let shown: f64 = page["upstreams"][0]["servers"]
        .as_array()
        .expect("servers")
        .iter()
        .filter_map(|server| server["retries"].as_f64())
        .sum();
    assert_eq!(shown, retried);
}

/// What servers that close connections whenever they like have seen.
#[derive(Default)]
struct Flapping {
    /// The ids of the POSTs that arrived.
    posts: Mutex<Vec<String>>,
    /// The connections that wait for their next request.
    idle: Mutex<HashMap<(u16, usize), Arc<TcpStream>>>,
}

impl Flapping {
    /// Starts a server that closes connections whenever it likes and, if it `is_busy`, answers 503
    /// now and then.
    fn start(self: &Arc<Self>, address: SocketAddr, is_busy: bool) -> Script {
        let state = Arc::clone(self);
        Script::start_at(address, move |number, mut connection| {
            let stream = connection.stream.get_ref();
            let key = (stream.peer_addr().map_or(0, |peer| peer.port()), number);
            let stream = Arc::new(stream.try_clone().expect("cloned"));
            // Each connection serves a few requests and is closed by the next one.
            for served in 0.. {
                let request = connection.read();
                state.idle.lock().expect("no panic").remove(&key);
                let Some(request) = request else { return };
                if request.line.starts_with("POST") {
                    let id = String::from_utf8_lossy(&request.body).into_owned();
                    state.posts.lock().expect("no panic").push(id);
                }
                if served == number % 7 + 1 {
                    return;
                }
                let is_busy =
                    is_busy && request.line.starts_with("GET") && (number + served) % 11 == 10;
                if connection.write(if is_busy { BUSY } else { FINE }).is_none() {
                    return;
                }
                state.idle.lock().expect("no panic").insert(key, Arc::clone(&stream));
            }
        })
    }

    /// Closes idle connections at random moments until `is_over`, and returns how many. The next
    /// request may be on its way.
    fn close_idle(&self, is_over: &AtomicBool) -> u32 {
        let mut closed = 0;
        while !is_over.load(Ordering::SeqCst) {
            let mut idle = self.idle.lock().expect("no panic");
            let key = fastrand::choice(idle.keys().copied().collect::<Vec<_>>());
            if let Some(stream) = key.and_then(|key| idle.remove(&key)) {
                // The client may have closed it already.
                closed += u32::from(stream.shutdown(Shutdown::Both).is_ok());
            }
            drop(idle);
            std::thread::park_timeout(Duration::from_micros(fastrand::u64(..5000)));
        }
        closed
    }

    /// Checks that each POST arrived at most once, and that those that were answered arrived.
    fn check(&self, sent: u32, answered: &[String]) {
        let posts = self.posts.lock().expect("no panic");
        let arrived: HashSet<&String> = posts.iter().collect();
        assert_eq!(arrived.len(), posts.len(), "a POST arrived twice: {posts:?}");
        assert!(posts.len() <= sent as usize, "{} of {sent}", posts.len());
        for id in answered {
            assert!(arrived.contains(id), "{id} was answered, but has not arrived");
        }
    }
}

/// What a client got.
#[derive(Default)]
struct Visit {
    /// The statuses of GETs that failed.
    failed: Vec<u16>,
    /// The ids of the POSTs that were answered.
    answered: Vec<String>,
}

/// Sends GETs, and a POST after each tenth.
fn visit(web: SocketAddr, number: usize, gets: u32) -> Visit {
    let mut client = Client::new(web);
    let mut visit = Visit::default();
    for count in 0..gets {
        let status = client.get("/").status;
        visit.failed.extend((status != 200).then_some(status));
        if count % 10 == 0 {
            let id = format!("{number} {count:06}");
            client.send(head("POST", "/", &[("Content-Length", &id.len().to_string())]) + &id);
            visit.answered.extend((client.read("POST").status == 200).then_some(id));
        }
    }
    visit
}

/// Sends GETs and POSTs by three clients while idle connections are closed and `replace` replaces
/// servers. No GET fails, and no POST arrives twice.
fn visit_flapping(gateway: &Gateway, flapping: &Arc<Flapping>, mut replace: impl FnMut()) {
    // FLOWGATE_GETS=20000 for a long run.
    let gets: Option<u32> = std::env::var("FLOWGATE_GETS").ok().and_then(|gets| gets.parse().ok());
    let gets = gets.unwrap_or(1500).next_multiple_of(30);
    let web = gateway.web();
    let is_over = Arc::new(AtomicBool::new(false));
    let is_closed = Arc::clone(&is_over);
    let idle = Arc::clone(flapping);
    let closer = std::thread::spawn(move || idle.close_idle(&is_closed));
    let clients = [0, 1, 2].map(|number| std::thread::spawn(move || visit(web, number, gets / 3)));
    while clients.iter().any(|client| !client.is_finished()) {
        replace();
        pause();
    }
    let visits = clients.map(|client| client.join().expect("no panic"));
    is_over.store(true, Ordering::SeqCst);
    let closed_count = closer.join().expect("no panic");
    let failed: Vec<u16> = visits.iter().flat_map(|visit| visit.failed.clone()).collect();
    let answered: Vec<String> = visits.into_iter().flat_map(|visit| visit.answered).collect();
    eprintln!("{gets} GETs, {} failed", failed.len());
    eprintln!("{} POSTs, {} answered; {closed_count} idle closed", gets / 10, answered.len());
    assert!(failed.is_empty(), "GETs failed: {failed:?}");
    assert!(closed_count > 0);
    flapping.check(gets / 10, &answered);
}

#[test]
fn flapping_servers_fail_no_get_and_get_no_post_twice() {
    let flapping = Arc::<Flapping>::default();
    let start = |address| flapping.start(address, true);
    let [stable, mut one, mut other] = [(); 3].map(|()| start(([127, 0, 0, 1], 0).into()));
    let addresses = [stable.address, one.address, other.address];
    // A busy machine takes its time to start a server again: both others may fail in each round.
    let route = ", retry: { attempts: 10, budget: 100% }";
    let gateway = Gateway::start(&config(&addresses, ", ejection: { period: 100ms }", route));
    // Two servers are replaced all the time.
    visit_flapping(&gateway, &flapping, || {
        for server in [&mut one, &mut other] {
            let address = server.address;
            drop(std::mem::replace(server, Script::start(|_, connection| drop(connection))));
            pause();
            *server = eventually("the port to be free", || {
                drop(std::net::TcpListener::bind(address).ok()?);
                Some(start(address))
            });
        }
    });
}

#[test]
fn closed_connections_fail_no_get_and_send_no_post_twice_without_retry() {
    let flapping = Arc::<Flapping>::default();
    let servers = [(); 2].map(|()| flapping.start(([127, 0, 0, 1], 0).into(), false));
    let addresses = servers.each_ref().map(|server| server.address);
    let gateway = Gateway::start(&config(&addresses, "", ""));
    visit_flapping(&gateway, &flapping, || {});
}
