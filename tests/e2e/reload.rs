//! Rules edited while the gateway runs, in every way that people edit files.

use crate::{
    common::{
        Gateway, eventually,
        http::{self, Client, head},
        pause, replace,
        upstream::{self, Script},
        yaml, yaml_at,
    },
    port::free_port,
};
use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::symlink,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
};

/// A route that says which version of the file it is from, with a limit.
fn version(name: &str, limit: u32) -> String {
    format!(
        "  - name: all\n    match: {{ path_prefix: / }}\n    upstream: up\n    \
         response_headers: {{ set: {{ X-Version: {name} }} }}\n    \
         flow: [{{ name: r, algorithm: fixed_window, limit: {limit}/1h, align: first_request }}]\n"
    )
}

#[track_caller]
fn wait_version(gateway: &Gateway, name: &str) {
    eventually(&format!("version {name} in force"), || {
        (http::get(gateway.web(), "/").header("x-version") == Some(name)).then_some(())
    });
}

fn shell(gateway: &Gateway, script: &str) {
    let status = Command::new("sh")
        .args(["-ec", script])
        .current_dir(gateway.dir.path())
        .status()
        .expect("sh runs");
    assert!(status.success(), "{script}");
}

#[test]
fn an_edit_is_in_force_on_the_next_request_and_in_one_log_line() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &version("one", 3)));
    assert_eq!(http::statuses(gateway.web(), "/", 5), [200, 200, 200, 429, 429]);
    let seen = gateway.log_len();
    let line = gateway.edit(&yaml(upstream.address, &version("two", 5)));
    assert!(line.contains("reloaded v2: route all (r 3/1h → 5/1h, response_headers); "), "{line}");
    assert!(line.contains("converted 1"), "{line}");
    assert_eq!(
        http::statuses(gateway.web(), "/", 5),
        [200, 200, 429, 429, 429],
        "what was used stays used"
    );
    assert_eq!(gateway.log_len(), seen + 1, "{}", gateway.log());
}

#[test]
fn a_reload_is_logged_in_fields_for_programs() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = yaml(upstream.address, &version("one", 3));
    let gateway = Gateway::start_in(dir, &text, &["--log-format", "json"]);
    let line = gateway.edit(&yaml(upstream.address, &version("one", 5)));
    let line: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let fields = &line["fields"];
    let expected = "reloaded v2: route all (r 3/1h → 5/1h); kept 0, converted 1, reset 0";
    assert_eq!(fields["message"], expected, "{line}");
    assert_eq!(fields["changes"], "route all (r 3/1h → 5/1h)");
    let numbers = ["version", "more", "kept", "converted", "reset"].map(|key| fields[key].as_u64());
    assert_eq!(numbers, [2, 0, 0, 1, 0].map(Some), "{line}");
}

#[test]
fn an_unchanged_rule_keeps_its_state_over_an_edit_elsewhere() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &version("one", 3)));
    http::statuses(gateway.web(), "/", 2);
    let line = gateway.edit(&yaml(upstream.address, &version("two", 3)));
    assert!(line.contains("kept 1"), "{line}");
    assert_eq!(http::statuses(gateway.web(), "/", 3), [200, 429, 429]);
}

#[test]
fn every_way_of_editing_is_noticed() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &version("first", 100_000)));
    let text = |name: &str| yaml(upstream.address, &version(name, 100_000));
    let path = gateway.config.clone();

    fs::write(&path, text("written")).expect("written");
    wait_version(&gateway, "written");
    shell(&gateway, "sed -i 's/X-Version: written/X-Version: sed/' gateway.yaml");
    wait_version(&gateway, "sed");
    // Twice: whoever watches the file itself is deaf after the first.
    shell(&gateway, "sed -i 's/X-Version: sed/X-Version: again/' gateway.yaml");
    wait_version(&gateway, "again");
    replace(&path, &text("moved"));
    wait_version(&gateway, "moved");
    // As vim does it: the old file away, a new one in its place, the old one gone.
    shell(
        &gateway,
        "mv gateway.yaml gateway.yaml~; sed 's/moved/vim/' gateway.yaml~ > gateway.yaml; rm gateway.yaml~",
    );
    wait_version(&gateway, "vim");
    fs::remove_file(&path).expect("removed");
    gateway.wait_log("gateway.yaml");
    assert_eq!(
        http::get(gateway.web(), "/").header("x-version"),
        Some("vim"),
        "a deleted file changes nothing"
    );
    fs::write(&path, text("back")).expect("written");
    wait_version(&gateway, "back");
    shell(&gateway, ": > gateway.yaml; sleep 0.3");
    assert_eq!(
        http::get(gateway.web(), "/").header("x-version"),
        Some("back"),
        "an empty file changes nothing"
    );
    fs::write(&path, text("full")).expect("written");
    wait_version(&gateway, "full");
}

