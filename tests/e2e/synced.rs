//! Several gateways that sync counts: what passes, what is lost and what is counted twice.

use crate::{
    cluster::{
        BREAK, MAY, PATIENT, Wire, config, gateways, hammer, pid, server::Server, signal, up,
    },
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics, upstream,
    },
    port::free_port,
};
use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

const RULE: &str = "    flow: [{ name: r, algorithm: fixed_window, limit: 300/1000h, scope: cluster, sync_interval: 50ms }]";

/// Waits until every gateway decides by the whole limit.
pub(crate) fn settled(gateways: &[Gateway], limit: u64) {
    for gateway in gateways {
        eventually("it syncs", || {
            let is_up = metrics(gateway, "flowgate_store_sync_up");
            let routes = http::ask(gateway.address("admin"), "/routes").text();
            let is_whole = routes.contains(&format!("\"most\": {limit},"));
            (is_up["flowgate_store_sync_up"] == 1.0 && is_whole).then_some(())
        });
    }
}

/// Returns what the store says is used of the rule `r`, a fixed window, if it is synced as that.
pub(crate) fn used(server: &Server) -> Option<u64> {
    let decided = "flowgate:{all}:r:fixed/3600000000000";
    used_under(&format!("{decided}:exchanged"), server).or_else(|| used_under(decided, server))
}

/// Returns what the store says is used of the fixed window under this key.
fn used_under(key: &str, server: &Server) -> Option<u64> {
    let state: String = redis::cmd("GET").arg(key).query(&mut server.connection()).ok()?;
    state.split(' ').nth(2)?.parse().ok()
}

/// Has a client of each gateway ask for so long, and returns how many were answered with 200.
pub(crate) fn flood(gateways: &[Gateway], long: Duration) -> Vec<thread::JoinHandle<u64>> {
    let end = Instant::now() + long;
    let client = |gateway: &Gateway| {
        let web = gateway.web();
        thread::spawn(move || {
            let mut client = Client::new(web);
            let mut passed = 0;
            while Instant::now() < end {
                let status = client.get("/").status;
                assert!([200, 429].contains(&status), "{status}");
                passed += u64::from(status == 200);
            }
            passed
        })
    };
    gateways.iter().map(client).collect()
}

pub(crate) fn sum(flood: Vec<thread::JoinHandle<u64>>) -> u64 {
    flood.into_iter().map(|client| client.join().expect("no 5xx")).sum()
}

#[test]
fn three_gateways_pass_no_more_than_check_says_and_the_store_has_counted_each_once() {
    let upstream = upstream::echo();
    let server = Server::start();
    let yaml = config(upstream.address, server.port, &format!("gateways: 3, {PATIENT}"), RULE);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gateway.yaml");
    std::fs::write(&file, &yaml).expect("written");
    let plan = flowgate::config::read(&file).expect("in order");
    let description = flowgate::config::describe(&plan);
    let bound = "in 100ms) more; 3 gateways 600 at most; ";
    assert!(description.contains(bound), "{description}");
    let mut gateways = gateways(3, &yaml);
    settled(&gateways, 300);
    let [passed, rejected, failed] = hammer(&gateways, 200);
    assert_eq!((passed + rejected, failed), (1_200, 0));
    assert!((300..=300 + 600).contains(&passed), "{passed}");
    eventually("all is sent", || (used(&server) == Some(passed as u64)).then_some(()));
    let bound = metrics(&gateways[0], "flowgate_flow_excess_bound");
    assert!(bound["flowgate_flow_excess_bound{route=\"all\",rule=\"r\"}"] <= 600.0, "{bound:?}");
    // A gateway that starts late has learned it with its first sync.
    gateways.extend(self::gateways(1, &yaml));
    settled(&gateways, 300);
    assert_eq!(hammer(&gateways, 5), [0, 40, 0]);
}

#[test]
fn nothing_is_lost_or_counted_twice_when_the_store_hangs_in_a_flood() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rule = RULE.replace("300/", "1000000/");
    let yaml = config(upstream.address, server.port, "timeout: 1s", &rule);
    let gateways = gateways(3, &yaml);
    settled(&gateways, 1_000_000);
    let pid = pid(&server);
    let flood = flood(&gateways, Duration::from_secs(4));
    eventually("some are sent", || used(&server).filter(|used| *used > 20));
    signal(&pid, "STOP");
    for gateway in &gateways {
        gateway.wait_log("the store fails");
    }
    signal(&pid, "CONT");
    let passed = sum(flood);
    assert!(passed > 20, "{passed}");
    eventually("all is sent", || (used(&server)? >= passed).then_some(()));
    settled(&gateways, 1_000_000);
    assert_eq!(used(&server), Some(passed));
}

