//! What must hold after each run.

use super::{
    client::{Answer, Exchange},
    plan::{Connection, Leave, Plan, Request},
    server::Servers,
};
use crate::proxy::tests::{TestProxy, secs};
use std::{collections::HashMap, fs, path::Path, sync::atomic::Ordering::Relaxed};

/// Statuses of the gateway's own answers to requests that are in order.
const OWN: [u16; 6] = [408, 413, 429, 502, 503, 504];

/// Adds what is wrong with the gateway's state and the answers.
pub(super) async fn verify(
    proxy: &TestProxy,
    servers: &Servers,
    plan: &Plan,
    exchanges: &[Exchange],
    violations: &mut Vec<String>,
) {
    for exchange in exchanges {
        if let Some(answer) = &exchange.answer {
            verify_answer(plan, exchange, answer, violations);
        }
    }
    verify_first(plan, exchanges, violations);
    verify_arrivals(servers, plan, violations);
    // Idle connections to servers are closed by the sweep, once they are old enough.
    proxy.pass(secs(600)).await;
    proxy.worker.servers.pools.sweep(&proxy.worker.live.load().upstreams, proxy.now());
    proxy.pass(secs(1)).await;
    verify_rest(proxy, servers, violations);
}

fn verify_answer(plan: &Plan, exchange: &Exchange, answer: &Answer, violations: &mut Vec<String>) {
    let id = exchange.id;
    match answer.of {
        Some(of) if of != id => violations.push(format!("{id} got the answer to {of}")),
        Some(_) if !answer.is_right => violations.push(format!("{id} got another body")),
        None if !OWN.contains(&answer.status) => {
            violations.push(format!("{id} got {} from the gateway", answer.status));
        }
        Some(_) | None => {}
    }
    if exchange.interim.iter().any(|status| ![100, 103].contains(status)) {
        violations.push(format!("{id} got interim answers {:?}", exchange.interim));
    }
    if plan.are_servers_well && matches!(answer.status, 502 | 504) {
        violations.push(format!("{id} got {}, though all servers are well", answer.status));
    }
}

/// The first request of a client that stays, over a connection that lasts, is answered, and by a good
/// server whole.
fn verify_first(plan: &Plan, exchanges: &[Exchange], violations: &mut Vec<String>) {
    if plan.drain_at.is_some() {
        return;
    }
    // A client that sends ahead may leave before its first answer comes.
    let is_lasting = |connection: &&Connection| {
        let leaves = connection.http2.is_some_and(|http2| http2.leaves_after.is_some());
        connection.reset_after.is_none() && !connection.is_pipelined && !leaves
    };
    let lasting = plan.connections.iter().filter(is_lasting);
    let first = lasting.filter_map(|connection| connection.requests.first());
    // A connection on which nothing comes is closed.
    let stays = |request: &&Request| request.leave == Leave::Never && request.pause < secs(10);
    for request in first.filter(stays) {
        let exchange = exchanges.iter().find(|exchange| exchange.id == request.id);
        match exchange.and_then(|exchange| exchange.answer.as_ref()) {
            None => violations.push(format!("{} got no answer", request.id)),
            Some(answer) if plan.are_servers_well && !answer.is_whole => {
                violations.push(format!("{} got half an answer", request.id));
            }
            Some(_) => {}
        }
    }
}

/// What may be done only once is done only once, and bodies arrive as they were sent.
fn verify_arrivals(servers: &Servers, plan: &Plan, violations: &mut Vec<String>) {
    let requests = plan.connections.iter().flat_map(|connection| &connection.requests);
    let lengths: HashMap<u64, usize> =
        requests.map(|request| (request.id, request.body.length())).collect();
    let mut counts: HashMap<u64, u32> = HashMap::new();
    for arrival in servers.arrivals() {
        let id = arrival.id;
        let count = counts.entry(id).or_default();
        *count += 1;
        if *count > 1 && !["GET", "HEAD"].contains(&&*arrival.method) {
            violations.push(format!("{} {id} came {count} times", arrival.method));
        }
        let Some(body) = arrival.body else { continue };
        if !body.is_right || (body.is_whole && body.length != lengths[&id]) {
            violations.push(format!("{id} came with another body"));
        }
    }
}

/// Nothing is left.
fn verify_rest(proxy: &TestProxy, servers: &Servers, violations: &mut Vec<String>) {
    let snapshot = proxy.worker.live.load();
    for route in &snapshot.routes {
        let seen = route.gate.observe(proxy.now());
        if seen.in_flight != 0 || seen.waiting != 0 {
            let in_flight = seen.in_flight;
            let waiting = seen.waiting;
            violations.push(format!("{in_flight} in flight, {waiting} waiting"));
        }
        for rule in seen.rules.iter().filter(|rule| rule.used != 0) {
            violations.push(format!("{} of the rule {} are used", rule.used, rule.name));
        }
    }
    for upstream in &snapshot.upstreams {
        for server in upstream.servers() {
            let in_flight = server.in_flight.load(Relaxed);
            if in_flight != 0 {
                violations.push(format!("{in_flight} in flight to port {}", server.port));
            }
        }
    }
    let open = proxy.worker.counters.connections_active.load(Relaxed);
    if open != 0 {
        violations.push(format!("{open} connections of clients are open"));
    }
    if servers.open() != 0 {
        violations.push(format!("{} connections to servers are open", servers.open()));
    }
}

/// Each request that was answered has one line, and no request has two.
pub(super) fn verify_log(path: &Path, exchanges: &[Exchange], violations: &mut Vec<String>) {
    let text = fs::read_to_string(path).expect("a log");
    let mut lines: HashMap<u64, u32> = HashMap::new();
    for line in text.lines() {
        let entry: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let id = entry["path"].as_str().and_then(|path| path.strip_prefix("/r/"));
        if let Some(id) = id.and_then(|id| id.parse().ok()) {
            *lines.entry(id).or_default() += 1;
        }
    }
    for exchange in exchanges {
        let count = lines.get(&exchange.id).copied().unwrap_or_default();
        let is_answered = exchange.answer.is_some();
        if count > 1 || (count == 0 && is_answered && exchange.is_head_sent) {
            violations.push(format!("{} has {count} lines in the log", exchange.id));
        }
    }
}