#[test]
fn a_config_map_that_is_swapped_is_noticed() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let fill = |folder: &str, name: &str| {
        fs::create_dir(dir.path().join(folder)).expect("made");
        let text = yaml(upstream.address, &version(name, 100_000));
        fs::write(dir.path().join(folder).join("gateway.yaml"), text).expect("written");
    };
    fill("..1", "one");
    symlink("..1", dir.path().join("..data")).expect("linked");
    symlink("..data/gateway.yaml", dir.path().join("gateway.yaml")).expect("linked");
    let config = dir.path().join("gateway.yaml");
    let gateway = Gateway::spawn(dir, config, &[]);
    gateway.wait_log("ready");
    wait_version(&gateway, "one");
    for (folder, name) in [("..2", "two"), ("..3", "three")] {
        let dir = gateway.dir.path();
        fs::create_dir(dir.join(folder)).expect("made");
        let text = yaml(upstream.address, &version(name, 100_000));
        fs::write(dir.join(folder).join("gateway.yaml"), text).expect("written");
        symlink(folder, dir.join("..data_tmp")).expect("linked");
        fs::rename(dir.join("..data_tmp"), dir.join("..data")).expect("swapped");
        wait_version(&gateway, name);
    }
}

#[test]
fn an_edit_behind_a_symlink_is_noticed() {
    let upstream = upstream::echo();
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let target = elsewhere.path().join("real.yaml");
    let text = |name: &str| yaml(upstream.address, &version(name, 100_000));
    fs::write(&target, text("one")).expect("written");
    let dir = tempfile::tempdir().expect("a temporary directory");
    let config = dir.path().join("gateway.yaml");
    symlink(&target, &config).expect("linked");
    let gateway = Gateway::spawn(dir, config, &[]);
    gateway.wait_log("ready");
    replace(&target, &text("two"));
    wait_version(&gateway, "two");
}

#[test]
fn a_hangup_reloads_and_an_unchanged_file_is_no_news() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &version("one", 100_000)));
    let seen = gateway.log_len();
    gateway.signal("HUP");
    gateway.wait_log_after(seen, "unchanged");
}

#[test]
fn a_broken_file_is_reported_whole_and_the_old_rules_stay() {
    let upstream = upstream::echo();
    let good = yaml(upstream.address, &version("good", 100_000));
    let gateway = Gateway::start(&good);
    let broken =
        good.replace("upstream: up", "upstream: upp").replace("limit: 100000/1h", "limt: 0/1h")
            + "  - { name: all, match: { path: /x }, upstream: up }\n";
    replace(&gateway.config, &broken);
    for part in ["gateway.yaml:", "upp", "limt", "^", "limit"] {
        gateway.wait_log(part);
    }
    assert_eq!(http::get(gateway.web(), "/").header("x-version"), Some("good"));
    let check = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["check", "-c"])
        .arg(&gateway.config)
        .env("NO_COLOR", "1")
        .output()
        .expect("it runs");
    assert_eq!(check.status.code(), Some(1));
    let printed = String::from_utf8_lossy(&check.stderr).into_owned();
    for line in printed.lines().filter(|line| line.starts_with("error") || line.contains("-->")) {
        gateway.wait_log(line);
    }
    let metrics = crate::common::metrics(&gateway, "flowgate_config_reloads_total");
    assert!(metrics.iter().any(|(key, &n)| !key.contains("ok") && n >= 1.0), "{metrics:?}");
    assert_eq!(http::ask(gateway.address("admin"), "/readyz").status, 200);
    assert!(http::ask(gateway.address("admin"), "/readyz?verbose").text().contains("limt"));
    gateway.edit(&yaml(upstream.address, &version("better", 100_000)));
    wait_version(&gateway, "better");
}

