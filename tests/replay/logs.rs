//! Logs of several gateways as input.

use crate::{config, one_route, replayed};
use flate2::{Compression, write::GzEncoder};
use flowgate::replay::{Format, Output, ReplayError};
use serde_json::Value;
use std::io::Write as _;

fn decided(config: &str, input: impl AsRef<[u8]>) -> Vec<(f64, String)> {
    let (out, complaints) = replayed(config, input, |_| {}).expect("it is replayed");
    assert!(!complaints.contains("skipped"), "{complaints}");
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines
        .map(|line| (millis(&line), line["decision"].as_str().unwrap_or("none").to_owned()))
        .collect()
}

/// Returns the milliseconds of a decision's `time` since the minute began.
#[expect(clippy::cast_precision_loss, reason = "a minute has fewer nanoseconds than that")]
fn millis(decision: &Value) -> f64 {
    let time = decision["time"].as_str().expect("a log has the time of its clock");
    let time: jiff::Timestamp = time.parse().expect("as RFC 3339 writes it");
    let nanos = time.as_nanosecond() % 60_000_000_000;
    nanos as f64 / 1e6
}

/// One request each 10 s for each client.
fn per_client() -> String {
    one_route("    flow: [{ name: c, algorithm: sliding_window, limit: 1/10s, key: client_ip }]")
}

fn passed_and_rejected(t: [f64; 3]) -> Vec<(f64, String)> {
    t.into_iter().zip(["passed", "passed", "rejected"].map(str::to_owned)).collect()
}

#[test]
fn every_log_is_known_by_its_content() {
    const NGINX: &str = r#"192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] "GET /a HTTP/1.1" 200 5 "-" "curl"
192.0.2.2 - - [21/Nov/2026:05:00:08 +0000] "GET /b HTTP/1.1" 200 5 "-" "curl"
192.0.2.1 - - [21/Nov/2026:06:00:09 +0100] "GET /c HTTP/1.1" 200 5 "-" "curl"
"#;
    assert_eq!(decided(&per_client(), NGINX), passed_and_rejected([7000.0, 8000.0, 9000.0]));

    let envoy = |time: &str, client: &str| {
        format!(
            "{{\"start_time\":\"2026-11-21T05:00:{time}Z\",\"method\":\"GET\",\"path\":\"/\",\"response_code\":200,\
             \"duration\":5,\"downstream_remote_address\":\"{client}:99\"}}\n"
        )
    };
    let text = |time: &str, client: &str| {
        format!(
            "[2026-11-21T05:00:{time}Z] \"GET / HTTP/2\" 200 - 0 5 5 4 \"{client}\" \"-\" \"-\" \"h\" \"-\"\n"
        )
    };
    let lines = [text("09.5", "192.0.2.1"), text("07", "192.0.2.1"), text("08", "192.0.2.2")];
    assert_eq!(
        decided(&per_client(), lines.concat()),
        passed_and_rejected([7000.0, 8000.0, 9500.0])
    );

    // In the order of their ends.
    let lines = [envoy("09.5", "192.0.2.1"), envoy("07", "192.0.2.1"), envoy("08", "192.0.2.2")];
    assert_eq!(
        decided(&per_client(), lines.concat()),
        passed_and_rejected([7000.0, 8000.0, 9500.0])
    );

    let caddy = |ts: &str, client: &str| {
        format!(
            "{{\"ts\":{ts},\"request\":{{\"remote_ip\":\"{client}\",\"method\":\"GET\",\"host\":\"h\",\"uri\":\"/\"}},\
             \"duration\":0.5,\"status\":200}}\n"
        )
    };
    let lines = [
        caddy("1795237207.5", "192.0.2.1"),
        caddy("1795237208.5", "192.0.2.2"),
        caddy("1795237209.5", "192.0.2.1"),
    ];
    assert_eq!(
        decided(&per_client(), lines.concat()),
        passed_and_rejected([7000.0, 8000.0, 9000.0])
    );

    let traefik = |time: &str, client: &str| {
        format!(
            "{{\"StartUTC\":\"2026-11-21T05:00:{time}Z\",\"RequestMethod\":\"GET\",\"RequestPath\":\"/\",\"Duration\":5,\
             \"ClientHost\":\"{client}\",\"DownstreamStatus\":200}}\n"
        )
    };
    let lines =
        [traefik("07", "192.0.2.1"), traefik("08", "192.0.2.2"), traefik("09", "192.0.2.1")];
    assert_eq!(
        decided(&per_client(), lines.concat()),
        passed_and_rejected([7000.0, 8000.0, 9000.0])
    );
}

