//! Several gateways and one store: one limit.

#[path = "../cluster/server.rs"]
pub(crate) mod server;

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics, pause, upstream, yaml,
    },
    port::free_port,
};
use server::Server;
use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    thread,
    time::{Duration, Instant},
};

/// A store that takes long to answer on a busy machine must not fail a test of something else.
pub(crate) const PATIENT: &str = "timeout: 5s";

/// What a user of the store must be allowed.
pub(crate) const MAY: &str = "eval evalsha time get mget set exists pexpire pttl del zadd zrem zcard zscore zincrby zrange zrevrange zrangebyscore zremrangebyscore";

pub(crate) fn config(upstream: SocketAddr, port: u16, store: &str, rules: &str) -> String {
    let store = format!("store: {{ redis: \"redis://127.0.0.1:{port}\", {store} }}\n");
    let route =
        format!("  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n{rules}");
    store + &yaml(upstream, &route)
}

/// Starts gateways that have reached the store.
pub(crate) fn gateways(count: usize, yaml: &str) -> Vec<Gateway> {
    let gateways: Vec<_> = (0..count).map(|_| Gateway::start(yaml)).collect();
    for gateway in &gateways {
        gateway.wait_log("the store decides");
    }
    gateways
}

/// Has two clients of each gateway send so many requests each, all at once. Returns how many were
/// answered with 200, with 429 and with anything else.
pub(crate) fn hammer(gateways: &[Gateway], requests: usize) -> [usize; 3] {
    let addresses = gateways.iter().flat_map(|gateway| [gateway.web(); 2]);
    let clients: Vec<_> =
        addresses.map(|web| thread::spawn(move || http::statuses(web, "/", requests))).collect();
    let mut counts = [0; 3];
    for status in clients.into_iter().flat_map(|client| client.join().expect("no panic")) {
        counts[match status {
            200 => 0,
            429 => 1,
            _ => 2,
        }] += 1;
    }
    counts
}

pub(crate) fn up(gateway: &Gateway) -> f64 {
    metrics(gateway, "flowgate_store_up")["flowgate_store_up"]
}

#[test]
fn three_gateways_admit_one_limit_whatever_the_algorithm() {
    let upstream = upstream::echo();
    let server = Server::start();
    for (at, rule) in [
        "algorithm: token_bucket, limit: 60/1h, burst: 60",
        "algorithm: leaky_bucket, limit: 60/1h, burst: 60",
        "algorithm: sliding_window, limit: 60/1000h",
        "algorithm: sliding_window, limit: 60/1000h, strict: true",
        "algorithm: sliding_counter, limit: 60/1000h",
        "algorithm: fixed_window, limit: 60/1000h",
        "algorithm: fixed_window, limit: 60/1h, align: first_request, key: client_ip",
        "algorithm: fixed_window, limit: 60/month",
    ]
    .into_iter()
    .enumerate()
    {
        let rules =
            format!("    flow: [{{ name: r{at}, {rule}, scope: cluster, on_store_error: deny }}]");
        let gateways = gateways(3, &config(upstream.address, server.port, PATIENT, &rules));
        assert_eq!(hammer(&gateways, 25), [60, 90, 0], "{rule}");
    }
    let mut store = server.connection();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut store).expect("the keys");
    assert!(keys.len() >= 10, "{keys:?}");
    for key in keys {
        assert!(!key.contains("127.0.0.1"), "{key}");
        let left: i64 = redis::cmd("PTTL").arg(&key).query(&mut store).expect("a time to live");
        assert!(left > 0 || left == -2, "{key} stays for ever");
    }
}

#[test]
fn eight_gateways_admit_one_limit_in_one_round_trip_each() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow:\n      - { name: a, limit: 100/1h, burst: 100, scope: cluster, on_store_error: deny }\n      - { name: b, algorithm: fixed_window, limit: 110/1000h, scope: cluster, on_store_error: deny }";
    let gateways = gateways(8, &config(upstream.address, server.port, PATIENT, rules));
    let calls = || {
        let info: String =
            redis::cmd("INFO").arg("commandstats").query(&mut server.connection()).expect("it");
        let calls = |name: &str| {
            let line = info.lines().find_map(|line| line.strip_prefix(name));
            let digits = line.map(|line| line.split(',').next().unwrap_or_default().to_owned());
            digits.map_or(0, |digits| digits.parse::<usize>().expect("digits"))
        };
        calls("cmdstat_evalsha:calls=") + calls("cmdstat_eval:calls=")
    };
    let before = calls();
    assert_eq!(hammer(&gateways, 20), [100, 220, 0]);
    let called = calls() - before;
    // A request that the store rejects may spare those behind it their calls. Beside the requests'
    // there are greetings, three in a lease and worker; and each worker may come with a script that
    // the store does not know.
    assert!((100..=320 + 16 * 8).contains(&called), "{called} calls for 320 requests");
    let answer = http::get(gateways[7].web(), "/");
    assert!(answer.header("retry-after").is_some());
    assert!(
        answer.header("ratelimit").is_some_and(|value| value.contains("\"a\";r=0")),
        "{answer:?}"
    );
}

