//! Servers and clients in other languages: Node, and Python with and without gRPC.

use crate::common::{
    Gateway, eventually,
    http::{Answer, Client, head},
    program::{Program, node, python},
};
use std::net::SocketAddr;

/// The times are long, so that a busy machine opens no other connection.
fn config(port: u16, keys: &str, routes: &str) -> String {
    format!(
        "workers: 1\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         upstreams: [{{ name: up, servers: [{{ url: 'http://127.0.0.1:{port}' }}], connect_timeout: 5m{keys} }}]\n\
         routes: [{routes}{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
    )
}

/// Sends a POST with a body of so many bytes, which the server counts. Returns how many connections
/// have been opened to the server.
fn post(client: &mut Client, length: usize) -> usize {
    client.send(head("POST", "/", &[("Content-Length", &length.to_string())]));
    client.send(vec![b'x'; length]);
    opened(&client.read("POST"), &format!("POST {length}"))
}

fn get(client: &mut Client) -> usize {
    opened(&client.get("/"), "GET 0")
}

#[track_caller]
fn opened(answer: &Answer, text: &str) -> usize {
    assert_eq!((answer.status, answer.text().as_str()), (200, text));
    answer.header("x-opened").expect("it says so").parse().expect("a number")
}

/// Sends GETs at any moment, and POSTs to a server that has closed its idle connections.
fn visit(web: SocketAddr, server: &Program, rounds: usize) {
    let mut client = Client::new(web);
    for round in 0..rounds {
        let mut opened = post(&mut client, round * 3_000);
        // The server may close the connection while such a request is on its way.
        for _ in 0..10 {
            opened = get(&mut client);
        }
        eventually("the connections are closed", || {
            (server.count("closed") == opened).then_some(())
        });
    }
    assert!(server.count("closed") >= rounds);
}

#[test]
fn node_closes_idle_connections_without_a_failed_request() {
    for (mode, rounds) in [("silent", 2), ("closing", 50)] {
        let mut server = Program::start(node("server.js", &[mode]));
        let gateway = Gateway::start(&config(server.port(), "", ""));
        visit(gateway.web(), &server, rounds);
    }
}

#[test]
fn node_announces_when_it_closes_and_its_connections_are_used_again() {
    let mut server = Program::start(node("server.js", &[]));
    let gateway = Gateway::start(&config(server.port(), "", ""));
    let mut client = Client::new(gateway.web());
    let mut opened = 0;
    for round in 0..50 {
        post(&mut client, round * 3_000);
        opened = get(&mut client);
    }
    // A busy machine may pause for longer than a connection is kept.
    assert!(opened < 10, "{opened} connections");
}

#[test]
fn python_closes_idle_connections_without_a_failed_request() {
    // HTTP/1.0 closes each connection after its answer.
    for (version, idle) in [("HTTP/1.1", "0.05"), ("HTTP/1.0", "300")] {
        let mut server = Program::start(python("server.py", &[version, idle]));
        let gateway = Gateway::start(&config(server.port(), "", ""));
        visit(gateway.web(), &server, 20);
    }
}

#[test]
fn grpc_of_python_works_as_client_and_as_server() {
    let mut server = Program::start(python("grpc_server.py", &[]));
    let route = "{ name: late, match: { path: /test.Echo/LateForTheRoute }, upstream: up, timeout: 300ms }, ";
    let gateway = Gateway::start(&config(server.port(), ", protocol: h2", route));
    let port = gateway.web().port().to_string();
    let output = python("grpc_client.py", &[&port]).output().expect(".ci/setup installs Python");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "after {said}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(said.ends_with("late\nmany\n"), "{said}");
    eventually("each call that was late is cancelled", || {
        let cancelled = server.count("cancelled");
        (cancelled > 0 && cancelled == server.count("called")).then_some(())
    });
}
