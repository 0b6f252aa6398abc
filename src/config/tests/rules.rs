//! Rules and pacing: what is rejected, what is warned of, and what a good rule becomes.

use super::{FRAME, messages, plan, warnings, with_rules};
use crate::flow::{
    Algorithm, Instant, Rate, WarmUp,
    breaker::{self, Ratio},
    limiter::{fixed_window, sliding_window, token_bucket, warm_up},
};
use std::time::Duration;

#[test]
fn no_rule_is_called_as_the_routes_own() {
    let rules = "{ name: pacing, limit: 1/1s }, { name: breaker, limit: 1/1s }, { name: pace, limit: 1/1s }";
    let of = |name: &str| {
        format!(
            "no rule can be called `{name}` | write another name: it distinguishes them in logs, \
             metrics and reloads"
        )
    };
    let text = format!(
        "{FRAME}routes:\n  - {{ name: r, match: {{ path_prefix: / }}, upstream: app, flow: [{rules}] }}\n"
    );
    messages(&text, &[&of("pacing"), &of("breaker")]);
}

#[test]
fn numbers_that_cannot_work_are_rejected() {
    for (rule, message) in [
        (
            "limit: 0/1s",
            "a limit of 0 lets nothing pass | write at least 1, as in `1/1s`; to reject all requests, write `limit: 0`",
        ),
        ("limit: 1/0s", "a window of no length | write how long the window is, as in `100/1s`"),
        (
            "limit: 100",
            "`100` is not a rate | write how many per how long, as in `100/1s` or `1000/1m`",
        ),
        (
            "limit: { requests: 0, window: 1s }",
            "`requests` cannot be 0 | write a number from 1 to 1000000000000",
        ),
        ("limit: { requests: 5 }", "a rate needs `window` | write `window: 5s`"),
        ("limit: 10/1s, burst: 0", "`burst` cannot be 0 | write a number from 1 to 1000000000000"),
        ("concurrency: 0", "`concurrency` cannot be 0 | write a number from 1 to 1000000000"),
        (
            "limit: 10/1s, max_keys: 0, key: client_ip",
            "`max_keys` cannot be 0 | write a number from 1 to 10000000",
        ),
        ("limit: 10/1s, cost: 0", "`cost` cannot be 0 | write a number from 1 to 1000000000"),
        (
            "limit: 10/1s, cost: 11",
            "nothing can ever pass: a request costs 11 of limit 10 | write a cost of at most 10, or a larger limit",
        ),
        (
            "limit: 10/1s, burst: 3, cost: 4",
            "nothing can ever pass: a request costs 4 of burst 3 | write a cost of at most 3, or a larger burst",
        ),
        (
            "limit: 10/1s, algorithm: fixed_window, cost: { default: 11, GET: 1 }",
            "nothing can ever pass: a request costs 11 of limit 10 | write a cost of at most 10, or a larger limit",
        ),
        (
            "concurrency: 2, cost: 3",
            "nothing can ever pass: a request costs 3 of concurrency 2 | write a cost of at most 2, or a larger concurrency",
        ),
        (
            "limit: 1/333ns, algorithm: sliding_window, buckets: 334",
            "334 buckets of 333ns are shorter than 1ns | write `buckets: 333`, or fewer",
        ),
        (
            "limit: 10/1s, algorithm: sliding_window, buckets: 0",
            "`buckets` cannot be 0 | write a number from 1 to 1000",
        ),
    ] {
        messages(&with_rules(&format!("      - {{ name: a, {rule} }}\n")), &[message]);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn keys_that_mean_nothing_in_a_rule_are_rejected() {
    for (rule, expected) in [
        (
            "limit: 1/1s, concurrency: 1",
            &[
                "a rule takes one of `limit` and `concurrency` | write two rules; they decide together",
            ][..],
        ),
        (
            "dry_run: true",
            &[
                "a rule needs `limit` or `concurrency` | write `limit: 100/1s`, or `concurrency: 64`",
            ],
        ),
        (
            "limit: 1/1s, algorithm: fixed_window, burst: 2",
            &[
                "`burst` has no effect in this rule | remove it: only `token_bucket` and `leaky_bucket` take it",
            ],
        ),
        (
            "limit: 1/1s, buckets: 2, strict: true, align: clock",
            &[
                "`buckets` has no effect in this rule | remove it: only `algorithm: sliding_window` takes it",
                "`strict` has no effect in this rule | remove it: only `algorithm: sliding_window` takes it",
                "`align` has no effect in this rule | remove it: only `algorithm: fixed_window` takes it",
            ],
        ),
        (
            "concurrency: 1, algorithm: token_bucket, burst: 1",
            &[
                "`algorithm` has no effect in this rule | remove it: `concurrency` takes none",
                "`burst` has no effect in this rule | remove it: `concurrency` takes none",
            ],
        ),
        (
            "limit: 1/1s, priority: { header: x-priority }, warm_up: {}",
            &[
                "`priority` has no effect in this rule | remove it: only `sliding_window` and `fixed_window` have windows to borrow from",
            ],
        ),
        (
            "limit: 1/1s, algorithm: fixed_window, priority: { equals: high }, warm_up: {}",
            &[
                "a priority needs `header` | write `header: x-tenant`",
                "`warm_up` has no effect in this rule | remove it: only `token_bucket` and `pacing` take it",
            ],
        ),
        (
            "limit: 1/1s, max_keys: 5",
            &[
                "`max_keys` without a `key` | write `key: client_ip`, or remove it: all requests share one count",
            ],
        ),
        (
            "limit: 1/1s, key: host, ipv6_prefix: 48",
            &[
                "`ipv6_prefix` without `client_ip` in the key | write `key: client_ip`, or remove it",
            ],
        ),
        (
            "limit: 1/1s, key: host, ipv4_prefix: 24",
            &[
                "`ipv4_prefix` without `client_ip` in the key | write `key: client_ip`, or remove it",
            ],
        ),
        (
            "limit: 1/1s, key: path:org, on_missing_key: skip",
            &[
                "the rule `a` counts by `path:org`, and no path of its route has `{org}` | write the segment into the route's `path` or `path_prefix`, as in `path_prefix: '/orgs/{org}'`",
            ],
        ),
        (
            "limit: 1/1s, key: 'path:{org}'",
            &[
                "`{org}` is not the name of a segment | write the name in a template of the route's path: `path:org` for `path_prefix: '/orgs/{org}'`",
            ],
        ),
        (
            "limit: 1/1s, except: { header: { x-a: [] } }",
            &["`x-a` has no value | write a value, or `{ present: true }` for any"],
        ),
        (
            "limit: 1/1s, key: listener, on_missing_key: skip",
            &[
                "`on_missing_key` with a key that is never missing | write `key: header:NAME`, `cookie:NAME`, `query:NAME` or `json:NAME`, or remove it",
            ],
        ),
        (
            "limit: 1/1s, key: host, on_missing_key: skip",
            &[
                "`on_missing_key` with a key that is never missing | write `key: header:NAME`, `cookie:NAME`, `query:NAME` or `json:NAME`, or remove it",
            ],
        ),
        (
            "limit: 1/1s, key: host, on_duplicate_key: last",
            &[
                "`on_duplicate_key` with a key that no client can send twice | write `key: header:NAME`, `cookie:NAME`, `query:NAME` or `json:NAME`, or remove it",
            ],
        ),
        ("limit: 1/1s, key: [host, host]", &["`host` is in the key twice | remove one"]),
        (
            "limit: 1/1s, key: [route, host]",
            &[
                "`route` has no effect beside other parts | remove it: every rule counts for its own route",
            ],
        ),
        (
            "limit: 1/1s, except: {}",
            &[
                "an exception needs at least one condition | write `except: { client_ip: [10.0.0.0/8] }`, or remove it",
            ],
        ),
    ] {
        messages(&with_rules(&format!("      - {{ name: a, {rule} }}\n")), expected);
    }
}

#[test]
fn unknown_words_are_rejected_with_the_nearest() {
    messages(
        &with_rules("      - { name: a, limit: 1/1s, algorithm: token_buket }\n"),
        &[
            "`algorithm` cannot be `token_buket` | did you mean `token_bucket`? write one of `token_bucket`, `leaky_bucket`, `sliding_log`, `sliding_window`, `sliding_counter`, `fixed_window`, `pacing`",
        ],
    );
    let problems = super::parsed(&with_rules("      - { name: a, limit: 1/1s, key: clientip }\n"))
        .unwrap_err();
    assert_eq!(problems.count(), 1, "{problems}");
}

#[test]
fn a_route_has_sixteen_rules_at_most() {
    use std::fmt::Write;
    let mut rules = String::new();
    for n in 0..17 {
        _ = writeln!(rules, "      - {{ name: r{n}, concurrency: {} }}", 100 - n);
    }
    messages(&with_rules(&rules), &["17 rules are too many | write at most 16 rules in a route"]);
}

#[test]
fn pacing_is_checked() {
    let text = |pacing: &str| {
        format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, pacing: {{ {pacing} }} }}]\n"
        )
    };
    messages(&text("max_wait: 1s"), &["pacing needs `rate` | write `rate: 100/1s`"]);
    messages(
        &text("rate: 10/1s, max_queue: 0"),
        &["`max_queue` cannot be 0 | write a number from 1 to 1000000"],
    );
    messages(
        &text("rate: 10/1s, warm_up: { cold_factor: 1 }"),
        &["`cold_factor` cannot be 1 | write a number from 2 to 1000"],
    );
    messages(
        &text("rate: 10/1s, key: client_ip"),
        &[
            "pacing takes no `key` | remove it: the route's own pacing applies to all its requests; or write a rule, as in `flow: [{ name: even, algorithm: pacing, limit: 10/1s }]`",
        ],
    );
    warnings(
        &text("rate: 10/1s, max_wait: 50ms"),
        &["starts are 100ms apart, and no request waits longer than 50ms"],
    );
    warnings(&text("rate: 10/1s, max_wait: 100ms"), &[]);
    warnings(&text("rate: 10/1s, max_wait: 0"), &[]);
    warnings(
        &text("rate: 10/1s, max_wait: 1s, max_queue: 11"),
        &["no more than 10 requests can ever wait"],
    );
    warnings(&text("rate: 10/1s, max_wait: 1s, max_queue: 10"), &[]);
    let pacing = plan(&text("rate: 10/1s, max_wait: 1s")).routes[0].flow.pacing.clone().unwrap();
    assert_eq!((pacing.max_wait, pacing.max_queue), (Duration::from_secs(1), 10));
    let pacing = plan(&text("rate: 10/1s, max_wait: 250ms")).routes[0].flow.pacing.clone().unwrap();
    assert_eq!(pacing.max_queue, 3);
}

