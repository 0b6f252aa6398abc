//! Bodies of requests that nobody wants.

use crate::common::{
    Gateway, curl,
    http::{Client, head},
    upstream::{self, Script},
    yaml,
};
use std::io::Read;

#[test]
fn a_request_that_no_route_matches_keeps_its_connection_if_its_body_is_small() {
    let upstream = upstream::echo();
    let route = "  - { name: all, match: { path: /known }, upstream: up }";
    let gateway = Gateway::start(&yaml(upstream.address, route));
    let mut client = Client::new(gateway.web());
    for _ in 0..3 {
        client.send(head("POST", "/unknown", &[("Content-Length", "5")]));
        let answer = client.read("POST");
        assert_eq!((answer.status, answer.header("connection")), (404, None));
        client.send("hello");
        assert_eq!(client.get("/known").status, 200);
    }
    client.send(head("POST", "/unknown", &[("Content-Length", "1000000")]));
    let answer = client.read("POST");
    assert_eq!((answer.status, answer.header("connection")), (404, Some("close")));
    client.send("x".repeat(1_000_000));
    assert!(client.is_closed());
}

#[test]
fn curl_gets_the_answer_to_an_upload_that_nobody_wants() {
    // Answers what it has not read, with and without a length.
    let upstream = Script::start(|_, mut connection| {
        let request = connection.read_head().expect("a head");
        let body = match request.path() {
            "/early/chunked" => "Transfer-Encoding: chunked\r\n\r\n3\r\nbig\r\n0\r\n\r\n",
            _ => "Content-Length: 3\r\n\r\nbig",
        };
        // It answers no second request, and the system may have taken all of the first before the
        // answer is there.
        connection.write(format!("HTTP/1.1 413 Too Large\r\nConnection: close\r\n{body}"));
        drop(connection.stream.read_to_end(&mut Vec::new()));
    });
    let routes = "  - { name: limited, match: { path: /limited }, upstream: up, body_limit: 1MiB }
  - { name: rule, match: { path: /rule }, upstream: up, flow: [{ name: r, limit: 1/1h, key: \"header:x\", on_missing_key: reject }] }
  - { name: early, match: { path_prefix: /early }, upstream: up }";
    let gateway = Gateway::start(&yaml(upstream.address, routes));
    let file = gateway.dir.path().join("upload");
    std::fs::write(&file, vec![0; 5_000_000]).expect("written");
    let file = file.to_str().expect("text");
    for (path, status) in
        [("limited", "413"), ("rule", "400"), ("early", "413"), ("early/chunked", "413")]
    {
        let url = format!("http://{}/{path}", gateway.web());
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            for expect in ["expect:", "expect: 100-continue"] {
                for framing in ["x-framing: length", "transfer-encoding: chunked"] {
                    let answer = curl(&[
                        version,
                        "-XPOST",
                        "-T",
                        file,
                        "-H",
                        expect,
                        "-H",
                        framing,
                        "-o/dev/null",
                        "-w%{http_code}",
                        &url,
                    ]);

                    assert_eq!(answer, status, "{path} {version} {expect} {framing}");
                }
            }
        }
    }
}
