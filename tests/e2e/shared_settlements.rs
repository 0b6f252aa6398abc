//! Costs that are settled after the response, of rules that gateways share: the store has each once.

use crate::{
    cluster::{BREAK, PATIENT, Wire, config, gateways, pid, server::Server, signal},
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics,
        upstream::Script,
    },
    explain::explain,
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

/// A server whose responses cost what the path says, as in `/7`. It ends the response to `/held/7` when
/// the test says so.
fn server(release: &Arc<AtomicBool>) -> Script {
    let release = Arc::clone(release);
    Script::start(move |_, mut connection| {
        while let Some(request) = connection.read() {
            let cost = request.path().rsplit('/').next().unwrap_or_default().to_owned();
            let head = format!("HTTP/1.1 200 OK\r\nx-cost: {cost}\r\ncontent-length: 4\r\n\r\n");
            if connection.write(head + "bo").is_none() {
                return;
            }
            if request.path().starts_with("/held/") {
                eventually("the release", || release.load(SeqCst).then_some(()));
            }
            if connection.write("dy").is_none() {
                return;
            }
        }
    })
}

/// A window that does not end during the test.
fn rule(more: &str) -> String {
    format!(
        "    flow: [{{ name: r, algorithm: fixed_window, limit: 1000/1000h, scope: cluster, on_store_error: allow, \
         cost: {{ reserve: 10, settle: {{ header: x-cost }} }}{more} }}]"
    )
}

/// Returns what is used in the store.
fn used(store: &mut redis::Connection) -> u64 {
    let key = "flowgate:{all}:r:fixed/3600000000000";
    let state: Option<String> = redis::cmd("GET").arg(key).query(store).expect("the window");
    let used = state.as_deref().and_then(|state| state.rsplit(' ').next()?.parse().ok());
    used.unwrap_or_default()
}

/// A client that waits for the rest of a response.
struct Held {
    client: Client,
    head: http::Answer,
}

impl Held {
    /// Has a client ask for a response that the server does not end yet.
    fn begin(web: SocketAddr, path: &str) -> Self {
        let mut client = Client::new(web);
        client.send(http::head("GET", path, &[]));
        let head = client.read_head().expect("a head");
        assert_eq!(head.status, 200);
        Self { client, head }
    }

    /// Reads the rest.
    fn end(mut self) {
        assert!(self.client.read_body(self.head, "GET").complete);
    }
}

fn settlements(gateway: &Gateway, result: &str) -> f64 {
    let name = "flowgate_store_settlements_total";
    metrics(gateway, name)[&format!("{name}{{result=\"{result}\"}}")]
}

#[test]
fn a_request_that_begins_after_a_response_finds_it_settled_at_the_same_gateway() {
    let release = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let rules = "    flow: [{ name: r, limit: 50/1000h, burst: 50, scope: cluster, on_store_error: deny, \
         cost: { reserve: 50, settle: { header: x-cost } } }]";
    let text = config(upstream.address, server.port, PATIENT, rules);
    let gateways = gateways(1, &text);
    // Each needs all there is, on a connection of its own, which another worker may serve.
    assert_eq!(http::statuses(gateways[0].web(), "/0", 60), [200; 60]);
    assert_eq!(http::get(gateways[0].web(), "/1").status, 200);
    assert_eq!(http::get(gateways[0].web(), "/1").status, 429);
}

