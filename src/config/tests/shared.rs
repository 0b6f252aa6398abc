//! Rules that gateways share, and their store.

use super::{messages, parsed, plan, with_rules};
use crate::{
    config::{Live, OnStoreError, Secret, StoreKind, describe, diff},
    flow::Instant,
};
use std::collections::HashSet;

fn stored(store: &str, rules: &str) -> String {
    format!("store: {store}\n{}", with_rules(rules))
}

const RULE: &str = "      - { name: a, limit: 1/1s, scope: cluster }\n";

fn kind(store: &str) -> StoreKind {
    plan(&stored(store, RULE)).settings.store.clone().expect("a store").kind.clone()
}

const STORE: &str = "{ redis: redis://127.0.0.1 }";

#[test]
fn a_shared_rule_needs_a_store_that_can_decide_about_it() {
    const NEEDS: &str = "`scope: cluster` without a `store` | write `store: { redis: redis://HOST:6379 }` at the top of the file";
    messages(&with_rules("      - { name: a, limit: 1/1s, scope: cluster }\n"), &[NEEDS]);
    for (rule, expected) in [
        (
            "algorithm: sliding_log, limit: 1/1s",
            "this rule cannot be shared: a log of every request cannot be kept in a store | write `algorithm: sliding_window` with `strict: true`, whose bound is as hard",
        ),
        (
            "limit: 10/1s, warm_up: {}",
            "this rule cannot be shared: a warm-up cannot be shared | remove `warm_up`, or write `scope: process`",
        ),
        (
            "algorithm: fixed_window, limit: 1/1500ns",
            "this rule cannot be shared: the window is not a whole number of microseconds | write a window of whole microseconds",
        ),
        (
            "algorithm: sliding_window, limit: 1/100days, buckets: 1000",
            "this rule cannot be shared: the numbers are too large to be exact in a store | write smaller numbers: fewer `buckets`, a shorter window or a smaller `burst`",
        ),
    ] {
        let rule = format!("      - {{ name: a, {rule}, scope: cluster }}\n");
        messages(&stored(STORE, &rule), &[expected]);
    }
    messages(
        &stored(STORE, "      - { name: a, limit: 1/1s, on_store_error: deny }\n"),
        &["`on_store_error` without `scope: cluster` | write `scope: cluster`, or remove it"],
    );
    messages(
        &stored(
            STORE,
            "      - { name: a, limit: 1/1s, scope: cluster }\n      - { name: b, algorithm: fixed_window, limit: 1/1s, priority: { header: x-p } }\n",
        ),
        &[
            "`priority` beside a rule with `scope: cluster` | remove one: a loan here cannot wait for the decision of other gateways",
        ],
    );
}

#[test]
fn a_store_is_one_server_or_what_sentinels_or_nodes_know() {
    assert_eq!(kind(STORE), StoreKind::Single);
    let sentinels = "{ redis: [redis://a:26379, redis://b:26379], sentinel: main }";
    let main = StoreKind::Sentinel { primary: "main".to_owned(), user: None, password: None };
    assert_eq!(kind(sentinels), main);
    assert_eq!(kind("{ redis: [redis://a, redis://b], cluster: true }"), StoreKind::Cluster);
    for (store, expected) in [
        (
            "{ redis: [redis://a, redis://b] }",
            "one store has one URL | remove it, or write `sentinel: NAME` or `cluster: true`",
        ),
        (
            "{ redis: [redis://a, rediss://b], cluster: true }",
            "the URLs of one store differ in more than the node | write the same scheme, user, password and database in each",
        ),
        (
            "{ redis: redis://a, sentinel: main, cluster: true }",
            "a store is one of `sentinel` and `cluster` | remove one: a Redis Cluster needs no sentinels",
        ),
        (
            "{ redis: redis://a/1, cluster: true }",
            "a Redis Cluster has one database | remove the database from the URL",
        ),
        ("{ redis: [] }", "`redis` is empty | write at least one: `redis: redis://10.0.1.9:6379`"),
        (
            "{ redis: redis://a, sentinel: '' }",
            "the name of the primary is empty | write it, or remove the key",
        ),
        (
            "{ redis: redis://a, prefix: 'f{g}:' }",
            "`f{g}:` has a brace, by which a cluster picks the node | write it without braces, as in `flowgate:`",
        ),
        (
            "{ redis: redis://a:70000 }",
            "the store's URL has an invalid port | write `redis://HOST:PORT`, as in `redis://10.0.1.9:6379`, or `rediss://…` for TLS",
        ),
        (
            "{ redis: 'rediss://a/#insecure' }",
            "the store's URL has a `#` | write `%23` for one of the user or the password, or remove it and what follows",
        ),
        (
            "{ redis: redis://word@a }",
            "the store's URL has a user without a password | write `redis://:PASSWORD@HOST`, or `redis://USER:PASSWORD@HOST`",
        ),
        ("{ redis: redis://a, ca: ca.pem }", "`ca` without TLS | write `rediss://…`, or remove it"),
        (
            "{ redis: http://a }",
            "the store's URL begins with neither `redis://` nor `rediss://` | write `redis://HOST:PORT`, as in `redis://10.0.1.9:6379`, or `rediss://…` for TLS",
        ),
    ] {
        messages(&stored(store, RULE), &[expected]);
    }
}

