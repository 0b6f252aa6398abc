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
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
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
    assert_eq!(retries(&gateway, "timeout"), attempts - 1.0);
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

/// A server that closes connections whenever it likes, answers 503 now and then, and counts POSTs.
fn flapping(address: SocketAddr, posts: &Arc<AtomicU32>) -> Script {
    let posts = Arc::clone(posts);
    Script::start_at(address, move |number, mut connection| {
        // Each connection serves a few requests and is closed by the next one.
        for served in 0.. {
            let Some(request) = connection.read() else { return };
            if request.line.starts_with("POST") {
                posts.fetch_add(1, Ordering::SeqCst);
            }
            if served == number % 7 + 1 {
                return;
            }
            let busy = request.line.starts_with("GET") && (number + served) % 11 == 10;
            if connection.write(if busy { BUSY } else { FINE }).is_none() {
                return;
            }
        }
    })
}

/// Sends GETs, and a POST after each tenth. Returns the statuses of GETs that failed, and how many
/// POSTs were answered.
fn visit(web: SocketAddr, gets: u32) -> (Vec<u16>, u32) {
    let mut client = Client::new(web);
    let mut failed = Vec::new();
    let mut answered = 0;
    for count in 0..gets {
        let status = client.get("/").status;
        failed.extend((status != 200).then_some(status));
        if count % 10 == 0 {
            client.send(head("POST", "/", &[("Content-Length", "2")]) + "hi");
            answered += u32::from(client.read("POST").status == 200);
        }
    }
    (failed, answered)
}

#[test]
fn flapping_servers_fail_no_get_and_get_no_post_twice() {
    // FLOWGATE_GETS=20000 for a long run.
    let gets = std::env::var("FLOWGATE_GETS").ok().and_then(|gets| gets.parse().ok());
    let gets: u32 = gets.unwrap_or(1500) / 30 * 30;
    let posts = Arc::new(AtomicU32::new(0));
    let [stable, mut one, mut other] =
        [(); 3].map(|()| flapping(([127, 0, 0, 1], 0).into(), &posts));
    let addresses = [stable.address, one.address, other.address];
    // A busy machine takes its time to start a server again: both others may fail in each round.
    let route = ", retry: { attempts: 10, budget: 100% }";
    let gateway = Gateway::start(&config(&addresses, ", ejection: { period: 100ms }", route));
    let web = gateway.web();
    let clients = [(); 3].map(|()| std::thread::spawn(move || visit(web, gets / 3)));
    // Two servers are replaced all the time.
    while clients.iter().any(|client| !client.is_finished()) {
        for server in [&mut one, &mut other] {
            let address = server.address;
            drop(std::mem::replace(server, Script::start(|_, connection| drop(connection))));
            pause();
            *server = eventually("the port to be free", || {
                drop(std::net::TcpListener::bind(address).ok()?);
                Some(flapping(address, &posts))
            });
        }
    }
    let mut answered = 0;
    for client in clients {
        let (failed, posted) = client.join().expect("no panic");
        assert!(failed.is_empty(), "GETs failed: {failed:?}");
        answered += posted;
    }
    let arrived = posts.load(Ordering::SeqCst);
    let sent = gets / 10;
    assert!((answered..=sent).contains(&arrived), "{arrived} of {sent} POSTs, {answered} answered");
}