#[test]
fn a_breaker_becomes_what_the_gate_runs_by() {
    let breaker = |text: &str| {
        let plan = plan(&format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app, breaker: {{ {text} }} }}]\n"
        ));
        (plan.routes[0].flow.breaker.clone().unwrap(), crate::config::describe(&plan))
    };
    let ratio = |millionths| Ratio::new(millionths).unwrap();
    let (config, words) = breaker(
        "error_ratio: 0.125, slow_after: 1s, slow_ratio: 1, errors: 30, window: 30s, buckets: 3, open_for: 7s, probes: 1, dry_run: true",
    );
    let expected = breaker::Config {
        error_ratio: Some(ratio(125_000)),
        slow: Some(breaker::Slow { after: Duration::from_secs(1), ratio: Ratio::ONE }),
        errors: Some(30),
        min_requests: 20,
        window: Duration::from_secs(30),
        buckets: 3,
        open_for: Duration::from_secs(7),
        probes: 1,
        dry_run: true,
    };
    assert_eq!(config, expected);
    assert!(
        words.contains(
            "opens when, of at least 20 answers in 30s, more than 12.5 % fail or all begin after 1s \
             or 30 fail; none passes for 7s, then 1 probe must be good\n      dry run"
        ),
        "{words}"
    );
    let (config, _) = breaker("errors: 5");
    assert_eq!((config.min_requests, config.probes, config.buckets), (1, 3, 10));
    assert_eq!((config.window, config.open_for), (Duration::from_secs(10), Duration::from_secs(5)));
}