#[test]
fn sentinels_have_a_login_of_their_own() {
    let login = "sentinel: main, sentinel_user: me, sentinel_password: 'p@:s'";
    let kept = kind(&format!("{{ redis: redis://you:other@a, {login} }}"));
    let StoreKind::Sentinel { user, password, .. } = &kept else { panic!("{kept:?}") };
    assert_eq!(user.as_deref(), Some("me"));
    assert_eq!(password.as_ref().map(Secret::reveal), Some("p@:s"));
    assert!(!format!("{kept:?}").contains("p@:s"));
    for (store, expected) in [
        (
            "{ redis: redis://a, sentinel: main, sentinel_user: me }",
            "`sentinel_user` without `sentinel_password` | write both, or remove it",
        ),
        (
            "{ redis: redis://a, sentinel: main, sentinel_password: '' }",
            "the password is empty | write it, or remove the key",
        ),
        (
            "{ redis: redis://a, sentinel_password: word }",
            "`sentinel_password` without `sentinel` | write `sentinel: NAME`, or the login into the URL of `redis`",
        ),
    ] {
        messages(&stored(store, RULE), &[expected]);
    }
}

#[test]
fn check_reports_what_is_shared_and_never_the_password() {
    let store = "{ redis: redis://me:hidden@10.0.1.9 }";
    let rule = "      - { name: a, limit: 1/1s, scope: cluster, on_store_error: deny }\n";
    let plan = plan(&stored(store, rule));
    assert_eq!(plan.routes[0].rules[0].shared, Some(OnStoreError::Deny));
    let text = describe(&plan);
    assert!(
        text.contains(
            "shared by all gateways of the store; while that fails, everything is rejected"
        )
    );
    assert!(
        text.contains("store  one server 10.0.1.9:6379, prefix flowgate:, timeout 20ms"),
        "{text}"
    );
    assert!(!text.contains("hidden") && !format!("{:?}", plan.settings).contains("hidden"));
}

#[test]
fn a_password_is_not_drawn_with_what_is_wrong_beside_it() {
    let store = "{ timeout: 5, redis: redis://me:hidden@a, sentinel_password: hidden }";
    let drawn = parsed(&stored(store, RULE)).expect_err("5 has no unit").to_string();
    assert!(drawn.contains("`5` has no unit") && drawn.contains("redis://*********@a"), "{drawn}");
    assert!(!drawn.contains("hidden"), "{drawn}");
}

#[test]
fn states_of_shared_rules_that_count_are_synced() {
    let rule = |words: &str| format!("      - {{ name: a, {words} }}\n");
    for (words, expected) in [
        (
            "limit: 1/1s, sync_interval: 100ms",
            "`sync_interval` without `scope: cluster` | write `scope: cluster`, or remove it",
        ),
        (
            "concurrency: 3, scope: cluster, sync_interval: 100ms",
            "`sync_interval` with `concurrency` | remove it: a request may end before the other gateways learn of it",
        ),
        (
            "algorithm: sliding_log, limit: 1/1s, scope: cluster, sync_interval: 100ms",
            "this rule cannot be shared: a log of every request cannot be kept in a store | write `algorithm: sliding_window` with `strict: true`, whose bound is as hard",
        ),
        (
            "limit: 9/1s, scope: cluster, sync_interval: 5ms",
            "`sync_interval` cannot be 5ms | write at least `10ms`",
        ),
    ] {
        messages(&stored(STORE, &rule(words)), &[expected]);
    }
    let seldom = "limit: 9/1s, scope: cluster, sync_interval: 600ms";
    let warnings = plan(&stored(STORE, &rule(seldom))).warnings.to_string();
    assert!(warnings.contains("gateways learn of a window when it is over"), "{warnings}");
    assert!(warnings.contains("write `sync_interval: 50ms`"), "{warnings}");
}

