//! Several gateways and one store: one limit, and what holds when the store fails.

#[path = "../cluster/server.rs"]
pub(crate) mod server;

use crate::common::{
    Gateway, eventually,
    http::{self, Client},
    metrics,
    upstream::{self, Script},
    yaml,
};
use crate::divided::divided;
use server::{Server, free_port};
use std::{
    net::SocketAddr,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
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
    let (upstream, server) = (upstream::echo(), Server::start());
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
    let (upstream, server) = (upstream::echo(), Server::start());
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
    // Beside the requests' there are greetings, three in a lease and worker; and each worker may
    // come with a script that the store does not know.
    assert!((320..=320 + 16 * 8).contains(&called), "{called} calls for 320 requests");
    let answer = http::get(gateways[7].web(), "/");
    assert!(answer.header("retry-after").is_some());
    assert!(answer.header("ratelimit").is_some_and(|it| it.contains("\"a\";r=0")), "{answer:?}");
}

/// An upstream that answers when it is told to.
fn held(release: &Arc<AtomicBool>, working: &Arc<AtomicUsize>) -> Script {
    let (release, working) = (Arc::clone(release), Arc::clone(working));
    Script::answering(move |_| {
        working.fetch_add(1, SeqCst);
        eventually("the release", || release.load(SeqCst).then_some(()));
        working.fetch_sub(1, SeqCst);
        b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()
    })
}

#[test]
fn what_is_in_flight_is_one_number_and_a_gateway_that_is_gone_holds_none_of_it() {
    let (release, working) = (Arc::default(), Arc::default());
    let (upstream, server) = (held(&release, &working), Server::start());
    let rules = "    flow: [{ name: r, concurrency: 4, scope: cluster, on_store_error: deny }]";
    let store = format!("{PATIENT}, lease: 1s");
    let mut gateways = gateways(3, &config(upstream.address, server.port, &store, rules));
    let begin = |web: SocketAddr| {
        let mut client = Client::new(web);
        client.send(http::head("GET", "/", &[]));
        client
    };
    let mut first = [begin(gateways[0].web()), begin(gateways[0].web())];
    let second = [begin(gateways[1].web()), begin(gateways[1].web())];
    eventually("four at work", || (working.load(SeqCst) == 4).then_some(()));
    let refused = || http::get(gateways[2].web(), "/").status == 503;
    assert!(refused());
    // Renewed, they outlast their lease.
    let long = Instant::now() + Duration::from_millis(2_500);
    eventually("two leases later", || {
        assert!(refused());
        (Instant::now() > long).then_some(())
    });
    gateways.remove(1).signal("KILL");
    drop(second);
    let web = gateways[1].web();
    let late = thread::spawn(move || {
        eventually("room", || Some(http::get(web, "/").status).filter(|status| *status == 200))
    });
    eventually("a fifth at work", || (working.load(SeqCst) == 5).then_some(()));
    release.store(true, SeqCst);
    assert_eq!(late.join().expect("no panic"), 200);
    for client in &mut first {
        assert_eq!(client.read("GET").status, 200);
    }
    let mut connection = server.connection();
    eventually("nothing is held", || {
        let key = "flowgate:{all}:r:leases";
        let held: i64 = redis::cmd("ZCARD").arg(key).query(&mut connection).expect("a number");
        (held == 0).then_some(())
    });
}

