//! Connections through load balancers, and how many a client may have.

use crate::common::{
    Gateway, connect, curl, eventually,
    http::{Answer, Client, head},
    metrics, upstream, yaml,
};
use std::{fs, io::Write, net::SocketAddr, path::Path};

const ROUTE: &str = "  - { name: all, match: { path_prefix: / }, upstream: up }\n";

/// A configuration whose listener `web` has these keys more.
fn with_listener(upstream: SocketAddr, keys: &str, rest: &str) -> String {
    let listener = format!("name: web, {keys}, listen");
    yaml(upstream, ROUTE).replacen("name: web, listen", &listener, 1) + rest
}

/// What the upstream has learned about the client.
fn forwarded(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{}", answer.text());
    let body = answer.json();
    let fields = body["headers"].as_array().expect("a list");
    let own = fields.iter().filter(|field| field[0] == "x-forwarded-for");
    let values: Vec<_> = own.map(|field| field[1].as_str().expect("a text")).collect();
    values.join(", ")
}

fn v2(client: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend_from_slice(&client);
    header.extend_from_slice(&[10, 0, 0, 1, 0x0f, 0xa0, 0, 80]);
    header
}

const V1: &[u8] = b"PROXY TCP4 192.0.2.7 10.0.0.1 4000 80\r\n";
const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";

#[test]
fn a_load_balancer_names_the_client_of_a_connection() {
    let upstream = upstream::echo();
    let keys = "proxy_protocol: true, trusted_proxies: 127.0.0.0/8";
    let gateway = Gateway::start(&with_listener(upstream.address, keys, ""));
    let request = head("GET", "/", &[]);
    for (header, client) in [
        (V1.to_vec(), "192.0.2.7"),
        (v2([192, 0, 2, 8]), "192.0.2.8"),
        (LOCAL.to_vec(), "127.0.0.1"),
        (b"PROXY UNKNOWN\r\n".to_vec(), "127.0.0.1"),
    ] {
        // Whole, and every byte alone.
        let mut whole = Client::new(gateway.web());
        whole.send([&header, request.as_bytes()].concat());
        assert_eq!(forwarded(&whole.read("GET")), client);
        let mut client_of_many = Client::new(gateway.web());
        for byte in header.iter().chain(request.as_bytes()) {
            client_of_many.send([*byte]);
        }
        assert_eq!(forwarded(&client_of_many.read("GET")), client);
        // It holds for the whole connection, and a client cannot say otherwise, unknown or not.
        let more = [("X-Forwarded-For", "6.6.6.6")];
        assert_eq!(forwarded(&client_of_many.request("GET", "/", &more)), client);
    }
    for header in [request.as_bytes(), b"PROXY TCP4 nobody 10.0.0.1 4000 80\r\n", &v2([1; 4])[..14]]
    {
        let mut client = Client::new(gateway.web());
        client.send(header);
        drop(client.stream.get_ref().shutdown(std::net::Shutdown::Write));
        assert!(client.is_closed(), "{header:?}");
    }
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected["flowgate_http_rejected_total{reason=\"proxy_protocol\"}"], 2.0);
    gateway.wait_log("connection closed: the connection begins with no valid PROXY header");
    // curl writes version 1 for itself.
    let url = format!("http://{}/", gateway.web());
    let answer = curl(&["--haproxy-protocol", "--http2-prior-knowledge", &url]);
    assert!(answer.contains("127.0.0.1"), "{answer}");
}

#[test]
fn a_field_of_trusted_proxies_names_the_client_and_that_of_others_is_removed() {
    let upstream = upstream::echo();
    let rule = ", flow: [{ name: each, limit: 2/1h, key: client_ip }] }";
    let file = |keys: &str, rest: &str| {
        let route = ROUTE.replace(" }\n", &format!("{rule}\n"));
        let listener = format!("name: web, {keys}listen");
        yaml(upstream.address, &route).replacen("name: web, listen", &listener, 1) + rest
    };
    let trusting = "trusted_proxies: 127.0.0.0/8\nclient_ip_header: CF-Connecting-IP\n";
    let gateway = Gateway::start(&file("", trusting));
    let mut client = Client::new(gateway.web());

    // What the proxy passes in `X-Forwarded-For` counts for nothing.
    let from = |address: &'static str| {
        [
            ("CF-Connecting-IP", address),
            ("X-Forwarded-For", "6.6.6.6"),
            ("CF_Connecting_IP", "6.6.6.7"),
        ]
    };
    let answer = client.request("GET", "/", &from("192.0.2.7"));
    assert_eq!(forwarded(&answer), "192.0.2.7, 127.0.0.1");
    assert!(!answer.text().contains("6.6.6"), "{}", answer.text());
    assert!(answer.text().contains("\"cf-connecting-ip\",\"192.0.2.7\""), "{}", answer.text());
    assert_eq!(client.request("GET", "/", &from("192.0.2.7")).status, 200);
    assert_eq!(client.request("GET", "/", &from("192.0.2.7")).status, 429);
    assert_eq!(client.request("GET", "/", &from("192.0.2.8")).status, 200, "another client");

    // Without the field, and with one that is no address, the proxy is the client.
    assert_eq!(
        forwarded(&client.request("GET", "/", &[("X-Forwarded-For", "6.6.6.6")])),
        "127.0.0.1"
    );
    assert_eq!(forwarded(&client.request("GET", "/", &from("nobody"))), "127.0.0.1");
    gateway.wait_log("cf-connecting-ip names no client, so the proxy counts as the client");

    // An edit takes effect on open connections; a peer that is not trusted names nobody.
    gateway.edit(&file("trusted_proxies: [10.0.0.0/8], ", trusting));
    let direct = client.request("GET", "/", &from("192.0.2.9"));
    assert_eq!(direct.status, 429, "its address has used its limit as the proxy's");
    gateway.edit(&yaml(upstream.address, ROUTE).replacen(
        "name: web, listen",
        "name: web, trusted_proxies: [10.0.0.0/8], client_ip_header: x-real-ip, listen",
        1,
    ));
    let forged = [("X-Real-IP", "192.0.2.9"), ("X_Real_IP", "192.0.2.9")];
    let direct = client.request("GET", "/", &forged);
    assert_eq!(forwarded(&direct), "127.0.0.1");
    assert!(!direct.text().contains("192.0.2.9"), "{}", direct.text());
}

