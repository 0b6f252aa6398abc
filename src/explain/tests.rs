//! Explanations of a snapshot, without a gateway.

use super::{
    ExpectedDecision::{self, NotAsked, Passed, Undecided},
    Explanation, Question, Seeds, StoreState,
};
use crate::{
    config::{self, Live},
    flow::{Claim, Instant, Key},
    health::ServerFailure,
    route::Seed,
};
use core::time::Duration;

const NOW: Instant = Instant::from_nanos(86_400_000_000_000);

fn live(routes: &str) -> Live {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    std::fs::write(
        folder.path().join("users"),
        "me:$2y$04$abcdefghijklmnopqrstuuM5y1Tdm0zBgNdFQwX9kPpqwqkqP5Tbm\n",
    )
    .unwrap();
    let text = format!(
        "listeners: [{{ name: web, listen: 127.0.0.1:0 }}, {{ name: other, listen: 127.0.0.1:0 }}]
store: {{ redis: redis://127.0.0.1 }}
trusted_proxies: [10.0.0.0/8]
upstreams:
  - {{ name: app, servers: [{{ url: http://127.0.0.1:9000 }}] }}
  - {{ name: turns, servers: [{{ url: http://127.0.0.1:9001 }}, {{ url: http://127.0.0.1:9002 }}], balance: round_robin }}
  - {{ name: keyed, servers: [{{ url: http://127.0.0.1:9001 }}, {{ url: http://127.0.0.1:9002 }}], balance: hash, hash_key: \"header:x-a\" }}
routes:\n{routes}"
    );
    std::fs::write(&path, text).unwrap();
    let plan = config::read(&path).unwrap_or_else(|problems| panic!("{problems}"));
    Live::start(plan, NOW)
}

fn question(path: &str) -> Question {
    serde_json::from_value(serde_json::json!({ "path": path })).unwrap()
}

fn seeds(store: Option<StoreState>) -> Seeds {
    Seeds { own: Seed::new([1, 2]), store }
}

fn store(is_up: bool, is_cut_off: bool) -> Seeds {
    seeds(Some(StoreState { seed: Seed::new([3, 4]), is_up, is_cut_off }))
}

fn explain(live: &Live, question: &Question, seeds: &Seeds) -> Explanation {
    question.explain(&live.load(), seeds, (NOW, NOW)).unwrap()
}

#[test]
fn what_is_asked_before_any_rule_has_its_status() {
    let live = live(
        "  - { name: in, match: { path: /in, listener: other }, upstream: app, access: { allow: [192.0.2.0/24] } }
  - { name: short, match: { path: /short }, upstream: app, body_limit: 10 }
  - { name: mine, match: { path: /mine }, upstream: app, auth: { basic: users }, flow: [{ name: each, limit: 9/1h, key: user }] }",
    );
    let seeds = seeds(None);
    let said = |question: &Question| explain(&live, question, &seeds);
    let at = |path: &str| said(&question(path)).status;
    assert_eq!((at("/none"), at("/in"), at("/mine")), (Some(404), Some(404), Some(401)));
    let of = |from: &str| Question {
        listener: Some("other".to_owned()),
        from: Some(from.parse().unwrap()),
        ..question("/in")
    };
    assert_eq!((said(&of("192.0.2.1")).status, said(&of("192.0.3.1")).status), (None, Some(403)));
    let forwarded = |client: &str| Question {
        headers: vec![("X-Forwarded-For".to_owned(), client.to_owned())],
        ..of("10.1.1.1")
    };
    assert_eq!(said(&forwarded("192.0.2.1")).request.client, "192.0.2.1");
    assert_eq!(said(&forwarded("192.0.2.1")).status, None);
    let long = Question {
        headers: vec![("content-length".to_owned(), "11".to_owned())],
        ..question("/short")
    };
    assert_eq!(said(&long).status, Some(413));
    let me = said(&Question { user: Some("me".to_owned()), ..question("/mine") });
    assert_eq!((me.decision, me.rules[0].value.as_deref()), (Passed, Some("me")));
}

#[test]
fn a_rule_that_is_not_asked_says_why() {
    let live = live(
        "  - name: all
    match: { path_prefix: / }
    upstream: app
    flow:
      - { name: free, limit: 9/1h, except: { client_ip: [127.0.0.0/8] } }
      - { name: keyed, limit: 9/1h, key: \"header:x-a\", on_missing_key: skip }
      - name: plan
        limit: 9/1h
        overrides: [{ when: { \"header:x-plan\": { equals: gold } }, limit: 99/1h }]",
    );
    let said = explain(&live, &question("/"), &seeds(None));
    let notes: Vec<_> = said.rules.iter().map(|rule| rule.note.as_deref()).collect();
    assert_eq!(
        notes,
        [
            Some("the request is exempt (`except`: 127.0.0.0/8)"),
            Some("the request lacks the key (`on_missing_key: skip`)"),
            Some("its condition (`when`) is not met"),
            None,
        ]
    );
    let gold =
        Question { headers: vec![("x-plan".to_owned(), "gold".to_owned())], ..question("/") };
    let said = explain(&live, &gold, &seeds(None));
    let plan: Vec<_> =
        said.rules[2..].iter().map(|rule| (rule.limit, rule.note.as_deref())).collect();
    assert_eq!(plan, [(Some(99), None), (None, Some("an override of the rule is asked instead"))]);
    assert!(said.to_string().contains("rule plan when "), "{said}");
}

#[test]
fn of_shared_rules_it_says_that_the_store_was_not_asked() {
    let live = live(
        "  - name: all
    match: { path_prefix: / }
    upstream: app
    flow:
      - { name: here, limit: 9/1h }
      - { name: local, limit: 9/1h, scope: cluster }
      - { name: allow, limit: 9/1h, scope: cluster, on_store_error: allow }
      - { name: synced, limit: 9/1h, scope: cluster, sync_interval: 50ms }
  - name: strict
    match: { path: /strict }
    upstream: app
    flow: [{ name: deny, limit: 9/1h, scope: cluster, on_store_error: deny }]",
    );
    let decisions = |seeds: &Seeds| {
        let said = explain(&live, &question("/"), seeds);
        let rules: Vec<_> = said.rules.iter().map(|rule| rule.decision).collect();
        (said.decision, rules)
    };
    assert_eq!(
        decisions(&store(true, false)),
        (Undecided, vec![Passed, NotAsked, NotAsked, Passed])
    );
    assert_eq!(decisions(&store(false, true)), (Passed, vec![Passed, Passed, NotAsked, Passed]));
    let strict = |seeds: &Seeds| {
        let said = explain(&live, &question("/strict"), seeds);
        (said.decision, said.reason, said.retry_after_ms)
    };
    assert_eq!(strict(&store(true, false)), (Undecided, None, None));
    let rejected = (ExpectedDecision::Rejected, Some("store".to_owned()), Some(1000.0));
    assert_eq!(strict(&store(false, true)), rejected);
}

#[test]
fn the_server_is_named_where_chance_does_not_decide() {
    let live = live(
        "  - { name: one, match: { path: /one }, upstream: app }
  - { name: turns, match: { path: /turns }, upstream: turns }
  - { name: keyed, match: { path: /keyed }, upstream: keyed }
  - { name: own, match: { path: /own }, respond: { status: 204 } }",
    );
    let server = |question: &Question| {
        let said = explain(&live, question, &seeds(None));
        said.upstream.and_then(|upstream| upstream.server)
    };
    assert_eq!(server(&question("/one")).as_deref(), Some("127.0.0.1:9000"));
    assert_eq!(server(&question("/own")), None);
    let turns = server(&question("/turns"));
    assert_eq!((turns.as_deref(), &server(&question("/turns"))), (Some("127.0.0.1:9001"), &turns));
    let keyed = |key: &str| {
        let headers = vec![("x-a".to_owned(), key.to_owned())];
        server(&Question { headers, ..question("/keyed") })
    };
    let owners: std::collections::BTreeSet<_> =
        (0..40).filter_map(|key| keyed(&key.to_string())).collect();
    assert_eq!(owners.len(), 2, "{owners:?}");
    assert_eq!(server(&question("/keyed")), None, "no key");
}

#[test]
fn a_request_that_no_healthy_server_can_take_is_not_said_to_pass() {
    let live = live("  - { name: all, match: { path_prefix: / }, upstream: app }");
    let said = || explain(&live, &question("/"), &seeds(None)).to_string();
    assert!(said().ends_with("→ passed\n"), "{}", said());
    let snapshot = live.load();
    let upstream = &snapshot.upstreams[0];
    let ejection = &upstream.options.ejection;
    let health = &upstream.servers()[0].health;
    health.failed(NOW, ServerFailure::Connect, ejection, || (0, 1));
    assert!(said().contains("127.0.0.1:9000  unreachable, 0 in flight\n"), "{}", said());
    assert!(said().ends_with("→ passed by the rules; no server is healthy\n"), "{}", said());
}

#[test]
fn a_path_that_is_rejected_has_the_setting_that_lets_it_pass() {
    let live = live("  - { name: all, match: { path_prefix: / }, upstream: app }");
    let said = explain(&live, &question("/a/../b"), &seeds(None));
    let note = "the path has a `..` segment; `relaxed_path: true` of a route lets it pass, also around the rules of other routes";
    assert_eq!((said.status, &*said.notes), (Some(400), &[note.to_owned()][..]));
}

#[test]
fn a_wait_is_said_and_a_breaker_is_shown() {
    let live = live(
        "  - name: all
    match: { path_prefix: / }
    upstream: app
    breaker: { errors: 5 }
    pacing: { rate: 1/1s, max_wait: 10s }",
    );
    let route = &live.load().routes[0];
    let claim =
        |slot| Claim { slot, key: Key::Shared, cost: 1, patience: Duration::ZERO, plan: None };
    drop(route.gate.enter(NOW, &[claim(route.pacing.unwrap())]));
    let said = explain(&live, &question("/"), &seeds(None));
    assert_eq!((said.decision, said.wait_ms), (ExpectedDecision::Delayed, 1000.0));
    let rules: Vec<_> = said.rules.iter().map(|rule| (&*rule.name, rule.limit)).collect();
    assert_eq!(rules, [("breaker", None), ("pacing", Some(10))]);
    assert!(said.to_string().ends_with("→ passed after 1s\n"), "{said}");
}

#[test]
fn a_response_of_the_gateway_itself_is_not_said_to_be_a_pass() {
    let live = live(
        "  - { name: shut, match: { path: /shut }, respond: { status: 403 } }
  - { name: moved, match: { path: /moved }, redirect: /new }
  - { name: dropped, match: { path: /dropped }, respond: close }
  - name: slow
    match: { path: /slow }
    respond: { status: 204 }
    pacing: { rate: 1/1s, max_wait: 10s }
  - name: full
    match: { path: /full }
    respond: { status: 204 }
    flow: [{ name: none, limit: 0 }]",
    );
    let at = |path: &str| explain(&live, &question(path), &seeds(None));
    for (path, status, words) in [
        ("/shut", Some(403), "passed by the rules; the gateway itself responds with 403"),
        ("/moved", Some(302), "passed by the rules; the gateway itself responds with 302"),
        (
            "/dropped",
            None,
            "passed by the rules; the gateway closes the connection without a response",
        ),
        ("/full", None, "rejected by none (closed)"),
    ] {
        let said = at(path);
        assert!(said.to_string().ends_with(&format!("\n→ {words}\n")), "{path}: {said}");
        assert_eq!(said.status, status, "{path}");
    }

    let snapshot = live.load();
    let slow = snapshot.routes.iter().find(|route| &*route.name == "slow").unwrap();
    let claim = Claim {
        slot: slow.pacing.unwrap(),
        key: Key::Shared,
        cost: 1,
        patience: Duration::ZERO,
        plan: None,
    };
    drop(slow.gate.enter(NOW, &[claim]));
    let said = at("/slow").to_string();
    assert!(said.ends_with("→ passed after 1s; the gateway itself responds with 204\n"), "{said}");
}