#[test]
fn what_is_in_flight_keeps_its_places_however_often_connections_break_or_the_store_hangs() {
    const LIMIT: usize = 8;
    let (release, working) = (Arc::default(), Arc::default());
    let (upstream, server) = (held(&release, &working), Server::start());
    let rules = "    flow: [{ name: r, concurrency: 8, scope: cluster, on_store_error: deny }]";
    let config = config(upstream.address, server.port, "timeout: 300ms, lease: 4s", rules);
    let gateway = gateways(1, &config).remove(0);
    let mut clients: Vec<_> = (0..LIMIT).map(|_| Client::new(gateway.web())).collect();
    for client in &mut clients {
        client.send(http::head("GET", "/", &[]));
    }
    eventually("eight at work", || (working.load(SeqCst) == LIMIT).then_some(()));
    let mut store = server.connection();
    let used = |store: &mut redis::Connection| -> f64 {
        redis::cmd("ZSCORE").arg(&["flowgate:{all}:r:leases", "used"]).query(store).expect("it")
    };
    let leases: usize =
        redis::cmd("ZCARD").arg("flowgate:{all}:r:leases").query(&mut store).expect("a number");
    assert_eq!((leases, used(&mut store)), (LIMIT + 1, -8.0), "each has a name of its own");
    // With both workers' connections; the first request finds its own one broken, and is denied.
    let refused = || (0..4).all(|_| [429, 503].contains(&http::get(gateway.web(), "/").status));
    let lapsed = Instant::now() + Duration::from_secs(6);
    while Instant::now() < lapsed {
        let before = gateway.log_len();
        redis::cmd("CLIENT")
            .arg(&["KILL", "TYPE", "normal", "SKIPME", "yes"])
            .exec(&mut store)
            .expect("killed");
        assert!(refused());
        gateway.wait_log_after(before, "the store decides");
        assert!(refused(), "{}", gateway.log());
    }
    let (before, pid) = (gateway.log_len(), pid(&server));
    signal(&pid, "STOP");
    let lapsed = Instant::now() + Duration::from_secs(5);
    eventually("a lease is over", || {
        assert!(refused());
        (Instant::now() > lapsed).then_some(())
    });
    signal(&pid, "CONT");
    eventually("it decides", || {
        assert!(refused(), "{}", gateway.log());
        gateway.log().lines().skip(before).any(|it| it.contains("the store decides")).then_some(())
    });
    assert!(refused());
    assert_eq!((working.load(SeqCst), used(&mut store)), (LIMIT, -8.0));
    release.store(true, SeqCst);
    for client in &mut clients {
        assert_eq!(client.read("GET").status, 200);
    }
}

#[test]
fn a_gateway_with_a_short_lease_does_not_end_what_others_hold_for_longer() {
    let (release, working) = (Arc::default(), Arc::default());
    let (upstream, server) = (held(&release, &working), Server::start());
    let rules = "    flow: [{ name: r, concurrency: 7, scope: cluster, on_store_error: deny }]";
    let store = |lease: &str| {
        let store = format!("{PATIENT}, lease: {lease}");
        gateways(1, &config(upstream.address, server.port, &store, rules))
    };
    let (long, short) = (store("10m"), store("1s"));
    let mut clients = [long[0].web(), short[0].web()].map(Client::new);
    for (at, client) in clients.iter_mut().enumerate() {
        client.send(http::head("GET", "/", &[]));
        eventually("it is at work", || (working.load(SeqCst) == at + 1).then_some(()));
    }
    let mut connection = server.connection();
    let mut lives = |key: &str| -> i64 {
        redis::cmd("PTTL").arg(key).query(&mut connection).expect("a number")
    };
    // The short lease is renewed three times.
    let renewed = Instant::now() + Duration::from_millis(1_100);
    eventually("it is renewed", || (Instant::now() > renewed).then_some(()));
    for key in ["flowgate:{all}:r:leases", "flowgate:{gateways}:gateways"] {
        assert!(lives(key) > 300_000, "{key}: {}", lives(key));
    }
    release.store(true, SeqCst);
    for client in &mut clients {
        assert_eq!(client.read("GET").status, 200);
    }
}

/// Passes bytes between gateways and the store, late or not at all.
pub(crate) struct Wire {
    pub(crate) port: u16,
    /// Milliseconds that each answer is held back.
    pub(crate) delay: Arc<AtomicU64>,
}

