//! Requests that wait for a free place, over real sockets.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client, head},
        metrics,
        upstream::{self, Script},
        yaml, yaml_at,
    },
    port::free_port,
    throttling::route,
};
use serde_json::Value;
use std::{
    fs,
    net::TcpStream,
    sync::{Arc, Mutex, mpsc},
    time::{Duration, Instant},
};

/// A service that notes the path of each request, and responds to one for each signal.
pub(crate) struct Service {
    pub(crate) script: Script,
    paths: Arc<Mutex<Vec<String>>>,
    go: mpsc::Sender<()>,
}

impl Service {
    pub(crate) fn start() -> Self {
        let (go, wait) = mpsc::channel::<()>();
        let wait = Mutex::new(wait);
        let paths = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&paths);
        let script = Script::start(move |_, mut connection| {
            while let Some(request) = connection.read() {
                noted.lock().expect("no panic").push(request.path().to_owned());
                let signal = wait.lock().expect("no panic").recv_timeout(crate::common::PATIENCE);
                if signal.is_err() {
                    return;
                }
                connection.write(upstream::ok("done"));
            }
        });
        Self { script, paths, go }
    }

    pub(crate) fn respond(&self) {
        self.go.send(()).expect("the service runs");
    }

    pub(crate) fn paths(&self) -> Vec<String> {
        self.paths.lock().expect("no panic").clone()
    }

    pub(crate) fn has_seen(&self, count: usize) {
        eventually("the service has the request", || (self.paths().len() >= count).then_some(()));
    }
}

/// Returns a file with one place, and this queue.
pub(crate) fn one_place(service: &Service, queue: &str) -> String {
    let rule = format!("    flow: [{{ name: places, concurrency: 1, queue: {queue} }}]");
    format!("access_log: access.log\n{}", yaml(service.script.address, &route(&rule)))
}

pub(crate) fn send(gateway: &Gateway, path: &str) -> Client {
    let mut client = Client::new(gateway.web());
    client.send(head("GET", path, &[]));
    client
}

pub(crate) fn has_waiting(gateway: &Gateway, count: f64) {
    eventually("as many wait", || {
        let waiting = metrics(gateway, "flowgate_flow_queue_depth");
        ((waiting.values().sum::<f64>() - count).abs() < 0.5).then_some(())
    });
}

/// Returns the line of the access log of a request for this path.
pub(crate) fn line(gateway: &Gateway, path: &str) -> Value {
    let file = gateway.config.with_file_name("access.log");
    eventually("its line", || {
        let text = fs::read_to_string(&file).ok()?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.into_iter().find(|line| line["path"] == path)
    })
}

#[test]
fn requests_without_a_free_place_start_in_the_order_of_their_arrival() {
    let service = Service::start();
    let gateway = Gateway::start(&one_place(&service, "{ max_wait: 20s, max: 10 }"));
    let mut clients = vec![send(&gateway, "/0")];
    service.has_seen(1);
    for at in 1..6 {
        clients.push(send(&gateway, &format!("/{at}")));
        has_waiting(&gateway, f64::from(at));
    }
    assert_eq!(service.paths(), ["/0"], "one at a time");

    for (at, mut client) in clients.into_iter().enumerate() {
        service.has_seen(at + 1);
        service.respond();
        assert_eq!(client.read("GET").status, 200);
    }
    assert_eq!(service.paths(), ["/0", "/1", "/2", "/3", "/4", "/5"]);
    has_waiting(&gateway, 0.0);

    let waited = &line(&gateway, "/3")["flow"];
    assert_eq!(waited["decision"], "delayed");
    assert!(waited["wait_ms"].as_f64().is_some_and(|wait| wait > 0.0), "{waited}");
    let decisions = metrics(&gateway, "flowgate_flow_decisions_total");
    let delayed = decisions
        .iter()
        .find(|(key, _)| key.contains("decision=\"delayed\"") && key.contains("rule=\"places\""));
    assert_eq!(delayed.map(|(_, count)| *count), Some(5.0), "{decisions:?}");
}

