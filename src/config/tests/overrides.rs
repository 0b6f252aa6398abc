//! Overrides: what is rejected, what a good one becomes, and which override a request gets.

use super::{messages, plan, warnings, with_rules};
use crate::{
    config::{Claims, KeySource, Live, RequestContext, Retired},
    flow::{Algorithm, Instant, limiter::token_bucket},
    geo::Located,
    route::{Seed, Target},
};
use http::{HeaderMap, HeaderValue, Method};
use std::net::IpAddr;

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn overrides_that_cannot_work_are_rejected() {
    for (rule, expected) in [
        (
            "limit: 9/1s, overrides: [{ limit: 5/1s }]",
            &["an override needs `when` | write `when: { header:x-tenant: some text }`"][..],
        ),
        (
            "limit: 9/1s, overrides: [{ when: {}, limit: 5/1s }]",
            &["an override needs at least one condition | write `when: { header:x-tenant: gold }`"],
        ),
        (
            "limit: 9/1s, overrides: [{ when: { tenant: gold }, limit: 5/1s }]",
            &[
                "`tenant` is not a condition | write one of `client_ip`, `country`, `asn`, `method`, `path_prefix`, `header:NAME`, `query:NAME`, `user` and `jwt:NAME`",
            ],
        ),
        (
            "limit: 9/1s, overrides: [{ when: { method: GET } }]",
            &[
                "an override that changes nothing | write a number beside `when`, as in `limit: 100/1s`",
            ],
        ),
        (
            "limit: 9/1s, overrides: [{ when: { method: GET }, concurrency: 5 }]",
            &[
                "an override changes the numbers that its rule has | remove it: the rule has `limit`",
            ],
        ),
        (
            "concurrency: 9, overrides: [{ when: { method: GET }, limit: 5/1s }]",
            &[
                "an override changes the numbers that its rule has | remove it: the rule has `concurrency`",
            ],
        ),
        (
            "algorithm: fixed_window, limit: 9/1s, overrides: [{ when: { method: GET }, burst: 5 }]",
            &[
                "an override changes the numbers that its rule has | remove it: its algorithm has no `burst`",
            ],
        ),
        (
            "limit: 9/1s, overrides: [{ when: { method: GET }, limit: 5/1s }, { when: { method: GET }, limit: 6/1s }]",
            &[
                "two overrides when `method=GET` | remove one: the first that fits a request is the one that counts",
            ],
        ),
        (
            "limit: 9/1s, cost: 4, overrides: [{ when: { 'query:q': { regex: '(' } }, burst: 3 }]",
            &[
                "nothing can ever pass: a request costs 4 of burst 3 | write a cost of at most 3, or a larger burst",
                "not a regular expression: unclosed group | the syntax is that of https://docs.rs/regex#syntax, without look-around and back-references",
            ],
        ),
    ] {
        messages(&with_rules(&format!("      - {{ name: a, {rule} }}\n")), expected);
    }
    let many = (0..16).map(|n| format!("{{ when: {{ header:x: {n} }}, burst: 2 }}"));
    let many = many.collect::<Vec<_>>().join(", ");
    messages(
        &with_rules(&format!("      - {{ name: a, limit: 9/1s, overrides: [{many}] }}\n")),
        &[
            "1 rule and 16 overrides are too many | write at most 16 rules and overrides together in a route: each override counts as a rule. Clients with the same numbers share one override: list their values, as in `when: { header:x-plan: [gold, silver] }`, or their networks in a file, as in `when: { client_ip: { file: partners.txt } }`. For other numbers by customer, write `plans: { by: key, file: accounts.csv }`",
        ],
    );
}

#[test]
fn an_override_changes_numbers_alone() {
    let plan = plan(&with_rules(
        "      - { name: a, limit: 9/1s, burst: 2, key: client_ip, overrides: [{ when: { header:x-tenant: gold, method: [GET, PUT] }, limit: 100/1s }, { when: { client_ip: 10.0.0.0/8 }, burst: 7 }] }
      - { name: b, concurrency: 5, overrides: [{ when: { path_prefix: /slow }, concurrency: 1 }] }
      - { name: c, algorithm: fixed_window, limit: 9/month, tz: Asia/Tokyo, overrides: [{ when: { query:plan: { present: true } }, limit: 9/day }] }
",
    ));
    let route = &plan.routes[0];
    let rules: Vec<_> = route.flow.flow.iter().map(|rule| &*rule.name).collect();
    assert_eq!(
        rules,
        [
            "a when method=GET|PUT, header:x-tenant=gold",
            "a when client_ip=10.0.0.0/8",
            "a",
            "b when path_prefix=/slow",
            "b",
            "c when query:plan",
            "c",
        ]
    );
    let rate = |text| crate::config::spec::values::limit(text).unwrap().rate;
    let bucket =
        |text, burst| Algorithm::TokenBucket(token_bucket::Config { rate: rate(text), burst });
    let algorithm = |n: usize| &route.flow.flow[n].algorithm;
    assert_eq!(algorithm(0), &bucket("100/1s", 2));
    assert_eq!(algorithm(1), &bucket("9/1s", 7));
    assert_eq!(algorithm(2), &bucket("9/1s", 2));
    assert!(format!("{:?}", algorithm(5)).contains("day (Asia/Tokyo)"));
    assert!(route.flow.flow[..3].iter().all(|rule| rule.keyed == route.flow.flow[0].keyed));
    let policy = "\"a\";q=2;w=1, \"c\";q=9";
    assert_eq!(route.policy.as_ref().unwrap(), policy);
    let quota = route.rules[0].quota.as_ref().unwrap();
    assert_eq!(quota.policy.as_deref(), Some("\"a\";q=2;w=1"));
    let words = crate::config::describe(&plan);
    assert!(words.contains("a when client_ip=10.0.0.0/8  token_bucket 9/1s, burst 7"), "{words}");
    // Neither the rule nor its override hears of all requests.
    warnings(
        &with_rules(
            "      - { name: a, limit: 9/1s, overrides: [{ when: { method: GET }, limit: 99/1s }] }
      - { name: b, limit: 10/1s }\n",
        ),
        &[],
    );
}