impl Wire {
    pub(crate) fn to(server: &Server) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let (delay, to) = (Arc::new(AtomicU64::new(0)), server.port);
        let late = Arc::clone(&delay);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(store) = std::net::TcpStream::connect(("127.0.0.1", to)) else { continue };
                let (Ok(client_too), Ok(store_too)) = (client.try_clone(), store.try_clone())
                else {
                    continue;
                };
                let late = Arc::clone(&late);
                thread::spawn(move || relay(client, store, &AtomicU64::new(0)));
                thread::spawn(move || relay(store_too, client_too, &late));
            }
        });
        Self { port, delay }
    }
}

fn relay(mut from: std::net::TcpStream, mut to: std::net::TcpStream, delay: &AtomicU64) {
    use std::io::{Read, Write};
    to.set_nodelay(true).expect("set");
    let mut buffer = [0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        thread::park_timeout(Duration::from_millis(delay.load(SeqCst)));
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

/// Whatever happens to the store, nobody gets a 5xx and nobody waits for long; each rule does as
/// it says; and all is well again by itself.
#[test]
fn whatever_fails_in_the_store_no_client_meets_an_error_or_waits_for_it() {
    let upstream = upstream::echo();
    let server = Server::start();
    let (wire, pid) = (Wire::to(&server), pid(&server));
    let rules = "    flow: [{ name: r, limit: 1000000/1h, scope: cluster }]";
    let gateways =
        gateways(2, &config(upstream.address, wire.port, "timeout: 300ms, lease: 3s", rules));
    let tell = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        for word in &words[1..] {
            command.arg(*word);
        }
        command.exec(&mut server.connection()).expect("it does as it is told");
    };
    let config_set = |name: &str, value: &str| tell(&["CONFIG", "SET", name, value]);
    let faults: Vec<Fault<'_>> = vec![
        (
            "hung",
            Some("timeout"),
            Box::new(|| signal(&pid, "STOP")),
            Box::new(|| signal(&pid, "CONT")),
        ),
        (
            "slow",
            Some("timeout"),
            Box::new(|| wire.delay.store(900, SeqCst)),
            Box::new(|| wire.delay.store(0, SeqCst)),
        ),
        (
            "read-only",
            Some("read_only"),
            Box::new(|| tell(&["REPLICAOF", "127.0.0.1", "1"])),
            Box::new(|| tell(&["REPLICAOF", "NO", "ONE"])),
        ),
        (
            "full",
            Some("memory"),
            Box::new(|| config_set("maxmemory", "1")),
            Box::new(|| config_set("maxmemory", "0")),
        ),
        ("flushed", None, Box::new(|| tell(&["FLUSHALL"])), Box::new(|| ())),
        ("without scripts", None, Box::new(|| tell(&["SCRIPT", "FLUSH"])), Box::new(|| ())),
    ];
    for fault in &faults {
        endure(&gateways, fault);
    }
}

/// Something that goes wrong: its name, the word of the error that it is counted as if it is one,
/// how it begins and how it ends.
type Fault<'a> = (&'a str, Option<&'a str>, Box<dyn Fn() + 'a>, Box<dyn Fn() + 'a>);

fn endure(gateways: &[Gateway], (name, kind, begin, end): &Fault<'_>) {
    let logged: Vec<usize> = gateways.iter().map(Gateway::log_len).collect();
    begin();
    let start = Instant::now();
    let [passed, refused, failed] = hammer(gateways, 20);
    let took = start.elapsed();
    let is_full = *kind == Some("memory");
    if is_full {
        // Each has tried the store again and again: a greeting that it takes is a false one.
        for gateway in gateways {
            let key = "flowgate_store_errors_total{kind=\"memory\"}";
            eventually("it has tried again", || {
                hammer(std::slice::from_ref(gateway), 1);
                let errors = metrics(gateway, "flowgate_store_errors_total");
                (errors[key] >= 8.0).then_some(())
            });
        }
    }
    end();
    assert_eq!((refused, failed, passed), (0, 0, 80), "{name}");
    // One call each before all know, and those that look for the store meanwhile.
    assert!(took < Duration::from_secs(5), "{name}: {took:?}");
    for (gateway, logged) in gateways.iter().zip(logged) {
        if let Some(kind) = kind {
            gateway.wait_log_after(logged, "the store fails");
            let key = format!("flowgate_store_errors_total{{kind=\"{kind}\"}}");
            assert!(metrics(gateway, "flowgate_store_errors_total")[&key] > 0.0, "{name}");
            gateway.wait_log_after(logged, "the store decides");
        }
        eventually("it is up again", || (up(gateway) == 1.0).then_some(()));
        if is_full {
            let log = gateway.log();
            for line in ["the store fails", "the store decides"] {
                let said = log.lines().skip(logged).filter(|it| it.contains(line)).count();
                assert_eq!(said, 1, "{name}: {line}: {log}");
            }
        }
    }
}