#[test]
fn a_warm_up_becomes_what_the_gate_runs_by() {
    let plan = plan(&format!(
        "{FRAME}routes:\n  - name: r\n    match: {{ path: / }}\n    upstream: app\n    flow:\n\
         \x20     - {{ name: a, limit: 200/1s, warm_up: {{}} }}\n    \
         pacing: {{ rate: 10/1s, warm_up: {{ period: 1m, cold_factor: 5 }} }}\n"
    ));
    let flow = &plan.routes[0].flow;
    let rate = Rate::new(200, Duration::from_secs(1)).unwrap();
    let warm_up = |secs, cold_factor| WarmUp { period: Duration::from_secs(secs), cold_factor };
    let expected = warm_up::Config { rate, burst: 200, warm_up: warm_up(10, 3) };
    assert_eq!(flow.flow[0].algorithm, Algorithm::WarmUp(expected));
    assert_eq!(flow.pacing.as_ref().unwrap().warm_up, Some(warm_up(60, 5)));
    let words = crate::config::describe(&plan);
    for part in [
        "400 in any 1s, when warm; one each 15ms when cold, warm after 10s500ms, cold after 5s250ms of silence",
        "5 at most; one each 500ms when cold, warm after 1m500ms, cold after 20s166ms666us666ns of silence",
    ] {
        assert!(words.contains(part), "{words}");
    }
}

