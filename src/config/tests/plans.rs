//! What a good file becomes: defaults, warnings, and the description that `check` prints.

use super::{FRAME, plan, warnings, with_rules};
use crate::{
    config::{
        AccessLog, Balance, RateLimitHeaders, Severity, Syntax, TemplateText as Text, describe,
    },
    flow::Instant,
};
use std::{path::Path, time::Duration};

#[test]
fn defaults_are_safe_at_the_edge() {
    let plan =
        plan(&format!("{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"));
    let secs = Duration::from_secs;
    let settings = &plan.settings;
    assert_eq!(settings.drain_timeout, secs(30));
    assert!(settings.trusted_proxies.is_empty() && settings.admin.is_none());
    let timeouts = settings.timeouts;
    assert_eq!((timeouts.header_read, timeouts.keep_alive), (secs(10), secs(75)));
    assert_eq!((timeouts.tls_handshake, timeouts.write), (secs(10), secs(60)));
    let limits = settings.limits;
    assert_eq!((limits.header_bytes, limits.headers), (32 << 10, 100));
    assert_eq!((limits.body, limits.connections), (1 << 30, 100_000));
    assert_eq!(limits.upload_buffers, 256 << 20);
    assert_eq!(settings.access_log, AccessLog::Off);
    assert_eq!(settings.rate_limit_headers, RateLimitHeaders::Draft);
    assert!(!settings.explain_headers);
    let upstream = &plan.upstreams[0];
    let options = &upstream.options;
    assert_eq!((options.balance, options.max_idle), (Balance::RoundRobin, 1024));
    assert_eq!((options.connect_timeout, options.idle_timeout), (secs(3), secs(4)));
    let route = &plan.routes[0];
    assert_eq!(route.options.body_limit, 1 << 30);
    assert_eq!(route.options.upgrades, ["websocket"]);
    let timeouts = route.options.timeouts;
    assert_eq!((timeouts.first_byte, timeouts.idle), (secs(60), secs(60)));
    assert_eq!((timeouts.event_stream, timeouts.tunnel), (secs(300), secs(3600)));
    assert_eq!(timeouts.request, Some(secs(3600)));
    assert!(
        !route.options.relaxed_path && route.policy.is_none() && route.options.reject.is_none()
    );
}

#[test]
fn every_key_reaches_the_plan() {
    let plan = plan(&format!(
        "{FRAME}routes:
  - name: r
    match: {{ host: [a.example.com, '*.b.example.com'], path: '/u/{{id}}', method: GET, header: {{ x-a: 1, x-b: {{ present: true }} }}, query: {{ q: {{ regex: '^y' }} }} }}
    upstream: app
    timeout: 5s
    timeouts: {{ idle: 2s }}
    body_limit: 5MB
    upgrades: []
    relaxed_path: true
    request_headers: {{ set: {{ x-n: no, x-v: 1.10 }}, remove: [x-r, x-s] }}
    reject: {{ status: 503, body: '{{}}' }}
    errors: [{{ status: [502, 504], body: '<p>', content_type: a/xml }}, {{ body: '<p>' }}]
trusted_proxies: [10.0.0.0/8, '::1']
access_log: logs/access.json
admin: {{}}
workers: 3
headers: legacy
"
    ));
    let route = &plan.routes[0];
    assert_eq!(
        &*route.matches,
        "GET a.example.com|*.b.example.com/u/{id} header x-a=1 header x-b query q~^y"
    );
    assert_eq!(route.options.timeouts.request, Some(Duration::from_secs(5)));
    assert_eq!(route.options.timeouts.idle, Duration::from_secs(2));
    assert_eq!((route.options.body_limit, route.options.relaxed_path), (5_000_000, true));
    assert!(route.options.upgrades.is_empty());
    let set = &route.options.request_headers.set;
    let value = |text: &str| Text::Plain(text.parse().unwrap());
    assert_eq!((&set[0].1, &set[1].1), (&value("no"), &value("1.10")));
    assert_eq!(route.options.request_headers.remove.len(), 2);
    let body = route.options.reject.as_ref().unwrap().body().unwrap();
    let json = Text::Plain("application/json".parse().unwrap());
    assert_eq!((&body.content_type, body.syntax), (&json, Syntax::Json));
    let error_type = |status: u16| {
        let body = route.options.error_body(status.try_into().unwrap()).unwrap();
        (body.content_type.clone(), body.syntax)
    };
    assert_eq!(error_type(504), (value("a/xml"), Syntax::Markup));
    assert_eq!(error_type(503), (value("text/html; charset=utf-8"), Syntax::Markup));
    assert_eq!(plan.settings.access_log, AccessLog::File(Path::new("logs/access.json").into()));
    assert_eq!(plan.settings.admin.unwrap().listen, "127.0.0.1:9901".parse().unwrap());
    assert_eq!(plan.settings.workers.get(), 3);
    assert_eq!(plan.settings.trusted_proxies.count(), 2);
}

