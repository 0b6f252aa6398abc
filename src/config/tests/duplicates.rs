//! Requests that have several times what a rule or a route looks at.

use super::{plan, with_rules};
use crate::{
    config::{Claims, KeySource, Live, RequestContext, Retired},
    flow::{Instant, Key},
    geo::Located,
    route::{Seed, Target},
};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use std::{net::IpAddr, time::Duration};

const NOW: Instant = Instant::from_nanos(1_700_000_000_000_000_000);

/// Returns what a request with this query and these fields claims of the first route.
fn claims(live: &Live, query: Option<&str>, fields: &[(&'static str, &'static str)]) -> Claims {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    let target = Target {
        listener: None,
        certificate: None,
        place: Located::default(),
        identity: None,
        body: None,
        host: "a",
        path: "/",
        query,
        method: &Method::GET,
        headers: (&headers).into(),
    };
    let seed = Seed::new([1, 2]);
    let mut claims = Claims::new();
    let request =
        RequestContext { seed: &seed, target: &target, client: IpAddr::from([192, 0, 2, 1]) };
    live.load_full().routes[0].claim(request, |_, _| KeySource::Request, &mut claims);
    claims
}

fn start(rule: &str) -> Live {
    Live::start(plan(&with_rules(&format!("      - {{ name: a, limit: 2/1h, {rule} }}\n"))), NOW)
}

#[test]
fn a_request_with_a_key_twice_is_rejected_unless_the_rule_says_which_one_counts() {
    for (key, query, fields) in [
        ("query:id", Some("id=junk&id=real"), &[][..]),
        ("query:id", Some("%69d=junk&id=real"), &[]),
        ("query:id", Some("id=junk;id=real"), &[]),
        ("header:x-api-key", None, &[("x-api-key", "junk"), ("x-api-key", "real")]),
        ("cookie:sid", None, &[("cookie", "sid=junk; sid=real")]),
        ("cookie:sid", None, &[("cookie", "sid=junk"), ("cookie", "x=1; sid=real")]),
    ] {
        for missing in ["", ", on_missing_key: skip", ", on_missing_key: reject"] {
            let live = start(&format!("key: '{key}'{missing}"));
            let claims = claims(&live, query, fields);
            assert_eq!(claims[0].key, Key::Duplicate, "{key} {query:?} {fields:?}{missing}");
            let rejection = live.load_full().routes[0].gate.enter(NOW, &claims).unwrap_err();
            assert_eq!(rejection.reason.kind().word(), "key");
            assert_eq!(rejection.reason.retry_after(), None);
        }
        let of = |word: &str| {
            let live = start(&format!("key: '{key}', on_duplicate_key: {word}"));
            claims(&live, query, fields)[0].key
        };
        assert!(matches!((of("first"), of("last")), (Key::Of(_), Key::Of(_))), "{key} {query:?}");
    }
}

#[test]
fn another_word_for_duplicates_keeps_what_was_counted() {
    let file = |word: &str| {
        plan(&with_rules(&format!(
            "      - {{ name: a, limit: 2/1h, key: 'query:id', on_duplicate_key: {word} }}\n"
        )))
    };
    let live = Live::start(file("reject"), NOW);
    let enter = |query| {
        let claims = claims(&live, Some(query), &[]);
        live.load_full().routes[0].gate.enter(NOW, &claims).is_ok()
    };
    assert!(enter("id=1") && !enter("id=1&id=2"));
    let summary = live.apply(file("first"), NOW, &mut Retired::default());
    assert_eq!((summary.rules_kept, summary.rules_reset()), (1, 0));
    assert!(enter("id=1&id=2") && !enter("id=1&id=3"), "two in all");
    live.apply(file("last"), NOW, &mut Retired::default());
    assert!(enter("id=1&id=3") && !enter("id=3&id=1"));
}

#[test]
fn an_override_is_neither_reached_nor_avoided_by_sending_its_field_twice() {
    let rule = |word: &str| {
        format!("overrides: [{{ when: {{ header:x-plan: free }}, limit: 1/1h }}]{word}")
    };
    let both = [("x-plan", "free"), ("x-plan", "gold")];
    let other = [("x-plan", "gold"), ("x-plan", "free")];
    let live = start(&rule(""));
    for fields in [&both[..], &other] {
        assert_eq!(claims(&live, None, fields)[0].key, Key::Duplicate);
    }
    let reached = |word: &str, fields: &[(&'static str, &'static str)]| {
        let live = start(&rule(word));
        claims(&live, None, fields)[0].slot == live.load_full().routes[0].rules[0].slot
    };
    for (word, expected) in [("first", [true, false]), ("last", [false, true])] {
        let word = format!(", on_duplicate_key: {word}");
        assert_eq!([reached(&word, &both), reached(&word, &other)], expected, "{word}");
    }
}

#[test]
fn nobody_is_exempt_or_first_by_one_of_two_values() {
    let inside = [("x-internal", "yes"), ("x-internal", "no")];
    let exempt = start("except: { header: { x-internal: yes } }");
    assert_eq!(claims(&exempt, None, &inside).len(), 1);
    assert_eq!(claims(&exempt, None, &inside[..1]).len(), 0);
    let prior = start("algorithm: fixed_window, priority: { header: x-internal, equals: yes }");
    let patience = |fields| claims(&prior, None, fields)[0].patience;
    assert_eq!(patience(&inside), Duration::ZERO);
    assert!(patience(&inside[..1]) > Duration::ZERO);
}
