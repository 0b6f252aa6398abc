//! Keys that a client sends several times.

use crate::common::{
    Gateway, eventually,
    http::{self, Client},
    metrics, upstream, yaml,
};

const ROUTES: &str = "\
\x20 - { name: q, match: { path: /q }, upstream: up, flow: [{ name: r, limit: 2/1h, key: \"query:id\" }] }
  - { name: h, match: { path: /h }, upstream: up, flow: [{ name: r, limit: 2/1h, key: \"header:x-api-key\" }] }
  - { name: c, match: { path: /c }, upstream: up, flow: [{ name: r, limit: 2/1h, key: \"cookie:sid\" }] }
  - { name: gold, match: { path_prefix: /, header: { x-tenant: gold } }, upstream: up, reject: { status: 418 }, flow: [{ name: r, limit: 1/1h, key: \"header:x-none\", on_missing_key: reject }] }
";

#[test]
fn a_key_cannot_be_dodged_by_sending_it_twice() {
    let upstream = upstream::echo();
    let text = format!("access_log: access.log\n{}", yaml(upstream.address, ROUTES));
    let gateway = Gateway::start(&text);
    let mut client = Client::new(gateway.web());
    let twice: [(&str, &[(&str, &str)]); 6] = [
        ("/q?id=junk&id=real", &[]),
        ("/q?%69d=junk&id=real", &[]),
        ("/q?id=junk;id=real", &[]),
        ("/h", &[("X-Api-Key", "junk"), ("x-api-key", "real")]),
        ("/c", &[("Cookie", "sid=junk; sid=real")]),
        ("/c", &[("Cookie", "sid=junk"), ("Cookie", "sid=real")]),
    ];
    let names = [
        ("/q", "the query parameter id"),
        ("/h", "the header field x-api-key"),
        ("/c", "the cookie sid"),
    ];
    for (path, fields) in twice {
        let answer = client.request("GET", path, fields);
        assert_eq!(answer.status, 400, "{path} {fields:?}");
        assert_eq!((answer.header("retry-after"), answer.header("ratelimit")), (None, None));
        let problem = answer.json();
        assert_eq!((&problem["reason"], &problem["type"]), (&"key".into(), &"about:blank".into()));
        assert_eq!(problem["violated-policies"], serde_json::json!(["r"]));
        let detail = problem["detail"].as_str().expect("a sentence");
        let expected = names.iter().find(|(route, _)| path.starts_with(route)).expect("a route").1;
        assert_eq!(detail, format!("the request has {expected} more than once"));
    }
    let once: [(&str, &[(&str, &str)]); 3] = [
        ("/q?id=real", &[]),
        ("/h", &[("x-api-key", "real")]),
        ("/c", &[("Cookie", "a=1; sid=real")]),
    ];
    for (path, fields) in once {
        let statuses = [(); 3].map(|()| client.request("GET", path, fields).status);
        assert_eq!(statuses, [200, 200, 429], "{path}: nothing was spent by the others");
    }
    // Not past a route either.
    let fields = [("x-tenant", "junk"), ("x-tenant", "gold")];
    assert_eq!(client.request("GET", "/q?id=new", &fields).status, 200, "a more specific path");
    assert_eq!(client.request("GET", "/other", &fields).status, 418);
    let decisions = metrics(&gateway, "flowgate_flow_decisions_total");
    let of_key: f64 =
        decisions.iter().filter(|(name, _)| name.contains("reason=\"key\"")).map(|(_, n)| n).sum();
    assert!((of_key - 7.0).abs() < f64::EPSILON, "{decisions:?}");
    let path = gateway.dir.path().join("access.log");
    let line = eventually("the first line", || {
        let text = std::fs::read_to_string(&path).ok()?;
        serde_json::from_str::<serde_json::Value>(text.lines().next()?).ok()
    });
    assert_eq!((&line["status"], &line["flow"]["reason"]), (&400.into(), &"key".into()), "{line}");
    assert_eq!(line["flow"]["keys"]["r"], "duplicate", "{line}");

    gateway.edit(&text.replace("key: \"query:id\"", "key: \"query:id\", on_duplicate_key: last"));
    let status = |path| http::get(gateway.web(), path).status;
    assert_eq!(["/q?id=real&id=other", "/q?id=other&id=real"].map(status), [200, 429]);
}