#[test]
fn a_burst_beside_which_the_limit_hardly_matters_is_warned_of() {
    let rule = |numbers: &str| with_rules(&format!("      - {{ name: a, {numbers} }}\n"));
    for algorithm in ["token_bucket", "leaky_bucket"] {
        warnings(
            &rule(&format!("algorithm: {algorithm}, limit: 10/1m, burst: 20_000")),
            &["a burst of 20000 outweighs the limit, which lets as many pass in 1d 9h 20m"],
        );
    }
    // As many as a day's, and few windows of a long one.
    for numbers in ["limit: 10/1m, burst: 14_400", "limit: 100/7d, burst: 1000"] {
        warnings(&rule(numbers), &[]);
    }
}

#[test]
fn a_rule_that_another_algorithm_keeps_from_rejecting_is_warned_of() {
    let idle = "the rule `b` can never reject anything";
    let bucket = "limit: 5/1s, burst: 5";
    let log = "algorithm: sliding_log, limit: 5/1s";
    for (a, b, expected) in [
        // Of a bucket at most 5 + 300 pass in a minute.
        (bucket, "algorithm: fixed_window, limit: 305/1m", Some(idle)),
        (bucket, "algorithm: fixed_window, limit: 304/1m", None),
        (bucket, "algorithm: sliding_log, limit: 305/1m", Some(idle)),
        (bucket, "algorithm: sliding_log, limit: 304/1m", None),
        (bucket, "algorithm: fixed_window, limit: 30_000_000/month", None),
        // Of a log at most 5 pass at once, and in a second.
        (log, "limit: 10/2s, burst: 5", Some(idle)),
        (log, "limit: 10/2s, burst: 4", None),
        (log, "limit: 9/2s, burst: 5", None),
        (log, "algorithm: leaky_bucket, limit: 10/2s, burst: 5", Some(idle)),
        // What all may use together is enough for one, but not the other way round.
        (bucket, "limit: 305/1m, algorithm: fixed_window, key: client_ip", Some(idle)),
        ("limit: 5/1s, burst: 5, key: client_ip", "algorithm: fixed_window, limit: 305/1m", None),
    ] {
        let rules = format!("      - {{ name: a, {a} }}\n      - {{ name: b, {b} }}\n");
        warnings(&with_rules(&rules), expected.as_slice());
    }
    let shared =
        "      - { name: a, limit: 5/1s }\n      - { name: b, limit: 6/1s, scope: cluster }\n";
    let store = "store: { redis: redis://127.0.0.1:1 }\n";
    warnings(&format!("{}{store}", with_rules(shared)), &[]);
}

#[test]
fn what_can_never_happen_is_warned_of() {
    warnings(
        &with_rules("      - { name: a, limit: 10/1s, cost: { POST: 11 } }\n"),
        &["no POST can ever pass: POST costs 11 of limit 10"],
    );
    warnings(
        &with_rules("      - { name: a, limit: 10/1s }\n      - { name: b, limit: 20/1s }\n"),
        &["the rule `b` can never reject anything"],
    );
    warnings(
        &with_rules("      - { name: a, concurrency: 5 }\n      - { name: b, concurrency: 5 }\n"),
        &["the rule `b` can never reject anything"],
    );
    // Each of these can reject what the other one lets pass.
    warnings(
        &with_rules("      - { name: a, limit: 10/1s }\n      - { name: b, limit: 100/1m }\n"),
        &[],
    );
    warnings(
        &with_rules(
            "      - { name: a, limit: 10/1s, dry_run: true }\n      - { name: b, limit: 20/1s }\n",
        ),
        &[],
    );
    warnings(
        &with_rules(
            "      - { name: a, limit: 10/1s, key: host }\n      - { name: b, limit: 20/1s }\n",
        ),
        &[],
    );
}

