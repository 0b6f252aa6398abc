//! What an operator uses: the demo, the admin listener, the access log, the
//! command line, the examples.

use crate::{
    common::{
        Gateway, curl, eventually, field,
        http::{self, Client, head},
        metrics, upstream, yaml,
    },
    port::free_port,
};
use std::{
    fs,
    io::{BufRead, BufReader, Read},
    net::{Ipv4Addr, SocketAddr},
    process::{Command, Stdio},
    time::Instant,
};

const ALL: &str = "  - { name: all, match: { path_prefix: / }, upstream: up, flow: [{ name: r, limit: 3/1h, burst: 3 }] }";

#[test]
fn the_demo_runs_with_one_command_and_throttles() {
    let ports = [(); 4].map(|()| free_port());
    // The committed file, on ports that are free here.
    let committed = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/gateway.yaml"))
        .expect("committed");
    let mut text = committed.clone();
    for (ours, port) in ["8080", "8443", "9901", "9000"].iter().zip(&ports) {
        text = text.replace(&format!("127.0.0.1:{ours}"), &format!("127.0.0.1:{port}"));
    }
    // So that no request waits long enough to pass again, however slow the machine is.
    let text = text.replace("limit: 5/1s", "limit: 5/1h");
    let dir = tempfile::tempdir().expect("a temporary directory");
    // The demo keeps a copy that is there already.
    let folder = dir.path().join("flowgate-demo");
    fs::create_dir(&folder).expect("created");
    fs::write(folder.join("gateway.yaml"), &text).expect("written");
    let mut demo = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["demo", "--upstream", &format!("127.0.0.1:{}", ports[3])])
        .current_dir(dir.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let printed = BufReader::new(demo.stdout.take().expect("piped")).lines().next();
    let mut log = BufReader::new(demo.stderr.take().expect("piped")).lines();
    while !log.next().expect("it gets ready").expect("text").contains("ready") {}
    std::thread::spawn(move || log.for_each(drop));
    let url = format!("http://127.0.0.1:{}/limited", ports[0]);
    let codes: Vec<String> =
        (0..30).map(|_| curl(&["-o", "/dev/null", "-w", "%{http_code}", &url])).collect();
    let count = |status: &str| codes.iter().filter(|code| *code == status).count();
    let passed = count("200");
    let rejected = count("429");
    let echoed = curl(&[&format!("http://127.0.0.1:{}/anything?x=1", ports[0])]);
    // The admin listener is on.
    let admin = format!("http://127.0.0.1:{}", ports[2]);
    let pages = ["/readyz", "/routes", "/dashboard"].map(|page| curl(&[&format!("{admin}{page}")]));
    drop(demo.kill());
    drop(demo.wait());
    assert_eq!(pages[0], "ready\n");
    assert!(pages[1].contains("five-a-second"), "{}", pages[1]);
    assert!(pages[2].contains("<title>flowgate</title>"), "{}", pages[2]);
    assert!(printed.expect("it says what to try").is_ok_and(|line| !line.is_empty()));
    assert_eq!((passed, rejected), (5, 25), "{codes:?}");
    let echoed: serde_json::Value = serde_json::from_str(&echoed).expect("JSON");
    assert_eq!(echoed["method"], "GET");
}

#[test]
fn the_admin_listener_shows_health_routes_and_metrics() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let admin = gateway.address("admin");
    for _ in 0..5 {
        http::get(gateway.web(), "/");
    }
    assert_eq!(http::ask(admin, "/healthz").status, 200);
    assert_eq!(http::ask(admin, "/readyz").status, 200);
    assert_eq!(http::ask(admin, "/nonsense").status, 404);
    let routes = http::ask(admin, "/routes").text();
    assert!(routes.contains("\"all\"") && routes.contains("\"r\""), "{routes}");
    let decisions = metrics(&gateway, "flowgate_flow_decisions_total");
    let of = |decision: &str| {
        decisions
            .iter()
            .find(|(key, _)| key.contains("rule=\"r\"") && key.contains(decision))
            .map(|(_, &n)| n)
    };
    assert_eq!((of("\"passed\""), of("\"rejected\"")), (Some(3.0), Some(2.0)), "{decisions:?}");
    let requests = metrics(&gateway, "flowgate_http_requests_total");
    assert!(
        requests.iter().any(|(key, &n)| key.contains("code=\"429\"")
            && key.contains("method=\"GET\"")
            && n == 2.0),
        "{requests:?}"
    );
    let served = metrics(&gateway, "flowgate_http_request_duration_seconds_count");
    assert_eq!(served.values().sum::<f64>(), 5.0);
    assert!(!metrics(&gateway, "flowgate_config_info").is_empty());
}

#[test]
fn a_client_key_is_never_a_metric_label() {
    let upstream = upstream::echo();
    let keyed = ALL.replace("burst: 3", "burst: 3, key: \"header:x-secret\"");
    let gateway = Gateway::start(&yaml(upstream.address, &keyed));
    Client::new(gateway.web()).request("GET", "/", &[("X-Secret", "hunter2")]);
    let page = http::ask(gateway.address("admin"), "/metrics").text();
    assert!(!page.contains("hunter2"));
}