#[test]
fn arrivals_of_one_second_are_spread_over_it() {
    let line = "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let (out, complaints) = replayed(&per_client(), line.repeat(4), |_| {}).unwrap();
    let t = |line: &str| millis(&serde_json::from_str::<Value>(line).unwrap());
    let times: Vec<f64> = out.lines().map(t).collect();
    assert_eq!(times, [7000.0, 7250.0, 7500.0, 7750.0]);
    assert!(complaints.contains("whole seconds"), "{complaints}");
}

#[test]
fn stamps_of_caddy_in_whole_seconds_are_spread_too() {
    let line = |logger: &str, duration: &str| {
        format!(
            "{{\"logger\":\"http.log.{logger}\",\"ts\":\"2026/11/21 05:00:07\",\"duration\":{duration},\
             \"request\":{{\"method\":\"GET\",\"host\":\"h\",\"uri\":\"/\"}},\"status\":200}}\n"
        )
    };
    let log = [
        line("access", "0.0"),
        line("error", "0.0"),
        line("access", "1.5"),
        line("access", "0.125"),
        line("access", "0.0"),
    ];
    let (out, complaints) = replayed(&per_client(), log.concat(), |_| {}).unwrap();
    let t = |line: &str| millis(&serde_json::from_str::<Value>(line).unwrap());
    // They end a quarter of a second apart.
    assert_eq!(out.lines().map(t).collect::<Vec<_>>(), [5750.0, 7000.0, 7375.0, 7750.0]);
    assert!(complaints.contains("whole seconds"), "{complaints}");
    assert!(complaints.contains("1 of 5 lines has no request"), "{complaints}");
}

#[test]
fn gzip_is_read_and_what_is_cut_short_is_said() {
    let line = "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(line.repeat(5000).as_bytes()).unwrap();
    let packed = packed.finish().unwrap();
    assert_eq!(decided(&per_client(), &packed).len(), 5000);
    let (out, complaints) = replayed(&per_client(), &packed[..packed.len() / 2], |_| {}).unwrap();
    assert!((1..5000).contains(&out.lines().count()));
    assert!(complaints.contains("the rest is not read"), "{complaints}");
}

#[test]
fn lines_that_hold_no_request_are_no_bad_lines() {
    let log = "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"GET / HTTP/1.1\" 200 5\n\
        192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"\\x16\\x03\\x01\" 400 150\n\
        192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"USER anonymous\" 400 150\n\
        192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"PRI * HTTP/2.0\" 400 150\n\
        192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"-\" 408 0\n";
    let (out, complaints) = replayed(&per_client(), log, |_| {}).unwrap();
    assert_eq!(out.lines().count(), 1);
    assert!(complaints.contains("note: 4 of 5 lines have no request"), "{complaints}");
    assert!(!complaints.contains("skipped"), "{complaints}");
    assert!(replayed(&per_client(), log, |options| options.strict = true).is_ok());
}