#[test]
fn rules_can_be_shared_by_an_alias_and_defaults_by_a_merge_key() {
    let plan = plan(&format!(
        "{FRAME}routes:
  - &base {{ name: a, match: {{ path: /a }}, upstream: app, timeout: 2s, flow: &f [{{ name: x, limit: 3/1s }}] }}
  - {{ <<: *base, name: b, match: {{ path: /b }} }}
  - {{ name: c, match: {{ path: /c }}, upstream: app, flow: *f }}
"
    ));
    assert_eq!(plan.routes[1].options.timeouts.request, Some(Duration::from_secs(2)));
    assert!(plan.routes.iter().all(|route| route.flow == plan.routes[0].flow));
}

#[test]
fn what_is_odd_is_warned_of() {
    warnings(
        &format!(
            "{FRAME}routes:
  - {{ name: a, match: {{ path: /x }}, upstream: app }}
  - {{ name: b, match: {{ path: /x }}, upstream: app }}
"
        ),
        &["the route `b` can never be reached"],
    );
    warnings(
        "\
listeners: [{ name: web, listen: 127.0.0.1:0 }]
upstreams: [{ name: a, servers: [{ url: http://a }] }, { name: b, servers: [{ url: http://b }] }]
routes: [{ name: r, match: { path: / }, upstream: a }]
",
        &["no route uses the upstream `b`"],
    );
}

#[test]
fn a_description_says_what_each_rule_promises() {
    let plan = plan(
        &(with_rules(
            "\
\u{20}     - { name: bucket, limit: 100/1m }
      - { name: ring, algorithm: sliding_window, limit: 30/1s, key: client_ip, max_keys: 1000 }
      - { name: lender, algorithm: sliding_window, limit: 30/1s, key: client_ip, max_keys: 1000, priority: { header: x-p } }
      - { name: hard, algorithm: sliding_window, limit: 31/1s, strict: true, dry_run: true }
      - { name: thirds, algorithm: sliding_window, limit: 32/1s, buckets: 3 }
      - { name: window, algorithm: fixed_window, limit: 40/1s, align: first_request, cost: { POST: 5 } }
      - { name: in-flight, concurrency: 64, except: { method: OPTIONS } }
      - { name: in-flight-each, concurrency: 6, key: client_ip, max_keys: 10 }
      - { name: even, algorithm: pacing, limit: 50/1s, max_wait: 100ms, key: client_ip, max_keys: 10, cost: 2, dry_run: true, overrides: [{ when: { method: PUT }, limit: 5/1s }] }
    pacing: { rate: 100/1s, max_queue: 10 }
",
        ) + "  - { name: z, match: { path: /exact, method: [GET] }, upstream: app }\nworkers: 2\n"),
    );
    let text = describe(&plan);
    let routes = text.split("\nroutes, ").nth(1).unwrap().split("\nsettings").next().unwrap();
    let per_key = plan.routes[0].flow.flow[1].algorithm.bytes_per_key(false);
    let lent = per_key + 32 + 16 * 16;
    let expected = format!(
        "\
in the order in which they match
  z  GET /exact → app
    no limit
  r  /* → app
    bucket  token_bucket 100/1m, burst 100: at most 100 at once, 200 in any 1m
    ring  sliding_window 30/1s, 10 buckets: at most 30 in any 900ms, 60 in any 1s
      for each client_ip (IPv6: /64): at most 1000 keys, {per_key} bytes each; {:.1} in all, including the usage remembered for replaced keys
    lender  sliding_window 30/1s, 10 buckets: at most 30 in any 900ms, 60 in any 1s
      for each client_ip (IPv6: /64): at most 1000 keys, {lent} bytes each; {:.1} in all, including the usage remembered for replaced keys
      requests with header:x-p borrow from windows to come, and wait up to 500ms
    hard  sliding_window 31/1s, 10 buckets, strict: at most 31 in any 1s
      dry run: counts, rejects nothing
    thirds  sliding_window 32/1s, 3 buckets: at most 32 in any 666ms666us667ns, 64 in any 1s
    window  fixed_window 40/1s: at most 40 in each window from the first request, 79 in any 1s across a boundary, 80 across that of the clock's first
      cost: POST 5, else 1
    in-flight  concurrency 64: at most 64 in flight at any instant
      exempt: method=OPTIONS
    in-flight-each  concurrency 6: at most 6 in flight at any instant
      for each client_ip (IPv6: /64): at most 10 keys, 48 bytes each; 3.6 KiB in all
      even when method=PUT  pacing 5/1s: starts at least 200ms apart; waits up to 100ms, 1 at most
      for each client_ip (IPv6: /64): at most 10 keys, 200 bytes each; 47.0 KiB in all, including the usage remembered for replaced keys
      cost: else 2
      dry run: counts, rejects nothing
    even  pacing 50/1s: starts at least 20ms apart; waits up to 100ms, 5 at most
      for each client_ip (IPv6: /64): at most 10 keys, 248 bytes each; 50.6 KiB in all, including the usage remembered for replaced keys
      cost: else 2
      dry run: counts, rejects nothing
    pacing  100/1s: starts at least 10ms apart; waits up to 500ms, 10 at most
",
        bytesize::ByteSize(per_key as u64 * 1067 + 64_000),
        bytesize::ByteSize(lent as u64 * 1067 + 64_000)
    );
    assert_eq!(routes, expected);
    assert!(text.contains("app  round_robin  connect_timeout 3s, idle_timeout 4s, max_idle 1024"));
    assert!(text.ends_with("  workers 2, drain_timeout 30s\n"), "{text}");
}

#[test]
fn a_bucket_lets_its_limit_pass_at_once_whatever_the_window() {
    for (rule, promise) in [
        ("limit: 5/1m", "token_bucket 5/1m, burst 5: at most 5 at once, 10 in any 1m"),
        ("limit: 7/1h", "token_bucket 7/1h, burst 7: at most 7 at once, 14 in any 1h"),
        ("limit: 9/10ms", "token_bucket 9/10ms, burst 9: at most 9 at once, 18 in any 10ms"),
        (
            "algorithm: leaky_bucket, limit: 5/1m",
            "leaky_bucket 5/1m, burst 5: at most 5 at once, 10 in any 1m",
        ),
        (
            "limit: 5/1m, warm_up: {}",
            "token_bucket 5/1m, burst 5: at most 5 at once, 10 in any 1m, when warm",
        ),
        (
            "limit: 5/1m, overrides: [{ when: { method: PUT }, limit: 3/1h }]",
            "a when method=PUT  token_bucket 3/1h, burst 3: at most 3 at once, 6 in any 1h",
        ),
        (
            "limit: 5/1m, scope: cluster",
            "token_bucket 5/1m, burst 5: at most 5 at once, 10 in any 1m",
        ),
        (
            "limit: 5/1m, scope: cluster, sync_interval: 1s",
            "token_bucket 5/1m, burst 5: at most 5 at once, 10 in any 1m",
        ),
    ] {
        let store = "store: { redis: redis://127.0.0.1 }\n";
        let text = store.to_owned() + &with_rules(&format!("      - {{ name: a, {rule} }}\n"));
        let said = describe(&plan(&text));
        assert!(said.contains(promise), "{rule}: {said}");
    }
}

#[test]
fn a_hard_cap_is_suggested_once_where_a_bucket_doubles_a_long_window() {
    let note = |rules: &str| {
        let text = format!("{}end: true\n", with_rules(rules));
        let remarks = plan(&text).remarks_at(Instant::EPOCH);
        let notes: Vec<_> =
            remarks.list().filter(|diagnostic| diagnostic.severity == Severity::Note).collect();
        assert!(notes.len() < 2, "{remarks}");
        notes
            .first()
            .map(|note| format!("{}:{}: {} | {}", note.line, note.column, note.message, note.help))
    };
    let several = note(
        "      - { name: a, limit: 5/1m }\n      - { name: b, limit: 9/1h }\n      - { name: c, limit: 9/1m }\n",
    );
    let expected = "8:17: `a` may pass 10 in 1m (as may 2 more rules), because its bucket refills while it empties | \
                    for a hard cap of 5 write `algorithm: sliding_window` and `strict: true`";
    assert_eq!(several.as_deref(), Some(expected));
    for (limit, unit) in [("5/day", "day"), ("5/7d", "week")] {
        let help = note(&format!("      - {{ name: a, limit: {limit} }}\n")).unwrap_or_default();
        let calendar = format!(
            ", or `algorithm: fixed_window` and `limit: 5/{unit}` for each {unit} of the calendar"
        );
        assert!(help.ends_with(&calendar), "{help}");
    }
    for rule in [
        "limit: 5/1s",
        "limit: 100/1m, burst: 10",
        "algorithm: sliding_window, limit: 5/1m, strict: true",
        "limit: 5/1m, warm_up: {}",
    ] {
        assert_eq!(note(&format!("      - {{ name: a, {rule} }}\n")), None, "{rule}");
    }
}
