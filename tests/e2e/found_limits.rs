//! A limit that finds itself, over real sockets: 24 clients on a service that serves 4 requests at once.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics, run,
        upstream::{self, Script},
    },
    explain::explain,
    throttling::route,
};
use serde_json::Value;
use std::{
    fs,
    ops::RangeInclusive,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

const PLACES: u8 = 4;
const CLIENTS: usize = 24;

/// Between which so many requests may be inside the service.
const INSIDE: RangeInclusive<usize> = PLACES as usize..=16;

/// A service with places: requests wait inside until one is free.
#[derive(Default)]
pub(crate) struct Places {
    busy: Mutex<u8>,
    is_free: Condvar,
    /// Requests inside, and the most there were.
    inside: AtomicUsize,
    most_inside: AtomicUsize,
    /// The time that requests were served, in nanoseconds.
    served: AtomicU64,
}

impl Places {
    fn serve(&self) {
        let inside = self.inside.fetch_add(1, SeqCst) + 1;
        self.most_inside.fetch_max(inside, SeqCst);
        let busy = self.busy.lock().expect("no panic");
        let mut busy = self.is_free.wait_while(busy, |busy| *busy >= PLACES).expect("no panic");
        *busy += 1;
        drop(busy);

        let start = Instant::now();
        let_pass(Duration::from_millis(50));
        let took = u64::try_from(start.elapsed().as_nanos()).expect("short");
        self.served.fetch_add(took, SeqCst);
        *self.busy.lock().expect("no panic") -= 1;
        self.is_free.notify_one();
        self.inside.fetch_sub(1, SeqCst);
    }
}

/// Lets this much time pass.
fn let_pass(time: Duration) {
    let (_open, silent) = mpsc::channel::<()>();
    silent.recv_timeout(time).expect_err("none sends");
}

/// Starts the service. What a wait takes longer than 50 ms counts as service time, so that a busy machine
/// changes no figure.
pub(crate) fn service() -> (Script, Arc<Places>) {
    let places = Arc::new(Places::default());
    let inside = Arc::clone(&places);
    let script = Script::start(move |_, mut connection| {
        while connection.read().is_some() {
            inside.serve();
            connection.write(upstream::ok("done"));
        }
    });
    (script, places)
}

/// Clients each of which sends one request after the other.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    pub(crate) fn start(gateway: &Gateway) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |_| {
            let address = gateway.web();
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                let mut client = Client::new(address);
                while !stop.load(SeqCst) {
                    let response = client.get("/");
                    if response.status != 200 {
                        let_pass(Duration::from_millis(20));
                    }
                    if response.header("connection") == Some("close") {
                        client = Client::new(address);
                    }
                }
            })
        };
        let clients = (0..CLIENTS).map(start).collect();
        Self { stop, clients }
    }

    /// Lets each client finish its request.
    pub(crate) fn end(self) {
        self.stop.store(true, SeqCst);
        for client in self.clients {
            client.join().expect("no panic");
        }
    }
}

/// Lets the clients send for 14 s, and returns the most requests inside the service and the share of its
/// places that are busy, in the 4 s after.
fn observe(gateway: &Gateway, places: &Places) -> (usize, f64) {
    let load = Load::start(gateway);
    let_pass(Duration::from_secs(14));

    places.most_inside.store(places.inside.load(SeqCst), SeqCst);
    let before = places.served.load(SeqCst);
    let start = Instant::now();
    let_pass(Duration::from_secs(4));
    let served = Duration::from_nanos(places.served.load(SeqCst) - before);
    let busy = served.as_secs_f64() / start.elapsed().as_secs_f64() / f64::from(PLACES);
    let most = places.most_inside.load(SeqCst);

    load.end();
    (most, busy)
}

pub(crate) fn file(script: &Script, rule: &str) -> String {
    format!(
        "access_log: access.log\nlisteners: [{{ name: web, listen: '127.0.0.1:0' }}]\n\
         admin: {{ listen: '127.0.0.1:0' }}\nupstreams:\n  - name: up\n    \
         servers: [{{ url: 'http://{}' }}]\n    flow: [{{ name: places, {rule} }}]\nroutes:\n{}\n",
        script.address,
        route("")
    )
}

#[test]
fn a_limit_finds_the_places_of_a_service_and_says_why() {
    let (script, places) = service();
    let rule = "concurrency: auto, queue: { max_wait: 2s }";
    let gateway = Gateway::start(&file(&script, rule));
    let (most, busy) = observe(&gateway, &places);
    eprintln!("at most {most} inside, {busy:.3} busy");
    assert!(INSIDE.contains(&most), "{most} of {CLIENTS} inside");
    assert!(busy >= 0.5, "{busy:.3} of the places busy");

    let limit = metrics(&gateway, "flowgate_auto_limit");
    let limit: Vec<_> = limit.into_iter().collect();
    let [(labels, limit)] = &limit[..] else { panic!("one limit: {limit:?}") };
    assert!(labels.contains("budget=\"upstream up"), "{labels}");
    assert!((3.0..=16.0).contains(limit), "{limit}");
    let changes = metrics(&gateway, "flowgate_auto_changes_total");
    let starts = changes.iter().find(|(labels, _)| labels.contains("reason=\"start\""));
    assert!(starts.is_some_and(|(_, count)| *count >= 1.0), "{changes:?}");

    let routes: Value = http::ask(gateway.address("admin"), "/routes").json();
    assert!(routes.to_string().contains("\"auto\":{\"limit\":"), "{routes}");

    let words =
        ["auto: limit ", ", latest ", ", elasticity ", ", trend ", ", unloaded ", ", slot "];
    for command in [&["explain", "/"][..], &["top", "--once"]] {
        let text = run(&gateway, command);
        let line =
            text.lines().find(|line| line.contains("auto: ")).unwrap_or_else(|| panic!("{text}"));
        assert!(words.iter().all(|word| line.contains(word)), "{line}");
    }
    let explained = explain(&gateway, "/", "any");
    let seen =
        explained["rules"].as_array().and_then(|rules| rules.first()).map(|rule| &rule["auto"]);
    assert!(seen.is_some_and(|auto| auto["latest"]["reason"].is_string()), "{explained}");

    let log = gateway.config.with_file_name("access.log");
    let lines = eventually("its lines", || {
        let text = fs::read_to_string(&log).ok()?;
        let lines: Vec<Value> =
            text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        (lines.len() > 100).then_some(lines)
    });
    let of_rule = |line: &Value, key: &str| line["flow"][key].as_object()?.values().next().cloned();
    assert!(lines.iter().all(|line| of_rule(line, "limits").is_some_and(|limit| limit.is_u64())));
    let mut changes = lines.iter().filter_map(|line| of_rule(line, "limit_changes"));
    assert!(changes.any(|change| change["from"] == 2 && change["reason"] == "start"));
}

#[test]
fn a_limit_finds_the_places_without_a_queue() {
    let (script, places) = service();
    let gateway = Gateway::start(&file(&script, "concurrency: { auto: { max: 100 } }"));
    let (most, busy) = observe(&gateway, &places);
    eprintln!("at most {most} inside, {busy:.3} busy");
    assert!(INSIDE.contains(&most), "{most} of {CLIENTS} inside");
    assert!(busy >= 0.5, "{busy:.3} of the places busy");
}