#[test]
fn a_killed_gateway_leaves_its_reserves_and_all_else_is_exact() {
    let release = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let text = config(upstream.address, server.port, PATIENT, &rule(""));
    let mut gateways = gateways(3, &format!("access_log: access.log\n{text}"));
    let cut = Held::begin(gateways[0].web(), "/held/500");
    let held = Held::begin(gateways[1].web(), "/held/33");
    for (at, cost) in [(0, 3), (1, 0), (2, 40), (0, 10), (1, 7)] {
        assert_eq!(http::get(gateways[at].web(), &format!("/{cost}")).status, 200);
    }
    let mut store = server.connection();
    let is_used = |store: &mut redis::Connection, count: u64| {
        eventually("what is used", || (used(store) == count).then_some(()));
    };
    is_used(&mut store, 10 + 10 + 60);
    gateways.remove(0).signal("KILL");
    release.store(true, SeqCst);
    drop(cut);
    held.end();
    is_used(&mut store, 10 + 33 + 60);
    for (at, cost) in [(0, 1), (1, 100)] {
        assert_eq!(http::get(gateways[at].web(), &format!("/{cost}")).status, 200);
    }
    is_used(&mut store, 10 + 33 + 60 + 101);

    let log = gateways[0].dir.path().join("access.log");
    let costs = eventually("its requests are logged", || {
        let text = std::fs::read_to_string(&log).ok()?;
        let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line"));
        let cost = |line: serde_json::Value| {
            let of = |name: &str| line["flow"][name]["r"].as_u64();
            Some((of("reserved")?, of("settled")?))
        };
        let mut costs = lines.map(cost).collect::<Option<Vec<_>>>()?;
        costs.sort_unstable();
        (costs.len() == 4).then_some(costs)
    });
    assert_eq!(costs, [(10, 0), (10, 1), (10, 7), (10, 33)]);
    let total = |name: &str| {
        let key = format!("{name}{{route=\"all\",rule=\"r\"}}");
        metrics(&gateways[0], name)[&key]
    };
    assert_eq!(total("flowgate_flow_cost_reserved_total"), 40.0);
    assert_eq!(total("flowgate_flow_cost_settled_total"), 41.0);
    assert_eq!(settlements(&gateways[0], "applied"), 4.0);
}

#[test]
fn a_debt_is_owed_at_every_gateway_and_its_end_is_exact() {
    let release = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let rules = "    flow: [{ name: units, limit: 100/1m, scope: cluster, on_store_error: deny, \
         cost: { settle: { header: x-cost } } }]";
    let gateways = gateways(2, &config(upstream.address, server.port, PATIENT, rules));
    assert_eq!(http::get(gateways[0].web(), "/250").status, 200);
    eventually("it is settled", || (settlements(&gateways[0], "applied") == 1.0).then_some(()));
    for gateway in &gateways {
        let rejected = http::get(gateway.web(), "/1");
        let wait: u64 = rejected.header("retry-after").expect("a wait").parse().expect("seconds");
        assert_eq!(rejected.status, 429);
        // 151 of 100 a minute, less what has passed.
        assert!((85..=91).contains(&wait), "{wait}");
        let again = http::get(gateway.web(), "/1").header("retry-after").map(str::to_owned);
        let again: u64 = again.expect("a wait").parse().expect("seconds");
        assert!((80..=wait).contains(&again), "not from a cache: {again}");
    }
    let cached = metrics(&gateways[0], "flowgate_store_cached_rejections_total");
    assert_eq!(cached.values().sum::<f64>(), 0.0, "what others give back ends it sooner");
}

#[test]
fn a_budget_and_its_parent_are_settled_each_for_itself_in_the_store() {
    let release = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let of = |name: &str, limit: u64, more: &str, reserve: u64| {
        format!(
            "{{ name: {name}, limit: {limit}/1000h, burst: {limit}, scope: cluster, on_store_error: deny{more}, \
             cost: {{ reserve: {reserve}, settle: {{ header: x-cost }} }} }}"
        )
    };
    // After 25, the org has no room for a reserve of 4, or the team none for one of 1.
    for (org, org_limit, team, team_limit, rejecting) in
        [("a", 28, "b", 100, "a"), ("c", 100, "d", 20, "d")]
    {
        let parent = format!(", parent: {org}");
        let budgets = [of(org, org_limit, "", 4), of(team, team_limit, &parent, 1)].join(", ");
        let flow = format!("    flow: [{{ budget: {team} }}]");
        let text = config(upstream.address, server.port, PATIENT, &flow);
        let gateways = gateways(2, &format!("budgets: [{budgets}]\n{text}"));
        assert_eq!(http::get(gateways[0].web(), "/25").status, 200);
        eventually("both are settled", || {
            (settlements(&gateways[0], "applied") == 2.0).then_some(())
        });
        assert_eq!(http::get(gateways[1].web(), "/1").status, 429);
        let rejected = metrics(&gateways[1], "flowgate_budget_decisions_total");
        let of = |budget: &str| {
            let is_of = |key: &str| {
                key.contains(&format!("budget=\"{budget}\"")) && key.contains("rejected")
            };
            rejected.iter().filter(|(key, _)| is_of(key)).map(|(_, count)| count).sum::<f64>()
        };
        assert_eq!(
            (of(org), of(team)),
            (f64::from(rejecting == org), f64::from(rejecting == team))
        );
    }
}