/// Passes bytes between gateways and the store, late or not at all.
pub(crate) struct Wire {
    pub(crate) port: u16,
    /// Milliseconds that each answer is held back, or [`BREAK`].
    pub(crate) delay: Arc<AtomicU64>,
    /// Whether nothing comes through, either way, and no end learns of it: what is sent meanwhile
    /// comes when this is over, as TCP sends it again.
    pub(crate) cut: Arc<AtomicBool>,
}

/// The next answer is lost, and its connection breaks.
pub(crate) const BREAK: u64 = u64::MAX;

impl Wire {
    pub(crate) fn to(server: &Server) -> Self {
        Self::to_port(server.port)
    }

    pub(crate) fn to_port(to: u16) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let delay = Arc::new(AtomicU64::new(0));
        let cut = Arc::new(AtomicBool::new(false));
        let late = Arc::clone(&delay);
        let is_cut = Arc::clone(&cut);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(store) = std::net::TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (Ok(client_too), Ok(store_too)) = (client.try_clone(), store.try_clone())
                else {
                    continue;
                };
                let late = Arc::clone(&late);
                let cuts = [(); 2].map(|()| Arc::clone(&is_cut));
                let [there, back] = cuts;
                thread::spawn(move || relay(client, store, &AtomicU64::new(0), &there));
                thread::spawn(move || relay(store_too, client_too, &late, &back));
            }
        });
        Self { port, delay, cut }
    }
}

fn relay(
    mut from: std::net::TcpStream,
    mut to: std::net::TcpStream,
    delay: &AtomicU64,
    cut: &AtomicBool,
) {
    use std::io::{Read, Write};
    to.set_nodelay(true).expect("set");
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        if delay.compare_exchange(BREAK, 0, SeqCst, SeqCst).is_ok() {
            break;
        }
        thread::park_timeout(Duration::from_millis(delay.load(SeqCst)));
        while cut.load(SeqCst) {
            pause();
        }
        if to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    for stream in [from, to] {
        drop(stream.shutdown(std::net::Shutdown::Both));
    }
}

/// Returns the process of a server.
pub(crate) fn pid(server: &Server) -> String {
    let mut connection = server.connection();
    let info: String = redis::cmd("INFO").arg("server").query(&mut connection).expect("it");
    let pid = info.lines().find_map(|line| line.strip_prefix("process_id:"));
    pid.expect("a line of it").trim().to_owned()
}

pub(crate) fn signal(pid: &str, name: &str) {
    assert!(
        Command::new("kill").args([&format!("-{name}"), pid]).status().expect("kill").success()
    );
}

#[test]
fn a_wrong_password_is_reported_and_a_right_one_is_used() {
    let upstream = upstream::echo();
    let server = Server::start_on(free_port(), &[]);
    let rules = "    flow:\n      - { name: r, limit: 5/1h, burst: 5, scope: cluster, on_store_error: deny }\n      - { name: c, concurrency: 9, scope: cluster, on_store_error: deny }\n      - { name: p, limit: 900/1h, burst: 900, scope: cluster, sync_interval: 20ms }";
    let may: Vec<String> = MAY.split(' ').map(|word| format!("+{word}")).collect();
    redis::cmd("ACL")
        .arg(&["SETUSER", "gate", "on", ">secret", "~flowgate:*"])
        .arg(&may)
        .exec(&mut server.connection())
        .expect("a user");
    let config = |login: &str| {
        config(upstream.address, server.port, PATIENT, rules)
            .replace("redis://", &format!("redis://{login}@"))
    };
    let wrong = Gateway::start(&config("gate:guess"));
    let line = wrong.wait_log("the store fails");
    assert!(!line.contains("guess"), "{line}");
    assert_eq!(hammer(std::slice::from_ref(&wrong), 5), [0, 10, 0]);
    let right = gateways(1, &config("gate:secret"));
    assert_eq!(hammer(&right, 5), [5, 5, 0]);
    let states = "flowgate_store_sync_states_total";
    let taken = format!("{states}{{what=\"taken\"}}");
    eventually("what passed is sent and taken", || {
        (metrics(&right[0], states)[&taken] > 0.0).then_some(())
    });
    assert_eq!(up(&right[0]), 1.0);
}