#[test]
fn months_are_counted_by_the_calendar_of_a_zone() {
    let rule = |rule: &str| with_rules(&format!("      - {{ name: a, {rule} }}\n"));
    let month = "months differ in length | write `/month` with `algorithm: fixed_window`, or a number of days, as in `100/30d`";
    for (text, expected) in [
        ("limit: 9/month", &[month][..]),
        ("limit: 9/month, algorithm: fixed_window, align: first_request", &[month]),
        (
            "limit: 9/month, algorithm: fixed_window, tz: Mars/Base",
            &[
                "`Mars/Base` is not a time zone | write a name of the IANA database, as in `Europe/Berlin` or `UTC`",
            ],
        ),
        (
            "limit: 9/1d, algorithm: fixed_window, tz: Europe/Berlin",
            &[
                "`tz` without windows of a calendar | write `limit: 100/day`, `/week` or `/month` with `align: clock`, or remove it",
            ],
        ),
        (
            "limit: 9/day, tz: UTC",
            &[
                "`tz` has no effect in this rule | remove it: only `algorithm: fixed_window` takes it",
            ],
        ),
    ] {
        messages(&rule(text), expected);
    }
    let window = |text: &str, now: u64| {
        let plan = plan(&rule(text));
        let Algorithm::FixedWindow(config) = plan.routes[0].flow.flow[0].algorithm.clone() else {
            panic!("a fixed window")
        };
        let fixed_window::Align::Calendar(calendar) = config.align else { panic!("a calendar") };
        let (begin, end) = calendar.window(Instant::from_nanos(now * 1_000_000_000));
        let policy = plan.routes[0].policy.clone().unwrap();
        (begin.as_nanos() / 1_000_000_000, end.since(begin).as_secs() / 3600, policy)
    };
    // 2026-03-29 12:00 UTC; clocks in Berlin were turned in that morning.
    let noon = 1_774_785_600;
    let fixed = "algorithm: fixed_window, limit:";
    let day = window(&format!("{fixed} 9/day"), noon);
    assert_eq!(day, (noon - 12 * 3600, 24, "\"a\";q=9;w=86400".parse().unwrap()));
    let day = window(&format!("{fixed} 9/day, tz: Europe/Berlin"), noon);
    assert_eq!(day, (noon - 13 * 3600, 23, "\"a\";q=9".parse().unwrap()));
    let week = window(&format!("{fixed} 9/week, tz: Europe/Berlin"), noon);
    assert_eq!((week.0, week.1), (noon - (6 * 24 + 13) * 3600, 7 * 24 - 1));
    let month = window(&format!("{fixed} 9/month, tz: Europe/Berlin"), noon);
    assert_eq!((month.0, month.1), (noon - (28 * 24 + 13) * 3600, 31 * 24 - 1));
    let month = window(&format!("{fixed} 9/month"), noon);
    assert_eq!((month.0, month.1), (noon - (28 * 24 + 12) * 3600, 31 * 24));
}

#[test]
fn memory_beyond_a_gibibyte_is_warned_of() {
    let log = "algorithm: sliding_log";
    for (rule, expected) in [
        (format!("{log}, limit: 100/1m, key: client_ip"), &[][..]),
        (
            format!("{log}, limit: 1000/1m, key: client_ip"),
            &["the rule `a` may take 1.5 GiB of memory"],
        ),
        (format!("{log}, limit: 300000/1s"), &[]),
        (format!("{log}, limit: 100000000/1h"), &["the rule `a` may take 1.5 GiB of memory"]),
        ("limit: 10/1s, key: client_ip, max_keys: 8000000".into(), &[]),
        (
            "algorithm: sliding_window, limit: 10/1s, buckets: 100, key: host, max_keys: 10000000"
                .into(),
            &["the rule `a` may take 9.7 GiB of memory"],
        ),
    ] {
        warnings(&with_rules(&format!("      - {{ name: a, {rule} }}\n")), expected);
    }
}

