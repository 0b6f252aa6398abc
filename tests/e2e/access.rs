//! Who may use a route: by address, and by password.

use crate::common::{
    Gateway, curl, eventually,
    http::{Answer, Client},
    metrics, replace, upstream, yaml,
};
use std::{
    fs,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

const ROUTES: &str = "  - name: all
    match: { path_prefix: / }
    upstream: up
    access: { allow: [10.0.0.0/8, '2001:db8::/32'], deny: [10.1.0.0/16] }
    body_limit: 10
    flow: [{ name: two, limit: 2/1h }]
trusted_proxies: 127.0.0.0/8
access_log: access.log
";

fn ask(client: &mut Client, from: &str, more: &[(&str, &str)]) -> (u16, String) {
    let fields: Vec<_> = [("X-Forwarded-For", from)].iter().chain(more).copied().collect();
    let answer = client.request("GET", "/", &fields);
    (answer.status, answer.text())
}

#[test]
fn a_denied_request_gets_403_and_uses_nothing() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let mut client = Client::new(gateway.web());
    for from in ["10.1.2.3", "192.0.2.1", "2001:db9::1", "6.6.6.6, ::ffff:10.1.0.1"] {
        let (status, body) = ask(&mut client, from, &[]);
        assert_eq!(status, 403, "{from}");
        assert!(body.contains("this route does not allow the client's address"), "{body}");
    }
    // Whatever the body would be answered.
    assert_eq!(ask(&mut client, "192.0.2.1", &[("Content-Length", "0")]).0, 403);
    // A client that is not behind the proxy cannot choose its address.
    assert_eq!(client.get("/").status, 403);
    // The limit of two is whole.
    assert_eq!(ask(&mut client, "10.2.0.1", &[]).0, 200);
    assert_eq!(ask(&mut client, "2001:db8::1", &[]).0, 200);
    assert_eq!(ask(&mut client, "10.2.0.1", &[]).0, 429);
    // Not counted by the rule, but by the gateway and its route.
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected["flowgate_http_rejected_total{reason=\"access\"}"], 6.0);
    let log = gateway.dir.path().join("access.log");
    let line = eventually("a line of the access log", || {
        let text = fs::read_to_string(&log).ok()?;
        text.lines().find(|line| line.contains("\"client_ip\":\"10.1.2.3\"")).map(str::to_owned)
    });
    assert!(line.contains("\"route\":\"all\",\"status\":403"), "{line}");
    assert!(line.contains("\"error\":\"this route does not allow"), "{line}");
    assert!(!line.contains("\"flow\""), "{line}");
    gateway.wait_log("request rejected: this route does not allow the client's address");
}

#[test]
fn a_denied_client_of_http_2_or_grpc_gets_a_403_and_an_edit_lets_it_in() {
    let upstream = upstream::echo();
    let gateway = Gateway::start(&yaml(upstream.address, ROUTES));
    let url = format!("http://{}/", gateway.web());
    let http2 = ["--http2-prior-knowledge", "-i", "-d", "more than ten bytes"];
    let denied = curl(&[&http2[..], &[&url]].concat());
    assert!(denied.starts_with("HTTP/2 403"), "{denied}");
    let call = || {
        let mut client = Client::new(gateway.web());
        client.request(
            "POST",
            "/",
            &[("Content-Type", "application/grpc"), ("Content-Length", "0")],
        )
    };
    let denied = call();
    assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("7")));
    let line = gateway.edit(&yaml(upstream.address, &ROUTES.replace("10.0.0.0/8", "127.0.0.0/8")));
    assert!(line.contains("route all (access)"), "{line}");
    assert_eq!(call().header("grpc-status"), None);
}

// `open sesame` with the cost 5, some 2 ms.
const HASH: &str = "$2y$05$bvIG6Nmid91Mu9RcmmWZfOpG29Fwqhp9izrpUlNDcHYnxtiP7OuIe";
const ALICE: &str = "Basic YWxpY2U6b3BlbiBzZXNhbWU=";
const BOB: &str = "Basic Ym9iOm9wZW4gc2VzYW1l";
const WRONG: &str = "Basic YWxpY2U6Z3Vlc3M=";

const GUARDED: &str = "  - name: all
    match: { path_prefix: / }
    upstream: up
    auth: { basic: users }
    flow: [{ name: each, limit: 3/1h, key: user }]
access_log: access.log
";

fn guarded(upstream: SocketAddr, users: &str) -> Gateway {
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("users"), users).expect("written");
    Gateway::start_in(dir, &yaml(upstream, GUARDED), &[])
}

fn log_in(client: &mut Client, authorization: &str) -> Answer {
    client.request("GET", "/", &[("Authorization", authorization)])
}