#[test]
fn the_beginning_of_the_file_in_force_is_rejected_until_it_is_confirmed() {
    let upstream = upstream::echo();
    let part = yaml(upstream.address, &version("one", 100_000)).trim_end().to_owned() + "\n";
    let login = "  - { name: login, match: { path: /login }, upstream: up, \
                 flow: [{ name: r, algorithm: fixed_window, limit: 1/1h }] }\n";
    let whole = format!("{part}{login}");
    let confirm: [&dyn Fn(&Gateway); 3] = [
        &|gateway| gateway.signal("HUP"),
        &|gateway| {
            drop(Client::new(gateway.address("admin")).request(
                "POST",
                "/reload",
                &[("host", "localhost")],
            ));
        },
        &|gateway| fs::write(&gateway.config, format!("{part}end: true\n")).expect("written"),
    ];
    for confirm in confirm {
        let gateway = Gateway::start(&whole);
        assert_eq!(http::statuses(gateway.web(), "/login", 2), [200, 429]);
        fs::write(&gateway.config, &part).expect("written");
        gateway.wait_log("the file looks cut short: it is the beginning of the file in force");
        assert_eq!(http::statuses(gateway.web(), "/login", 1), [429], "the limit stays");
        confirm(&gateway);
        gateway.wait_log("reloaded v2");
        assert_eq!(http::statuses(gateway.web(), "/login", 2), [200, 200]);
    }
}

#[test]
fn a_writer_that_takes_seconds_is_waited_for() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &version("one", 100_000)));
    // Both halves are whole configurations, and neither is a part of the file in force.
    let begin = yaml(upstream.address, &version("half", 100_000)).trim_end().to_owned() + "\n";
    let mut writer = fs::File::create(&gateway.config).expect("opened");
    writer.write_all(begin.as_bytes()).expect("written");
    let start = std::time::Instant::now();
    // Longer than it takes until the gateway looks by itself.
    while start.elapsed() < std::time::Duration::from_secs(6) {
        let answer = http::get(gateway.web(), "/");
        assert_eq!(answer.header("x-version"), Some("one"), "the writer is not done");
        pause();
    }
    let rest = "  - { name: more, match: { path: /more }, upstream: up }\n";
    writer.write_all(rest.as_bytes()).expect("written");
    drop(writer);
    gateway.wait_log("reloaded");
    assert_eq!(http::get(gateway.web(), "/").header("x-version"), Some("half"));
    assert_eq!(gateway.log().matches("reloaded").count(), 1, "{}", gateway.log());
}

#[test]
fn hostile_files_change_nothing() {
    let upstream = upstream::echo();
    let good = yaml(upstream.address, &version("good", 100_000));
    let gateway = Gateway::start(&good);
    let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
    for i in 1..10 {
        let before = i - 1;
        bomb += &format!("a{i}: &a{i} [{}]\n", vec![format!("*a{before}"); 10].join(", "));
    }
    let deep = "[".repeat(100_000);
    let half = &good[..good.len() - 30];
    let files: [&[u8]; 8] = [
        b"",
        b"# nothing but a comment\n",
        b"\xff\xfe\x00broken",
        b"just words",
        b"- a\n- list\n",
        bomb.as_bytes(),
        deep.as_bytes(),
        half.as_bytes(),
    ];
    for bytes in files {
        let seen = gateway.log_len();
        fs::write(&gateway.config, bytes).expect("written");
        gateway.wait_log_after(seen, "error");
        assert_eq!(http::get(gateway.web(), "/").header("x-version"), Some("good"));
    }
    replace(&gateway.config, &yaml(upstream.address, &version("after", 100_000)));
    wait_version(&gateway, "after");
}

#[test]
fn connections_and_requests_in_flight_do_not_notice() {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Script::start(move |_, mut connection| {
        while let Some(request) = connection.read() {
            if request.path() == "/slow" {
                wait.lock()
                    .expect("no panic")
                    .recv_timeout(crate::common::PATIENCE)
                    .expect("the test goes on");
            }
            connection.write(upstream::ok("done"));
        }
    });
    let gateway = Gateway::start(&yaml(upstream.address, &version("one", 100_000)));
    let mut kept = Client::new(gateway.web());
    assert_eq!(kept.get("/").status, 200);
    let mut slow = Client::new(gateway.web());
    slow.send(head("GET", "/slow", &[]));
    gateway.edit(&yaml(upstream.address, &version("two", 100_000)));
    assert_eq!(
        kept.get("/").header("x-version"),
        Some("two"),
        "the same connection, the new rules"
    );
    go.send(()).expect("the upstream waits");
    assert_eq!(slow.read("GET").text(), "done");
}