#[test]
fn nothing_is_lost_or_counted_twice_when_the_store_is_killed_in_a_flood_and_remembers() {
    let upstream = upstream::echo();
    let folder = tempfile::tempdir().expect("a folder");
    let remember = ["--appendonly", "yes", "--appendfsync", "always", "--dir"];
    let options: Vec<&str> = remember.into_iter().chain(folder.path().to_str()).collect();
    let port = free_port();
    let server = Server::start_on(port, &options);
    let rule = RULE.replace("300/", "1000000/");
    let gateways = gateways(3, &config(upstream.address, port, "timeout: 1s", &rule));
    settled(&gateways, 1_000_000);
    let pid = pid(&server);
    let flood = flood(&gateways, Duration::from_secs(4));
    eventually("some are sent", || used(&server).filter(|used| *used > 20));
    signal(&pid, "KILL");
    for gateway in &gateways {
        gateway.wait_log("the store fails");
    }
    drop(server);
    let server = Server::start_on(port, &options);
    let passed = sum(flood);
    eventually("all is sent", || (used(&server)? >= passed).then_some(()));
    settled(&gateways, 1_000_000);
    assert_eq!(used(&server), Some(passed));
}

#[test]
fn a_store_that_is_flushed_counts_what_passes_from_then_on() {
    let upstream = upstream::echo();
    let server = Server::start();
    let gateways = gateways(3, &config(upstream.address, server.port, PATIENT, RULE));
    settled(&gateways, 300);
    for _ in 0..2 {
        assert_eq!(hammer(&gateways, 5), [30, 0, 0]);
        eventually("all is sent", || (used(&server) == Some(30)).then_some(()));
        redis::cmd("FLUSHALL").exec(&mut server.connection()).expect("flushed");
    }
    for gateway in &gateways {
        let log = gateway.log();
        assert!(!log.contains("the store fails") && !log.contains("rejected a call"), "{log}");
    }
}

#[test]
fn a_gateway_that_ends_sends_the_rest_and_notices_between_two_syncs_that_the_store_is_gone() {
    let upstream = upstream::echo();
    let port = free_port();
    let server = Server::start_on(port, &[]);
    let rule = RULE.replace("50ms", "1m, on_store_error: deny");
    let yaml = config(upstream.address, port, &format!("lease: 1s, {PATIENT}"), &rule);
    let mut gateways = gateways(2, &yaml);
    settled(&gateways, 300);
    assert_eq!(hammer(&gateways, 5), [20, 0, 0]);
    // It has 10, of which the store hears when it ends.
    gateways[0].signal("TERM");
    assert!(gateways[0].wait().success());
    assert_eq!(used(&server), Some(10));
    drop(server);
    gateways[1].wait_log("the store fails");
    eventually("the rule rejects", || {
        (http::get(gateways[1].web(), "/").status == 429).then_some(())
    });
}

#[test]
fn an_edit_that_removes_or_resets_a_rule_loses_nothing_of_what_it_let_pass() {
    let upstream = upstream::echo();
    let server = Server::start();
    let synced = config(upstream.address, server.port, PATIENT, &RULE.replace("50ms", "1m"));
    let atomic = synced.replace(", sync_interval: 1m", "");
    let mut gateways = gateways(1, &synced);
    settled(&gateways, 300);
    let counts = |passed| {
        eventually("all is sent", || (used(&server) == Some(passed)).then_some(()));
    };
    assert_eq!(hammer(&gateways, 5), [10, 0, 0]);
    gateways[0].edit(&atomic);
    counts(10);
    // What the store decides about counts apart.
    assert_eq!(hammer(&gateways, 5), [10, 0, 0]);
    assert_eq!(used_under("flowgate:{all}:r:fixed/3600000000000", &server), Some(10));
    // It comes back, and is counted on, though the store has merged calls about it before.
    gateways[0].edit(&synced);
    settled(&gateways, 300);
    assert_eq!(hammer(&gateways, 5), [10, 0, 0]);
    gateways[0].edit(&synced.replace("name: all", "name: other"));
    counts(20);
    gateways[0].signal("TERM");
    assert!(gateways[0].wait().success());
    counts(20);
}

