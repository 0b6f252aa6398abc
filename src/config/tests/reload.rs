//! What survives a reload, what is converted, and what begins afresh.

use super::{FRAME, plan, with_rules};
use crate::{
    config::{Live, Retired, Snapshot, Summary},
    flow::{Claim, Instant, Key},
};
use std::{
    fs,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

const NOW: Instant = Instant::from_nanos(1_700_000_000_000_000_000);

#[test]
fn an_equal_file_changes_nothing() {
    let mut gateway = Gateway::start(&with_rules("      - { name: a, limit: 3/1s }\n"));
    let before = gateway.snapshot();
    let summary =
        gateway.reload(&with_rules("      # a comment\n      - {name: a,   limit: 3/1s}\n"));
    assert_eq!(summary.to_string(), "reloaded v2: nothing changed; kept 1, converted 0, reset 0");
    assert_eq!(summary.warning(), None);
    let after = gateway.snapshot();
    assert!(Arc::ptr_eq(&before.routes[0], &after.routes[0]));
    assert!(Arc::ptr_eq(&before.upstreams[0], &after.upstreams[0]));
    assert_ne!(before.hash, after.hash);
}

#[test]
fn the_beginning_of_the_file_in_force_must_be_confirmed() {
    let rules = "      - { name: a, limit: 3/1s }\n";
    let login = "  - { name: login, match: { path: /login }, upstream: app, flow: [{ name: l, limit: 1/1m }] }\n";
    let whole = with_rules(rules) + login;
    let live = Live::start(plan(&whole), NOW);
    let doubt = |text: &str| live.doubt(&plan(text)).map(|doubt| doubt.to_string());
    let cut = doubt(&with_rules(rules)).expect("the login limit is lost");
    assert_eq!(
        cut.trim_end(),
        "\
error: the file looks cut short: it is the beginning of the file in force, and lacks its last line
 --> gateway.yaml:8:33
  |
8 |       - { name: a, limit: 3/1s }
  |                                 ^ the file in force continues here
  |
  = help: write the rest of the file; if you removed it on purpose, add the line `end: true` at the end, send SIGHUP, or POST /reload to the admin listener"
    );
    for end in ["end: true\n", "end: false\n"] {
        assert_eq!(doubt(&(with_rules(rules) + end)), None, "it says where it ends");
    }
    assert_eq!(doubt(whole.trim_end()), None);
    assert_eq!(doubt(&whole.replace("3/1s", "4/1s")), None);
    assert_eq!(doubt(&with_rules("      - { name: a, limit: 4/1s }\n")), None, "another file");
}

#[test]
fn a_new_limit_holds_for_the_very_next_request_and_the_count_goes_on() {
    let file = |limit: u32| {
        with_rules(&format!("      - {{ name: a, algorithm: fixed_window, limit: {limit}/1m }}\n"))
    };
    let mut gateway = Gateway::start(&file(3));
    assert_eq!(gateway.admitted(5), 3);
    let summary = gateway.reload(&file(5));
    assert_eq!(
        summary.to_string(),
        "reloaded v2: route r (a 3/1m → 5/1m); kept 0, converted 1, reset 0"
    );
    assert_eq!(gateway.admitted(5), 2);
    gateway.reload(&file(4));
    assert_eq!(gateway.admitted(5), 0);
}

#[test]
fn a_reload_says_what_changed_and_nothing_secret() {
    let old = "\
timeouts: { write: 60s }
listeners: [{ name: web, listen: 127.0.0.1:8080 }]
upstreams:
  - { name: app, servers: [{ url: http://10.0.0.1 }, { url: http://10.0.0.2, weight: 2 }] }
  - { name: old, servers: [{ url: http://10.0.0.3 }] }
routes:
  - name: checkout
    match: { path: /checkout }
    upstream: app
    request_headers: { set: { authorization: secret-one } }
    flow:
      - { name: per-client, limit: 10/1m, burst: 10, key: client_ip }
      - { name: all, algorithm: sliding_window, limit: 5/1s }
      - { name: gone, concurrency: 5 }
  - { name: login, match: { path: /login }, upstream: old }
store: { redis: 'redis://:secret-two@10.0.0.9' }
";
    let new = old
        .replace("write: 60s", "write: 30s")
        .replace("127.0.0.1:8080", "127.0.0.1:8081")
        .replace(
            "{ url: http://10.0.0.2, weight: 2 }",
            "{ url: http://10.0.0.2 }, { url: http://10.0.0.4 }",
        )
        .replace("limit: 10/1m, burst: 10", "limit: 20/1m, burst: 30")
        .replace("algorithm: sliding_window, limit: 5/1s", "algorithm: fixed_window, limit: 5/1s")
        .replace("{ name: gone, concurrency: 5 }", "{ name: new, concurrency: 6 }")
        .replace("secret-one", "secret-three")
        .replace("name: login", "name: log-in")
        .replace("secret-two", "secret-four");
    let summary = Gateway::start(old).reload(&new);
    assert_eq!(
        summary.changes.named,
        [
            "route checkout (per-client 10/1m → 20/1m, per-client burst 10 → burst 30, \
             all sliding_window → fixed_window, +rule new 6 and 2 more)",
            "route log-in added",
            "route login removed",
            "upstream app (+1 server, weight of 10.0.0.2:80 2 → 1)",
            "listener web (listen 127.0.0.1:8080 → 127.0.0.1:8081)",
            "settings (store, timeouts.write 1m → 30s)",
        ]
    );
    assert!(!summary.to_string().contains("secret"), "{summary}");
}

#[test]
fn a_reload_names_eight_changes_and_counts_the_rest() {
    let file = |limit: u32, time: &str| {
        let routes: Vec<_> = (0..100)
            .map(|n| {
                format!(
                    "  - {{ name: r{n}, match: {{ path: /{n} }}, upstream: app, \
                     flow: [{{ name: a, limit: {limit}/1s }}] }}\n"
                )
            })
            .collect();
        format!("{FRAME}timeouts: {{ write: {time} }}\nroutes:\n{}", routes.concat())
    };
    let summary = Gateway::start(&file(1, "9s")).reload(&file(2, "8s"));
    assert_eq!((summary.changes.named.len(), summary.changes.more), (8, 93));
    let line = summary.to_string();
    assert!(line.starts_with("reloaded v2: route r0 (a 1/1s → 2/1s), route r1 (a "), "{line}");
    let end = "route r6 (a 1/1s → 2/1s), settings (timeouts.write 9s → 8s) and 93 more; \
               kept 0, converted 100, reset 0";
    assert!(line.ends_with(end), "{line}");
}

#[test]
fn another_algorithm_or_key_begins_afresh_and_says_so() {
    let mut gateway = Gateway::start(&with_rules("      - { name: a, limit: 3/1m, burst: 3 }\n"));
    assert_eq!(gateway.admitted(5), 3);
    let summary = gateway
        .reload(&with_rules("      - { name: a, algorithm: sliding_window, limit: 3/1m }\n"));
    assert_eq!(summary.reset, ["r/a"]);
    assert_eq!(
        summary.warning().as_deref(),
        Some(
            "counting starts from zero, as the algorithm, the key or the use of `sync_interval` changed: r/a"
        )
    );
    assert_eq!(gateway.admitted(5), 3);
}

#[test]
fn a_count_that_begins_afresh_in_the_store_is_named() {
    let file = |window: &str, more: &str| {
        let rules = format!(
            "      - {{ name: a, algorithm: fixed_window, limit: 3/{window}, scope: cluster }}\n\
             \x20     - {{ name: b, limit: 3/1s{more} }}\n"
        );
        format!("{}store: {{ redis: redis://127.0.0.1:1 }}\n", with_rules(&rules))
    };
    let mut gateway = Gateway::start(&file("1m", ""));
    let summary = gateway.reload(&file("1h", ", scope: cluster"));
    assert_eq!(summary.moved, ["r/a", "r/b"]);
    assert_eq!(
        summary.to_string(),
        "reloaded v2: route r (a 3/1m → 3/1h, b scope process → cluster); kept 0, converted 0, reset 2"
    );
    let warning = summary.warning().expect("a warning");
    assert!(warning.starts_with("the count that gateways share starts from zero"), "{warning}");
    assert!(warning.ends_with("or the number of buckets changed: r/a, r/b"), "{warning}");
    let summary = gateway.reload(&file("1h", ", scope: cluster, burst: 2"));
    assert_eq!((summary.moved.len(), summary.rules_kept, summary.rules_converted), (0, 1, 1));
}

#[test]
fn routes_are_counted_as_added_changed_and_removed() {
    let file = |names: &[&str]| {
        let route =
            |n: &&str| format!("{{ name: {}, match: {{ path: /{n} }}, upstream: app }}", &n[..1]);
        format!("{FRAME}routes: [{}]\n", names.iter().map(route).collect::<Vec<_>>().join(", "))
    };
    let mut gateway = Gateway::start(&file(&["a", "b", "c"]));
    let summary = gateway.reload(&file(&["a", "b2", "d", "e"]));
    assert_eq!((summary.routes_added, summary.routes_changed, summary.routes_removed), (2, 1, 1));
}

#[test]
fn a_gate_and_a_meter_belong_to_the_name_whatever_else_is_edited() {
    let file = |prefix: &str| {
        format!("{FRAME}routes: [{{ name: r, match: {{ path: {prefix} }}, upstream: app }}]\n")
    };
    let mut gateway = Gateway::start(&file("/a"));
    let before = gateway.snapshot();
    gateway.reload(&file("/b"));
    let after = gateway.snapshot();
    assert!(!Arc::ptr_eq(&before.routes[0], &after.routes[0]));
    assert!(Arc::ptr_eq(&before.routes[0].gate, &after.routes[0].gate));
    assert!(Arc::ptr_eq(&before.routes[0].meter, &after.routes[0].meter));
}

#[test]
fn a_new_default_reaches_routes_that_were_not_edited() {
    let file = |body: &str| {
        format!(
            "{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\nlimits: {{ body: {body} }}\n"
        )
    };
    let mut gateway = Gateway::start(&file("1KiB"));
    gateway.reload(&file("2KiB"));
    assert_eq!(gateway.snapshot().routes[0].options.body_limit, 2048);
}

#[test]
fn servers_keep_their_identity_and_load_by_address() {
    let file = |servers: &str| {
        format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
             upstreams: [{{ name: app, servers: [{servers}] }}]\n\
             routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"
        )
    };
    let mut gateway = Gateway::start(&file("{ url: http://a }, { url: http://b }"));
    let before = gateway.snapshot().upstreams[0].clone();
    before.servers()[1].in_flight.store(7, Relaxed);
    before.turn.store(41, Relaxed);
    gateway.reload(&file("{ url: http://c }, { url: http://b, weight: 2 }"));
    let after = gateway.snapshot().upstreams[0].clone();
    assert_eq!(after.servers().iter().map(|s| s.id).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(after.servers()[1].in_flight.load(Relaxed), 7);
    assert!(Arc::ptr_eq(&after.servers()[1].meter, &before.servers()[1].meter));
    assert_eq!(after.servers()[1].weight, 2);
    assert_eq!(after.turn.load(Relaxed), 41);
    assert_eq!(after.members().schedule, [1, 0, 1]);
}

#[test]
fn what_only_a_restart_changes_is_said() {
    let file = |port: u16| {
        format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:{port} }}]\n\
             upstreams: [{{ name: app, servers: [{{ url: http://a }}] }}]\n\
             routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n\
             workers: {port}\nadmin: {{ listen: 127.0.0.1:{} }}\n",
            port + 10
        )
    };
    let mut gateway = Gateway::start(&file(81));
    let summary = gateway.reload(&file(82));
    assert_eq!(summary.warning().as_deref(), Some("takes effect at the next start: workers"));
}

#[test]
fn a_store_that_an_edit_adds_is_asked_from_the_next_start_on_which_every_edit_until_then_says() {
    let text = with_rules("      - { name: a, limit: 3/1s }\n");
    let mut gateway = Gateway::start(&text);
    let shared = text.replace("limit: 3/1s", "limit: 3/1s, scope: cluster");
    let stored = format!("store: {{ redis: redis://127.0.0.1 }}\n{shared}");
    let warning = gateway.reload(&stored).warning().unwrap();
    assert!(warning.contains("takes effect at the next start: store"), "{warning}");
    assert!(warning.contains("connects to none until the next start"), "{warning}");
    let warning = gateway.reload(&stored.replace("3/1s", "4/1s")).warning().unwrap();
    assert!(warning.contains("connects to none until the next start"), "{warning}");
    let warning = gateway.reload(&text).warning().unwrap();
    assert!(!warning.contains("connects to none"), "{warning}");
    assert_eq!(gateway.reload(&text.replace("3/1s", "4/1s")).warning(), None);
}

#[test]
fn a_replaced_snapshot_is_kept_until_no_request_needs_it() {
    let mut gateway = Gateway::start(&with_rules("      - { name: a, limit: 3/1s }\n"));
    let held = gateway.live.load_full();
    gateway.reload(&with_rules("      - { name: a, limit: 4/1s }\n"));
    assert_eq!(gateway.retired.sweep(), 1);
    drop(held);
    assert_eq!(gateway.retired.sweep(), 0);
}

#[test]
fn a_file_without_the_mark_does_not_replace_one_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gateway.yaml");
    let file = |end: &str| {
        format!("{FRAME}routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n{end}")
    };
    let mut gateway = Gateway::start(&file("end: true\n"));
    fs::write(&path, file("")).unwrap();
    let problems = gateway.live.read(&path).unwrap_err();
    assert!(problems.to_string().contains("the file looks cut short"), "{problems}");
    fs::write(&path, file("end: false\n")).unwrap();
    gateway.apply(|live| live.read(&path).unwrap());
    fs::write(&path, file("")).unwrap();
    assert!(gateway.live.read(&path).is_ok());
}

struct Gateway {
    live: Live,
    retired: Retired,
}

impl Gateway {
    fn start(text: &str) -> Self {
        Self { live: Live::start(plan(text), NOW), retired: Retired::default() }
    }

    #[track_caller]
    fn reload(&mut self, text: &str) -> Summary {
        self.apply(|_| plan(text))
    }

    fn apply(&mut self, read: impl FnOnce(&Live) -> crate::config::Plan) -> Summary {
        let plan = read(&self.live);
        self.live.apply(plan, NOW, &mut self.retired)
    }

    fn snapshot(&self) -> Arc<Snapshot> {
        self.live.load_full()
    }

    /// Returns how many of `count` requests at one instant the first route admits.
    fn admitted(&self, count: usize) -> usize {
        let snapshot = self.snapshot();
        let route = &snapshot.routes[0];
        let claims: Vec<_> = route
            .rules
            .iter()
            .map(|r| Claim {
                slot: r.slot,
                key: Key::Shared,
                cost: 1,
                patience: Duration::ZERO,
                plan: None,
            })
            .collect();
        let at = NOW + Duration::from_millis(1);
        (0..count).filter(|_| route.gate.enter(at, &claims).is_ok()).count()
    }
}
