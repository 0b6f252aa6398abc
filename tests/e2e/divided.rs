//! Among how many gateways a limit is divided while the store fails.

use crate::{
    cluster::{PATIENT, config, gateways, hammer, server::Server},
    common::{Gateway, eventually, http, upstream},
    port::free_port,
};
use std::time::{Duration, Instant};

/// Waits until the part of each gateway is so much.
pub(crate) fn divided(gateways: &[Gateway], part: u64) {
    for gateway in gateways {
        eventually("the rules are divided", || {
            let routes = http::ask(gateway.address("admin"), "/routes").text();
            routes.contains(&format!("\"most\": {part},")).then_some(())
        });
    }
}

#[test]
fn a_store_that_loses_its_memory_and_fails_again_leaves_each_gateway_its_part() {
    let upstream = upstream::echo();
    let port = free_port();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 90/1000h, scope: cluster }]";
    let server = Server::start_on(port, &[]);
    let gateways = gateways(3, &config(upstream.address, port, PATIENT, rules));
    divided(&gateways, 30);
    drop(server);
    let logged = gateways[0].log_len();
    assert_eq!(hammer(&gateways, 1), [6, 0, 0]);
    // The first to come back is the only one that the store knows.
    for late in &gateways[1..] {
        late.signal("STOP");
    }
    let server = Server::start_on(port, &[]);
    gateways[0].wait_log_after(logged, "the store decides gateways=1");
    drop(server);
    for late in &gateways[1..] {
        late.signal("CONT");
    }
    assert_eq!(hammer(&gateways, 60), [84, 276, 0]);
}

#[test]
fn a_store_restored_to_what_it_knew_before_a_gateway_joined_leaves_each_its_part() {
    let upstream = upstream::echo();
    let port = free_port();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 90/1000h, scope: cluster }]";
    let folder = tempfile::tempdir().expect("a folder");
    let options: Vec<&str> = ["--dir"].into_iter().chain(folder.path().to_str()).collect();
    let server = Server::start_on(port, &options);
    let store = format!("{PATIENT}, lease: 4s, connect_timeout: 1s");
    let yaml = config(upstream.address, port, &store, rules);
    let first = gateways(1, &yaml);
    // Until then it would divide by no fewer than before in any case.
    let settled = Instant::now() + Duration::from_millis(6_500);
    eventually("others could have come", || (Instant::now() > settled).then_some(()));
    redis::cmd("SAVE").exec(&mut server.connection()).expect("a snapshot");
    let second = gateways(1, &yaml);
    divided(&first, 45);
    drop(server);
    assert_eq!(hammer(&first, 1), [2, 0, 0]);
    first[0].wait_log("the store fails");
    second[0].signal("STOP");
    let logged = first[0].log_len();
    let server = Server::start_on(port, &options);
    first[0].wait_log_after(logged, "the store decides gateways=1");
    drop(server);
    assert_eq!(hammer(&first, 40), [43, 37, 0]);
    second[0].signal("CONT");
}

#[test]
fn a_gateway_that_joins_is_known_to_all_within_seconds_however_long_the_lease() {
    let upstream = upstream::echo();
    let server = Server::start();
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 90/1000h, scope: cluster }]";
    let store = format!("{PATIENT}, lease: 1h");
    let yaml = config(upstream.address, server.port, &store, rules);
    let first = gateways(1, &yaml);
    divided(&first, 90);
    let second = gateways(1, &yaml);
    divided(&first, 45);
    divided(&second, 45);
}