#[test]
fn what_is_rejected_here_costs_no_round_trip_and_what_is_rejected_there_leaves_no_trace_here() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow:\n      - { name: here, algorithm: fixed_window, limit: 3/1000h }\n      - { name: there, algorithm: fixed_window, limit: 2/1000h, scope: cluster }";
    let gateways = gateways(1, &config(upstream.address, server.port, PATIENT, rules));
    assert_eq!(http::statuses(gateways[0].web(), "/", 4), [200, 200, 429, 429]);
    let used = |rule: &str| {
        let counts = metrics(&gateways[0], "flowgate_flow_decisions_total");
        let key = |decision: &str, reason: &str| {
            format!(
                "flowgate_flow_decisions_total{{route=\"all\",rule=\"{rule}\",decision=\"{decision}\",reason=\"{reason}\"}}"
            )
        };
        [counts[&key("passed", "")], counts[&key("rejected", "rate")]]
    };
    assert_eq!((used("here"), used("there")), ([2.0, 0.0], [2.0, 2.0]));
    let mut connection = server.connection();
    redis::cmd("FLUSHALL").exec(&mut connection).expect("flushed");
    // Once the gateway has learned that the store has lost its memory.
    let web = gateways[0].web();
    eventually("a third fits here", || (http::get(web, "/").status == 200).then_some(()));
    assert_eq!(http::statuses(web, "/", 2), [429, 429]);
    let key = redis::cmd("KEYS").arg("*there*").query::<Vec<String>>(&mut connection);
    let state: String =
        redis::cmd("GET").arg(&key.expect("a key")[0]).query(&mut connection).expect("it");
    assert!(state.ends_with(" 1"), "{state}: what was rejected here was not asked there");
}

#[test]
fn starts_behind_two_gateways_are_spaced_as_behind_one() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    pacing: { rate: 20/1s, max_wait: 30s, max_queue: 100, scope: cluster, on_store_error: deny }";
    let gateways = gateways(2, &config(upstream.address, server.port, PATIENT, rules));
    let began = Instant::now();
    assert_eq!(hammer(&gateways, 10), [40, 0, 0]);
    // Forty starts, 50 ms apart.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(39 * 50), "{took:?}");
}

#[test]
fn an_answer_of_the_store_that_is_late_does_not_put_off_the_start_that_it_gives() {
    let upstream = upstream::echo();
    let server = Server::start();
    let wire = Wire::to(&server);
    let rules = "    pacing: { rate: 1/2s, max_wait: 30s, scope: cluster, on_store_error: deny }";
    let text = config(upstream.address, wire.port, PATIENT, rules);
    let gateways = gateways(1, &format!("access_log: access.log\n{text}"));
    assert_eq!(http::get(gateways[0].web(), "/").status, 200);
    wire.delay.store(1_500, SeqCst);
    assert_eq!(http::get(gateways[0].web(), "/").status, 200);
    let log = gateways[0].dir.path().join("access.log");
    let waits = eventually("two lines", || {
        let text = std::fs::read_to_string(&log).ok()?;
        let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        let waits = lines.filter_map(|line: serde_json::Value| line["flow"]["wait_ms"].as_f64());
        Some(waits.collect::<Vec<_>>()).filter(|waits| waits.len() == 2)
    });
    // It starts 2 s after the first, of which 1.5 s were over when the gateway heard of it.
    assert!(waits[0] < 0.1 && waits[1] < 1_000.0, "{waits:?}");
}

#[test]
fn each_second_lets_three_gateways_pass_its_limit_and_no_more() {
    // So few that a busy machine asks for more of them in each second.
    const LIMIT: u64 = 10;
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 10/1s, scope: cluster, on_store_error: deny }]";
    let gateways = gateways(3, &config(upstream.address, server.port, PATIENT, rules));
    let second = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.expect("after 1970").as_secs()
    };
    let first = second();
    let end = Instant::now() + Duration::from_millis(3_500);
    let clients: Vec<_> = gateways
        .iter()
        .map(|gateway| {
            let web = gateway.web();
            thread::spawn(move || {
                let mut client = Client::new(web);
                let mut passed = 0;
                while Instant::now() < end {
                    passed += u64::from(client.get("/").status == 200);
                }
                passed
            })
        })
        .collect();
    let passed: u64 = clients.into_iter().map(|client| client.join().expect("no panic")).sum();
    let touched = second() - first + 1;
    assert!(passed <= LIMIT * touched, "{passed} in {touched} seconds");
    assert!(
        passed >= LIMIT * (touched - 2),
        "{passed} in {touched} seconds: each was asked for all"
    );
}

#[test]
fn a_client_that_leaves_while_the_store_is_asked_uses_nothing_here_and_holds_nothing_there() {
    let upstream = upstream::echo();
    let server = Server::start();
    let wire = Wire::to(&server);
    let rules = "    flow:\n      - { name: here, algorithm: fixed_window, limit: 1/1000h }\n      - { name: there, concurrency: 1, scope: cluster, on_store_error: deny }";
    let gateways = gateways(1, &config(upstream.address, wire.port, PATIENT, rules));
    wire.delay.store(300, SeqCst);
    let mut client = Client::new(gateways[0].web());
    client.send(http::head("GET", "/", &[]));
    let mut connection = server.connection();
    let mut held = || -> i64 {
        let key = "flowgate:{all}:there:leases";
        redis::cmd("ZCARD").arg(key).query(&mut connection).expect("a number")
    };
    eventually("the store has let it pass", || (held() > 0).then_some(()));
    drop(client);
    eventually("it is given back", || (held() == 0).then_some(()));
    wire.delay.store(0, SeqCst);
    assert_eq!(http::statuses(gateways[0].web(), "/", 2), [200, 429], "one fits here");
}
