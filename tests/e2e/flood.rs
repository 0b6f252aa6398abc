//! A table that junk keys have filled, as its clients see it.

use crate::{
    common::{Gateway, http::Client, metrics, upstream, yaml},
    throttling::route,
};

#[test]
fn new_keys_pass_in_a_full_table_and_nobody_gets_a_fresh_budget() {
    let upstream = upstream::echo();
    let rule = "name: r, algorithm: sliding_window, limit: 5/1h, key: \"header:x-api-key\"";
    let rules = route(&format!("    flow: [{{ {rule}, max_keys: 100 }}]"));
    let gateway = Gateway::start(&yaml(upstream.address, &rules));
    let mut client = Client::new(gateway.web());
    let mut ask = |key: &str| client.request("GET", "/", &[("X-Api-Key", key)]).status;
    for at in 0..7 {
        assert_eq!(ask("greedy"), if at < 5 { 200 } else { 429 });
    }
    for junk in 0..400 {
        assert_eq!(ask(&format!("junk {junk}")), 200, "{junk}");
    }
    for new in 0..74 {
        let statuses = ["new", "more junk", "greedy"].map(|path| match path {
            "greedy" => ask(path),
            _ => ask(&format!("{path} {new}")),
        });
        assert_eq!(statuses, [200, 200, 429], "{new}");
    }
    // Of those that lost their place, each has what was left.
    for at in 1..7 {
        assert_eq!(ask("junk 0"), if at < 5 { 200 } else { 429 });
    }
    let of_rule = |name: &str| {
        let name = format!("flowgate_flow_keys{name}");
        metrics(&gateway, &name)[&format!("{name}{{route=\"all\",rule=\"r\"}}")]
    };
    assert_eq!(of_rule(""), 100.0);
    // The last request of `junk 0` was rejected, and took no place.
    assert_eq!(of_rule("_evicted_total"), 400.0 + 2.0 * 74.0 + 2.0 - 100.0);
    // One that came back, and a few that fell in with four others.
    let restored = of_rule("_restored_total");
    assert!((1.0..50.0).contains(&restored), "{restored}");
    assert_eq!(of_rule("_overflow_total"), 0.0);
}