#[test]
fn clients_without_an_address_count_as_one_and_a_note_says_so() {
    let line = |client: &str| {
        format!("{client} - - [21/Nov/2026:05:00:07 +0000] \"GET / HTTP/1.1\" 200 5\n")
    };
    let log = ["a.example", "b.example", "192.0.2.1"].map(line).concat();
    let (_, complaints) = replayed(&per_client(), log, |_| {}).unwrap();
    assert!(complaints.contains("note: 2 of 3 lines have no address of a client"), "{complaints}");
    let (_, complaints) = replayed(&per_client(), line("192.0.2.1"), |_| {}).unwrap();
    assert!(!complaints.contains("no address"), "{complaints}");
}

#[test]
fn a_log_that_nginx_wrote_is_reported_on() {
    // Written by nginx 1.22 in its default format, to requests of curl and of sockets
    // that spoke something else; the addresses are others.
    let log = include_str!("nginx-combined.txt");
    let config = config(
        "  - { name: api, match: { path_prefix: /api }, upstream: up, flow: [{ name: per-client, algorithm: sliding_window, limit: 3/1s, key: client_ip }] }\n\
         \x20 - { name: rest, match: { path_prefix: / }, upstream: up }",
    );
    let (report, complaints) = replayed(&config, log, |options| {
        options.strict = true;
        options.output = Output::Report;
    })
    .unwrap();
    assert_eq!(complaints, "");
    for part in [
        "25 requests in 3s 666ms 666us 666ns, 2026-11-21 11:17:00 to 11:17:03 UTC\n",
        "1 reached no rule: a backslash",
        "3 reached no rule: a `..` segment",
        "1 reached no rule: the method is not served",
        "received 7, passed 5 (71.4 %), delayed 0 (0.0 %), rejected 2 (28.6 %: rate 2)",
        "3 in 1s, at most 6 promised; until 11:17:00.111, 192.0.2.4",
        "most rejected by per-client: 192.0.2.4 ×2",
        "note: 5 of 30 lines have no request",
    ] {
        assert!(report.contains(part), "no {part:?} in\n{report}");
    }

    let (hosts, _) = replayed(&config, log, |options| options.route = Some("rest".into())).unwrap();
    assert_eq!(hosts.matches("\"decision\":\"passed\"").count(), 24, "an absolute target is one");
}

#[test]
fn what_a_line_brings_is_not_obeyed_by_a_terminal() {
    let events = "{\"t\":0}\n{\"t\":\"\\u001b[31m\"}\n{\"t\":0,\"method\":\"\u{1b}[31m\"}\n[]\n";
    let (_, complaints) = replayed(&per_client(), events, |_| {}).unwrap();
    assert!(!complaints.contains('\u{1b}') && !complaints.contains("\\\\"), "{complaints}");
    assert!(complaints.contains("from 0 on, but \"\\u001b[31m\"\n"), "{complaints}");
    assert!(complaints.ends_with(":4: not a JSON object\n"), "{complaints}");
}

#[test]
fn the_time_of_an_upload_in_our_log_does_not_make_a_response_slow() {
    let breaker = config(
        "  - { name: all, match: { path_prefix: / }, upstream: up, breaker: { slow_after: 1s, slow_ratio: 0, min_requests: 1 } }",
    );
    let line = |second: u8, upload: &str| {
        format!(
            "{{\"ts\":\"2026-11-21T05:00:0{second}Z\",\"method\":\"POST\",\"host\":\"h\",\"path\":\"/\",\"route\":\"all\",\
             \"status\":200,\"answered_ms\":4000.0,\"duration_ms\":4000.0,\"outcome\":\"completed\",\
             \"client_ip\":\"192.0.2.1\",\"upstream\":\"u:80\"{upload},\"config_hash\":\"0\",\
             \"flow\":{{\"decision\":\"passed\",\"wait_ms\":0.0}}}}\n"
        )
    };
    for (upload, decision) in [
        (",\"upload_ms\":3500.0", "passed"),
        (",\"upload_ms\":2500.0", "rejected"),
        ("", "rejected"),
    ] {
        let log = [line(0, upload), line(5, upload)].concat();
        let (out, _) = replayed(&breaker, log, |_| {}).unwrap();
        let last = out.lines().last().unwrap();
        assert!(last.contains(&format!("\"decision\":\"{decision}\"")), "{upload}: {out}");
    }
}