#[test]
fn a_request_that_waits_for_too_long_is_a_503_with_the_reason_queue() {
    let service = Service::start();
    let gateway = Gateway::start(&one_place(&service, "{ max_wait: 150ms, max: 1 }"));
    let _running = send(&gateway, "/running");
    service.has_seen(1);
    let began = Instant::now();
    let late = send(&gateway, "/late").read("GET");
    assert!(began.elapsed() >= Duration::from_millis(150));
    assert_eq!((late.status, late.header("retry-after")), (503, Some("1")));
    let problem = late.json();
    assert_eq!(
        (&problem["reason"], &problem["violated-policies"][0]),
        (&Value::from("queue"), &Value::from("places"))
    );

    let line = line(&gateway, "/late");
    assert_eq!(
        (&line["flow"]["decision"], &line["flow"]["reason"]),
        (&Value::from("rejected"), &Value::from("queue"))
    );
    let waited = line["flow"]["wait_ms"].as_f64();
    assert!(waited.is_some_and(|waited| waited >= 150.0), "{line}");
    assert_eq!(service.paths(), ["/running"]);
    let decisions = metrics(&gateway, "flowgate_flow_decisions_total");
    let late = decisions.iter().find(|(key, _)| key.contains("reason=\"queue\""));
    assert_eq!(late.map(|(_, count)| *count), Some(1.0), "{decisions:?}");
}

#[test]
fn a_full_queue_rejects_at_once_and_grpc_clients_get_their_status() {
    let service = Service::start();
    let gateway = Gateway::start(&one_place(&service, "{ max_wait: 20s, max: 1 }"));
    let _running = send(&gateway, "/running");
    service.has_seen(1);
    let _waiting = send(&gateway, "/waiting");
    has_waiting(&gateway, 1.0);

    let full = http::get(gateway.web(), "/full");
    assert_eq!((full.status, &full.json()["reason"]), (503, &Value::from("queue")));
    let mut client = Client::new(gateway.web());
    let grpc = client.request("POST", "/full", &[("content-type", "application/grpc")]);
    assert_eq!((grpc.status, grpc.header("grpc-status")), (200, Some("14")), "unavailable");
}

#[test]
fn a_client_that_leaves_frees_its_turn_at_once() {
    let service = Service::start();
    let gateway = Gateway::start(&one_place(&service, "{ max_wait: 20s, max: 2 }"));
    let mut running = send(&gateway, "/running");
    service.has_seen(1);
    let leaving = send(&gateway, "/leaving");
    has_waiting(&gateway, 1.0);
    let mut staying = send(&gateway, "/staying");
    has_waiting(&gateway, 2.0);
    drop(leaving);
    has_waiting(&gateway, 1.0);

    // There is room in the queue again.
    let mut next = send(&gateway, "/next");
    has_waiting(&gateway, 2.0);
    for (client, count) in [(&mut running, 1), (&mut staying, 2), (&mut next, 3)] {
        service.has_seen(count);
        service.respond();
        assert_eq!(client.read("GET").status, 200);
    }
    assert_eq!(service.paths(), ["/running", "/staying", "/next"]);
    let left = line(&gateway, "/leaving");
    assert_eq!((&left["status"], &left["flow"]["left"]), (&Value::from(499), &Value::from(true)));
}

/// `replay` sets the limit of each arrival.
#[test]
fn the_log_has_the_found_limit_at_the_arrival_of_a_request_that_waits() {
    let service = Service::start();
    let bounded = |places: u8| {
        one_place(&service, "{ max_wait: 20s }").replace(
            "concurrency: 1",
            &format!("concurrency: {{ auto: {{ min: {places}, max: {places} }} }}"),
        )
    };
    let gateway = Gateway::start(&bounded(1));
    let mut clients = vec![send(&gateway, "/running")];
    service.has_seen(1);
    clients.push(send(&gateway, "/waits"));
    has_waiting(&gateway, 1.0);
    gateway.edit(&bounded(3));
    service.has_seen(2);

    for mut client in clients {
        service.respond();
        assert_eq!(client.read("GET").status, 200);
    }
    let waited = &line(&gateway, "/waits")["flow"];
    assert_eq!((&waited["decision"], &waited["limits"]["places"]), (&"delayed".into(), &1.into()));
}

