//! Countries and autonomous systems of clients, with real sockets and files that change under traffic.

use crate::common::{Gateway, eventually, http::Client, metrics, upstream, yaml};
use serde_json::Value;
use std::{
    fs,
    path::Path,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

const ROUTES: &str = "  - name: keyed
    match: { path: /keyed }
    upstream: up
    flow: [{ name: each, limit: 2/6h, key: country, on_missing_key: skip }]
  - name: alps
    match: { path: /matched, country: [CH, AT] }
    respond: { body: 'alps {country} {asn}' }
  - name: others
    match: { path: /matched }
    respond: { body: 'others <{country}> <{asn}>' }
  - name: german
    match: { path: /german }
    upstream: up
    access: { allow: [{ country: DE }, 10.0.0.0/8], deny: [{ asn: 64501 }, 10.1.0.0/16] }
  - name: closed
    match: { path: /closed }
    upstream: up
    access: { deny: { asn: 64500 } }
geo: { country: country.mmdb, asn: asn.mmdb }
trusted_proxies: [127.0.0.0/8]
access_log: access.log
";

fn fixture(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/geo");
    fs::read(folder.join(name)).expect("a file of the repository")
}

/// Renames a whole file into place, as `geoipupdate` does.
fn replace(path: &Path, contents: &[u8]) {
    let next = path.with_extension("next");
    fs::write(&next, contents).expect("written");
    fs::rename(&next, path).expect("renamed");
}

fn start(upstream: std::net::SocketAddr) -> Gateway {
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["country.mmdb", "asn.mmdb"] {
        fs::write(dir.path().join(name), fixture(name)).expect("written");
    }
    Gateway::start_in(dir, &yaml(upstream, ROUTES), &[])
}

fn ask(client: &mut Client, path: &str, from: &str) -> (u16, String) {
    let response = client.request("GET", path, &[("X-Forwarded-For", from)]);
    (response.status, response.text())
}

#[test]
fn routes_rules_access_and_logs_know_the_country_behind_a_proxy() {
    let upstream = upstream::echo();
    let gateway = start(upstream.address);
    let mut client = Client::new(gateway.web());

    // Two addresses of Germany share a count, in both families and spellings.
    for (from, expected) in [
        ("192.0.2.1", 200),
        ("2001:db8:de::1", 200),
        ("::ffff:192.0.2.77", 429),
        ("198.51.100.1", 200),
        ("198.51.100.2", 200),
        ("198.51.100.3", 429),
    ] {
        assert_eq!(ask(&mut client, "/keyed", from).0, expected, "{from}");
    }
    for _ in 0..4 {
        assert_eq!(ask(&mut client, "/keyed", "203.0.113.200").0, 200, "it has no country");
    }

    for (from, expected) in [
        ("198.51.100.1", "alps AT 64501"),
        ("192.0.2.1", "others <DE> <64500>"),
        ("203.0.113.1", "others <FR> <>"),
        ("10.0.0.1", "others <> <>"),
    ] {
        assert_eq!(ask(&mut client, "/matched", from).1, expected, "{from}");
    }

    for (path, from, expected) in [
        ("/german", "192.0.2.1", 200),
        ("/german", "203.0.113.1", 403),
        ("/german", "203.0.113.200", 403),
        ("/german", "10.0.0.1", 200),
        ("/german", "10.1.0.1", 403),
        ("/closed", "192.0.2.1", 403),
        ("/closed", "198.51.100.1", 200),
        ("/closed", "10.0.0.1", 200),
    ] {
        assert_eq!(ask(&mut client, path, from).0, expected, "{path} {from}");
    }

    let log = gateway.dir.path().join("access.log");
    let text = eventually("the access log is written", || {
        let text = fs::read_to_string(&log).ok()?;
        (text.lines().count() == 22).then_some(text)
    });
    let of = |address: &str| {
        let named = format!("\"client_ip\":\"{address}\"");
        text.lines().find(|line| line.contains(&named)).expect("a line").to_owned()
    };
    assert!(of("192.0.2.1").contains("\"country\":\"DE\",\"asn\":64500"), "{text}");
    assert!(of("203.0.113.1").contains("\"country\":\"FR\""), "{text}");
    assert!(!of("10.0.0.1").contains("\"country\""), "{text}");

    let explained = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .args(["explain", "/german", "--from", "127.0.0.1", "-H", "x-forwarded-for: 198.51.100.7"])
        .args(["--admin", &gateway.address("admin").to_string()])
        .output()
        .expect("it runs");
    let explained = String::from_utf8_lossy(&explained.stdout);
    assert!(explained.contains("client 198.51.100.7 (country AT, asn 64501)"), "{explained}");
    assert!(explained.contains("`deny` has asn 64501"), "{explained}");

    let built = metrics(&gateway, "flowgate_geo_build_timestamp_seconds");
    assert_eq!(built.len(), 2, "{built:?}");
    assert!(built.values().all(|seconds| *seconds == 1_790_000_000.0), "{built:?}");
}

#[test]
fn the_log_alone_decides_again_as_the_gateway_did() {
    let upstream = upstream::echo();
    let gateway = start(upstream.address);
    let mut client = Client::new(gateway.web());
    for from in ["192.0.2.1", "192.0.2.2", "192.0.2.3", "198.51.100.1", "203.0.113.1"] {
        ask(&mut client, "/keyed", from);
        ask(&mut client, "/matched", from);
        ask(&mut client, "/german", from);
    }
    let folder = gateway.dir.path();
    let mut live = eventually("the access log is written", || {
        let text = fs::read_to_string(folder.join("access.log")).ok()?;
        let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
        lines.ok().filter(|lines| lines.len() == 15)
    });
    // Rules decided about these.
    live.retain(|line| line["flow"].is_object());
    live.sort_by_key(|line| line["ts"].as_str().map(str::to_owned));
    let rejected = live.iter().filter(|line| line["flow"]["decision"] == "rejected").count();
    assert_eq!(rejected, 1, "the third of Germany: {live:?}");

    // On another machine there are no such files.
    let elsewhere = tempfile::tempdir().expect("a folder");
    for name in ["gateway.yaml", "access.log"] {
        fs::copy(folder.join(name), elsewhere.path().join(name)).expect("copied");
    }
    let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
        .current_dir(elsewhere.path())
        .args(["replay", "--strict", "--output", "decisions", "-c", "gateway.yaml", "access.log"])
        .output()
        .expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let replayed = String::from_utf8(output.stdout).expect("text");
    let replayed: Vec<Value> =
        replayed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(replayed.len(), live.len());
    for (live, replayed) in live.iter().zip(&replayed) {
        assert_eq!(live["route"], replayed["route"], "{live}\n{replayed}");
        for field in ["decision", "rule", "used"] {
            assert_eq!(live["flow"][field], replayed[field], "{field}\n{live}\n{replayed}");
        }
    }
}

#[test]
fn a_file_is_replaced_under_traffic_and_a_broken_one_keeps_the_old() {
    let upstream = upstream::echo();
    let gateway = start(upstream.address);
    let file = gateway.dir.path().join("country.mmdb");
    let web = gateway.web();
    let is_over = Arc::new(AtomicBool::new(false));
    let traffic = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            let mut client = Client::new(web);
            let mut seen = 0_u32;
            while !is_over.load(Ordering::Relaxed) {
                let (status, body) = ask(&mut client, "/matched", "192.0.2.1");
                assert_eq!(status, 200);
                assert!(["others <DE> <64500>", "alps CH 64500"].contains(&&*body), "{body}");
                seen += 1;
            }
            seen
        }
    });

    let mut client = Client::new(web);
    let mut country = || ask(&mut client, "/matched", "192.0.2.1").1;
    replace(&file, &fixture("moved.mmdb"));
    eventually("the new file is in force", || (country() == "alps CH 64500").then_some(()));

    let moved = fixture("moved.mmdb");
    for (contents, why) in [
        (moved[..moved.len() / 2].to_vec(), "was cut off"),
        (b"not a file of countries".to_vec(), "is not a file in MaxMind's format"),
        (fixture("asn.mmdb"), "has no countries"),
    ] {
        let seen = gateway.log_len();
        replace(&file, &contents);
        let line = gateway.wait_log_after(seen, why);
        assert!(line.contains("country.mmdb"), "{line}");
        assert_eq!(country(), "alps CH 64500", "{why}");
    }
    eventually("three reloads have failed", || {
        let all = metrics(&gateway, "flowgate_config_reloads_total");
        let failed = all.iter().find(|(labels, _)| labels.contains("failed"))?;
        (*failed.1 >= 3.0).then_some(())
    });

    let seen = gateway.log_len();
    fs::remove_file(&file).expect("removed");
    gateway.wait_log_after(seen, "cannot read the file of countries");
    assert_eq!(country(), "alps CH 64500", "it stays without its file");
    replace(&file, &fixture("country.mmdb"));
    eventually("the next one is in force", || (country() == "others <DE> <64500>").then_some(()));

    is_over.store(true, Ordering::Relaxed);
    assert!(traffic.join().expect("no panic") > 0);
}

#[test]
fn a_broken_file_at_the_start_is_an_error_at_its_line() {
    let dir = tempfile::tempdir().expect("a folder");
    fs::write(dir.path().join("country.mmdb"), b"\x1f\x8b\x08\0").expect("written");
    fs::write(dir.path().join("asn.mmdb"), fixture("asn.mmdb")).expect("written");
    let config = dir.path().join("gateway.yaml");
    fs::write(&config, yaml("127.0.0.1:9".parse().expect("an address"), ROUTES)).expect("written");
    for command in ["check", "run"] {
        let output = Command::new(env!("CARGO_BIN_EXE_flowgate"))
            .args([command.as_ref(), config.as_os_str()])
            .output()
            .expect("it runs");
        assert!(!output.status.success(), "{command}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("the file of countries `") && said.contains("is compressed"),
            "{said}"
        );
        assert!(said.contains("unpack it by `gunzip`"), "{said}");
    }
}