#[test]
fn rules_become_what_the_gate_runs_by() {
    let plan = plan(&with_rules(
        "      - { name: a, limit: 100/1m }
      - { name: b, limit: 200/500ms, burst: 7 }
      - { name: c, algorithm: sliding_window, limit: { requests: 30, window: 1s }, buckets: 7, strict: true }
      - { name: d, algorithm: fixed_window, limit: 30/1s, align: first_request }
      - { name: e, limit: 2_000/s, key: [client_ip, 'header:x-tenant'], ipv6_prefix: 48, max_keys: 9, on_missing_key: reject, dry_run: true }
",
    ));
    let route = &plan.routes[0];
    let rule = |n: usize| route.flow.flow[n].algorithm.clone();
    let rate = |text| crate::config::spec::values::limit(text).unwrap().rate;
    let bucket =
        |text, burst| Algorithm::TokenBucket(token_bucket::Config { rate: rate(text), burst });
    assert_eq!(rule(0), bucket("100/1m", 100));
    assert_eq!(rule(1), bucket("200/500ms", 7));
    assert_eq!(
        rule(2),
        Algorithm::SlidingWindow(sliding_window::Config {
            rate: rate("30/1s"),
            buckets: 7,
            strict: true
        })
    );
    assert_eq!(
        rule(3),
        Algorithm::FixedWindow(fixed_window::Config {
            rate: rate("30/1s"),
            align: fixed_window::Align::FirstRequest
        })
    );
    assert_eq!(rule(4), bucket("2000/1s", 2000));
    let keyed = route.flow.flow[4].keyed.clone().unwrap();
    assert_eq!(keyed.max_keys, 9);
    assert!(keyed.by.contains("48"), "{}", keyed.by);
    assert!(route.flow.flow[..4].iter().all(|rule| rule.keyed.is_none()));
    assert_eq!(
        route.policy.as_ref().unwrap(),
        "\"a\";q=100;w=60, \"b\";q=7;w=1, \"c\";q=30;w=1, \"d\";q=30;w=1"
    );
}

#[test]
fn the_policy_says_the_most_that_can_be_left_and_how_long_as_much_takes() {
    let fixed = "algorithm: fixed_window, limit:";
    let cluster = "scope: cluster, sync_interval: 500ms";
    for (rule, policy) in [
        ("limit: 10/1s, burst: 20", "q=20;w=2"),
        ("limit: 10/1s, burst: 25", "q=25;w=3"),
        ("limit: 10/1s, burst: 2", "q=2;w=1"),
        ("limit: 6/1m, burst: 1", "q=1;w=10"),
        ("limit: 6/1m, burst: 1, cost: 1", "q=1;w=10"),
        ("limit: 100/1m, cost: 5", "q=100;w=60"),
        ("algorithm: leaky_bucket, limit: 10/1s, burst: 30", "q=30;w=3"),
        ("algorithm: sliding_log, limit: 5/30s", "q=5;w=30"),
        ("algorithm: sliding_window, limit: 5/10s", "q=5;w=10"),
        ("algorithm: sliding_counter, limit: 5/10s", "q=5;w=10"),
        (&format!("{fixed} 5/250ms"), "q=5;w=1"),
        (&format!("{fixed} 5/1500ms"), "q=5;w=2"),
        (&format!("{fixed} 5/day"), "q=5;w=86400"),
        (&format!("{fixed} 5/week"), "q=5;w=604800"),
        (&format!("{fixed} 5/month"), "q=5"),
        (&format!("limit: 10/1s, burst: 20, {cluster}"), "q=20;w=2"),
        ("limit: 1/366d, burst: 1000000000000", "q=1000000000000;w=999999999999999"),
    ] {
        let text = with_rules(&format!("      - {{ name: a, {rule} }}\n"));
        let plan = plan(&format!("store: {{ redis: redis://127.0.0.1 }}\n{text}"));
        let shown = plan.routes[0].policy.clone().map(|policy| policy.to_str().unwrap().to_owned());
        assert_eq!(shown.as_deref(), Some(&*format!("\"a\";{policy}")), "{rule}");
    }
    let bucket = plan(&with_rules("      - { name: a, limit: 10/1s, burst: 20 }\n"));
    let line = "token_bucket 10/1s, burst 20";
    assert!(crate::config::describe(&bucket).contains(line), "the limit itself");
    // What is left of these does not depend on time alone.
    for rule in ["concurrency: 3", "algorithm: pacing, limit: 9/1s", "limit: 9/1s, warm_up: {}"] {
        let plan = plan(&with_rules(&format!("      - {{ name: a, {rule} }}\n")));
        assert_eq!(plan.routes[0].policy, None, "{rule}");
    }
}
