//! States in the store that an edit resizes, and such that no gateway can have written.

use crate::{
    cluster::{PATIENT, config, gateways, server::Server},
    common::{eventually, http, upstream},
};
use std::time::{Duration, Instant};

#[test]
fn an_edit_to_a_lower_burst_rejects_for_a_moment_and_not_for_what_the_higher_one_let_pass() {
    let (upstream, server) = (upstream::echo(), Server::start());
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
    let (upstream, server) = (upstream::echo(), Server::start());
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 3/1h, align: first_request, scope: cluster, on_store_error: deny }]";
    let gateway = gateways(1, &config(upstream.address, server.port, PATIENT, rules)).remove(0);
    let mut store = server.connection();
    for _ in 0..3 {
        assert_eq!(http::statuses(gateway.web(), "/", 2), [200, 200]);
        let keys: Vec<String> = redis::cmd("KEYS").arg("*:r:fixed*").query(&mut store).expect("it");
        let state: String = redis::cmd("GET").arg(&keys[0]).query(&mut store).expect("a state");
        let end: u64 = state.split(' ').next().and_then(|it| it.parse().ok()).expect("an end");
        // As if the clock had been a day ahead.
        let ahead = format!("{} 0 3", end + 86_400_000_000);
        redis::cmd("SET").arg(&keys[0]).arg(ahead).exec(&mut store).expect("set");
    }
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let line = gateway.wait_log("the store's clock stepped back");
    assert!(line.contains("{all}:r:fixed"), "{line}");
    assert_eq!(gateway.log().matches("the store's clock stepped back").count(), 1);
}