#[test]
fn requests_that_our_gateway_asked_no_rule_about_are_left_out() {
    let line = |status: u16, more: &str| {
        format!(
            "{{\"ts\":\"2026-11-21T05:00:07Z\",\"method\":\"GET\",\"host\":\"h\",\"path\":\"/\",\"status\":{status},\
             \"duration_ms\":1.5,\"client_ip\":\"192.0.2.1\",\"config_hash\":\"0\"{more}}}\n"
        )
    };
    let log = [
        line(413, ",\"route\":\"all\""),
        line(400, ""),
        // Its client left while a store was asked; the gateway ended.
        line(499, ",\"route\":\"all\",\"outcome\":\"cancelled\""),
        line(499, ",\"route\":\"all\",\"outcome\":\"cut\""),
        line(200, ",\"route\":\"all\",\"flow\":{\"decision\":\"passed\",\"wait_ms\":0.0}"),
        line(404, ""),
    ];
    let (out, complaints) = replayed(&per_client(), log.concat(), |_| {}).unwrap();
    let decisions: Vec<_> = out.lines().map(|line| line.contains("passed")).collect();
    assert_eq!(decisions, [true, false], "{out}");
    assert!(complaints.contains("note: 4 of 6 lines are without a decision"));
    assert!(complaints.contains("or the client left or the gateway ended while a store decided"));
}

#[test]
fn our_log_names_the_route_where_it_does_not_say_what_found_it() {
    let line = r#"{"ts":"2026-11-21T05:00:07.5Z","method":"GET","host":"h","path":"/","route":"a","status":200,
        "duration_ms":1.5,"client_ip":"192.0.2.1","attempts":1,"bytes_in":0,"bytes_out":0,"config_hash":"0","flow":{"decision":"passed","wait_ms":0.0}}"#;
    let line = line.replace('\n', "") + "\n";
    let routes = |condition: &str| {
        config(&format!(
            "  - {{ name: a, match: {{ path: /, {condition} }}, upstream: up }}\n\
             \x20 - {{ name: b, match: {{ path: / }}, upstream: up }}"
        ))
    };
    let route = |config: &str| {
        let (out, _) = replayed(config, &line, |_| {}).unwrap();
        serde_json::from_str::<Value>(&out).unwrap()["route"].as_str().unwrap().to_owned()
    };
    assert_eq!(route(&routes("header: { x-a: 1 }")), "a");
    assert_eq!(route(&routes("method: [POST]")), "b", "the table knows");
}

#[test]
fn a_client_that_left_while_it_waited_ended_then() {
    let config = one_route(
        "    flow: [{ name: c, concurrency: 1 }]\n    pacing: { rate: 1/1s, max_wait: 9s }",
    );
    let line = |at: &str, duration: &str, outcome: &str, flow: &str| {
        format!(
            "{{\"ts\":\"2026-11-21T05:00:{at}Z\",\"method\":\"GET\",\"host\":\"h\",\"path\":\"/\",\"route\":\"all\",\
             \"status\":200,\"duration_ms\":{duration},\"outcome\":\"{outcome}\",\"client_ip\":\"192.0.2.1\",\
             \"config_hash\":\"0\",\"flow\":{{\"decision\":\"passed\",{flow}}}}}\n"
        )
    };
    let log = [
        line("00", "0.0", "completed", "\"wait_ms\":0.0"),
        line("00.1", "100.0", "cancelled", "\"wait_ms\":900.0"),
        line("00.15", "0.0", "completed", "\"wait_ms\":0.0"),
        line("00.2", "1800.0", "completed", "\"wait_ms\":1800.0"),
    ];
    let decisions: Vec<_> =
        decided(&config, log.concat()).into_iter().map(|(_, decision)| decision).collect();
    assert_eq!(decisions, ["passed", "delayed", "rejected", "delayed"]);
}