#[test]
fn the_access_log_has_a_line_a_request_and_is_reopened() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&format!(
        "access_log: access.log\n{}",
        yaml(upstream.address, ALL).replace("workers: 2", "workers: 1")
    ));
    let path = gateway.dir.path().join("access.log");
    for _ in 0..4 {
        http::get(gateway.web(), "/some/path?q=1");
    }
    let lines = |path: &std::path::Path| -> Vec<serde_json::Value> {
        fs::read_to_string(path)
            .unwrap_or_default()
            .lines()
            .map(|line| serde_json::from_str(line).expect("one JSON object a line"))
            .collect()
    };
    let logged = eventually("four lines", || Some(lines(&path)).filter(|lines| lines.len() == 4));
    assert_eq!(logged[0]["status"], 200);
    assert_eq!(logged[0]["method"], "GET");
    assert_eq!(logged[0]["route"], "all");
    assert_eq!(logged[0]["client_ip"], "127.0.0.1");
    assert!(logged[0]["path"].as_str().is_some_and(|path| path.starts_with("/some/path")));
    assert!(logged[0]["duration_ms"].is_number() && logged[0]["bytes_out"].is_number());
    assert_eq!(logged[0]["flow"]["decision"], "passed");
    assert_eq!(logged[3]["status"], 429);
    assert_eq!(logged[3]["flow"]["decision"], "rejected");
    assert_eq!(logged[3]["flow"]["reason"], "rate");
    assert_eq!(logged[3]["flow"]["rule"], "r");
    assert!(logged[3]["flow"]["retry_after_ms"].is_number());
    let aside = gateway.dir.path().join("access.log.1");
    fs::rename(&path, &aside).expect("renamed");
    gateway.signal("USR1");
    // The file is there before it is written to.
    gateway.wait_log("access log reopened");
    http::get(gateway.web(), "/later");
    eventually("the line is in the new file", || (lines(&path).len() == 1).then_some(()));
    assert_eq!(lines(&aside).len(), 4);
}

