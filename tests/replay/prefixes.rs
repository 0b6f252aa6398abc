//! Logs that other programs have written on: prefixes, wrappers, and formats that are not known.

use crate::{one_route, replayed};
use flate2::{Compression, write::GzEncoder};
use flowgate::replay::{Format, Output, ReplayError};
use serde_json::Value;
use std::io::Write as _;

/// Three requests of two clients, the second one of the first client too early.
const COMBINED: [&str; 3] = [
    r#"192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] "GET /a?b=\x22c HTTP/1.1" 200 5 "-" "curl \"x\"""#,
    r#"2001:db8::7 - - [21/Nov/2026:05:00:08 +0000] "GET /b HTTP/1.1" 200 5 "-" "-""#,
    r#"192.0.2.1 - - [21/Nov/2026:06:00:09 +0100] "GET /c HTTP/1.1" 200 5"#,
];

/// One request each 10 s for each client.
fn per_client() -> String {
    one_route("    flow: [{ name: c, algorithm: sliding_window, limit: 1/10s, key: client_ip }]")
}

/// Makes three lines, of two clients.
fn lines(line: &dyn Fn(&str, &str) -> String) -> Vec<String> {
    let times = ["07", "08", "09"];
    let clients = ["192.0.2.1", "2001:db8::7", "192.0.2.1"];
    times.iter().zip(clients).map(|(time, client)| line(time, client)).collect()
}

/// The lines of each format of text, three requests each.
fn text_formats() -> Vec<(&'static str, Vec<String>)> {
    vec![
        ("combined", COMBINED.map(str::to_owned).to_vec()),
        ("vhost_combined", COMBINED.map(|line| format!("a.example:443 {line}")).to_vec()),
        (
            "nginx main",
            lines(&|time, client| {
                format!(
                    r#"{client} - ann [21/Nov/2026:05:00:{time} +0000] "GET / HTTP/2.0" 200 5 "-" "a" "-""#
                )
            }),
        ),
        (
            "traefik common",
            lines(&|time, client| {
                format!(
                    r#"{client} - - [21/Nov/2026:05:00:{time} +0000] "GET / HTTP/2.0" - - "-" "-" 3 "web@docker" "http://10.0.0.2:80" 3ms"#
                )
            }),
        ),
        (
            "nginx proxy manager",
            lines(&|time, client| {
                format!(
                    r#"[21/Nov/2026:05:00:{time} +0000] - 200 200 - GET https a.example "/" [Client {client}] [Length 5] [Gzip -] [Sent-to 10.0.0.2] "a" "-""#
                )
            }),
        ),
        (
            "envoy text",
            lines(&|time, client| {
                format!(
                    r#"[2026-11-21T05:00:{time}.125Z] "GET /a?b HTTP/2" 204 - 154 0 226 100 "{client}" "agent x" "cc21" "a.example" "192.0.2.80:80""#
                )
            }),
        ),
    ]
}

/// The same of JSON.
fn json_formats() -> Vec<(&'static str, Vec<String>)> {
    vec![
        (
            "flowgate",
            lines(&|time, client| {
                format!(
                    r#"{{"ts":"2026-11-21T05:00:{time}Z","method":"GET","host":"h","path":"/","route":"all","status":200,"duration_ms":1.5,"client_ip":"{client}","config_hash":"0","flow":{{"decision":"passed","wait_ms":0.0}}}}"#
                )
            }),
        ),
        (
            "envoy json",
            lines(&|time, client| {
                format!(
                    r#"{{"start_time":"2026-11-21T05:00:{time}Z","method":"GET","path":"/","response_code":200,"duration":5,"x_forwarded_for":"{client}"}}"#
                )
            }),
        ),
        (
            "traefik json",
            lines(&|time, client| {
                format!(
                    r#"{{"ClientHost":"{client}","DownstreamStatus":200,"Duration":5,"RequestMethod":"GET","RequestPath":"/","StartUTC":"2026-11-21T05:00:{time}Z","time":"2026-11-21T05:00:{time}Z"}}"#
                )
            }),
        ),
        (
            "caddy",
            lines(&|time, client| {
                format!(
                    r#"{{"level":"info","ts":17952372{time}.5,"logger":"http.log.access","msg":"handled request","request":{{"remote_ip":"{client}","method":"GET","host":"h","uri":"/"}},"duration":0.5,"status":200}}"#
                )
            }),
        ),
    ]
}