#[test]
fn a_settlement_whose_answer_is_lost_is_applied_once() {
    const REQUESTS: u32 = 4;
    let upstream_release: Arc<AtomicBool> = Arc::default();
    let upstream = server(&upstream_release);
    let server = Server::start();
    let wire = Wire::to(&server);
    let gateways = gateways(1, &config(upstream.address, wire.port, PATIENT, &rule("")));
    // The store learns the scripts.
    assert_eq!(http::get(gateways[0].web(), "/7").status, 200);
    let mut store = server.connection();
    let mut expected = 7;
    eventually("it is settled", || (used(&mut store) == expected).then_some(()));
    for _ in 0..REQUESTS {
        upstream_release.store(false, SeqCst);
        let held = Held::begin(gateways[0].web(), "/held/300");
        let logged = gateways[0].log_len();
        wire.delay.store(BREAK, SeqCst);
        upstream_release.store(true, SeqCst);
        held.end();
        gateways[0].wait_log_after(logged, "the store fails");
        gateways[0].wait_log_after(logged, "the store decides");
        expected += 300;
        eventually("it is settled", || (used(&mut store) == expected).then_some(()));
        eventually("it is confirmed", || {
            let waiting = metrics(&gateways[0], "flowgate_store_settlements_waiting");
            (waiting["flowgate_store_settlements_waiting"] == 0.0).then_some(())
        });
        assert_eq!(used(&mut store), expected, "once");
    }
    assert_eq!(settlements(&gateways[0], "applied"), 1.0 + f64::from(REQUESTS));
}

#[test]
fn what_ends_while_the_store_hangs_is_settled_once_when_it_goes_on() {
    let release = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let text = config(upstream.address, server.port, "timeout: 300ms", &rule(""));
    let gateways = gateways(2, &text);
    assert_eq!(http::get(gateways[0].web(), "/7").status, 200);
    let held: Vec<Held> = [(0, "/held/0"), (0, "/held/25"), (1, "/held/90"), (1, "/held/10")]
        .map(|(at, path)| Held::begin(gateways[at].web(), path))
        .into();
    let mut store = server.connection();
    eventually("they are reserved", || (used(&mut store) == 47).then_some(()));

    let pid = pid(&server);
    signal(&pid, "STOP");
    release.store(true, SeqCst);
    for client in held {
        // No response waits for the store.
        client.end();
    }
    for (gateway, waiting) in gateways.iter().zip([2.0, 1.0]) {
        let name = "flowgate_store_settlements_waiting";
        eventually("they wait", || (metrics(gateway, name)[name] == waiting).then_some(()));
    }
    signal(&pid, "CONT");
    eventually("they are settled", || (used(&mut store) == 7 + 25 + 90 + 10).then_some(()));
    for (gateway, applied) in gateways.iter().zip([3.0, 1.0]) {
        eventually("they are confirmed", || {
            (settlements(gateway, "applied") == applied).then_some(())
        });
    }
    assert_eq!(used(&mut store), 132);
}

/// Ends two gateways with these rules while each has a request, whose cost the store has in the end:
/// one request ends by itself, the other is cut off by the end of the drain.
#[track_caller]
fn end_with_a_request(rules: &str, used: impl Fn(&mut redis::Connection) -> u64) {
    let release: Arc<AtomicBool> = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let mut store = server.connection();
    for (is_released, timeout) in [(true, "20s"), (false, "300ms")] {
        release.store(false, SeqCst);
        let text = config(upstream.address, server.port, PATIENT, rules);
        let mut gateway = gateways(1, &format!("drain_timeout: {timeout}\n{text}")).remove(0);
        let before = used(&mut store);
        let held = Held::begin(gateway.web(), "/held/3");
        eventually("it is reserved", || (used(&mut store) == before + 10).then_some(()));
        gateway.signal("TERM");
        gateway.wait_log("draining");
        release.store(is_released, SeqCst);
        if is_released {
            held.end();
        }
        assert!(gateway.wait().success());
        assert_eq!(used(&mut store), before + 3, "{timeout}");
        release.store(true, SeqCst);
    }
}

#[test]
fn a_gateway_that_ends_settles_what_its_last_requests_have_cost() {
    end_with_a_request(&rule(""), used);
}