#[test]
fn a_gateway_that_starts_knows_what_all_have_used_before_it_takes_a_request() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = RULE.replace("300/", "30/");
    let yaml = config(upstream.address, server.port, PATIENT, &rules);
    let first = gateways(1, &yaml);
    settled(&first, 30);
    assert_eq!(hammer(&first, 20), [30, 10, 0]);
    eventually("all is sent", || (used(&server) == Some(30)).then_some(()));
    for _ in 0..3 {
        let late = Gateway::start(&yaml);
        assert_eq!(hammer(std::slice::from_ref(&late), 5), [0, 10, 0], "{}", late.log());
    }
}

#[test]
fn a_store_that_has_not_failed_denies_nobody_at_a_start_or_an_edit() {
    let upstream = upstream::echo();
    let server = Server::start();
    let atomic = "    flow: [{ name: r, algorithm: fixed_window, limit: 300/1000h, scope: cluster, on_store_error: deny }]";
    let synced = atomic.replace("deny", "deny, sync_interval: 50ms");
    let [atomic, synced] =
        [atomic, &synced].map(|rules| config(upstream.address, server.port, PATIENT, rules));
    let of_store = Gateway::start(&atomic);
    assert_eq!(hammer(std::slice::from_ref(&of_store), 5), [10, 0, 0]);
    for sent in [10, 20] {
        of_store.edit(&synced);
        assert_eq!(hammer(std::slice::from_ref(&of_store), 5), [10, 0, 0]);
        of_store.edit(&atomic);
        eventually("all is sent", || (used(&server) == Some(sent)).then_some(()));
    }
    let syncing = Gateway::start(&synced);
    assert_eq!(hammer(std::slice::from_ref(&syncing), 5), [10, 0, 0]);
}

#[test]
fn an_edit_denies_nobody_when_the_store_has_failed_once_and_is_well() {
    let upstream = upstream::echo();
    let server = Server::start();
    let wire = Wire::to(&server);
    let atomic = RULE.replace("sync_interval: 50ms", "on_store_error: deny");
    let synced = RULE.replace("sync", "on_store_error: deny, sync");
    let [atomic, synced] =
        [atomic, synced].map(|rules| config(upstream.address, wire.port, PATIENT, &rules));
    let gateways = gateways(1, &atomic);
    let logged = gateways[0].log_len();
    wire.delay.store(BREAK, SeqCst);
    // A greeting may have been first.
    assert!([200, 429].contains(&http::get(gateways[0].web(), "/").status));
    gateways[0].wait_log_after(logged, "the store fails");
    gateways[0].wait_log_after(logged, "the store decides");
    gateways[0].edit(&synced);
    // Until the sync has begun, and some more.
    let mut client = Client::new(gateways[0].web());
    let mut ask = || assert_eq!(client.get("/").status, 200, "{}", gateways[0].log());
    eventually("it syncs", || {
        ask();
        let found = metrics(&gateways[0], "flowgate_store_sync_up");
        (found.get("flowgate_store_sync_up") == Some(&1.0)).then_some(())
    });
    ask();
}

#[test]
fn a_gateway_that_cannot_sync_does_as_the_rule_says() {
    let upstream = upstream::echo();
    for (on_error, expected) in
        [("local", [100, 20, 0]), ("allow", [120, 0, 0]), ("deny", [0, 120, 0])]
    {
        let rule =
            RULE.replace("sync_interval", &format!("on_store_error: {on_error}, sync_interval"));
        // Nobody listens there, and three gateways are said to share it.
        let yaml = config(upstream.address, free_port(), "gateways: 3, timeout: 1s", &rule);
        let gateways = [Gateway::start(&yaml)];
        gateways[0].wait_log("the store fails");
        assert_eq!(hammer(&gateways, 60), expected, "{on_error}");
    }
}

#[test]
fn a_store_that_is_too_slow_for_requests_still_serves_the_sync() {
    let upstream = upstream::echo();
    let server = Server::start();
    let wire = Wire::to(&server);
    // Beyond the 20 ms that a request would wait.
    wire.delay.store(40, SeqCst);
    let gateways = [Gateway::start(&config(upstream.address, wire.port, "lease: 1s", RULE))];
    assert_eq!(http::get(gateways[0].web(), "/").status, 200);
    let sent = "flowgate_store_sync_states_total{what=\"sent\"}";
    eventually("it is sent", || {
        (metrics(&gateways[0], "flowgate_store_sync_states_total")[sent] == 1.0).then_some(())
    });
    assert_eq!(used(&server), Some(1));
}