#[test]
fn a_rule_that_gets_or_loses_its_interval_begins_afresh_and_diff_says_so() {
    let rule = |words: &str| {
        let rule = format!("      - {{ name: a, limit: 9/1s, scope: cluster{words} }}\n");
        plan(&stored(STORE, &rule))
    };
    let [atomic, often, seldom] = ["", ", sync_interval: 50ms", ", sync_interval: 200ms"].map(rule);
    for (old, new, expected) in
        [(&atomic, &often, "reset"), (&often, &atomic, "reset"), (&often, &seldom, "kept")]
    {
        let difference = diff(old, new);
        let found = &difference.routes[0].rules[0];
        assert_eq!(found.change, expected);
        let warns = found.warning.is_some_and(|text| text.contains("`sync_interval`"));
        assert_eq!(warns, expected == "reset", "{:?}", found.warning);
    }
}

#[test]
fn what_the_store_counts_under_another_name_begins_afresh_and_diff_says_so() {
    let rule = |words: &str| plan(&stored(STORE, &format!("      - {{ name: a, {words} }}\n")));
    let window = |words: &str| rule(&format!("algorithm: sliding_window, {words}"));
    let [here, shared] = ["limit: 9/1s", "limit: 9/1s, scope: cluster"].map(window);
    let [more, longer] =
        ["limit: 10/1s, scope: cluster", "limit: 9/2s, scope: cluster"].map(window);
    for (old, new, expected) in [
        (&here, &shared, "reset"),
        (&shared, &here, "reset"),
        (&shared, &longer, "reset"),
        (&shared, &more, "converted"),
        (&shared, &shared, "kept"),
    ] {
        let difference = diff(old, new);
        let found = &difference.routes[0].rules[0];
        assert_eq!(found.change, expected);
        let warns = found.warning.is_some_and(|text| text.contains("`scope: cluster`"));
        assert_eq!(warns, expected == "reset", "{:?}", found.warning);
    }
}

#[test]
fn states_that_mean_something_else_have_another_name_in_the_store() {
    let name = |words: &str| {
        let rule =
            format!("      - {{ name: a, algorithm: fixed_window, scope: cluster, {words} }}\n");
        let plan = plan(&stored(STORE, &rule));
        let live = Live::start(plan, Instant::EPOCH);
        let snapshot = live.load();
        let shared = snapshot.routes[0].rules[0].shared.as_ref();
        shared.expect("it is shared").name.to_string()
    };
    let all = [
        "limit: 9/1s",
        "limit: 9/2s",
        "limit: 9/1s, key: client_ip",
        "limit: 9/1s, key: 'header:x-tenant'",
        "limit: 9/1s, key: 'query:t'",
        "limit: 9/1s, key: [host, 'query:t']",
        "limit: 9/1s, sync_interval: 50ms",
        "limit: 9/1s, key: client_ip, sync_interval: 50ms",
    ];
    let names: HashSet<String> = all.into_iter().map(name).collect();
    assert_eq!(names.len(), all.len(), "{names:?}");
    for (one, same) in [
        ("limit: 9/1s", "limit: 10/1s, on_store_error: deny"),
        ("limit: 9/1s, sync_interval: 50ms", "limit: 9/1s, sync_interval: 90ms"),
    ] {
        assert_eq!(name(one), name(same));
    }
    assert_eq!(name(all[3]), "{r:*}:a:fixed/1000000:header:x-tenant");
}

#[test]
fn check_reports_how_much_more_passes_where_states_are_synced() {
    let rule = "      - { name: a, limit: 100/1s, burst: 50, key: client_ip, scope: cluster, sync_interval: 250ms }\n";
    let text = |store: &str| describe(&plan(&stored(store, rule)));
    let expected = "synced every 250ms: G gateways let pass up to (G − 1)·min(100, what one lets pass of a key in 500ms) more; a start without the store adds what that one counts alone\n";
    assert!(text(STORE).contains(expected), "{}", text(STORE));
    let three = text("{ redis: redis://127.0.0.1, gateways: 3 }");
    assert!(three.contains("in 500ms) more; 3 gateways 200 at most; a start"), "{three}");
}
