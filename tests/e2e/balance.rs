//! Which of several servers gets a request.

use crate::common::{
    Gateway,
    http::{Client, head},
    http2_server::Http2Server,
    tls_server::{Authority, TlsServer, server_config},
    upstream::{self, Script},
};
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use tempfile::TempDir;
use tokio_rustls::rustls::ServerConfig;

fn config(servers: &[(SocketAddr, u32)], upstream: &str) -> String {
    let servers: Vec<_> = servers
        .iter()
        .map(|(address, weight)| format!("{{ url: \"http://{address}\", weight: {weight} }}"))
        .collect();
    format!(
        "workers: 4\nlisteners:\n  - {{ name: web, listen: 127.0.0.1:0 }}\n\
         upstreams:\n  - {{ name: up, servers: [{}]{upstream} }}\nroutes:\n  \
         - {{ name: all, match: {{ path_prefix: / }}, upstream: up }}\n",
        servers.join(", ")
    )
}

fn named(name: &'static str) -> Script {
    Script::answering(move |_| upstream::ok(name))
}

/// The servers of 200 users, by their cookie.
fn servers(gateway: &Gateway) -> BTreeMap<usize, String> {
    let user = |user: usize| {
        let cookie = format!("a=b; user={user}");
        // On a connection of its own, so that any worker serves it.
        let answer = Client::new(gateway.web()).request("GET", "/", &[("Cookie", &cookie)]);
        assert_eq!(answer.status, 200);
        (user, answer.text())
    };
    (0..200).map(user).collect()
}

#[test]
fn a_key_stays_with_its_server_and_only_those_of_a_changed_one_move() {
    let [a, b, c] = ["a", "b", "c"].map(named);
    let [a, b, c] = [a.address, b.address, c.address].map(|address| (address, 1));
    let hash = ", balance: hash, hash_key: cookie:user";
    let gateway = Gateway::start(&config(&[a, b], hash));
    let before = servers(&gateway);
    assert_eq!(before, servers(&gateway), "each user has one server");
    let count = |all: &BTreeMap<usize, String>, name: &str| {
        all.values().filter(|server| *server == name).count()
    };
    assert!((60..=140).contains(&count(&before, "a")), "{before:?}");
    // Another server takes keys, and none move between the others.
    let line = gateway.edit(&config(&[c, b, a], hash));
    assert!(line.contains("+1 server"), "{line}");
    let after = servers(&gateway);
    let moved: Vec<_> = before.iter().filter(|(user, server)| after[user] != **server).collect();
    assert!(moved.iter().all(|(user, _)| after[user] == "c"), "{after:?}");
    assert_eq!(moved.len(), count(&after, "c"));
    assert!((35..=105).contains(&moved.len()), "{} users moved", moved.len());
    // And gives them back.
    gateway.edit(&config(&[a, b], hash));
    assert_eq!(servers(&gateway), before);
    // A weight moves keys to its server only.
    let line = gateway.edit(&config(&[a, (b.0, 3)], hash));
    assert!(line.contains("weight of"), "{line}");
    let heavy = servers(&gateway);
    assert!(count(&heavy, "b") > count(&before, "b"));
    assert!(before.iter().all(|(user, server)| heavy[user] == *server || heavy[user] == "b"));
    // So does a server that fails: its users go elsewhere, all others stay.
    let line = gateway.edit(&config(&[a, b], ", balance: hash, hash_key: [cookie:user, path]"));
    assert!(line.contains("hash_key cookie:user → cookie:user,path"), "{line}");
}

#[test]
fn the_keys_of_a_dead_server_go_elsewhere_and_all_others_stay() {
    const LAST: &str = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nc";
    let [a, b] = ["a", "b"].map(named);
    // It leaves no connection over which it would answer when it is dead.
    let c = Script::answering(|_| LAST.into());
    let all = [a.address, b.address, c.address].map(|address| (address, 1));
    let more = ", balance: hash, hash_key: cookie:user, ejection: { period: 1h }";
    let gateway = Gateway::start(&config(&all, more));
    let before = servers(&gateway);
    drop(c);
    let after = servers(&gateway);
    assert!(before.iter().all(|(user, server)| after[user] == *server || server == "c"));
    assert!(after.values().all(|server| server != "c"));
}

#[test]
fn a_hot_key_does_not_overload_its_server() {
    let stuck = || Script::start(|_, mut connection| while connection.read().is_some() {});
    let all = [stuck(), stuck(), stuck(), stuck()];
    let addresses: Vec<_> = all.iter().map(|server| (server.address, 1)).collect();
    let gateway = Gateway::start(&config(&addresses, ", balance: hash, hash_key: path"));
    let hanging: Vec<_> = (0..40)
        .map(|_| {
            let mut client = Client::new(gateway.web());
            client.send(head("GET", "/", &[]));
            client
        })
        .collect();
    crate::common::eventually("all to have arrived", || {
        let counts: Vec<_> = all.iter().map(Script::connections).collect();
        (counts.iter().sum::<usize>() == 40).then_some(counts)
    });
    let most = all.iter().map(Script::connections).max();
    // 1.25 · 40 / 4, rounded up; a few may start at the same moment.
    assert!(most <= Some(13 + 4), "{most:?} of 40 requests for one path");
    drop(hanging);
}