#[test]
fn a_request_needs_the_password_of_a_user_and_is_counted_by_its_name() {
    let upstream = upstream::echo();
    let gateway = guarded(upstream.address, &format!("alice:{HASH}\nbob:{HASH}\n"));
    let mut client = Client::new(gateway.web());
    for wrong in [WRONG, "Basic bm9ib2R5Om9wZW4gc2VzYW1l", "Basic ?", "Bearer x", ""] {
        let answer = log_in(&mut client, wrong);
        assert_eq!(answer.status, 401, "{wrong}");
        let challenge = answer.header("www-authenticate");
        assert_eq!(challenge, Some("Basic realm=\"restricted\", charset=\"UTF-8\""));
        assert!(answer.header("ratelimit").is_none());
    }
    assert_eq!(client.get("/").status, 401);
    let twice = [("Authorization", ALICE), ("Authorization", BOB)];
    assert_eq!(client.request("GET", "/", &twice).status, 401);
    // None of these used anything of a limit.
    for _ in 0..3 {
        let answer = log_in(&mut client, ALICE);
        assert_eq!(answer.status, 200);
        // The server gets the field.
        assert!(answer.text().contains(ALICE), "{}", answer.text());
    }
    assert_eq!(log_in(&mut client, ALICE).status, 429);
    assert_eq!(log_in(&mut client, BOB).status, 200);
    let rejected = metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected["flowgate_http_rejected_total{reason=\"auth\"}"], 7.0);
    let log = gateway.dir.path().join("access.log");
    let text = eventually("the access log", || {
        let text = fs::read_to_string(&log).ok()?;
        text.contains("\"user\":\"bob\"").then_some(text)
    });
    assert_eq!(text.matches("\"user\":\"alice\"").count(), 4, "{text}");
    assert!(text.contains("\"error\":\"the user or the password is wrong\""), "{text}");
    assert!(!(text + &gateway.log()).contains("sesame"));
}

#[test]
fn http_2_grpc_and_uploads_are_asked_for_a_password_too() {
    let upstream = upstream::echo();
    let gateway = guarded(upstream.address, &format!("alice:{HASH}\n"));
    let url = format!("http://{}/", gateway.web());
    let http2 = ["--http2-prior-knowledge", "-i", "-d", "some bytes"];
    for (user, status) in [("alice:guess", "401"), ("alice:open sesame", "200")] {
        let answer = curl(&[&http2[..], &["-u", user, &url]].concat());
        assert!(answer.starts_with(&format!("HTTP/2 {status}")), "{answer}");
    }
    let mut client = Client::new(gateway.web());
    let grpc = [("Content-Type", "application/grpc"), ("Content-Length", "0")];
    let denied = client.request("POST", "/", &grpc);
    assert_eq!((denied.status, denied.header("grpc-status")), (200, Some("16")));
    assert_eq!(
        client
            .request("POST", "/", &[&grpc[..], &[("Authorization", ALICE)]].concat())
            .header("grpc-status"),
        None
    );
}

#[test]
fn an_edit_of_the_password_file_is_in_force_at_once_and_a_bad_one_is_not() {
    let upstream = upstream::echo();
    let gateway = guarded(upstream.address, &format!("alice:{HASH}\n"));
    let mut client = Client::new(gateway.web());
    assert_eq!((log_in(&mut client, ALICE).status, log_in(&mut client, BOB).status), (200, 401));
    let users = gateway.dir.path().join("users");
    let seen = gateway.log_len();
    replace(&users, "alice:plain\n");
    gateway.wait_log_after(seen, "configuration rejected");
    assert_eq!(log_in(&mut client, ALICE).status, 200);
    // The password was right lately, but its user is gone.
    replace(&users, &format!("bob:{HASH}\n"));
    let line = gateway.wait_log_after(seen, "reloaded");
    assert!(line.contains("route all (auth)"), "{line}");
    assert_eq!((log_in(&mut client, ALICE).status, log_in(&mut client, BOB).status), (401, 200));
    assert!(!gateway.log().contains("plain\n"));
}

#[test]
fn guessing_is_bounded_and_known_clients_do_not_notice() {
    let upstream = upstream::echo();
    let routes = GUARDED.replace("3/1h", "1000/1h") + "trusted_proxies: 127.0.0.0/8\n";
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("users"), format!("alice:{HASH}\n")).expect("written");
    let gateway = Gateway::start_in(dir, &yaml(upstream.address, &routes), &[]);
    let mut client = Client::new(gateway.web());
    let mut from = |address: &str, authorization: &str| {
        let fields = [("X-Forwarded-For", address), ("Authorization", authorization)];
        client.request("GET", "/", &fields)
    };
    assert_eq!(from("192.0.2.1", ALICE).status, 200);
    // The minute may change once meanwhile.
    let statuses: Vec<_> = (0..40).map(|_| from("192.0.2.1", WRONG).status).collect();
    assert!(statuses.starts_with(&[401; 20]), "{statuses:?}");
    let answer = from("192.0.2.1", WRONG);
    assert_eq!(answer.status, 429, "{statuses:?}");
    let wait: u64 =
        answer.header("retry-after").and_then(|wait| wait.parse().ok()).expect("a wait");
    assert!((1..=120).contains(&wait), "{wait}");
    // Even the right password is not tried; one that is known needs no check.
    assert_eq!(from("192.0.2.1", BOB).status, 429);
    assert_eq!(from("192.0.2.1", ALICE).status, 200);
    assert_eq!(from("192.0.2.2", WRONG).status, 401);
}