#[test]
fn a_store_that_is_killed_under_load_leaves_each_rule_as_it_says_and_comes_back() {
    let upstream = upstream::echo();
    let port = free_port();
    let server = Server::start_on(port, &[]);
    let rules = |on_error: &str| {
        format!(
            "    flow: [{{ name: r, limit: 90/1h, burst: 90, scope: cluster, on_store_error: {on_error} }}]"
        )
    };
    let local =
        gateways(3, &config(upstream.address, port, "timeout: 1s, lease: 3s", &rules("local")));
    divided(&local, 30);
    let flood: Vec<_> = local
        .iter()
        .map(|gateway| {
            let web = gateway.web();
            thread::spawn(move || http::statuses(web, "/", 300))
        })
        .collect();
    drop(server);
    let statuses: Vec<u16> =
        flood.into_iter().flat_map(|it| it.join().expect("no panic")).collect();
    assert!(statuses.iter().all(|status| [200, 429].contains(status)), "{statuses:?}");
    let passed = statuses.iter().filter(|status| **status == 200).count();
    // What the store had let pass, and the limit once more in three parts.
    assert!((90..=180).contains(&passed), "{passed}");
    for gateway in &local {
        gateway.wait_log("the store fails");
        eventually("it is down", || (up(gateway) == 0.0).then_some(()));
        assert_eq!(gateway.log().matches("the store fails").count(), 1, "{}", gateway.log());
    }
    for (on_error, expected) in [("allow", [40, 0, 0]), ("deny", [0, 40, 0])] {
        let yaml = config(upstream.address, port, "timeout: 1s", &rules(on_error));
        let gateway = [Gateway::start(&yaml)];
        gateway[0].wait_log("the store fails");
        assert_eq!(hammer(&gateway, 20), expected, "{on_error}");
    }
    let _server = Server::start_on(port, &[]);
    for gateway in &local {
        eventually("it is up again", || (up(gateway) == 1.0).then_some(()));
    }
    assert_eq!(hammer(&local, 50), [90, 210, 0], "a store without memory begins afresh");
}

#[test]
fn a_key_that_the_store_cannot_decide_about_keeps_no_other_from_being_decided() {
    let (upstream, server) = (upstream::echo(), Server::start());
    let rules = "    flow:\n      - { name: r, algorithm: fixed_window, limit: 9/1000h, scope: cluster, on_store_error: deny, key: header:x-tenant }\n      - { name: c, concurrency: 4, scope: cluster, on_store_error: deny }";
    let gateway = gateways(1, &config(upstream.address, server.port, PATIENT, rules)).remove(0);
    let mut store = server.connection();
    let get = |tenant: &str| {
        let mut client = Client::new(gateway.web());
        client.send(http::head("GET", "/", &[("x-tenant", tenant)]));
        client.read("GET").status
    };
    assert_eq!(get("broken"), 200);
    let keys: Vec<String> = redis::cmd("KEYS").arg("*:r:fixed*").query(&mut store).expect("keys");
    redis::cmd("DEL").arg(&keys).exec(&mut store).expect("deleted");
    redis::cmd("LPUSH").arg(&keys[0]).arg("1").exec(&mut store).expect("another kind of value");
    for _ in 0..6 {
        assert_eq!((get("broken"), get("whole")), (429, 200));
    }
    assert_eq!(up(&gateway), 1.0);
    let errors = metrics(&gateway, "flowgate_store_errors_total");
    assert_eq!(errors["flowgate_store_errors_total{kind=\"other\"}"], 6.0);
    let log = gateway.log();
    assert_eq!(log.matches("the store refuses a call").count(), 1, "{log}");
    assert!(!log.contains("the store fails"), "{log}");
}

