//! What routes match beside host and path, and what they do without an upstream.

use crate::common::{
    Gateway, curl,
    http::{self, Client},
    upstream, yaml,
};

/// Adds the listener `other` to a configuration.
fn with_other(yaml: &str) -> String {
    let web = "  - { name: web, listen: 127.0.0.1:0 }\n";
    yaml.replace(web, &format!("{web}  - {{ name: other, listen: 127.0.0.1:0 }}\n"))
}

#[test]
fn a_route_of_one_listener_takes_all_that_comes_by_it() {
    let upstream = upstream::echo();
    let routes = "  - { name: api, match: { path: /api }, upstream: up, response_headers: { set: { x-route: api } } }
  - { name: all, match: { path_prefix: / }, upstream: up, response_headers: { set: { x-route: all } } }
  - { name: own, match: { listener: other }, upstream: up, response_headers: { set: { x-route: own } } }
  - { name: both, match: { listener: [web, other], path: /b }, upstream: up, response_headers: { set: { x-route: both } } }";
    let gateway = Gateway::start(&with_other(&yaml(upstream.address, routes)));
    let (mut web, mut other) = (Client::new(gateway.web()), Client::new(gateway.address("other")));
    for (path, by_web, by_other) in
        [("/api", "api", "own"), ("/x", "all", "own"), ("/b", "both", "both")]
    {
        assert_eq!(web.get(path).header("x-route"), Some(by_web), "{path}");
        assert_eq!(other.get(path).header("x-route"), Some(by_other), "{path}");
    }
    let url = format!("http://{}/api", gateway.address("other"));
    let answer = curl(&["--http2-prior-knowledge", "-i", &url]);
    assert!(answer.starts_with("HTTP/2 200") && answer.contains("x-route: own\r\n"), "{answer}");
    let routes = http::get(gateway.address("admin"), "/routes").json();
    let shown: Vec<_> =
        routes["routes"].as_array().expect("a list").iter().map(|route| &route["match"]).collect();
    assert_eq!(shown, ["/b listener web|other", "/* listener other", "/api", "/*"]);
}
