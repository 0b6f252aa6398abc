//! States in the store that an edit resizes, and such that no gateway can have written.

use crate::{
    cluster::{PATIENT, Wire, config, gateways, server::Server},
    common::{
        Gateway, eventually,
        http::{self, Client},
        metrics, upstream,
    },
};
use std::{
    sync::atomic::Ordering::SeqCst,
    thread,
    time::{Duration, Instant},
};

#[test]
fn an_edit_to_a_lower_burst_rejects_for_a_moment_and_not_for_what_the_higher_one_let_pass() {
    let upstream = upstream::echo();
    let server = Server::start();
    for sync in ["", ", sync_interval: 50ms"] {
        let rules = |burst: u32| {
            format!(
                "    flow: [{{ name: r{}, limit: 10/1s, burst: {burst}, scope: cluster, on_store_error: deny{sync} }}]",
                sync.len()
            )
        };
        let yaml = |burst| config(upstream.address, server.port, PATIENT, &rules(burst));
        let gateway = gateways(1, &yaml(200)).remove(0);
        eventually("the bucket is empty", || {
            http::statuses(gateway.web(), "/", 50).contains(&429).then_some(())
        });
        gateway.edit(&yaml(10));
        let edited = Instant::now();
        eventually("it passes", || (http::get(gateway.web(), "/").status == 200).then_some(()));
        let took = edited.elapsed();
        assert!(took < Duration::from_secs(8), "{took:?} with `{sync}`");
    }
}

#[test]
fn a_state_further_ahead_than_a_window_begins_again_and_the_log_says_so_once() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 3/1h, align: first_request, scope: cluster, on_store_error: deny }]";
    let gateway = gateways(1, &config(upstream.address, server.port, PATIENT, rules)).remove(0);
    let mut store = server.connection();
    for _ in 0..3 {
        assert_eq!(http::statuses(gateway.web(), "/", 2), [200, 200]);
        let keys: Vec<String> = redis::cmd("KEYS").arg("*:r:fixed*").query(&mut store).expect("it");
        let state: String = redis::cmd("GET").arg(&keys[0]).query(&mut store).expect("a state");
        let end: u64 = state.split(' ').next().and_then(|word| word.parse().ok()).expect("an end");
        // As if the clock had been a day ahead.
        let ahead = format!("{} 0 3", end + 86_400_000_000);
        redis::cmd("SET").arg(&keys[0]).arg(ahead).exec(&mut store).expect("set");
    }
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let line = gateway.wait_log("the store's clock stepped back");
    assert!(line.contains("{all}:r:fixed"), "{line}");
    assert_eq!(gateway.log().matches("the store's clock stepped back").count(), 1);
}

/// Returns how many scripts the store has run.
fn scripts(server: &Server) -> u64 {
    let info: String =
        redis::cmd("INFO").arg("commandstats").query(&mut server.connection()).expect("it");
    let calls = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name));
        let digits = line.and_then(|line| line.split(',').next());
        digits.map_or(0, |digits| digits.parse::<u64>().expect("digits"))
    };
    calls("cmdstat_evalsha:calls=") + calls("cmdstat_eval:calls=")
}

fn cached(gateway: &Gateway) -> f64 {
    let name = "flowgate_store_cached_rejections_total";
    metrics(gateway, name)[name]
}

#[test]
fn a_rejected_key_costs_the_store_a_call_until_its_time_is_over_and_an_edit_ends_that() {
    let upstream = upstream::echo();
    let server = Server::start();
    let yaml = |limit: u32| {
        let rules = format!(
            "    flow: [{{ name: r, algorithm: fixed_window, limit: {limit}/1000h, key: client_ip, scope: cluster, on_store_error: deny }}]"
        );
        config(upstream.address, server.port, PATIENT, &rules)
    };
    let gateway = gateways(1, &yaml(5)).remove(0);
    let web = gateway.web();
    let statuses = http::statuses(web, "/", 6);
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429]);
    let before = scripts(&server);
    let flood: Vec<_> =
        (0..16).map(|_| thread::spawn(move || http::statuses(web, "/", 100))).collect();
    let statuses: Vec<u16> =
        flood.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
    assert!(statuses.iter().all(|status| *status == 429));
    let called = scripts(&server) - before;
    // Each worker asks until it has heard of the rejection, and greets the store now and then.
    assert!(called < 160, "{called} calls for 1,600 rejections");
    assert!(cached(&gateway) > 1_400.0);
    let answer = http::get(web, "/");
    assert!(answer.header("retry-after").is_some());
    assert!(
        answer.header("ratelimit").is_some_and(|value| value.contains("\"r\";r=0")),
        "{answer:?}"
    );
    gateway.edit(&yaml(7));
    assert_eq!(http::statuses(web, "/", 3), [200, 200, 429]);
    // A store that has lost its memory is asked again when the gateway learns of that.
    redis::cmd("FLUSHALL").exec(&mut server.connection()).expect("flushed");
    eventually("it passes", || (http::get(web, "/").status == 200).then_some(()));
}

