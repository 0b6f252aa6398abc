//! `mirror` of routes: what it takes, and what it means.

use super::{messages, plan, warnings};
use crate::config::{describe, diff};
use std::time::Duration;

fn file(route: &str) -> String {
    format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:8080 }}]\n\
         upstreams:\n  - {{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}\n  \
         - {{ name: shadow, servers: [{{ url: http://127.0.0.1:9001 }}] }}\n\
         routes:\n  - name: r\n    match: {{ path: /a }}\n    {route}\n"
    )
}

fn mirrored(keys: &str) -> String {
    file(&format!("upstream: app\n    mirror: {keys}"))
}

#[test]
fn a_mirror_has_defaults_and_is_described() {
    let read = plan(&mirrored("{ upstream: shadow }"));
    let mirror = read.routes[0].options.mirror.clone().expect("it has one");
    assert_eq!((mirror.body_limit, mirror.timeout), (1 << 20, Duration::from_secs(10)));
    assert_eq!(read.routes[0].mirror_upstream, Some(1));
    assert!(read.warnings.list().next().is_none(), "{}", read.warnings);

    let own = plan(&mirrored("{ upstream: shadow, share: 0.5%, body_limit: 4KiB, timeout: 2s }"));
    let words = describe(&own);
    let expected = "    mirror  0.5% to shadow, bodies up to 4.0 KiB, within 2s\n";
    assert!(words.contains(expected), "{words}");
    let said = diff(&read, &own).to_string();
    assert!(
        said.contains("mirror 100% to shadow, bodies up to 1.0 MiB, within 10s → 0.5% to shadow"),
        "{said}"
    );
}

#[test]
fn what_cannot_be_meant_is_an_error() {
    for (keys, message) in [
        ("{ upstream: shado }", "there is no upstream `shado` | did you mean `shadow`?"),
        ("{ share: 10% }", "mirroring needs `upstream` | write `upstream: checkout`"),
        (
            "{ upstream: shadow, share: 101% }",
            "`101%` is not a percentage | write a number from 0 to 100 with up to four decimals and `%`, as in `0.5%`",
        ),
        (
            "{ upstream: shadow, body_limit: 17MiB }",
            "`body_limit` cannot be as large as `17MiB` | write at most `16MiB`",
        ),
        (
            "{ upstream: shadow, percent: 10% }",
            "mirroring has no key `percent`; did you mean `share`? | write `share`",
        ),
        (
            "shadow",
            "expected a map for mirroring, not a plain value | write `mirror: { upstream: NAME, share: 10% }`",
        ),
    ] {
        messages(&mirrored(keys), &[message]);
    }
}

#[test]
fn a_mirror_needs_an_upstream_of_the_route() {
    let respond = file("respond: 204\n    mirror: { upstream: shadow }");
    warnings(
        &respond,
        &[
            "no route uses the upstream `app`",
            "`mirror` does nothing in a route without `upstream`",
        ],
    );
    warnings(&file("upstream: app"), &["no route uses the upstream `shadow`"]);
}