#[test]
fn least_request_counts_what_all_workers_have_in_flight() {
    let stuck = Script::start(|_, mut connection| while connection.read().is_some() {});
    let free = named("free");
    // The free one counts less even while an answer of it ends.
    let servers = [(stuck.address, 1), (free.address, 3)];
    let gateway = Gateway::start(&config(&servers, ", balance: least_request"));
    let mut hanging = Vec::new();
    let mut ask = |patience| {
        let mut client = Client::new(gateway.web());
        client.stream.get_ref().set_read_timeout(Some(patience)).expect("set");
        client.send(head("GET", "/", &[]));
        let answer = client.try_read("GET");
        if answer.is_none() {
            hanging.push(client);
        }
        answer.is_some()
    };
    while stuck.connections() == 0 {
        ask(Duration::from_millis(300));
    }
    // Whichever worker gets it, a request goes to the server without one.
    for _ in 0..60 {
        assert!(ask(crate::common::PATIENCE), "the busy server was chosen");
    }
}

/// Sends requests to these servers of `scheme`, changes the weight of the first one, and sends more.
fn edit_weights(folder: TempDir, scheme: &str, servers: [SocketAddr; 2], upstream: &str) {
    let servers = servers.map(|address| (address, 1));
    let more = format!(", idle_timeout: 1h, connect_timeout: 5m{upstream}");
    let text = config(&servers, &more)
        .replace("workers: 4", "workers: 1")
        .replace("http://", &format!("{scheme}://"));
    let gateway = Gateway::start_in(folder, &text, &[]);
    let ask = || {
        for _ in 0..8 {
            assert_eq!(crate::common::http::get(gateway.web(), "/").status, 200);
        }
    };
    ask();
    gateway.edit(&text.replacen("weight: 1", "weight: 3", 1));
    ask();
}

/// Returns a folder with an authority, and what servers with its certificate run by.
fn with_certificate() -> (TempDir, ServerConfig) {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let authority = Authority::new("the authority");
    authority.write(folder.path(), "ca");
    authority.sign(folder.path(), "own", &["127.0.0.1"], |_| {});
    let config = server_config(folder.path(), "own", None);
    (folder, config)
}

#[test]
fn a_change_of_weights_keeps_connections() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let servers = [named("a"), named("b")];
    edit_weights(folder, "http", servers.each_ref().map(|server| server.address), "");
    assert_eq!(servers.map(|server| server.connections()), [1, 1]);
}

#[test]
fn a_change_of_weights_keeps_connections_with_tls() {
    let (folder, config) = with_certificate();
    let servers = [(); 2].map(|()| TlsServer::start(config.clone(), ""));
    let addresses = servers.each_ref().map(|server| server.address);
    edit_weights(folder, "https", addresses, ", tls: { ca: ca.pem }");
    assert_eq!(servers.map(|server| server.seen().len()), [1, 1]);
}

#[test]
fn a_change_of_weights_keeps_connections_of_http_2() {
    for scheme in ["http", "https"] {
        let (folder, mut config) = with_certificate();
        config.alpn_protocols = vec![b"h2".to_vec()];
        let config = (scheme == "https").then_some(config);
        let servers = [(); 2].map(|()| Http2Server::start(config.clone()));
        let addresses = servers.each_ref().map(|server| server.address);
        let tls = if scheme == "https" { ", tls: { ca: ca.pem }" } else { "" };
        edit_weights(folder, scheme, addresses, &format!(", protocol: h2{tls}"));
        assert_eq!(servers.map(|server| server.connections()), [1, 1], "{scheme}");
    }
}

#[test]
fn a_name_that_cannot_be_resolved_keeps_no_gateway_from_starting() {
    let alive = named("alive");
    let text = config(&[(alive.address, 1)], ", resolve: 1s").replace(
        "routes:",
        "  - { name: lost, servers: [{ url: 'http://lost.invalid' }] }\nroutes:\n  \
                  - { name: lost, match: { path: /lost }, upstream: lost }",
    );
    let gateway = Gateway::start(&text);
    assert_eq!(crate::common::http::get(gateway.web(), "/").text(), "alive");
    assert_eq!(crate::common::http::get(gateway.web(), "/lost").status, 502);
    gateway.wait_log("upstream failed: ");
    gateway.wait_log("name cannot be resolved; its last addresses stay name=\"lost.invalid\"");
}