#[test]
fn the_access_log_has_the_header_fields_that_the_file_names() {
    let upstream = upstream::echo();
    let text = |names: &str| {
        format!(
            "access_log: access.log\naccess_log_headers: {names}\n{}",
            yaml(upstream.address, ALL)
        )
        .replace("limit: 3/1h, burst: 3", "limit: 9/1h")
    };
    let gateway = Gateway::start(&text("[User-Agent, referer, user-agent]"));
    let mut client = Client::new(gateway.web());
    let agent = |name| [("user-agent", name), ("x-other", "no")];
    client.request(
        "GET",
        "/both",
        &[&agent("a \"b\"")[..], &[("Referer", "https://c.example/?d")]].concat(),
    );
    client.request("GET", "/twice", &[agent("e"), agent("f")].concat());
    client.send("GET /old HTTP/1.0\r\nHost: a\r\nUser-Agent:\r\n\r\n");
    client.read("GET");
    let url = format!("http://{}/h2", gateway.web());
    curl(&["--http2-prior-knowledge", "-A", "curl/8", &url]);
    let line = gateway.edit(&text("x-other"));
    assert!(line.contains("access_log_headers"), "{line}");
    Client::new(gateway.web()).request("GET", "/edited", &agent("g"));
    let log = eventually("five lines", || {
        let log = fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        (log.lines().count() == 5 && log.ends_with('\n')).then_some(log)
    });
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let of = |path: &str| lines.iter().find(|line| line["path"] == path).expect("a line");
    for (path, protocol, headers) in [
        ("/both", "HTTP/1.1", r#"{"user-agent":"a \"b\"","referer":"https://c.example/?d"}"#),
        ("/twice", "HTTP/1.1", r#"{"user-agent":"e, f"}"#),
        ("/old", "HTTP/1.0", r#"{"user-agent":""}"#),
        ("/h2", "HTTP/2", r#"{"user-agent":"curl/8"}"#),
        ("/edited", "HTTP/1.1", r#"{"x-other":"no"}"#),
    ] {
        let line = of(path);
        assert_eq!(
            (line["protocol"].as_str(), line["listener"].as_str()),
            (Some(protocol), Some("web"))
        );
        assert_eq!(line["headers"].to_string(), headers, "{path}");
    }
}

#[test]
fn the_access_log_says_which_server_was_asked_where_none_answered() {
    let silent = upstream::Script::start(|_, mut connection| while connection.read().is_some() {});
    let dead = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let gateway = Gateway::start(&format!(
        "access_log: access.log\n{}  - {{ name: dead, match: {{ path: /dead }}, upstream: dead }}\n",
        yaml(
            silent.address,
            "  - { name: slow, match: { path: /slow }, upstream: up, timeouts: { first_byte: 200ms } }\n  \
             - { name: held, match: { path: /held }, upstream: up }",
        )
        .replace("workers: 2", "workers: 1")
        .replace("routes:", &format!("  - {{ name: dead, servers: [{{ url: \"http://{dead}\" }}] }}\nroutes:"))
    ));
    let mut client = Client::new(gateway.web());
    for (path, status) in [("/dead", 502), ("/slow", 504), ("/none", 404)] {
        client.send(format!("GET {path} HTTP/1.1\r\nHost: A.Example:8080\r\n\r\n"));
        assert_eq!(client.read("GET").status, status, "{path}");
    }
    client.send("GET /held HTTP/1.1\r\nHost: a.example\r\n\r\n");
    eventually("it is sent", || {
        let requests = metrics(&gateway, "flowgate_upstream_requests_total");
        (requests.values().sum::<f64>() == 3.0).then_some(())
    });
    drop(client);
    let log = eventually("four lines", || {
        let log = fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        (log.lines().count() == 4 && log.ends_with('\n')).then_some(log)
    });
    let lines: Vec<serde_json::Value> =
        log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let dead = dead.to_string();
    let silent = silent.address.to_string();
    let asked = [(502, Some(&dead)), (504, Some(&silent)), (404, None), (499, Some(&silent))];
    for (line, (status, server)) in lines.iter().zip(asked) {
        assert_eq!(line["status"], status, "{line}");
        assert_eq!(line["host"], "a.example", "{line}");
        assert_eq!(line["upstream"].as_str(), server.map(String::as_str), "{line}");
        assert_eq!(line["attempts"], u32::from(server.is_some()), "{line}");
        assert_eq!(line["upstream_ms"].is_number(), [502, 504].contains(&status), "{line}");
    }
}

#[test]
fn the_access_log_says_which_client_was_rejected_and_which_left() {
    let upstream = upstream::Script::start(|_, mut connection| {
        connection.read_head();
        connection.write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\no");
        let mut rest = Vec::new();
        connection.stream.read_to_end(&mut rest).ok();
    });
    let gateway = Gateway::start(&format!(
        "access_log: access.log\ntrusted_proxies: [127.0.0.0/8]\n{}",
        yaml(
            upstream.address,
            "  - { name: small, match: { path: /small }, upstream: up, body_limit: 4B }\n  \
             - { name: all, match: { path_prefix: / }, upstream: up }",
        )
        .replace("workers: 2", "workers: 1")
    ));
    let fields = [("X-Forwarded-For", "198.51.100.7"), ("Content-Length", "9")];
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/small", &fields));
    assert_eq!(client.read("POST").status, 413);
    let mut client = Client::new(gateway.web());
    client.send(head("POST", "/", &fields) + "begun");
    client.read_head();
    drop(client);
    let log = eventually("two lines", || {
        let log = fs::read_to_string(gateway.dir.path().join("access.log")).ok()?;
        (log.lines().count() == 2 && log.ends_with('\n')).then_some(log)
    });
    let expected = [(413, "completed"), (200, "cancelled")];
    for (line, (status, outcome)) in log.lines().zip(expected) {
        let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(
            (&line["status"], &line["outcome"]),
            (&status.into(), &outcome.into()),
            "{line}"
        );
        assert_eq!(line["client_ip"], "198.51.100.7", "{line}");
    }
}

#[test]
fn check_prints_the_order_of_routes_and_what_rules_promise() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("gateway.yaml");
    let text = yaml(
        "127.0.0.1:9".parse().expect("an address"),
        &format!("{ALL}\n  - {{ name: exact, match: {{ path: /x }}, upstream: up }}"),
    );
    fs::write(&config, text).expect("written");
    for arguments in [vec!["check", "-c"], vec!["-t", "-c"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args(&arguments)
            .arg(&config)
            .output()
            .expect("it runs");
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{printed}");
        let exact = printed.find("exact").expect("listed");
        let all = printed.find("all").expect("listed");
        assert!(exact < all, "the more specific route comes first:\n{printed}");
        assert!(printed.contains('r') && printed.contains('3'), "{printed}");
    }
}

#[test]
fn the_upstream_runs_alone() {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let mut child = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["demo", "--upstream-only", "--upstream", &address.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    eventually("it listens", || std::net::TcpStream::connect(address).ok());
    let begun = Instant::now();
    assert_eq!(http::get(address, "/delay/300").status, 200);
    let took = begun.elapsed();
    let bytes = http::get(address, "/bytes/1000000");
    let status = http::get(address, "/status/503").status;
    drop(child.kill());
    drop(child.wait());
    assert!(took.as_millis() >= 300);
    assert_eq!(bytes.body.len(), 1_000_000);
    assert_eq!(status, 503);
}

#[test]
fn the_log_names_every_listener() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let line = gateway.wait_log("listener=web ");
    assert_eq!(field(&line, "address"), gateway.web().to_string());
}

#[test]
fn memory_comes_in_small_pages() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ALL));
    let status = fs::read_to_string(format!("/proc/{}/status", gateway.pid())).expect("it runs");
    let huge = status.lines().find_map(|line| line.strip_prefix("THP_enabled:"));
    assert_eq!(huge.expect("Linux shows it since 5.0").trim(), "0");
}