#[test]
fn a_burst_on_a_key_that_is_rejected_asks_the_store_about_a_few_and_rejects_the_others() {
    const REQUESTS: usize = 300;
    let upstream = upstream::echo();
    let server = Server::start();
    let wire = Wire::to(&server);
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 5/1000h, key: client_ip, scope: cluster, on_store_error: allow }]";
    let yaml = config(upstream.address, wire.port, "timeout: 10s", rules)
        .replace("workers: 2", "workers: 1");
    let gateway = gateways(1, &yaml).remove(0);
    // The store knows the script then.
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let mut clients: Vec<Client> = (0..REQUESTS).map(|_| Client::new(gateway.web())).collect();
    let before = scripts(&server);
    // All arrive before the first answer.
    wire.delay.store(1_000, SeqCst);
    for client in &mut clients {
        client.send(http::head("GET", "/", &[]));
    }
    let statuses = clients.iter_mut().map(|client| client.read("GET").status);
    let passed = statuses.filter(|status| *status == 200).count();
    assert_eq!(passed, 4, "{}", gateway.log());
    let called = scripts(&server) - before;
    assert!(called < 100, "{called} calls for {REQUESTS} requests");
    assert!(!gateway.log().contains("WARN the store"), "{}", gateway.log());
}

#[test]
fn what_nobody_wrote_in_place_of_the_secret_is_written_anew_and_the_log_names_the_key() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 9/1000h, key: client_ip, scope: cluster, on_store_error: deny }]";
    let yaml = config(upstream.address, server.port, &format!("{PATIENT}, lease: 3s"), rules);
    let secret = "flowgate:{gateways}:secret";
    let running = gateways(1, &yaml).remove(0);
    let mut store = server.connection();
    let kept: String = redis::cmd("GET").arg(secret).query(&mut store).expect("a secret");
    assert_eq!(http::statuses(running.web(), "/", 3), [200, 200, 200]);
    redis::cmd("DEL").arg(secret).exec(&mut store).expect("deleted");
    redis::cmd("LPUSH").arg(&[secret, "a list"]).exec(&mut store).expect("another kind of value");
    let line = running.wait_log("an invalid secret");
    assert!(line.contains(secret), "{line}");
    let again: String = redis::cmd("GET").arg(secret).query(&mut store).expect("a secret");
    assert_eq!(again, kept);
    redis::cmd("SET").arg(&[secret, "garbage"]).exec(&mut store).expect("set");
    // Before the other one notices.
    let fresh = gateways(1, &yaml).remove(0);
    eventually("the secret is one again", || {
        let now: String = redis::cmd("GET").arg(secret).query(&mut store).ok()?;
        (now.len() == 32).then_some(())
    });
    assert_eq!(http::get(fresh.web(), "/").status, 200);
    assert_eq!(http::get(running.web(), "/").status, 200);
    for gateway in [&fresh, &running] {
        assert!(!gateway.log().contains("the store fails"), "{}", gateway.log());
    }
}

#[test]
fn a_gateway_that_has_ended_is_counted_no_more_however_long_the_lease() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 90/1000h, scope: cluster }]";
    let store = format!("{PATIENT}, lease: 1h");
    let mut two = gateways(2, &config(upstream.address, server.port, &store, rules));
    let count = |gateway: &Gateway| {
        let name = "flowgate_store_gateways";
        metrics(gateway, name)[name]
    };
    eventually("both are known", || (count(&two[0]) == 2.0).then_some(()));
    two[1].signal("TERM");
    assert!(two[1].wait().success());
    eventually("one is left", || (count(&two[0]) == 1.0).then_some(()));
}