#[test]
fn listeners_come_and_go_with_the_file() {
    let upstream = upstream::echo();
    let one = yaml(upstream.address, &version("one", 100_000));
    let gateway = Gateway::start(&one);
    let second = format!("listeners:\n  - {{ name: second, listen: 127.0.0.1:{} }}\n", free_port());
    let two = one.replace("listeners:\n", &second);
    gateway.edit(&two);
    let second = gateway.address("second");
    assert_eq!(http::get(second, "/").status, 200);
    gateway.edit(&one);
    eventually("the second listener is closed", || {
        TcpStream::connect(second).is_err().then_some(())
    });
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let taken = TcpListener::bind("127.0.0.1:0").expect("bound");
    let bad = one.replace(
        "listeners:\n",
        &format!(
            "listeners:\n  - {{ name: third, listen: {} }}\n",
            taken.local_addr().expect("bound")
        ),
    );
    replace(&gateway.config, &bad.replace("X-Version: one", "X-Version: bad"));
    gateway.wait_log("third");
    assert_eq!(http::get(gateway.web(), "/").header("x-version"), Some("one"), "all or nothing");
}

#[test]
fn ten_thousand_routes_with_rules_swap_without_a_failure() {
    let upstream = upstream::echo();
    let many = |name: &str, limit: u32| {
        let mut routes = version(name, 100_000_000);
        for i in 0..10_000 {
            routes += &format!(
                "  - {{ name: r{i}, match: {{ path_prefix: /r/{i} }}, upstream: up, \
                 flow: [{{ name: all, limit: {limit}/1s }}] }}\n"
            );
        }
        yaml(upstream.address, &routes)
    };
    let gateway = Gateway::start(&many("one", 1_000));
    let web = gateway.web();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let client = std::thread::spawn(move || {
        let mut client = Client::new(web);
        let mut served = 0;
        while !stopped.load(Ordering::SeqCst) {
            assert_eq!(client.get(&format!("/r/{}", served % 10_000)).status, 200);
            served += 1;
        }
        served
    });
    let line = gateway.edit(&many("two", 2_000));
    assert!(line.contains("kept 1, converted 10000, reset 0"), "{line}");
    wait_version(&gateway, "two");
    stop.store(true, Ordering::SeqCst);
    assert!(client.join().expect("every request was answered") > 0);
}

#[test]
fn probes_and_signals_are_heard_while_a_large_file_is_read() {
    let upstream = upstream::echo();
    let mut gateway = Gateway::start(&yaml(upstream.address, &version("one", 1_000)));
    replace(&gateway.config, &yaml(upstream.address, &large()));
    assert_eq!(http::ask(gateway.address("admin"), "/healthz").status, 200);
    gateway.signal("HUP");
    for _ in 0..10 {
        pause();
        assert_eq!(http::ask(gateway.address("admin"), "/healthz").status, 200);
    }
    gateway.signal("TERM");
    assert_eq!(gateway.wait().code(), Some(0));
    assert!(!gateway.log().contains("reloaded"), "it ended while the file was read");
}

#[test]
fn an_edit_does_not_wait_for_a_large_file_that_is_read() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &version("one", 1_000)));
    replace(&gateway.config, &yaml(upstream.address, &large()));
    gateway.signal("HUP");
    for _ in 0..10 {
        pause();
        assert_eq!(http::ask(gateway.address("admin"), "/healthz").status, 200);
    }
    replace(&gateway.config, &yaml(upstream.address, &version("two", 1_000)));
    wait_version(&gateway, "two");
    assert!(!gateway.log().contains("route r0 added"), "{}", gateway.log());
    replace(&gateway.config, &yaml(upstream.address, &version("three", 1_000)));
    wait_version(&gateway, "three");
}

/// As many routes as take seconds to read.
fn large() -> String {
    let mut routes = version("large", 1_000);
    for i in 0..40_000 {
        routes += &format!(
            "  - {{ name: r{i}, match: {{ path_prefix: /r/{i} }}, upstream: up, \
             flow: [{{ name: all, limit: 9/1s }}] }}\n"
        );
    }
    routes
}

#[test]
fn a_rejected_file_is_tried_again_when_what_was_in_the_way_is_gone() {
    let upstream = upstream::echo();
    let one = yaml(upstream.address, &version("one", 100_000));
    let gateway = Gateway::start(&one);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
    let taken = TcpListener::bind(address).expect("bound");
    let third = format!("listeners:\n  - {{ name: third, listen: {address} }}\n");
    let two = one.replace("listeners:\n", &third).replace("X-Version: one", "X-Version: two");
    replace(&gateway.config, &two);
    gateway.wait_log("listener third cannot listen on");
    gateway.wait_log("  - { name: third, listen: ");
    drop(taken);
    gateway.signal("HUP");
    wait_version(&gateway, "two");
    assert_eq!(http::get(address, "/").status, 200);
}