const NOW: Instant = Instant::from_nanos(1_700_000_000_000_000_000);

/// Returns how many of ten requests the first route of `live` admits.
fn admitted(live: &Live, client: &str, method: &Method, tenant: Option<&'static str>) -> usize {
    let mut headers = HeaderMap::new();
    if let Some(tenant) = tenant {
        headers.insert("x-tenant", HeaderValue::from_static(tenant));
    }
    let client: IpAddr = client.parse().unwrap();
    let target = Target {
        listener: None,
        certificate: None,
        place: Located::default(),
        identity: None,
        body: None,
        host: "a",
        path: "/",
        query: None,
        method,
        headers: (&headers).into(),
    };
    let snapshot = live.load_full();
    let route = &snapshot.routes[0];
    let seed = Seed::new([1, 2]);
    let mut claims = Claims::new();
    let request = RequestContext { seed: &seed, target: &target, client };
    route.claim(request, |_, _| KeySource::Request, &mut claims);
    assert!(claims.len() <= 2, "a rule and its overrides are asked once");
    (0..10).filter(|_| route.gate.enter(NOW, &claims).is_ok()).count()
}

#[test]
fn a_request_is_asked_by_the_first_version_that_fits() {
    let file = |gold: u32| {
        with_rules(&format!(
            "      - {{ name: a, limit: 1/1h, burst: 1, key: client_ip, except: {{ method: HEAD }}, overrides: [{{ when: {{ header:x-tenant: gold, method: [GET, HEAD] }}, limit: {gold}/1h, burst: {gold} }}, {{ when: {{ client_ip: 10.0.0.0/8 }}, limit: 3/1h, burst: 3 }}] }}
      - {{ name: b, limit: 8/1h, burst: 8 }}\n"
        ))
    };
    let live = Live::start(plan(&file(5)), NOW);
    let get = Method::GET;
    assert_eq!(admitted(&live, "10.0.0.1", &get, Some("gold")), 5);
    // Counts of its own; the second one, since POST is not in the first.
    assert_eq!(admitted(&live, "10.0.0.1", &Method::POST, Some("gold")), 3);
    // Of the eight of `b` nothing is left.
    assert_eq!(admitted(&live, "192.0.2.1", &get, None), 0);
    let snapshot = live.load_full();
    let seen = snapshot.routes[0].gate.observe(NOW);
    let counts: Vec<_> =
        seen.rules.iter().map(|rule| (rule.counts.passed, rule.counts.rejected.total())).collect();
    assert_eq!(counts, [(5, 5), (3, 7), (0, 0), (8, 10)]);
    assert_eq!(snapshot.routes[0].rule_name(seen.rules[1].slot), "a");
}

#[test]
fn an_override_goes_on_as_long_as_its_when_stays_the_same() {
    let file = |when: &str, limit: u32| {
        with_rules(&format!(
            "      - {{ name: a, algorithm: fixed_window, limit: 1/1h, overrides: [{{ when: {{ header:x-tenant: {when} }}, limit: {limit}/1h }}] }}\n"
        ))
    };
    let live = Live::start(plan(&file("gold", 2)), NOW);
    let mut retired = Retired::default();
    let get = Method::GET;
    assert_eq!(admitted(&live, "192.0.2.1", &get, Some("gold")), 2);
    let summary = live.apply(plan(&file("gold", 5)), NOW, &mut retired);
    assert_eq!((summary.rules_kept, summary.rules_converted), (1, 1));
    assert_eq!(admitted(&live, "192.0.2.1", &get, Some("gold")), 3);
    live.apply(plan(&file("silver", 5)), NOW, &mut retired);
    assert_eq!(admitted(&live, "192.0.2.1", &get, Some("gold")), 1);
    assert_eq!(admitted(&live, "192.0.2.1", &get, Some("silver")), 5);
}