#[test]
fn while_the_store_fails_a_rule_that_decides_locally_settles_locally() {
    let release = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let rules = "    flow: [{ name: r, limit: 30/1000h, burst: 30, scope: cluster, on_store_error: local, \
         cost: { reserve: 10, settle: { header: x-cost } } }]";
    let store = format!("{PATIENT}, gateways: 1");
    let gateways = gateways(1, &config(upstream.address, server.port, &store, rules));
    drop(server);
    gateways[0].wait_log("the store fails");
    assert_eq!(http::statuses(gateways[0].web(), "/0", 9), [200; 9]);
    assert_eq!(http::get(gateways[0].web(), "/45").status, 200);
    assert_eq!(http::get(gateways[0].web(), "/0").status, 429);
}

#[test]
fn an_edit_settles_what_was_charged_before_where_it_was_charged() {
    let release: Arc<AtomicBool> = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let text = config(upstream.address, server.port, PATIENT, &rule(""));
    let gateways = gateways(1, &text);
    let mut store = server.connection();
    // The rule keeps its states, or is gone.
    let other = "    flow: [{ name: other, limit: 9/1h }]".to_owned();
    for edited in [rule(", dry_run: true"), other] {
        let before = used(&mut store);
        let held = Held::begin(gateways[0].web(), "/held/3");
        eventually("it is reserved", || (used(&mut store) == before + 10).then_some(()));
        gateways[0].edit(&config(upstream.address, server.port, PATIENT, &edited));
        release.store(true, SeqCst);
        held.end();
        eventually("it is settled", || (used(&mut store) == before + 3).then_some(()));
        release.store(false, SeqCst);
        gateways[0].edit(&text);
    }
}

/// Returns what all gateways have charged of a rule that they sync.
fn synced(store: &mut redis::Connection) -> u64 {
    let key = "flowgate:{all}:r:fixed/3600000000000:exchanged";
    let state: Option<String> = redis::cmd("GET").arg(key).query(store).expect("the window");
    let used = state.as_deref().and_then(|state| state.rsplit(' ').next()?.parse().ok());
    used.unwrap_or_default()
}

#[test]
fn with_sync_interval_all_gateways_learn_what_was_settled_once() {
    let release: Arc<AtomicBool> = Arc::default();
    let upstream = server(&release);
    let server = Server::start();
    let wire = Wire::to(&server);
    let text = config(upstream.address, wire.port, PATIENT, &rule(", sync_interval: 50ms"));
    let mut gateways = gateways(3, &text);
    crate::synced::settled(&gateways, 1000);
    let mut store = server.connection();
    let is_synced = |store: &mut redis::Connection, count: u64| {
        eventually("what is used", || (synced(store) == count).then_some(()));
    };

    let cut = Held::begin(gateways[0].web(), "/held/500");
    let held = Held::begin(gateways[1].web(), "/held/33");
    for (at, cost) in [(0, 3), (1, 0), (2, 40), (0, 10), (1, 7)] {
        assert_eq!(http::get(gateways[at].web(), &format!("/{cost}")).status, 200);
    }
    is_synced(&mut store, 10 + 10 + 60);
    gateways.remove(0).signal("KILL");
    drop(cut);
    // The answer to a sync is lost, in which a part is given back or before.
    wire.delay.store(BREAK, SeqCst);
    assert_eq!(http::get(gateways[1].web(), "/2").status, 200);
    release.store(true, SeqCst);
    held.end();
    is_synced(&mut store, 10 + 33 + 60 + 2);
    crate::synced::settled(&gateways, 1000);
    for (at, cost) in [(0, 1), (1, 900)] {
        assert_eq!(http::get(gateways[at].web(), &format!("/{cost}")).status, 200);
    }
    is_synced(&mut store, 10 + 33 + 60 + 2 + 901);
    for gateway in &gateways {
        // A debt of 6.
        eventually("all know of it", || {
            (http::get(gateway.web(), "/0").status == 429).then_some(())
        });
        eventually("`explain` and the keys show it", || {
            let explained = explain(gateway, "/0", "a");
            let keys = http::ask(gateway.address("admin"), "/keys?route=all&rule=r").json();
            let debts = [&explained, &keys].map(|page| page["rules"][0]["debt"].as_u64());
            (debts == [Some(6); 2]).then_some(())
        });
    }
}

#[test]
fn a_gateway_that_ends_syncs_what_its_last_requests_have_cost() {
    end_with_a_request(&rule(", sync_interval: 50ms"), synced);
}