#[test]
fn the_sync_has_a_connection_and_a_metric_from_the_first_rule_that_wants_it() {
    let upstream = upstream::echo();
    let server = Server::start();
    let atomic = RULE.replace(", sync_interval: 50ms", "");
    let yaml = |rule: &str| config(upstream.address, server.port, PATIENT, rule);
    let gateways = gateways(1, &yaml(&atomic));
    assert_eq!(hammer(&gateways, 5), [10, 0, 0]);
    let mut connection = server.connection();
    let mut connected = || -> usize {
        let mut clients = redis::cmd("CLIENT");
        let clients: String = clients.arg("LIST").query(&mut connection).expect("a list");
        // One is the test's.
        clients.lines().filter(|line| line.contains("cmd=")).count() - 1
    };
    let workers = connected();
    let sync_up = || {
        let found = metrics(&gateways[0], "flowgate_store_sync_up");
        found.get("flowgate_store_sync_up").copied()
    };
    assert_eq!(sync_up(), None);
    gateways[0].edit(&yaml(RULE));
    eventually("it syncs", || (sync_up() == Some(1.0)).then_some(()));
    assert_eq!((connected(), up(&gateways[0])), (workers + 1, 1.0));
}

#[test]
fn rules_that_nobody_asks_for_are_synced_by_a_glance_and_known_when_somebody_does() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rule = |at| {
        format!(
            "{{ name: r{at}, algorithm: fixed_window, limit: 30/1000h, scope: cluster, sync_interval: 20ms, dry_run: {} }}",
            at != 7
        )
    };
    let rules: Vec<_> = (0..16).map(rule).collect();
    let rules = format!("    flow: [{}]", rules.join(", "));
    let gateways = gateways(2, &config(upstream.address, server.port, PATIENT, &rules));
    settled(&gateways, 30);
    let mut connection = server.connection();
    let mut calls = |what: &str| -> u64 {
        let mut stats = redis::cmd("INFO");
        let stats: String = stats.arg("commandstats").query(&mut connection).expect("numbers");
        let of = |line: &str| {
            let counts = line.strip_prefix(&format!("cmdstat_{what}:calls="))?;
            counts.split(',').next()?.parse().ok()
        };
        stats.lines().find_map(of).unwrap_or_default()
    };
    // Those of the first syncs, in which each rule asks for all that there is.
    eventually("all have come to rest", || {
        let [scripts, glances] = ["evalsha", "zrevrange"].map(&mut calls);
        (glances > 500 + 2 * scripts).then_some(())
    });
    let [scripts, glances] = ["evalsha", "zrevrange"].map(&mut calls);
    eventually("each is glanced at", || (calls("zrevrange") > glances + 1_000).then_some(()));
    let more = calls("evalsha") - scripts;
    assert!(more < 100, "{more} calls beside more than 1,000 glances");
    // What the others use is learned all the same.
    assert_eq!(hammer(&gateways[..1], 20), [30, 10, 0]);
    eventually("the other knows", || {
        (http::get(gateways[1].web(), "/").status == 429).then_some(())
    });
}

/// Returns what the store says is used of each rule, fixed windows `a`, `b`, … of the route `all`.
fn used_of<const N: usize>(server: &Server, rules: [&str; N]) -> [u64; N] {
    rules.map(|rule| {
        let key = format!("flowgate:{{all}}:{rule}:fixed/3600000000000:exchanged");
        used_under(&key, server).unwrap_or_default()
    })
}

/// Returns how many errors of the store were counted, by their words.
fn errors(gateway: &Gateway) -> impl Fn(&str) -> f64 {
    let errors = metrics(gateway, "flowgate_store_errors_total");
    move |kind| errors[&format!("flowgate_store_errors_total{{kind=\"{kind}\"}}")]
}