#[test]
fn asking_for_a_rejected_file_says_again_what_is_wrong_with_it() {
    let upstream = upstream::echo();
    let one = yaml(upstream.address, &version("one", 100_000));
    let gateway = Gateway::start(&one);
    replace(&gateway.config, &one.replace("upstream: up", "upstream: upp"));
    gateway.wait_log("configuration rejected");
    let seen = gateway.log_len();
    gateway.signal("HUP");
    gateway.wait_log_after(seen, "configuration rejected");
}

/// A file whose listeners are `listeners`, which are lines of YAML.
fn with_listeners(gateway: &Gateway, upstream: SocketAddr, listeners: &str) -> String {
    let web = format!("name: web, listen: {}", gateway.web());
    yaml(upstream, &version("one", 100_000))
        .replace("  - { name: web, listen: 127.0.0.1:0 }\n", &listeners.replace("WEB", &web))
}

#[test]
fn a_listener_is_renamed_widened_and_swapped_on_its_own_port() {
    let upstream = upstream::echo();
    let port = free_port();
    let gateway = Gateway::start(&yaml_at(port, upstream.address, &version("one", 100_000)));
    let web = gateway.web();
    let list = |listeners: &str| with_listeners(&gateway, upstream.address, listeners);
    let answers = |address| assert_eq!(http::get(address, "/").status, 200);
    // Sockets of two addresses cannot be one: a connection may be lost with the old one.
    let answers_soon = |address: SocketAddr| {
        eventually("an answer", || {
            let mut stream = TcpStream::connect(address).ok()?;
            stream.set_read_timeout(Some(crate::common::PATIENCE)).ok()?;
            stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).ok()?;
            answer.starts_with("HTTP/1.1 200").then_some(())
        });
    };

    gateway.edit(&list(&format!("  - {{ name: front, listen: {web} }}\n")));
    answers(web);
    gateway.edit(&list(&format!("  - {{ name: front, listen: \"0.0.0.0:{port}\" }}\n")));
    answers_soon(web);
    let two = list(&format!(
        "  - {{ name: front, listen: \"0.0.0.0:{port}\" }}\n  - {{ name: back, listen: 127.0.0.1:{} }}\n",
        free_port()
    ));
    gateway.edit(&two);
    let back = gateway.address("back");
    answers(back);
    let pair = |one: &str, other: &str| {
        list(&format!(
            "  - {{ name: {one}, listen: {web} }}\n  - {{ name: {other}, listen: {back} }}\n"
        ))
    };
    gateway.edit(&pair("front", "rear"));
    answers_soon(web);
    gateway.edit(&pair("rear", "front"));
    answers(web);
    answers(back);
    // Neither stays open under its old name.
    gateway.edit(&list(&format!("  - {{ name: front, listen: {back} }}\n")));
    eventually("nobody listens at the first address", || {
        TcpStream::connect(web).is_err().then_some(())
    });
    answers(back);
}

#[test]
fn every_connection_is_accepted_while_a_listener_is_renamed() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, &version("one", 100_000_000)));
    let web = gateway.web();
    let stop = Arc::new(AtomicBool::new(false));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut served = 0;
                while !stop.load(Ordering::SeqCst) {
                    assert_eq!(http::get(web, "/").status, 200);
                    served += 1;
                }
                served
            })
        })
        .collect();
    for name in ["front", "web"].repeat(10) {
        let listeners = format!("  - {{ name: {name}, listen: {web} }}\n");
        gateway.edit(&with_listeners(&gateway, upstream.address, &listeners));
    }
    stop.store(true, Ordering::SeqCst);
    let served: usize = clients.into_iter().map(|client| client.join().expect("no failure")).sum();
    assert!(served > 0);
}

#[test]
fn an_access_log_that_cannot_be_opened_rejects_the_file() {
    let upstream = upstream::echo();
    let text = |name: &str, log: &str| {
        format!("access_log: {log}\n{}", yaml(upstream.address, &version(name, 100_000)))
    };
    let gateway = Gateway::start(&text("one", "access.log"));
    shell(&gateway, "mkfifo pipe");
    for log in ["no/such/folder/access.log", "pipe"] {
        let seen = gateway.log_len();
        replace(&gateway.config, &text("bad", log));
        gateway.wait_log_after(seen, "configuration rejected");
        assert_eq!(http::get(gateway.web(), "/").header("x-version"), Some("one"));
    }
    gateway.edit(&text("two", "other.log"));
    wait_version(&gateway, "two");
}
