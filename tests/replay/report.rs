//! The report, the page and the comparison.

use crate::{config, one_route, replayed};
use core::fmt::Write as _;
use flowgate::replay::Output;
use std::fs;

const ROUTES: &str = "\
\x20 - name: api
    match: { path_prefix: /api }
    upstream: up
    flow:
      - { name: per-client, algorithm: fixed_window, limit: 10/1s, key: client_ip }
      - { name: trial, algorithm: fixed_window, limit: 1/1h, dry_run: true }
  - { name: paced, match: { path_prefix: /paced }, upstream: up, pacing: { rate: 10/1s, max_wait: 300ms } }
  - { name: idle, match: { path: /idle }, upstream: up }
";

/// Two clients across a window's boundary, a burst that is paced, and one lost.
fn events() -> String {
    let mut events = String::new();
    for at in 0..30 {
        let t = 900 + at * 10;
        writeln!(events, r#"{{"t":{t},"client_ip":"192.0.2.1","path":"/api/x"}}"#)
            .expect("it is text");
        if at % 10 == 0 {
            writeln!(events, r#"{{"t":{t},"client_ip":"2001:db8::1","path":"/api/x"}}"#)
                .expect("it is text");
        }
    }
    for _ in 0..6 {
        writeln!(events, r#"{{"t":2000,"path":"/paced"}}"#).expect("it is text");
    }
    events + "{\"t\":2500,\"path\":\"/lost\"}\n"
}

#[test]
fn a_report_lists_each_route_and_rule() {
    let (out, _) =
        replayed(&config(ROUTES), events(), |options| options.output = Output::Report).unwrap();
    let expected = "\
40 requests in 1s 600ms
  1 reached no rule: no route matches

api
  received 33, passed 23 (69.7 %), delayed 0 (0.0 %), rejected 10 (30.3 %: rate 10)
  rule        decided  passed  delayed          rejected  busiest window
  per-client     33      23        0                10  20 in 1s, at most 20 promised; until 1.090 s, 192.0.2.1
  trial          33       1        0  0 (dry run: 32)  1 in 1h, at most 2 promised; until 900 ms
  most rejected by per-client: 192.0.2.1 ×10

paced
  received 6, passed 1 (16.7 %), delayed 3 (50.0 %), rejected 2 (33.3 %: queue 2)
  added wait of those that started: p50 100 ms, p99 300 ms, max 300 ms
  rule    decided  passed  delayed  rejected  busiest window
  pacing      6       1        3        2  4 in 1s, at most 11 promised; until 2.300 s

no requests: idle
";
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(squeezed(&out), squeezed(expected), "{out}");
}

#[test]
fn what_is_borrowed_counts_in_the_window_that_it_is_taken_from() {
    let lending = one_route(
        "    flow: [{ name: w, algorithm: fixed_window, limit: 2/1s, priority: { header: x-a, max_wait: 1s } }]",
    );
    let events = [0, 0, 900, 900, 1000]
        .map(|t| format!("{{\"t\":{t},\"priority\":{}}}\n", t == 900))
        .concat();
    let (out, _) = replayed(&lending, events, |options| options.output = Output::Report).unwrap();
    assert!(out.contains("received 5, passed 2 (40.0 %), delayed 2 (40.0 %), rejected 1"), "{out}");
    assert!(out.contains("2 in 1s, at most 4 promised; until 0 ms"), "{out}");
}

#[test]
fn of_a_paced_window_the_last_one_counts_whole() {
    let rules = "    flow: [{ name: p, algorithm: pacing, limit: 2/1s, max_wait: 10s }, { name: dry, algorithm: pacing, limit: 2/1s, dry_run: true }]";
    let own = "    pacing: { rate: 2/1s, max_wait: 10s }";
    let arrivals = [(0, 1), (500, 1), (1000, 5), (1100, 1), (9000, 2)];
    let events = arrivals.map(|(t, cost)| format!("{{\"t\":{t},\"cost\":{cost}}}\n")).concat();
    for (paced, lines) in [(rules, 2), (own, 1)] {
        let (out, _) =
            replayed(&one_route(paced), events.clone(), |options| options.output = Output::Report)
                .unwrap();
        assert_eq!(
            out.matches("6 in 1s, at most 7 promised; until 1.000 s").count(),
            lines,
            "{out}"
        );
    }
}

#[test]
fn windows_of_a_calendar_have_their_worst() {
    let daily = one_route(
        "    flow: [{ name: d, algorithm: fixed_window, limit: 3/day, tz: UTC, key: client_ip }]",
    );
    let day = 24 * 60 * 60 * 1000;
    let event = |t: u64, last: u8| format!("{{\"t\":{t},\"client_ip\":\"192.0.2.{last}\"}}\n");
    let events = [(0, 1), (1, 1), (day - 1, 2), (day, 2), (day + 1, 2)];
    let events = events.map(|(t, last)| event(t, last)).concat();
    let report = |events: &str| {
        replayed(&daily, events, |options| options.output = Output::Report).unwrap().0
    };
    let out = report(&events);
    assert!(out.contains("2 in a day (UTC), at most 3 promised; until 1 ms, 192.0.2.1\n"), "{out}");
    let out = report(&(events + &event(day + 2, 2).repeat(2)));
    let worst = "3 in a day (UTC), at most 3 promised; until 86400.002 s, 192.0.2.2\n";
    assert!(out.contains(worst), "{out}");
}

#[test]
fn a_rule_and_its_overrides_are_listed_apart() {
    let tiers = one_route(
        "    flow: [{ name: r, algorithm: fixed_window, limit: 1/1s, key: client_ip, overrides: [{ when: { \"header:x-a\": gold }, limit: 2/1s }] }]",
    );
    let event = r#"{"t":0,"client_ip":"192.0.2.1","headers":{"x-a":"gold"}}"#;
    let events = format!("{event}\n").repeat(3) + "{\"t\":0,\"client_ip\":\"192.0.2.1\"}\n";
    let (out, _) = replayed(&tiers, events, |options| options.output = Output::Report).unwrap();
    assert!(out.contains("\n  r when header:x-a=gold        3       2"), "{out}");
    assert!(out.contains("\n  r                             1       1"), "{out}");
    assert!(out.contains("most rejected by r when header:x-a=gold: 192.0.2.1 ×1"), "{out}");
}

#[test]
fn a_page_stands_alone_and_holds_nothing_that_a_client_could_run() {
    let folder = tempfile::tempdir().unwrap();
    let html = folder.path().join("report.html");
    let svg = folder.path().join("picture.svg");
    let evil = config(ROUTES).replace("key: client_ip", "key: \"header:x-a\"");
    let event = r#"{"t":900,"path":"/api","headers":{"x-a":"<script>alert(1)</script>"}}"#;
    let events = events() + &format!("{event}\n").repeat(20);
    let (out, _) = replayed(&evil, events, |options| {
        options.html = Some(html.clone());
        options.svg = Some(svg.clone());
    })
    .unwrap();
    assert_eq!(out.lines().count(), 60, "the decisions are printed all the same");
    let page = fs::read_to_string(html).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
    assert!(page.contains("&lt;script&gt;") && !page.contains("<script"), "{page}");
    for word in ["<svg", "prefers-color-scheme:dark", "@media print", "per-client", "waiting"] {
        assert!(page.contains(word), "no {word}");
    }
    // Names of the namespace apart, it names no place to load from.
    let places = page.replace("http://www.w3.org/2000/svg", "");
    assert!(!places.contains("http:") && !places.contains("https:") && !places.contains("src="));
    assert!(fs::read_to_string(svg).unwrap().starts_with("<svg"));
}

#[test]
fn a_page_shows_both_configurations_and_what_differs() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.yaml");
    let html = folder.path().join("report.html");
    let there = config(ROUTES).replace("limit: 10/1s", "limit: 5/1s");
    fs::write(&other, there.replace("path: /idle", "path: /lost")).unwrap();
    replayed(&config(ROUTES), events(), |options| {
        options.against = Some(other.clone());
        options.html = Some(html.clone());
    })
    .unwrap();

    let page = fs::read_to_string(html).unwrap();
    for part in [
        "<p>1 reached no rule: no route matches</p>",
        "<p>11 of 40 requests are decided differently by ",
        "<tr><td>10</td><td>api: passed</td><td>api: rejected by per-client (rate)</td><td>#6 at 950.0 ms",
        "passed 23 (69.7 %)",
        "passed 13 (39.4 %)",
        "<h2>idle</h2>",
        "<p>no requests</p>",
    ] {
        assert!(page.contains(part), "no {part:?} in {page}");
    }
    // Three routes, of which one has arrivals in the other only.
    assert_eq!((page.matches("<svg").count(), page.matches("<h3>").count()), (5, 6));
    assert_eq!(page.matches("<section>").count(), page.matches("</section>").count());
}

#[test]
fn a_decision_has_that_of_the_other_configuration_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.yaml");
    fs::write(&other, one_route("    flow: [{ name: s, algorithm: fixed_window, limit: 1/1s }]"))
        .unwrap();
    let here = one_route("    flow: [{ name: r, algorithm: fixed_window, limit: 9/1s }]");
    let (out, _) = replayed(&here, "{\"t\":0}\n{\"t\":250}\n", |options| {
        options.against = Some(other.clone());
    })
    .unwrap();
    let line: serde_json::Value = serde_json::from_str(out.lines().nth(1).unwrap()).unwrap();
    let expected = serde_json::json!({
        "i": 1, "t": 250, "decision": "passed", "reason": null, "rule": "r", "limit": 9, "used": 2, "wait_ms": 0.0,
        "retry_after_ms": null, "route": "all",
        "against": {
            "decision": "rejected", "reason": "rate", "rule": "s", "limit": 1, "used": 1, "wait_ms": 0.0,
            "retry_after_ms": 750.0, "route": "all",
        },
    });
    assert_eq!(line, expected);
}

#[test]
fn two_configurations_are_compared_on_the_same_traffic() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.yaml");
    fs::write(&other, config(ROUTES).replace("limit: 10/1s", "limit: 5/1s")).unwrap();
    let compare = |text: &str| {
        fs::write(&other, text).unwrap();
        let (out, _) = replayed(&config(ROUTES), events(), |options| {
            options.output = Output::Report;
            options.against = Some(other.clone());
        })
        .unwrap();
        let comparison = out.lines().position(|line| line.contains(" decided differently by "));
        out.lines().skip(comparison.unwrap()).collect::<Vec<_>>().join("\n")
    };

    let same = compare(&config(ROUTES));
    assert!(same.contains("0 of 40 requests are decided differently by "), "{same}");

    let stricter = compare(&config(ROUTES).replace("limit: 10/1s", "limit: 5/1s"));
    for line in [
        "10 of 40 requests",
        "10  api: passed → api: rejected by per-client",
        "e.g. #6 at 950.0 ms, GET /api/x from 192.0.2.1;",
    ] {
        assert!(stricter.contains(line), "no {line:?} in:\n{stricter}");
    }

    let elsewhere = compare(&config(ROUTES).replace("path: /idle", "path: /lost"));
    assert!(elsewhere.contains("1  no route matches → idle: passed"), "{elsewhere}");
}

