//! Bodies of errors: those of flowgate, and those in place of the upstream's.

use crate::common::{
    Gateway,
    http::{Answer, Client},
    upstream::{Script, ok},
    yaml,
};

/// A server that answers with the status that the path names, and with a page of its own.
fn failing() -> Script {
    Script::answering(|request| {
        match request.path().trim_start_matches('/') {
        "200" => ok("fine"),
        "large" => {
            let length = 1 << 20;
            let head = format!("HTTP/1.1 500 Bad\r\nContent-Length: {length}\r\n\r\n");
            [head.into_bytes(), vec![b'x'; length]].concat()
        }
        "chunked" => b"HTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\nRetry-After: 7\r\nTrailer: x-sum\r\n\r\n3\r\nold\r\n0\r\nx-sum: 1\r\n\r\n".to_vec(),
        status => {
            let body = if request.line.starts_with("HEAD ") { "" } else { "the server's page" };
            format!(
                "HTTP/1.1 {status} Its Words\r\nContent-Length: 17\r\nContent-Type: text/x-own\r\nContent-Encoding: identity\r\n\
                 ETag: \"a\"\r\nCache-Control: max-age=600\r\nWWW-Authenticate: Basic\r\nSet-Cookie: a=b\r\nX-Served-By: 1\r\n\r\n{body}"
            )
            .into_bytes()
        }
    }
    })
}

const ROUTE: &str = "  - name: all
    match: { path_prefix: / }
    upstream: up
    errors:
      - { status: [404], body: own }
      - { status: [401, 500, 502, 503], from: both, body: '<h1>{path} has a problem</h1>' }
    response_headers: { set: { cache-control: public, x-edge: here } }
";

#[track_caller]
fn is_page(answer: &Answer, path: &str) {
    assert_eq!(answer.text(), format!("<h1>{path} has a problem</h1>"));
    assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
    for gone in ["etag", "content-encoding", "cache-control", "trailer"] {
        assert_eq!(answer.header(gone), None, "{gone}");
    }
    assert_eq!(answer.header("x-edge"), Some("here"));
    assert!(answer.complete);
}

#[test]
fn a_page_replaces_the_body_of_the_upstreams_error_and_its_connection_is_kept() {
    let upstream = failing();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTE));
    let mut client = Client::new(gateway.web());

    for status in ["401", "500", "503"] {
        let path = format!("/{status}");
        let answer = client.get(&path);
        assert_eq!(answer.status.to_string(), status);
        is_page(&answer, &path);
        for (name, value) in
            [("www-authenticate", "Basic"), ("set-cookie", "a=b"), ("x-served-by", "1")]
        {
            assert_eq!(answer.header(name), Some(value), "{name}");
        }
    }
    let chunked = client.get("/chunked");
    is_page(&chunked, "/chunked");
    assert_eq!((chunked.status, chunked.header("retry-after")), (503, Some("7")));

    // An entry without `from` is for flowgate's own errors, and other responses pass.
    assert_eq!(client.get("/404").text(), "the server's page");
    assert_eq!(client.get("/418").text(), "the server's page");
    assert_eq!(client.get("/200").text(), "fine");
    assert_eq!(upstream.connections(), 1);

    let head = client.request("HEAD", "/500", &[]);
    let length = "<h1>/500 has a problem</h1>".len().to_string();
    assert_eq!((head.status, head.header("content-length")), (500, Some(&*length)));

    // A large body is not read to its end for nothing.
    is_page(&client.get("/large"), "/large");
    is_page(&client.get("/500"), "/500");
}

#[test]
fn flowgates_own_errors_get_the_page_too_and_calls_of_grpc_do_not() {
    let upstream = failing();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTE));
    let mut client = Client::new(gateway.web());
    let call = client.request(
        "POST",
        "/500",
        &[("content-type", "application/grpc"), ("content-length", "0")],
    );
    assert_eq!(call.text(), "the server's page");

    let gone = failing().address;
    let gateway = Gateway::start(&yaml(gone, ROUTE));
    let answer = Client::new(gateway.web()).get("/500");
    assert_eq!(answer.status, 502);
    is_page(&answer, "/500");
}