/// Returns what another program makes of a line.
type Wrapping = fn(&str) -> String;

/// What other programs make of a line.
fn wrappings() -> Vec<(&'static str, Wrapping)> {
    fn json(line: &str) -> String {
        serde_json::to_string(line).expect("it is text")
    }
    vec![
        ("nothing", str::to_owned),
        ("a carriage return", |line| format!("{line}\r")),
        ("syslog of RFC 3164", |line| format!("<190>Nov  1 05:00:07 web1 nginx: {line}")),
        ("a file of syslog", |line| format!("Nov 21 05:00:07 web1 docker/web.1[12]: {line}")),
        ("syslog without host", |line| format!("<190>Nov 21 05:00:07 nginx: {line}")),
        ("syslog of RFC 5424", |line| {
            format!("<190>1 2026-11-21T05:00:07.123Z web1 nginx 12 - [a@1 b=\"c \\\" ]\"] {line}")
        }),
        ("journalctl -o short-precise", |line| {
            format!("Nov 21 05:00:07.123456 web1 nginx[12]: {line}")
        }),
        ("journalctl -o short-iso", |line| {
            format!("2026-11-21T06:00:07+0100 web1 nginx[12]: {line}")
        }),
        ("journalctl -o json", |line| {
            format!(r#"{{"__CURSOR":"s=1","_HOSTNAME":"web1","MESSAGE":{}}}"#, json(line))
        }),
        ("CRI", |line| format!("2026-11-21T05:00:07.123456789Z stdout F {line}")),
        ("Docker", |line| {
            let text = json(&format!("{line}\n"));
            format!(r#"{{"log":{text},"stream":"stdout","time":"2026-11-21T05:00:07.1Z"}}"#)
        }),
        ("Docker Compose", |line| format!("web-1      | {line}")),
        ("Docker Compose in colours", |line| {
            format!("\u{1b}[36mweb-1  | \u{1b}[0m2026-11-21T05:00:07.1Z {line}")
        }),
        ("kubectl logs --prefix", |line| format!("[pod/web-5d/nginx] {line}")),
    ]
}

fn words(out: &str) -> Vec<String> {
    let lines = out.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    lines.map(|line| line["decision"].as_str().unwrap_or("none").to_owned()).collect()
}

#[test]
fn each_format_is_read_within_each_wrapping() {
    for (format, lines) in [text_formats(), json_formats()].concat() {
        for (wrapping, wrap) in wrappings() {
            let log = lines.iter().map(|line| wrap(line) + "\n").collect::<String>();
            let (out, said) = replayed(&per_client(), &log, |options| options.strict = true)
                .unwrap_or_else(|error| panic!("{format} in {wrapping}: {error}\n{log}"));
            let expected = ["passed", "passed", "rejected"];
            assert_eq!(words(&out), expected, "{format} in {wrapping}: {said}\n{log}");
        }
    }
}

#[test]
fn lines_of_containers_that_come_in_parts_are_joined() {
    let long = COMBINED[1].replace("/b", &format!("/{}", "b".repeat(40_000)));
    let (first, rest) = long.split_at(16 * 1024);
    let (second, third) = rest.split_at(16 * 1024);
    let cri = |tag: &str, text: &str| format!("2026-11-21T05:00:07.1Z stdout {tag} {text}\n");
    let docker = |text: &str| {
        let text = serde_json::to_string(text).unwrap();
        format!("{{\"log\":{text},\"stream\":\"stdout\",\"time\":\"2026-11-21T05:00:07.1Z\"}}\n")
    };
    let of_cri = cri("F", COMBINED[0])
        + &cri("P", first)
        + &cri("P", second)
        + "2026-11-21T05:00:07.1Z stderr F an error between\n"
        + &cri("F", third)
        + &cri("F", COMBINED[2]);
    let of_docker = docker(&format!("{}\n", COMBINED[0]))
        + &docker(first)
        + &docker(second)
        + &docker(&format!("{third}\n"))
        + &docker(&format!("{}\n", COMBINED[2]));

    for (log, bad) in [(of_cri, "1 of 4 lines was skipped"), (of_docker, "")] {
        let (out, said) = replayed(&per_client(), log, |_| {}).unwrap();
        assert_eq!(words(&out), ["passed", "passed", "rejected"], "{said}");
        assert!(said.contains(bad) && said.contains("skipped") != bad.is_empty(), "{said}");
    }

    // The last part is missing.
    let partial = cri("F", COMBINED[0]) + &cri("P", "192.0.2.1 - - [21/Nov");
    let (out, said) = replayed(&per_client(), partial, |_| {}).unwrap();
    assert_eq!(words(&out), ["passed"]);
    assert!(said.contains("1 of 2 lines was skipped"), "{said}");
}

#[test]
fn a_mixed_log_is_read_and_what_is_no_request_is_counted_and_shown() {
    let log = [
        "-- Journal begins at Sat 2026-11-21 05:00:00 UTC. --",
        "Nov 21 05:00:00 web1 systemd[1]: Started nginx.",
        "Nov 21 05:00:06 web1 nginx[12]: 2026/11/21 05:00:06 [notice] 12#12: start worker processes",
        &format!("Nov 21 05:00:07 web1 nginx[12]: {}", COMBINED[0]),
        "Nov 21 05:00:07 web1 sshd[99]: Accepted publickey for ann",
        COMBINED[1],
        &format!("Nov 21 05:00:09 web1 nginx[12]: {}", COMBINED[2]),
        "Nov 21 05:00:09 web1 nginx[12]: 192.0.2.1 - - [21/Nov/2026:05:00:09 +0000] \"GET /d HT",
    ];
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(log.join("\r\n").as_bytes()).unwrap();
    for log in [log.join("\n").into_bytes(), packed.finish().unwrap()] {
        let (out, said) = replayed(&per_client(), &log, |_| {}).unwrap();
        assert_eq!(words(&out), ["passed", "passed", "rejected"], "{said}");
        assert!(said.contains("4 of 7 lines were skipped, because flowgate cannot"), "{said}");
        assert!(said.contains(":2: no time in brackets"), "{said}");
        let strict = replayed(&per_client(), &log, |options| options.strict = true);
        assert!(matches!(strict, Err(ReplayError::BadLines(4))), "{strict:?}");
    }
}

#[test]
fn a_prefix_that_is_not_known_does_not_make_all_clients_one() {
    let lines: Vec<_> = COMBINED.iter().map(|line| format!("pod-1 nginx {line}\n")).collect();
    let log = lines.concat();
    let error = replayed(&per_client(), log, |_| {}).unwrap_err().to_string();
    assert!(error.contains("is unknown") && error.contains("pod-1 nginx 192.0.2.1"), "{error}");
    let log = format!("{}\npod-1 nginx {}\n", COMBINED[0], COMBINED[1]);
    let (out, said) = replayed(&per_client(), log, |_| {}).unwrap();
    assert_eq!(words(&out), ["passed"]);
    let reason = ":2: a prefix of an unknown kind precedes the client: pod-1 nginx 2001:db8::7 - -";
    assert!(said.contains(reason), "{said}");
}

#[test]
fn formats_have_the_names_of_their_programs() {
    for format in [Format::Nginx, Format::Apache, Format::Common, Format::Combined] {
        let (out, _) = replayed(&per_client(), COMBINED.join("\n"), |options| {
            options.traffic.format = Some(format);
        })
        .unwrap();
        assert_eq!(words(&out), ["passed", "passed", "rejected"]);
    }
    let wrong = replayed(&per_client(), COMBINED.join("\n"), |options| {
        options.traffic.format = Some(Format::Caddy);
    });
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("can be read as `--format caddy`"), "{error}");
    assert!(error.contains("It looks like `--format combined`"), "{error}");
}

#[test]
fn an_unknown_format_is_shown_named_and_the_known_ones_are_listed() {
    for (line, name) in [
        (
            "2026/11/21 05:00:07 [error] 31#31: *1 open() \"/a\" failed, client: 192.0.2.1, request: \"GET /a HTTP/1.1\"",
            "nginx's error log",
        ),
        (
            "[21/Nov/2026:05:00:07 +0000] 192.0.2.1 TLSv1.3 TLS_AES_256_GCM_SHA384 \"GET / HTTP/1.1\" 1375",
            "ssl_request_log",
        ),
        (
            "[21/Nov/2026:05:00:07 +0000] 192.0.2.1 TLSv1.3 TLS_AES_256_GCM_SHA384 \"GET / HTTP/1.1\" 375",
            "ssl_request_log",
        ),
        (
            "h2 2018-07-02T22:23:00.186641Z app/lb/50dc6c 10.0.1.252:48160 10.0.0.66:9000 0.0 0.0 0.0 200 200 5 257 \"GET https://a:773/ HTTP/2.0\"",
            "ALB",
        ),
        ("#Software: Microsoft Internet Information Services 10.0", "IIS"),
        (
            "{\"time\":\"2026-11-21T05:00:07Z\",\"remote_addr\":\"192.0.2.1\",\"uri\":\"/\"}",
            "`remote_addr`",
        ),
        ("hello world", "Known formats"),
    ] {
        let error = replayed(&per_client(), format!("{line}\n"), |_| {}).unwrap_err().to_string();
        assert!(error.contains("is unknown") && error.contains(name), "{error}");
        assert!(error.contains(&line[..line.len().min(100)]), "{error}");
        let known = "flowgate, nginx, apache, common, combined, nginx-proxy-manager, caddy, envoy, traefik, events";
        assert!(error.contains(known), "{error}");
    }
}

#[test]
fn other_json_is_no_log_of_envoy_or_caddy() {
    let log = "{\"time\":\"2026-11-21T05:00:07Z\",\"msg\":\"hello\"}\n".repeat(3);
    for format in [Format::Envoy, Format::Caddy, Format::Traefik, Format::Flowgate] {
        let named = replayed(&per_client(), log.as_str(), |options| {
            options.traffic.format = Some(format);
        });
        let error = named.unwrap_err().to_string();
        assert!(error.contains("no line of "), "{format:?}: {error}");
    }
}

#[test]
fn a_log_without_any_request_fails_if_strict() {
    let log = "192.0.2.1 - - [21/Nov/2026:05:00:07 +0000] \"-\" 408 0\n";
    let (out, said) = replayed(&per_client(), log, |_| {}).unwrap();
    assert_eq!(out, "");
    assert!(said.contains("nothing was replayed"), "{said}");
    let strict = replayed(&per_client(), log, |options| options.strict = true).unwrap_err();
    assert!(matches!(strict, ReplayError::NoRequest(1)), "{strict:?}");
    assert_eq!(strict.to_string(), "there is no request in 1 line");
}

#[test]
fn a_breaker_alone_is_a_rule_and_a_denied_client_is_no_reason_to_deny_it() {
    let said = |rest: &str| {
        let config = one_route(rest);
        replayed(&config, COMBINED.join("\n"), |options| options.output = Output::Report).unwrap().0
    };
    for rule in [
        "    breaker: { errors: 9, window: 10s, open_for: 1s }",
        "    pacing: { rate: 9/1s, max_wait: 1s }",
    ] {
        assert!(!said(rule).contains("no rule decided"), "{rule}");
    }
    let denied =
        said("    access: { deny: [0.0.0.0/0, '::/0'] }\n    flow: [{ name: r, limit: 9/1s }]");
    assert!(!denied.contains("no rule decided"), "{denied}");
    assert!(denied.contains("note: no request reached a rule: "), "{denied}");
    assert!(said("").contains("have no `flow`, `pacing` or `breaker`"));
}