#[test]
fn an_edit_keeps_those_that_wait_and_a_shorter_queue_rejects_the_newest() {
    let service = Service::start();
    let gateway = Gateway::start(&one_place(&service, "{ max_wait: 20s, max: 9 }"));
    let mut running = send(&gateway, "/running");
    service.has_seen(1);
    let mut waiting = Vec::new();
    for at in 1..=3 {
        waiting.push(send(&gateway, &format!("/{at}")));
        has_waiting(&gateway, f64::from(at));
    }
    gateway.edit(&one_place(&service, "{ max_wait: 19s, max: 2 }"));
    let newest = waiting.pop().expect("three").read("GET");
    assert_eq!((newest.status, &newest.json()["reason"]), (503, &Value::from("queue")));

    service.respond();
    assert_eq!(running.read("GET").status, 200);
    for (mut client, count) in waiting.into_iter().zip(2..) {
        service.has_seen(count);
        service.respond();
        assert_eq!(client.read("GET").status, 200);
    }
    assert_eq!(service.paths(), ["/running", "/1", "/2"]);
}

#[test]
fn a_drain_lets_those_finish_that_wait() {
    let service = Service::start();
    let rule = "    flow: [{ name: places, concurrency: 1, queue: { max_wait: 20s } }]";
    let text = yaml_at(free_port(), service.script.address, &route(rule));
    let mut gateway = Gateway::start(&text);
    let web = gateway.web();
    let mut running = send(&gateway, "/running");
    service.has_seen(1);
    let mut waiting = send(&gateway, "/waiting");
    has_waiting(&gateway, 1.0);
    gateway.signal("TERM");
    eventually("the listener is closed", || TcpStream::connect(web).is_err().then_some(()));
    for (client, count) in [(&mut running, 1), (&mut waiting, 2)] {
        service.has_seen(count);
        service.respond();
        assert_eq!(client.read("GET").text(), "done");
    }
    assert_eq!(gateway.wait().code(), Some(0));
}

#[test]
fn the_requests_of_all_routes_wait_for_the_places_of_an_upstream() {
    let service = Service::start();
    let address = service.script.address;
    let gateway = Gateway::start(&format!(
        "workers: 2\n\
         listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams:\n  - name: up\n    servers: [{{ url: \"http://{address}\" }}]\n    \
         flow: [{{ name: places, concurrency: 1, queue: {{ max_wait: 20s }} }}]\n\
         routes:\n  - {{ name: a, match: {{ path: /a }}, upstream: up }}\n  \
         - {{ name: b, match: {{ path: /b }}, upstream: up }}\n"
    ));
    let mut first = send(&gateway, "/a");
    service.has_seen(1);
    let mut second = send(&gateway, "/b");
    has_waiting(&gateway, 1.0);
    assert_eq!(service.paths(), ["/a"]);
    for (client, count) in [(&mut first, 1), (&mut second, 2)] {
        service.has_seen(count);
        service.respond();
        assert_eq!(client.read("GET").status, 200);
    }
    assert_eq!(service.paths(), ["/a", "/b"]);
}

/// Sends a request with this field.
pub(crate) fn send_as(gateway: &Gateway, path: &str, name: &str, value: &str) -> Client {
    let mut client = Client::new(gateway.web());
    client.send(head("GET", path, &[(name, value)]));
    client
}

/// Lets all requests of these clients finish, one after the other.
fn finish(service: &Service, count: usize) {
    for at in 1..=count {
        service.has_seen(at);
        service.respond();
    }
}

#[test]
fn tenants_take_turns_by_their_weights() {
    let service = Service::start();
    let queue = "{ max_wait: 20s, share_by: 'header:x-tenant', weights: { gold: 3 } }";
    let gateway = Gateway::start(&one_place(&service, queue));
    let mut clients = vec![send(&gateway, "/running")];
    service.has_seen(1);
    // One tenant is there first with all of its requests.
    for (at, tenant) in
        (1..).zip(["flood", "flood", "flood", "flood", "calm", "gold", "gold", "gold"])
    {
        clients.push(send_as(&gateway, &format!("/{tenant}"), "X-Tenant", tenant));
        has_waiting(&gateway, f64::from(at));
    }
    finish(&service, 9);
    let paths = service.paths();
    let turn = |of: &str, nth: usize| {
        let turns = paths.iter().enumerate().filter(|(_, path)| &path[1..] == of);
        turns.map(|(at, _)| at).nth(nth).expect("it started")
    };
    assert!(turn("calm", 0) < turn("flood", 1), "{paths:?}");
    assert!(turn("gold", 2) < turn("flood", 2), "{paths:?}");
}