#[test]
fn a_rule_that_the_store_rejects_does_as_it_says_alone_and_is_synced_when_it_can_be() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rule = |at| {
        format!(
            "{{ name: {at}, algorithm: fixed_window, limit: 30/1000h, scope: cluster, sync_interval: 20ms, dry_run: true }}"
        )
    };
    let rules = format!("    flow: [{}]", ["a", "b", "c", "d"].map(rule).join(", "));
    let store = format!("gateways: 3, {PATIENT}");
    let gateways = gateways(1, &config(upstream.address, server.port, &store, &rules));
    settled(&gateways, 30);
    // What else there is to know of a rule lies under a key that holds something else.
    let list = "flowgate:{all}:b:fixed/3600000000000:exchanged:changed";
    let mut connection = server.connection();
    redis::cmd("SET").arg(&[list, "1"]).exec(&mut connection).expect("set");
    gateways[0].wait_log("the store rejected a call");
    let most = || {
        let routes = http::ask(gateways[0].address("admin"), "/routes").text();
        let of = |most: u64| routes.matches(&format!("\"most\": {most},")).count();
        (of(30), of(10))
    };
    eventually("it counts alone, with its part", || (most() == (3, 1)).then_some(()));
    assert_eq!(hammer(&gateways, 5), [10, 0, 0]);
    eventually("the others are synced", || {
        (used_of(&server, ["a", "b", "c", "d"]) == [10, 0, 10, 10]).then_some(())
    });
    let is_up = metrics(&gateways[0], "flowgate_store_sync_up");
    assert_eq!((is_up["flowgate_store_sync_up"], up(&gateways[0])), (1.0, 1.0));
    assert!(errors(&gateways[0])("other") > 0.0);
    redis::cmd("DEL").arg(list).exec(&mut connection).expect("deleted");
    eventually("it is sent", || (used_of(&server, ["a", "b", "c", "d"]) == [10; 4]).then_some(()));
    eventually("it counts the whole", || (most() == (4, 0)).then_some(()));
    let log = gateways[0].log();
    assert!(!log.contains("the store fails"), "{log}");
}

#[test]
fn what_fails_in_a_sync_of_several_rules_is_counted_by_its_kind() {
    let upstream = upstream::echo();
    let server = Server::start();
    let run = |words: &str| {
        let mut words = words.split(' ');
        let mut command = redis::cmd(words.next().expect("a command"));
        words.for_each(|word| _ = command.arg(word));
        command.exec(&mut server.connection()).expect("the store does it");
    };
    let may = MAY.replace(' ', " +");
    run(&format!("ACL SETUSER gate on >secret ~flowgate:* +{may}"));
    let rule = |at| {
        format!("{{ name: {at}, limit: 30/1h, burst: 30, scope: cluster, sync_interval: 20ms }}")
    };
    let rules = format!("    flow: [{}]", ["a", "b", "c"].map(rule).join(", "));
    let yaml = config(upstream.address, server.port, PATIENT, &rules);
    let gateways = gateways(1, &yaml.replace("redis://", "redis://gate:secret@"));
    settled(&gateways, 30);
    run("SCRIPT FLUSH");
    assert_eq!(hammer(&gateways, 1), [2, 0, 0]);
    let sent = "flowgate_store_sync_states_total{what=\"sent\"}";
    eventually("it is sent", || {
        (metrics(&gateways[0], "flowgate_store_sync_states_total")[sent] >= 3.0).then_some(())
    });
    let counted = errors(&gateways[0]);
    assert!(["read_only", "memory", "denied", "other"].iter().all(|kind| counted(kind) == 0.0));
    let only_one = "ACL SETUSER gate resetkeys ~flowgate:{gateways}* ~flowgate:{all}:a:*";
    // Of a primary that is not there.
    let replica = format!("REPLICAOF 127.0.0.1 {}", free_port());
    for (kind, begin, end) in [
        ("read_only", &*replica, "REPLICAOF NO ONE"),
        ("memory", "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
        ("denied", only_one, "ACL SETUSER gate ~flowgate:*"),
    ] {
        let logged = gateways[0].log_len();
        run(begin);
        // What is to be sent is written.
        assert_eq!(hammer(&gateways, 1), [2, 0, 0]);
        if kind == "denied" {
            gateways[0].wait_log_after(logged, "the store rejected a call");
        } else {
            gateways[0].wait_log_after(logged, "the store fails");
        }
        run(end);
        if kind != "denied" {
            gateways[0].wait_log_after(logged, "the store decides");
        }
        settled(&gateways, 30);
        let counted = errors(&gateways[0]);
        assert!(counted(kind) > 0.0, "{kind}");
        assert_eq!((counted("other"), counted("invalid_reply")), (0.0, 0.0), "{kind}");
    }
}
