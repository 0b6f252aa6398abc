//! Among how many gateways a limit is divided while the store fails.

use crate::{
    cluster::{
        PATIENT, config, gateways, hammer,
        server::{Server, free_port},
    },
    common::{Gateway, eventually, http, upstream},
};

/// Waits until the part of each gateway is so much.
pub(crate) fn divided(gateways: &[Gateway], part: u64) {
    for gateway in gateways {
        eventually("the rules are divided", || {
            let routes = http::get(gateway.address("admin"), "/routes").text();
            routes.contains(&format!("\"most\": {part},")).then_some(())
        });
    }
}

#[test]
fn a_store_that_loses_its_memory_and_fails_again_leaves_each_gateway_its_part() {
    let (upstream, port) = (upstream::echo(), free_port());
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
fn a_gateway_that_joins_is_known_to_all_within_seconds_however_long_the_lease() {
    let (upstream, server) = (upstream::echo(), Server::start());
    let rules = "    flow: [{ name: r, algorithm: fixed_window, limit: 90/1000h, scope: cluster }]";
    let store = format!("{PATIENT}, lease: 1h");
    let yaml = config(upstream.address, server.port, &store, rules);
    let first = gateways(1, &yaml);
    divided(&first, 90);
    let second = gateways(1, &yaml);
    divided(&first, 45);
    divided(&second, 45);
}