#[test]
fn a_line_that_is_too_long_to_be_known_is_called_so() {
    let events = "{\"t\":0,\"path\":\"/".to_owned() + &"x".repeat(3 * 1024 * 1024) + "\"}\n";
    let failure = replayed(&per_client(), &events, |_| {}).unwrap_err().to_string();
    assert!(failure.ends_with("one of the first is longer than 1048576 bytes"), "{failure}");
    let (out, complaints) = replayed(&per_client(), events + "{\"t\":1}\n", |_| {}).unwrap();
    assert_eq!(out.lines().count(), 1, "{out}");
    assert!(complaints.contains("it is longer than 1048576 bytes"), "{complaints}");
}

#[test]
fn a_mark_of_utf_8_costs_no_arrival() {
    let (out, complaints) =
        replayed(&per_client(), "\u{feff}{\"t\":0}\n{\"t\":1}\n", |_| {}).unwrap();
    assert_eq!((out.lines().count(), complaints.as_str()), (2, ""));
}

#[test]
fn events_and_logs_are_not_merged() {
    let folder = tempfile::tempdir().unwrap();
    let events = folder.path().join("events");
    std::fs::write(&events, "{\"t\":0}\n").unwrap();
    let log = "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"GET / HTTP/1.1\" 200 5\n";
    let mixed = replayed(&per_client(), log, |options| options.traffic.inputs.push(events.clone()));
    assert!(matches!(mixed, Err(ReplayError::Input(_))), "{mixed:?}");
    // Two of a kind are.
    let two = replayed(&per_client(), "{\"t\":1}\n{\"t\":3}\n", |options| {
        options.traffic.inputs.push(events.clone());
        options.traffic.format = Some(Format::Events);
    });
    let (out, _) = two.unwrap();
    let times: Vec<Value> =
        out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["t"].take()).collect();
    assert_eq!(times, [0, 1, 3]);
}

/// A log whose lines name no host, of a site in another time zone.
const COMMON: &str = "\
192.0.2.1 - - [21/Nov/2026:06:00:07 +0100] \"GET /v1/a HTTP/1.1\" 200 5
192.0.2.1 - - [21/Nov/2026:06:00:08 +0100] \"GET /v1/b HTTP/1.1\" 200 5
192.0.2.2 - - [21/Nov/2026:06:00:09 +0100] \"GET /x HTTP/1.1\" 404 5
";

fn for_hosts() -> String {
    config(
        "  - { name: api, match: { host: api.example.com, path_prefix: /v1 }, upstream: up, flow: [{ name: c, algorithm: fixed_window, limit: 1/1m, key: client_ip }] }\n\
         \x20 - { name: blogs, match: { host: \"*.blog.example.com\", path: /x }, upstream: up }",
    )
}