#[test]
fn waits_are_compared_and_put_down_to_the_rule_that_asked_for_the_longest() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.yaml");
    let paced =
        |pacing: &str| one_route(&format!("    flow: [{{ name: few, concurrency: 3 }}]\n{pacing}"));
    fs::write(&other, paced("    pacing: { rate: 2/1s, max_wait: 5s }")).unwrap();
    let compare = |here: &str| {
        let events = "{\"t\":0,\"duration\":9000}\n".repeat(3);
        let report = replayed(here, events, |options| {
            options.output = Output::Report;
            options.against = Some(other.clone());
        });
        report.unwrap().0
    };

    let slower = compare(&paced("    pacing: { rate: 10/1s, max_wait: 5s }"));
    let decided = |number: u32| {
        format!("0 of {number} requests are decided differently by {}", other.display())
    };
    let summary = decided(3) + "; of those that both admit, 2 wait longer with it and 0 shorter\n";
    assert!(slower.contains(&summary), "{slower}");
    let waits = "  added wait at all: p50 100 ms, p99 200 ms, max 200 ms → p50 500 ms, p99 1.000 s, max 1.000 s\n";
    assert!(slower.contains(waits), "{slower}");

    let same = compare(&paced("    pacing: { rate: 2/1s, max_wait: 5s }"));
    assert!(same.contains(&(decided(3) + "\n")), "{same}");

    let held = compare(&paced(""));
    assert!(held.contains("  2  all: passed → all: delayed by pacing\n"), "{held}");
}

#[test]
fn waits_are_counted_where_their_percentiles_are_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let other = folder.path().join("other.yaml");
    let paced = |rest: &str, put: &str| {
        one_route(&format!(
            "    flow: [{{ name: p, algorithm: pacing, max_wait: 5s, limit: {rest}, overrides: [{{ when: {{ method: PUT }}, limit: {put} }}] }}]"
        ))
    };
    fs::write(&other, paced("2/1s", "10/1s")).unwrap();
    let events =
        "{\"t\":0}\n{\"t\":0}\n{\"t\":0,\"method\":\"PUT\"}\n{\"t\":0,\"method\":\"PUT\"}\n";
    let report = replayed(&paced("10/1s", "2/1s"), events, |options| {
        options.output = Output::Report;
        options.against = Some(other.clone());
    });
    let report = report.unwrap().0;
    let summary = format!(
        "0 of 4 requests are decided differently by {}; \
         of those that both admit, 1 waits longer with it and 1 shorter\n",
        other.display()
    );
    assert!(report.contains(&summary) && !report.contains("added wait at"), "{report}");
}