#[test]
fn a_plan_gives_its_tenants_their_weight() {
    let service = Service::start();
    let queue = "{ max_wait: 20s, share_by: 'header:x-tenant', \
                 plans: { by: 'header:x-plan', weights: { gold: 3 } } }";
    let gateway = Gateway::start(&one_place(&service, queue));
    let mut clients = vec![send(&gateway, "/running")];
    service.has_seen(1);
    let tenants = ["free", "free", "free", "paying", "paying", "paying"];
    for (at, tenant) in (1..).zip(tenants) {
        let plan = if tenant == "paying" { "gold" } else { "none" };
        let mut client = Client::new(gateway.web());
        let fields = [("X-Tenant", tenant), ("X-Plan", plan)];
        client.send(head("GET", &format!("/{tenant}"), &fields));
        clients.push(client);
        has_waiting(&gateway, f64::from(at));
    }
    finish(&service, 7);
    let paths = service.paths();
    let last_of = |of: &str| paths.iter().rposition(|path| &path[1..] == of).expect("it started");
    assert!(last_of("paying") < 6 && last_of("free") == 6, "{paths:?}");
    assert_eq!(paths[1..5].iter().filter(|path| *path == "/paying").count(), 3, "{paths:?}");
}

#[test]
fn interactive_requests_start_before_batch_and_batch_does_not_stand_still() {
    let service = Service::start();
    let queue = "{ max_wait: 20s, classes: { by: 'header:x-class', first_to_last: [interactive, batch], \
                 floor: 25% } }";
    let gateway = Gateway::start(&one_place(&service, queue));
    let mut clients = vec![send(&gateway, "/running")];
    service.has_seen(1);
    let classes = ["batch", "batch", "interactive", "interactive", "interactive", "interactive"];
    for (at, class) in (1..).zip(classes) {
        clients.push(send_as(&gateway, &format!("/{class}"), "X-Class", class));
        has_waiting(&gateway, f64::from(at));
    }
    finish(&service, 7);
    let order: Vec<_> = service.paths().iter().skip(1).map(|path| path[1..2].to_owned()).collect();
    assert_eq!(order, ["i", "i", "i", "b", "i", "b"], "every fourth start is of the last class");
}

#[test]
fn replay_decides_about_a_log_of_a_queue_as_the_gateway_did() {
    let service = Service::start();
    let queue = "{ max_wait: 20s, max: 4, share_by: 'header:x-tenant', weights: { gold: 3 } }";
    let gateway = Gateway::start(&one_place(&service, queue));
    let mut clients = vec![send(&gateway, "/running")];
    service.has_seen(1);
    for (at, tenant) in (1..).zip(["flood", "flood", "gold", "flood"]) {
        clients.push(send_as(&gateway, &format!("/{tenant}-{at}"), "X-Tenant", tenant));
        has_waiting(&gateway, f64::from(at));
    }
    clients.push(send_as(&gateway, "/calm-5", "X-Tenant", "calm"));
    assert_eq!(clients[4].read("GET").status, 503, "the newest of the tenant with the most goes");
    let mut full = send_as(&gateway, "/full", "X-Tenant", "flood");
    let full = full.read("GET");
    assert_eq!((full.status, &full.json()["reason"]), (503, &Value::from("queue")));
    finish(&service, 5);
    let paths = ["/running", "/flood-1", "/flood-2", "/gold-3", "/flood-4", "/calm-5", "/full"];
    let lines: Vec<Value> = paths.iter().map(|path| line(&gateway, path)).collect();

    let log = gateway.config.with_file_name("access.log");
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["replay", "--config"])
        .arg(&gateway.config)
        .args(["--output", "decisions"])
        .arg(&log)
        .output()
        .expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    let replayed: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(replayed.len(), lines.len(), "{text}");
    for (replayed, logged) in replayed.iter().zip(&lines) {
        assert_eq!(replayed["decision"], logged["flow"]["decision"], "{logged}");
        assert_eq!(
            replayed["reason"],
            logged["flow"].get("reason").cloned().unwrap_or(Value::Null)
        );
    }
    // The place is free a little later live than when the response has ended.
    let wait = |line: &Value| line["wait_ms"].as_f64().expect("a number");
    let mut by_wait = vec![1, 2, 3, 5];
    by_wait.sort_by(|one: &usize, other: &usize| {
        wait(&replayed[*one]).total_cmp(&wait(&replayed[*other]))
    });
    let mut live = by_wait.clone();
    live.sort_by(|one: &usize, other: &usize| {
        wait(&lines[*one]["flow"]).total_cmp(&wait(&lines[*other]["flow"]))
    });
    assert_eq!(by_wait, live, "they start in the same order");
}