#[test]
fn a_header_comes_before_tls() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    certificate(dir.path());
    let keys = "proxy_protocol: true, trusted_proxies: 127.0.0.1, tls: { certificates: [{ cert: c.pem, key: c.key }] }";
    let gateway = Gateway::start_in(dir, &with_listener(upstream.address, keys, ""), &[]);
    let port = gateway.web().port();
    let ca = gateway.dir.path().join("c.pem");
    let resolve = format!("localhost:{port}:127.0.0.1");
    let url = format!("https://localhost:{port}/");
    let answer = curl(&[
        "--haproxy-protocol",
        "--cacert",
        ca.to_str().expect("text"),
        "--resolve",
        &resolve,
        &url,
    ]);
    assert!(answer.contains("\"x-forwarded-proto\",\"https\""), "{answer}");
}

fn certificate(dir: &Path) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    fs::write(dir.join("c.pem"), made.cert.pem()).expect("written");
    fs::write(dir.join("c.key"), made.signing_key.serialize_pem()).expect("written");
}

#[test]
fn only_trusted_proxies_of_the_listener_are_believed_and_an_edit_changes_that() {
    let upstream = upstream::echo();
    let global = "trusted_proxies: 127.0.0.0/8\n";
    let own = |keys: &str| with_listener(upstream.address, keys, global);
    let gateway = Gateway::start(&own("trusted_proxies: []"));
    let mut client = Client::new(gateway.web());
    let mut ask = || forwarded(&client.request("GET", "/", &[("X-Forwarded-For", "192.0.2.7")]));
    assert_eq!(ask(), "127.0.0.1");
    // For connections that are open, too.
    let line = gateway.edit(&own("trusted_proxies: 127.0.0.1"));
    assert!(line.contains("listener web (trusted_proxies)"), "{line}");
    assert_eq!(ask(), "192.0.2.7, 127.0.0.1");
    // A peer that is no trusted proxy cannot name a client.
    let line = gateway.edit(&own("proxy_protocol: true, trusted_proxies: 192.0.2.0/24"));
    assert!(line.contains("proxy_protocol false → true"), "{line}");
    let mut stranger = Client::new(gateway.web());
    stranger.send([V1, head("GET", "/", &[]).as_bytes()].concat());
    assert!(stranger.is_closed());
    gateway.wait_log("the peer is not a trusted proxy");
}

#[test]
fn a_client_may_have_so_many_connections_and_trusted_proxies_any_number() {
    let upstream = upstream::echo();
    let keys = "proxy_protocol: true, trusted_proxies: 127.0.0.0/8";
    let limits = "limits: { connections_per_client: 2 }\n";
    let gateway = Gateway::start(&with_listener(upstream.address, keys, limits));
    let open = |client: u8| {
        let mut connection = Client::new(gateway.web());
        // It may be closed before all is written.
        let bytes = [&v2([192, 0, 2, client])[..], head("GET", "/", &[]).as_bytes()].concat();
        drop(connection.stream.get_mut().write_all(&bytes));
        connection.try_read("GET").map(|_| connection)
    };
    let first = open(7).expect("an answer");
    let second = open(7).expect("an answer");
    assert!(open(7).is_none(), "a third one is closed");
    let other = open(8).expect("an answer");
    gateway.wait_log("connection closed: the client has as many connections");
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected["flowgate_http_rejected_total{reason=\"connections_per_client\"}"], 1.0);
    drop(first);
    let again = eventually("a place", || open(7));
    // Load balancers that speak for themselves have no limit.
    let own: Vec<_> = (0..4)
        .map(|_| {
            let mut connection = Client::new(gateway.web());
            connection.send([LOCAL, head("GET", "/", &[]).as_bytes()].concat());
            assert_eq!(connection.read("GET").status, 200);
            connection
        })
        .collect();
    drop((second, other, again, own));
}

#[test]
fn connections_are_counted_without_a_load_balancer_and_before_tls() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    certificate(dir.path());
    let keys = "tls: { certificates: [{ cert: c.pem, key: c.key }] }";
    let limits = "limits: { connections_per_client: 1 }\n";
    let gateway = Gateway::start_in(dir, &with_listener(upstream.address, keys, limits), &[]);
    // They say nothing, and one of them stays open: a handshake may take 10 s.
    let both = [connect(gateway.web()), connect(gateway.web())];
    gateway.wait_log("connection closed: the client has as many connections");
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected["flowgate_http_rejected_total{reason=\"connections_per_client\"}"], 1.0);
    let handshakes = metrics(&gateway, "flowgate_tls_handshakes_total");
    assert!(handshakes.values().all(|count| *count == 0.0), "{handshakes:?}");
    drop(both);
}