#[test]
fn a_wrong_password_is_told_and_a_right_one_is_used() {
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
    let told = "flowgate_store_exchanged_states_total";
    let taken = format!("{told}{{what=\"taken\"}}");
    eventually("what passed is told and taken", || {
        (metrics(&right[0], told)[&taken] > 0.0).then_some(())
    });
    assert_eq!(up(&right[0]), 1.0);
}

#[test]
fn what_is_refused_here_costs_no_round_trip_and_what_is_refused_there_leaves_no_trace_here() {
    let (upstream, server) = (upstream::echo(), Server::start());
    let rules = "    flow:\n      - { name: here, algorithm: fixed_window, limit: 3/1000h }\n      - { name: there, algorithm: fixed_window, limit: 2/1000h, scope: cluster }";
    let gateways = gateways(1, &config(upstream.address, server.port, PATIENT, rules));
    assert_eq!(http::statuses(gateways[0].web(), "/", 4), [200, 200, 429, 429]);
    let used = |rule: &str| {
        let counts = metrics(&gateways[0], "flowgate_flow_decisions_total");
        let key = |verdict: &str| {
            format!(
                "flowgate_flow_decisions_total{{route=\"all\",rule=\"{rule}\",verdict=\"{verdict}\"}}"
            )
        };
        [counts[&key("passed")], counts[&key("rejected")]]
    };
    assert_eq!((used("here"), used("there")), ([2.0, 0.0], [2.0, 2.0]));
    let mut connection = server.connection();
    redis::cmd("FLUSHALL").exec(&mut connection).expect("flushed");
    assert_eq!(http::statuses(gateways[0].web(), "/", 3), [200, 429, 429], "a third fits here");
    let key = redis::cmd("KEYS").arg("*there*").query::<Vec<String>>(&mut connection);
    let state: String =
        redis::cmd("GET").arg(&key.expect("a key")[0]).query(&mut connection).expect("it");
    assert!(state.ends_with(" 1"), "{state}: what was refused here was not asked there");
}

#[test]
fn starts_behind_two_gateways_are_spaced_as_behind_one() {
    let (upstream, server) = (upstream::echo(), Server::start());
    let rules = "    pacing: { rate: 20/1s, max_wait: 30s, max_queue: 100, scope: cluster, on_store_error: deny }";
    let gateways = gateways(2, &config(upstream.address, server.port, PATIENT, rules));
    let began = Instant::now();
    assert_eq!(hammer(&gateways, 10), [40, 0, 0]);
    // Forty starts, 50 ms apart.
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(39 * 50), "{took:?}");
}

#[test]
fn an_answer_of_the_store_that_is_late_does_not_put_off_the_start_that_it_tells() {
    let (upstream, server) = (upstream::echo(), Server::start());
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
    const LIMIT: u64 = 40;
    let (upstream, server) = (upstream::echo(), Server::start());
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 40/1s, scope: cluster, on_store_error: deny }]";
    let gateways = gateways(3, &config(upstream.address, server.port, PATIENT, rules));
    let second = || {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.expect("after 1970").as_secs()
    };
    let (first, end) = (second(), Instant::now() + Duration::from_millis(3_500));
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
fn who_leaves_while_the_store_is_asked_has_used_up_nothing_here_and_holds_nothing_there() {
    let (upstream, server) = (upstream::echo(), Server::start());
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