/// As an imported file with http and https: each route names its listener.
const TWO_LISTENERS: &str = "\
listeners: [{ name: http, listen: 127.0.0.1:1 }, { name: https, listen: 127.0.0.1:2 }]
upstreams: [{ name: up, servers: [{ url: http://127.0.0.1:9 }] }]
routes:
  - { name: api, match: { listener: https, path_prefix: /v1 }, upstream: up, flow: [{ name: c, algorithm: fixed_window, limit: 1/1m, key: client_ip }] }
  - { name: shop, match: { listener: https, host: shop.example.com, path: /x }, upstream: up }
  - { name: moved, match: { listener: http, path: /v1/a }, respond: 204 }
";

#[test]
fn a_log_without_listeners_says_which_listener_to_pass() {
    let (_, said) = replayed(TWO_LISTENERS, COMMON, |_| {}).unwrap();
    let note = "note: 3 of 3 requests match no route, as the log names no host and no listener and \
        routes are for certain hosts and listeners: pass `--host shop.example.com --listener https` \
        (then 3 of 3 match), or `--listener https` (then 2 of 3 match), or `--listener http` (then 1 \
        of 3 match)\n";
    assert!(said.contains(note), "{said}");

    let with = |host: Option<&str>, listener: Option<&str>| {
        replayed(TWO_LISTENERS, COMMON, |options| {
            options.output = Output::Report;
            options.traffic.host = host.map(str::to_owned);
            options.traffic.listener = listener.map(str::to_owned);
        })
    };
    let (out, _) = with(Some("shop.example.com"), None).unwrap();
    let note = "no route, as the log names no listener and routes are for certain listeners: pass \
        `--listener https` (then 3 of 3 match), or";
    assert!(out.contains(note), "{out}");
    let (out, _) = with(Some("shop.example.com"), Some("https")).unwrap();
    assert!(out.contains("api\n  received 2, passed 1 (50.0 %)"), "{out}");
    assert!(!out.contains("pass `--"), "{out}");
    let wrong = with(None, Some("htttps")).unwrap_err().to_string();
    assert_eq!(wrong, "the configuration has no listener `htttps`; it has `http`, `https`");

    // The listener of a line counts before that of the option.
    let events =
        "{\"t\":1,\"path\":\"/v1/a\",\"listener\":\"http\"}\n{\"t\":2,\"path\":\"/v1/a\"}\n";
    let decided = replayed(TWO_LISTENERS, events, |options| {
        options.traffic.listener = Some("https".to_owned());
    });
    let (out, _) = decided.unwrap();
    let routes: Vec<_> = out
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["route"].take())
        .collect();
    assert_eq!(routes, ["moved", "api"]);
}

#[test]
fn the_rules_of_a_listener_decide_about_its_requests() {
    let config = "\
listeners:
  - { name: public, listen: 127.0.0.1:0, flow: [{ name: public, limit: 2/1h, burst: 2 }] }
  - { name: inside, listen: 127.0.0.1:0 }
routes: [{ name: all, match: { path_prefix: / }, respond: { status: 200 } }]
";
    let (_, said) = replayed(config, COMMON, |_| {}).unwrap();
    let note = "the input names no listener, so that the rules of the listener public decided \
        nothing: pass `--listener public` if the requests came by it";
    assert!(said.contains(note), "{said}");

    let rejected = |input: &str, listener: Option<&str>| {
        let options = |options: &mut flowgate::replay::Options| {
            options.traffic.listener = listener.map(str::to_owned);
        };
        let (out, said) = replayed(config, input, options).unwrap();
        assert!(!said.contains("names no listener"), "{said}");
        out.matches("\"decision\":\"rejected\"").count()
    };
    assert_eq!(rejected(COMMON, Some("public")), 1);
    assert_eq!(rejected(COMMON, Some("inside")), 0);

    // Our own log has the listener of each request.
    let line = |listener: &str| {
        format!(
            r#"{{"ts":"2026-11-21T05:00:00Z","method":"GET","host":"a","path":"/","route":"all","listener":"{listener}","status":200,"answered_ms":1.0,"duration_ms":1.0,"client_ip":"192.0.2.7","attempts":0,"bytes_in":0,"bytes_out":0,"config_hash":"00","flow":{{"decision":"passed","wait_ms":0.0}}}}
"#
        )
    };
    let log = [line("public"), line("inside"), line("public"), line("public")].concat();
    assert_eq!(rejected(&log, None), 1);
}

#[test]
fn a_log_without_hosts_says_which_host_to_pass() {
    let (_, said) = replayed(&for_hosts(), COMMON, |_| {}).unwrap();
    let note = "note: 3 of 3 requests match no route, as the log names no host and routes are for \
        certain hosts: pass `--host api.example.com` (then 2 of 3 match), or `--host \
        www.blog.example.com` (then 1 of 3 match)\n";
    assert!(said.contains(note), "{said}");
    let report = |host: &str| {
        replayed(&for_hosts(), COMMON, |options| {
            options.output = Output::Report;
            options.traffic.host = Some(host.to_owned());
        })
    };
    let (out, _) = report("API.example.com:443").unwrap();
    assert!(out.contains("api\n  received 2, passed 1 (50.0 %)"), "{out}");
    assert!(out.contains("  1 reached no rule: no route matches\n"), "{out}");
    assert!(!out.contains("pass `--host"), "{out}");
    let (out, _) = report("shop.example.com").unwrap();
    let note = "note: no request matches a route, as GET /v1/a, GET /v1/b, GET /x; the routes are \
        `api` (api.example.com/v1/*), `blogs` (*.blog.example.com/x)";
    assert!(out.contains(note), "{out}");
    let wrong = report("not a host").unwrap_err().to_string();
    assert_eq!(wrong, "`not a host` is not a host: write `--host shop.example.com`");
}

#[test]
fn a_log_without_the_key_of_a_rule_says_what_becomes_of_its_requests() {
    for (on_missing, outcome) in
        [("shared", "count together"), ("skip", "are not counted"), ("reject", "are rejected")]
    {
        let keyed = config(&format!(
            "  - {{ name: all, match: {{ path_prefix: / }}, upstream: up, flow: [{{ name: k, limit: 9/1s, key: header:x-api-key, on_missing_key: {on_missing} }}, {{ name: a, limit: 9/1s, key: client_ip }}] }}"
        ));
        let (_, said) = replayed(&keyed, COMMON, |_| {}).unwrap();
        let note = format!(
            "note: the input has no `header:x-api-key`, the key of the rule `k` of route `all`: all \
             3 requests {outcome} (`on_missing_key`). Pass a log that has the field\n"
        );
        assert!(said.contains(&note), "{said}");
        assert!(!said.contains("rule `a`") && !said.contains("no rule decided"), "{said}");
        let event = "{\"t\":1,\"path\":\"/\",\"headers\":{\"x-api-key\":\"a\"}}\n{\"t\":2,\"path\":\"/\"}\n";
        let (_, said) = replayed(&keyed, event, |_| {}).unwrap();
        assert!(!said.contains("the input has no"), "{said}");
    }
}

#[test]
fn a_host_that_is_logged_is_not_replaced() {
    let lines = COMMON.replace("192.0.2.", "api.example.com 192.0.2.");
    let (out, _) = replayed(&for_hosts(), lines, |options| {
        options.traffic.host = Some("a.blog.example.com".to_owned());
    })
    .unwrap();
    assert_eq!(out.matches("\"route\":\"api\"").count(), 2, "{out}");
}

#[test]
fn a_replay_that_asks_no_rule_says_why() {
    let ruleless = config("  - { name: all, match: { path_prefix: / }, upstream: up }");
    let (_, said) = replayed(&ruleless, COMMON, |_| {}).unwrap();
    assert!(said.contains("note: no rule decided: the routes that the requests match"), "{said}");
    let beside = config(
        "  - { name: all, match: { path_prefix: / }, upstream: up, flow: [{ name: r, limit: 9/1s }] }\n  \
         - { name: api, match: { host: api.example.com, path_prefix: /v1 }, upstream: up, flow: [{ name: r, limit: 1/1s }] }",
    );
    let (_, said) = replayed(&beside, COMMON, |_| {}).unwrap();
    let note = "note: the log names no host, so no request went to the routes for certain hosts: \
        pass `--host api.example.com` (then 2 of 3 match)\n";
    assert!(said.contains(note), "{said}");
    let (_, said) = replayed(&ruleless, "", |_| {}).unwrap();
    assert_eq!(said, "note: the input has no request: nothing was replayed\n");
    let header = config(
        "  - { name: a, match: { path_prefix: /, header: { x-a: b } }, upstream: up, flow: [{ name: r, limit: 1/1s }] }",
    );
    let (_, said) = replayed(&header, COMMON, |_| {}).unwrap();
    assert!(said.contains("the routes are `a` (/* header x-a=b)."), "{said}");
    assert!(said.contains("`--route NAME` sends all requests to one route"), "{said}");
    let (_, said) = replayed(&header, COMMON, |options| options.route = Some("a".into())).unwrap();
    assert_eq!(said.lines().count(), 1, "whole seconds, and nothing else: {said}");
}

#[test]
fn a_log_is_reported_by_its_own_clock() {
    let folder = tempfile::tempdir().unwrap();
    let [html, svg, other] = ["a.html", "a.svg", "b.yaml"].map(|name| folder.path().join(name));
    std::fs::write(&other, per_client().replace("1/10s", "9/10s")).unwrap();
    let run = |output: Output| {
        replayed(&per_client(), COMMON, |options| {
            options.output = output;
            options.against = Some(other.clone());
            options.html = Some(html.clone());
            options.svg = Some(svg.clone());
        })
        .unwrap()
        .0
    };
    let out = run(Output::Report);
    for part in [
        "3 requests in 2s, 2026-11-21 06:00:07 to 06:00:09 UTC+01:00\n",
        "until 06:00:07.000, 192.0.2.1\n",
        "e.g. #1 at 06:00:08, GET /v1/b from 192.0.2.1\n",
    ] {
        assert!(out.contains(part), "no {part:?} in\n{out}");
    }

    let page = std::fs::read_to_string(&html).unwrap();
    for part in [
        "<p>3 requests in 2s, 2026-11-21 06:00:07 to 06:00:09 UTC+01:00</p>",
        "until 06:00:07.000, 192.0.2.1",
        "#1 at 06:00:08, GET",
        ">06:00:07.0 UTC+01:00</text>",
    ] {
        assert!(page.contains(part), "no {part:?} in\n{page}");
    }
    assert!(std::fs::read_to_string(&svg).unwrap().contains(">06:00:07.0 UTC+01:00</text>"));

    let decisions = run(Output::Decisions);
    let first = decisions.lines().next().unwrap();
    let begins = r#"{"i":0,"time":"2026-11-21T06:00:07+01:00","decision":"passed","#;
    assert!(first.starts_with(begins), "{first}");
}

/// The limit of each decision is in the log, and moves in the replay as it did live.
#[test]
fn a_limit_that_finds_itself_is_that_of_the_log() {
    let config = one_route("    flow: [{ name: places, concurrency: { auto: { max: 5 } } }]");
    let line = |millis: u32, limit: u32| {
        format!(
            "{{\"ts\":\"2026-01-05T10:00:00.{millis:03}000000Z\",\"method\":\"GET\",\"host\":\"a\",\
             \"path\":\"/\",\"route\":\"all\",\"status\":200,\"duration_ms\":500.0,\
             \"outcome\":\"completed\",\"client_ip\":\"10.0.0.1\",\"attempts\":1,\
             \"bytes_in\":0,\"bytes_out\":0,\"config_hash\":\"0\",\
             \"flow\":{{\"decision\":\"passed\",\"wait_ms\":0.0,\"limits\":{{\"places\":{limit}}}}}}}\n"
        )
    };
    let limits = [3, 3, 3, 3, 4, 4, 9, 9, 2];
    let log: String = (0..).zip(limits).map(|(at, limit)| line(at, limit)).collect();
    let decided: Vec<String> = decided(&config, log).into_iter().map(|(_, word)| word).collect();
    let passed: Vec<bool> = decided.iter().map(|word| word == "passed").collect();
    assert_eq!(passed, [true, true, true, false, true, false, true, false, false]);
}
