//! Lengths of answers as odd upstreams say them.

use crate::common::{Gateway, curl, upstream::Script, yaml};

#[test]
fn a_length_is_sent_once_and_only_for_answers_that_have_one() {
    let upstream = Script::answering(|request| {
        let (status, lengths, body) = match request.path() {
            "/lines" => ("200 OK", "Content-Length: 2\r\nContent-Length: 2\r\n", "ok"),
            "/list" => ("200 OK", "Content-Length: 2 , 2\r\n", "ok"),
            "/both" => ("200 OK", "Content-Length: 2, 2\r\nContent-Length: 2\r\n", "ok"),
            _ => ("204 No Content", "Content-Length: 2\r\n", ""),
        };
        format!("HTTP/1.1 {status}\r\n{lengths}\r\n{body}").into_bytes()
    });
    let route = "  - { name: all, match: { path_prefix: / }, upstream: up }";
    let gateway = Gateway::start(&yaml(upstream.address, route));
    for version in ["--http1.1", "--http2-prior-knowledge"] {
        for (path, lengths) in [("lines", 1), ("list", 1), ("both", 1), ("none", 0)] {
            let url = format!("http://{}/{path}", gateway.web());
            let answer = curl(&[version, "-i", &url]);
            assert_eq!(answer.matches("content-length: 2\r\n").count(), lengths, "{answer}");
            assert_eq!(answer.ends_with("\r\n\r\nok"), lengths > 0, "{answer}");
        }
    }
}