#[test]
fn a_slow_check_holds_up_no_other_request_and_is_made_once_for_many() {
    let upstream = upstream::echo();
    // The cost 12 takes some 200 ms, and a debug build's much more.
    let dear = "$2b$12$bvIG6Nmid91Mu9RcmmWZfOpG/2oDfO5b.QUUvERl2jvNwouaQJvDi";
    let routes = GUARDED.replace("3/1h", "1000/1h").replace("path_prefix: /", "path_prefix: /in");
    let routes = format!("  - {{ name: free, match: {{ path: /free }}, upstream: up }}\n{routes}");
    let dir = tempfile::tempdir().expect("a temporary directory");
    fs::write(dir.path().join("users"), format!("alice:{dear}\n")).expect("written");
    let gateway = Gateway::start_in(dir, &yaml(upstream.address, &routes), &[]);
    let web = gateway.web();
    let begun = Instant::now();
    let logins: Vec<_> = (0..30)
        .map(|_| {
            thread::spawn(move || {
                let field = [("Authorization", ALICE)];
                (Client::new(web).request("GET", "/in", &field).status, begun.elapsed())
            })
        })
        .collect();
    let mut client = Client::new(web);
    let mut free = 0_u32;
    while !logins.iter().all(thread::JoinHandle::is_finished) {
        assert_eq!(client.get("/free").status, 200);
        free += 1;
    }
    let logins: Vec<_> = logins.into_iter().map(|login| login.join().expect("no panic")).collect();
    let first = logins.iter().map(|(_, took)| *took).min().expect("some");
    let last = logins.iter().map(|(_, took)| *took).max().expect("some");
    assert!(logins.iter().all(|(status, _)| *status == 200), "{logins:?}");
    // One after the other, thirty checks would take fifteen times as long.
    assert!(last < 10 * first + Duration::from_millis(100), "{first:?} to {last:?}");
    assert!(free > 10, "{free} requests in {last:?}");
}

#[test]
fn a_file_of_networks_is_in_force_when_it_is_written_and_a_broken_one_keeps_the_old() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a folder");
    let blocked = dir.path().join("blocked.txt");
    fs::write(&blocked, "# nobody\n").expect("written");
    let routes = "  - name: all
    match: { path_prefix: / }
    upstream: up
    access: { deny: [192.0.2.1, { file: blocked.txt }] }
    flow: [{ name: one, limit: 1/1h, key: client_ip, except: { client_ip: { file: free.txt } } }]
trusted_proxies: { file: proxies.txt }
";
    fs::write(dir.path().join("free.txt"), "203.0.113.0/24\n").expect("written");
    fs::write(dir.path().join("proxies.txt"), "127.0.0.0/8\n::1\n").expect("written");
    let gateway = Gateway::start_in(dir, &yaml(upstream.address, routes), &[]);
    let mut client = Client::new(gateway.web());
    assert_eq!(ask(&mut client, "192.0.2.1", &[]).0, 403);
    assert_eq!(ask(&mut client, "198.51.100.7", &[]).0, 200);
    assert_eq!(ask(&mut client, "198.51.100.7", &[]).0, 429);
    for _ in 0..3 {
        assert_eq!(ask(&mut client, "203.0.113.9", &[]).0, 200, "it is exempt");
    }

    replace(&blocked, "198.51.100.0/24 # a scanner\n");
    eventually("the edit is in force", || {
        (ask(&mut client, "198.51.100.7", &[]).0 == 403).then_some(())
    });
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["explain", "/", "--from", "127.0.0.1", "-H", "x-forwarded-for: 198.51.100.7"])
        .args(["--admin", &gateway.address("admin").to_string()])
        .output()
        .expect("it runs");
    let explained = String::from_utf8_lossy(&output.stdout);
    let why = "`deny` has 198.51.100.0/24, line 1 of blocked.txt";
    assert!(explained.contains(why), "{explained}");

    // Of a broken file nothing is in force, and the next one is.
    let seen = gateway.log_len();
    replace(&blocked, "203.0.113.0/24\n198.51.100\n");
    let line = gateway.wait_log_after(seen, "blocked.txt");
    assert!(line.contains("cannot be used: line 2: `198.51.100` is not a network"), "{line}");
    let checked = std::process::Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["check".as_ref(), blocked.with_file_name("gateway.yaml").as_os_str()])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&checked.stderr);
    assert!(!checked.status.success());
    assert!(said.contains("cannot be used: line 2: `198.51.100` is not a network"), "{said}");
    assert_eq!(ask(&mut client, "198.51.100.7", &[]).0, 403);
    assert_eq!(ask(&mut client, "203.0.113.9", &[]).0, 200);
    fs::remove_file(&blocked).expect("removed");
    gateway.wait_log_after(seen, "cannot read the network file");
    assert_eq!(ask(&mut client, "198.51.100.7", &[]).0, 403, "the list stays without its file");
    replace(&blocked, "203.0.113.0/24\n");
    eventually("the next one is in force", || {
        (ask(&mut client, "203.0.113.9", &[]).0 == 403).then_some(())
    });
    assert_eq!(ask(&mut client, "198.51.100.7", &[]).0, 429);
}
