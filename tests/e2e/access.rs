//! Who may use a route, by address.

use crate::common::{Gateway, curl, eventually, http::Client, metrics, upstream, yaml};

const ROUTES: &str = "  - name: all
    match: { path_prefix: / }
    upstream: up
    access: { allow: [10.0.0.0/8, '2001:db8::/32'], deny: [10.1.0.0/16] }
    body_limit: 10
    flow: [{ name: two, limit: 2/1h }]
trusted_proxies: 127.0.0.0/8
access_log: access.log
";

fn ask(client: &mut Client, from: &str, more: &[(&str, &str)]) -> (u16, String) {
    let fields: Vec<_> = [("X-Forwarded-For", from)].iter().chain(more).copied().collect();
    let answer = client.request("GET", "/", &fields);
    (answer.status, answer.text())
}

#[test]
fn a_denied_request_gets_403_and_uses_nothing() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    for from in ["10.1.2.3", "192.0.2.1", "2001:db9::1", "6.6.6.6, ::ffff:10.1.0.1"] {
        let (status, body) = ask(&mut client, from, &[]);
        assert_eq!(status, 403, "{from}");
        assert!(body.contains("this route does not allow the client's address"), "{body}");
    }
    // Whatever the body would be answered.
    assert_eq!(ask(&mut client, "192.0.2.1", &[("Content-Length", "0")]).0, 403);
    // A client that is not behind the proxy cannot choose its address.
    assert_eq!(client.get("/").status, 403);
    // The limit of two is whole.
    assert_eq!(ask(&mut client, "10.2.0.1", &[]).0, 200);
    assert_eq!(ask(&mut client, "2001:db8::1", &[]).0, 200);
    assert_eq!(ask(&mut client, "10.2.0.1", &[]).0, 429);
    // Not counted by the rule, but by the gateway and its route.
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected["flowgate_http_rejected_total{reason=\"access\"}"], 6.0);
    let log = gateway.dir.path().join("access.log");
    let line = eventually("a line of the access log", || {
        let text = std::fs::read_to_string(&log).ok()?;
        text.lines().find(|line| line.contains("\"client_ip\":\"10.1.2.3\"")).map(str::to_owned)
    });
    assert!(line.contains("\"route\":\"all\",\"status\":403"), "{line}");
    assert!(line.contains("\"error\":\"this route does not allow"), "{line}");
    assert!(!line.contains("\"flow\""), "{line}");
    gateway.wait_log("request rejected: this route does not allow the client's address");
}

#[test]
fn a_denied_client_of_http_2_or_grpc_is_told_so_and_an_edit_lets_it_in() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let url = format!("http://{}/", gateway.web());
    let http2 = ["--http2-prior-knowledge", "-i", "-d", "more than ten bytes"];
    let denied = curl(&[&http2[..], &[&url]].concat());
    assert!(denied.starts_with("HTTP/2 403"), "{denied}");
    let call = || {
        let mut client = Client::new(gateway.web());
        client.request(
            "POST",
            "/",
            &[("Content-Type", "application/grpc"), ("Content-Length", "0")],
        )
    };
    let denied = call();
    assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("7")));
    let line = gateway.edit(&yaml(upstream.address, &ROUTES.replace("10.0.0.0/8", "127.0.0.0/8")));
    assert!(line.contains("route all (access)"), "{line}");
    assert_eq!(call().header("grpc-status"), None);
}
