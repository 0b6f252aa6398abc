//! Paths by which a server could mean another route than the gateway.

use super::{FRAME, plan};
use crate::{
    config::{Live, Snapshot, Unrouted},
    flow::Instant,
    geo::Located,
    route::{Target, normal_path, sent_path},
};
use http::{HeaderMap, Method};
use proptest::{collection::vec, prelude::*, sample::select};
use std::sync::Arc;

fn snapshot(routes: &str) -> Arc<Snapshot> {
    let plan = plan(&format!("{FRAME}routes:\n{routes}"));
    Live::start(plan, Instant::from_nanos(1_700_000_000_000_000_000)).load_full()
}

/// Returns the name of the route that a request for `path` finds.
fn found<'a>(snapshot: &'a Snapshot, path: &str) -> Result<&'a str, Unrouted> {
    let headers = HeaderMap::new();
    let target = Target {
        listener: None,
        certificate: None,
        place: Located::default(),
        identity: None,
        body: None,
        host: "a",
        path: &normal_path(path),
        query: None,
        method: &Method::GET,
        headers: (&headers).into(),
    };
    snapshot.find(&target, path).map(|route| &*route.name)
}

const ROUTES: &str = "  - { name: limited, match: { path_prefix: /limited }, upstream: app, flow: [{ name: a, limit: 1/1h }] }
  - { name: office, match: { path_prefix: /office }, upstream: app, access: { allow: [10.0.0.0/8] } }
  - { name: paced, match: { path_prefix: /paced }, upstream: app, pacing: { rate: 1/1s } }
  - { name: broken, match: { path_prefix: /broken }, upstream: app, breaker: { errors: 10 } }
  - { name: closed, match: { path: /closed }, respond: { status: 403 } }
  - { name: open, match: { path_prefix: /open }, upstream: app }
  - { name: deep, match: { path_prefix: /open/deep }, upstream: app, flow: [{ name: a, limit: 1/1h }] }
  - name: partly
    match: { path_prefix: /partly }
    upstream: app
    flow:
      - name: a
        limit: 100/1h
        overrides: [{ when: { path_prefix: /partly/costly }, limit: 1/1h }]
        except: { path_prefix: /partly/free }
  - { name: relaxed, match: { path_prefix: /relaxed }, upstream: app, relaxed_path: true }
  - { name: strict, match: { path_prefix: /relaxed/strict }, upstream: app, flow: [{ name: a, limit: 1/1h }] }
  - { name: all, match: { path_prefix: / }, upstream: app }
";

#[test]
fn a_path_that_leads_elsewhere_without_its_parameters_is_rejected() {
    let snapshot = snapshot(ROUTES);
    for path in [
        "/limited;x",
        "/limited;",
        "/limited;/x",
        "/limited%3Bx",
        "/%6cimited;x=1",
        "/;x/limited",
        "/;/;/limited/a",
        "//;x//limited;y//",
        "/limited;x%2Fy",
        "/office;x",
        "/paced;x",
        "/broken;x",
        "/closed;x",
        "/open/deep;x/a",
        "/open/;x/deep",
        "/partly/costly;x",
        "/partly;x/costly",
        "/partly/free;x",
    ] {
        let rejected =
            matches!(found(&snapshot, path), Err(Unrouted::Path(why)) if why.starts_with("a `;`"));
        assert!(rejected, "{path}: {:?}", found(&snapshot, path));
    }
    for (path, expected) in [
        ("/limited/a;x=1/b;y", "limited"),
        ("/closed", "closed"),
        ("/open;x", "all"),
        ("/open/a;x/b", "open"),
        ("/partly/a;x", "partly"),
        ("/partly/costly/a;x", "partly"),
        ("/other;x", "all"),
        ("/relaxed/strict;x", "relaxed"),
        ("/relaxed;x", "all"),
        ("/;", "all"),
    ] {
        assert_eq!(found(&snapshot, path), Ok(expected), "{path}");
    }
}

#[test]
fn a_path_without_a_route_stays_without_one() {
    let snapshot = snapshot(
        "  - { name: a, match: { path: /a }, upstream: app, flow: [{ name: a, limit: 1/1h }] }\n",
    );
    assert_eq!(found(&snapshot, "/a;x"), Err(Unrouted::NoRoute));
    assert_eq!(found(&snapshot, "/a"), Ok("a"));
}

proptest! {
    /// The servers of this test take what follows two slashes for a host, remove parameters, and
    /// merge slashes.
    #[test]
    fn no_host_and_no_parameter_avoids_a_route_with_rules(
        routes in vec((vec(select(vec!["a", "b"]), 1..4), any::<bool>(), any::<bool>()), 1..6),
        segments in vec(select(vec!["a", "b", "a;", "b;a", "a;b=1;c", ";", ";a", "%61;x", "a%3Bb", "", "a%2Fb;"]), 1..6),
        start in select(vec!["/", "/", "//", "/.//", "///"]),
    ) {
        let route = |(index, (path, is_limited, is_prefix)): (usize, &(Vec<&str>, bool, bool))| {
            let kind = if *is_prefix { "path_prefix" } else { "path" };
            let flow = if *is_limited { ", flow: [{ name: a, limit: 1/1h }]" } else { "" };
            let path = path.join("/");
            format!("  - {{ name: r{index}, match: {{ {kind}: /{path} }}, upstream: app{flow} }}\n")
        };
        let routes: Vec<String> = routes.iter().enumerate().map(route).collect();
        let routes = routes.concat();
        let snapshot = snapshot(&format!("{routes}  - {{ name: all, match: {{ path_prefix: / }}, upstream: app }}\n"));
        let path = format!("{start}{}", segments.join("/"));
        let Ok(name) = found(&snapshot, &path) else { return Ok(()) };
        let sent = sent_path(&path).unwrap_or_else(|| path.clone());
        let host = sent.strip_prefix("//").and_then(|rest| rest.split('/').next());
        let behind = host.map_or(&*sent, |host| &sent[2 + host.len()..]);
        let decodings = [&*sent, behind].map(|path| path.replace("%3B", ";"));
        for decoded in decodings.into_iter().flat_map(|path| [path.replace("%2F", "/"), path]) {
            let names: Vec<&str> =
                decoded.split('/').map(|segment| &segment[..segment.find(';').unwrap_or(segment.len())]).collect();
            let server = normal_path(&names.join("/")).into_owned();
            let meant = found(&snapshot, &server).expect("a route");
            let has_rules = snapshot.routes.iter().any(|route| *route.name == *meant && !route.rules.is_empty());
            prop_assert!(meant == name || !has_rules, "{path} finds {name}, and the server's {server} {meant}");
        }
    }
}
