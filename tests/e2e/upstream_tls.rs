//! TLS to upstreams: who is trusted, what is shown, and what a failure says.

use crate::common::{
    Gateway, eventually,
    http::{self, Client, head},
    replace,
    tls_server::{Authority, TlsServer, server_config},
    upstream::{self, Script},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, date_time_ymd};
use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::net::UnixListener,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};

const KEPT: &str = "";
const CLOSED: &str = "connection: close\r\n";

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary directory")
}

fn unchanged(_: &mut CertificateParams) {}

/// A configuration with one upstream, whose `servers` and other keys are given.
/// The times are long, so that a busy machine opens no other connection.
fn text(servers: &str, more: &str) -> String {
    let patient = if more.contains("connect_timeout") { "" } else { "connect_timeout: 5m, " };
    format!(
        "workers: 1\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams: [{{ name: up, servers: [{servers}], idle_timeout: 5m, {patient}{more} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n"
    )
}

fn one(url: &str, more: &str) -> String {
    text(&format!("{{ url: '{url}' }}"), more)
}

/// A server whose certificate for `names` is `own.pem` in `folder`, signed by `ca.pem`.
fn server_in(folder: &Path, names: &[&str], more: &'static str) -> TlsServer {
    let authority = Authority::new("the authority");
    authority.write(folder, "ca");
    authority.sign(folder, "own", names, unchanged);
    TlsServer::start(server_config(folder, "own", None), more)
}

#[test]
fn a_server_is_trusted_by_its_name_or_address_and_its_connection_is_kept() {
    for (names, host) in [(["localhost"], "localhost"), (["127.0.0.1"], "127.0.0.1")] {
        let folder = folder();
        let server = server_in(folder.path(), &names, KEPT);
        let url = format!("https://{host}:{}", server.address.port());
        let gateway = Gateway::start_in(folder, &one(&url, "tls: { ca: ca.pem }"), &[]);
        let mut client = Client::new(gateway.web());
        for _ in 0..3 {
            assert_eq!(client.get("/a").text(), "/a 0");
        }
        client.send(head("POST", "/b", &[("Content-Length", "300000")]));
        client.send(vec![b'x'; 300_000]);
        assert_eq!(client.read("POST").text(), "/b 300000");
        let seen = server.seen();
        assert_eq!(seen.len(), 1, "{seen:?}");
        let sent = (host == "localhost").then(|| "localhost".to_owned());
        assert_eq!(seen[0].server_name, sent);
    }
}

#[test]
fn a_server_that_is_not_trusted_gets_no_request_and_the_log_says_why() {
    let one_folder = folder();
    let authority = Authority::new("the authority");
    let path = one_folder.path();
    authority.write(path, "ca");
    Authority::new("another one").write(path, "other");
    authority.sign(path, "own", &["localhost"], unchanged);
    authority.sign(path, "wrong", &["elsewhere.test"], unchanged);
    authority.sign(path, "late", &["localhost"], |params| {
        params.not_before = date_time_ymd(2019, 1, 1);
        params.not_after = date_time_ymd(2020, 1, 1);
    });
    let own = TlsServer::start(server_config(path, "own", None), KEPT);
    let wrong = TlsServer::start(server_config(path, "wrong", None), KEPT);
    let late = TlsServer::start(server_config(path, "late", None), KEPT);
    let plain = Script::start(|_, mut connection| {
        let _sent = connection.write("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        drop(std::io::copy(&mut connection.stream, &mut std::io::sink()));
    });
    let plain_url = format!("https://localhost:{}", plain.address.port());
    for (url, tls, cause) in [
        (own.url(), "{ ca: other.pem }", "TLS: invalid peer certificate: UnknownIssuer"),
        (own.url(), "{}", "TLS: invalid peer certificate: UnknownIssuer"),
        (wrong.url(), "{ ca: ca.pem }", "certificate not valid for name \"localhost\""),
        (own.url(), "{ ca: ca.pem, server_name: shop.test }", "shop.test"),
        (late.url(), "{ ca: ca.pem }", "certificate expired"),
        (plain_url, "{ ca: ca.pem }", "TLS: the server does not speak it"),
    ] {
        let copy = folder();
        for file in ["ca.pem", "other.pem"] {
            fs::copy(path.join(file), copy.path().join(file)).expect("copied");
        }
        let gateway = Gateway::start_in(copy, &one(&url, &format!("tls: {tls}")), &[]);
        let answer = http::get(gateway.web(), "/");
        assert_eq!(answer.status, 502, "{cause}");
        let line = gateway.wait_log("cannot connect");
        let server = format!("server=\"{}\"", url.trim_start_matches("https://"));
        assert!(line.contains(cause) && line.contains(&server), "{cause}: {line}");
    }
    assert!(own.seen().is_empty() && wrong.seen().is_empty() && late.seen().is_empty());
}

#[test]
fn a_server_that_does_not_shake_hands_takes_no_longer_than_connect_timeout() {
    let silent = Script::start(|_, mut connection| {
        drop(std::io::copy(&mut connection.stream, &mut std::io::sink()));
    });
    let url = format!("https://localhost:{}", silent.address.port());
    let gateway = Gateway::start(&one(&url, "connect_timeout: 200ms, tls: { insecure: true }"));
    assert_eq!(http::get(gateway.web(), "/").status, 502);
    gateway.wait_log("no connection within connect_timeout");
}

#[test]
fn the_name_that_is_asked_for_can_be_another_than_the_urls() {
    let folder = folder();
    let server = server_in(folder.path(), &["shop.test"], KEPT);
    let tls = "tls: { ca: ca.pem, server_name: shop.test }";
    let gateway = Gateway::start_in(folder, &one(&server.url(), tls), &[]);
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    assert_eq!(server.seen()[0].server_name.as_deref(), Some("shop.test"));
}

#[test]
fn a_certificate_that_is_listed_itself_is_trusted_even_as_an_authoritys() {
    let folder = folder();
    // As `openssl req -x509` makes them.
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    fs::write(folder.path().join("own.pem"), made.pem()).expect("written");
    fs::write(folder.path().join("own.key"), key.serialize_pem()).expect("written");
    let server = TlsServer::start(server_config(folder.path(), "own", None), KEPT);
    let other = format!("https://127.0.0.1:{}", server.address.port());
    let gateway = Gateway::start_in(folder, &one(&server.url(), "tls: { ca: own.pem }"), &[]);
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    gateway.edit(&one(&other, "tls: { ca: own.pem }"));
    assert_eq!(http::get(gateway.web(), "/").status, 502, "its name is still checked");
    gateway.edit(&one(&other, "tls: { insecure: true }"));
    assert_eq!(http::get(gateway.web(), "/").status, 200);
}

#[test]
fn without_ca_servers_are_trusted_that_the_system_trusts() {
    let folder = folder();
    let server = server_in(folder.path(), &["localhost"], KEPT);
    let trusted = folder.path().join("ca.pem");
    let gateway =
        Gateway::start_with(folder, &one(&server.url(), ""), &[("SSL_CERT_FILE", &trusted)]);
    assert_eq!(http::get(gateway.web(), "/").status, 200);
}

#[test]
fn a_server_may_ask_for_a_certificate_which_is_replaced_while_the_gateway_runs() {
    let folder = folder();
    let path = folder.path().to_owned();
    let authority = Authority::new("the authority");
    authority.write(&path, "ca");
    authority.sign(&path, "own", &["localhost"], unchanged);
    for file in ["me", "next"] {
        authority.sign(&path, file, &["gateway.test"], unchanged);
    }
    let own = |file: &str| CertificateDer::from_pem_file(path.join(file)).expect("a certificate");
    let first = own("me.pem");
    let second = own("next.pem");
    let server = TlsServer::start(server_config(&path, "own", Some("ca")), KEPT);
    let nameless = "tls: { ca: ca.pem }";
    let gateway = Gateway::start_in(folder, &one(&server.url(), nameless), &[]);
    assert_eq!(http::get(gateway.web(), "/").status, 502);
    let line = gateway.wait_log("CertificateRequired");
    assert!(line.contains("server=\"localhost:"), "{line}");
    gateway.edit(&one(&server.url(), "tls: { ca: ca.pem, cert: me.pem, key: me.key }"));
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    let last = || server.seen().last().expect("a connection").client.clone();
    assert_eq!(last(), Some(first));
    let seen = gateway.log_len();
    for end in ["pem", "key"] {
        let text = fs::read_to_string(path.join(format!("next.{end}"))).expect("read");
        replace(&path.join(format!("me.{end}")), &text);
    }
    let line = gateway.wait_log_after(seen, "reloaded");
    assert!(line.contains("upstream up (tls)"), "{line}");
    assert_eq!(http::get(gateway.web(), "/").status, 200);
    assert_eq!(last(), Some(second), "a new connection");
}

#[test]
fn sessions_are_resumed_by_all_workers() {
    let folder = folder();
    let server = server_in(folder.path(), &["localhost"], CLOSED);
    let text = one(&server.url(), "tls: { ca: ca.pem }").replace("workers: 1", "workers: 2");
    let gateway = Gateway::start_in(folder, &text, &[]);
    eventually("every worker has served", || {
        assert_eq!(http::get(gateway.web(), "/").status, 200);
        (server.seen().len() >= 12).then_some(())
    });
    let resumed: Vec<bool> = server.seen().iter().map(|seen| seen.is_resumed).collect();
    assert!(!resumed[0] && resumed[1..].iter().all(|is_resumed| *is_resumed), "{resumed:?}");
}

#[test]
fn one_upstream_has_servers_with_and_without_tls_and_behind_sockets() {
    let folder = folder();
    let server = server_in(folder.path(), &["localhost"], KEPT);
    let plain = Script::answering(|_| upstream::ok("plain"));
    let path = folder.path().join("app.sock");
    let listener = UnixListener::bind(&path).expect("bound");
    let accepted = Arc::<AtomicUsize>::default();
    let counter = Arc::clone(&accepted);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            counter.fetch_add(1, Ordering::SeqCst);
            let mut stream = BufReader::new(stream.expect("a connection"));
            let mut line = String::new();
            while stream.read_line(&mut line).is_ok_and(|read| read > 0) {
                if line.ends_with("\r\n\r\n") {
                    stream.get_mut().write_all(&upstream::ok("socket")).expect("written");
                    line.clear();
                }
            }
        }
    });
    let servers = format!(
        "{{ url: '{}' }}, {{ url: 'http://{}' }}, {{ url: 'unix:{}' }}",
        server.url(),
        plain.address,
        path.display()
    );
    let gateway = Gateway::start_in(folder, &text(&servers, "tls: { ca: ca.pem }"), &[]);
    let mut client = Client::new(gateway.web());
    for _ in 0..5 {
        let mut answers: Vec<String> = (0..3).map(|_| client.get("/x").text()).collect();
        answers.sort();
        assert_eq!(answers, ["/x 0", "plain", "socket"]);
    }
    let opened = [server.seen().len(), plain.connections(), accepted.load(Ordering::SeqCst)];
    assert_eq!(opened, [1, 1, 1], "each connection is used again");
    let asked = crate::common::metrics(&gateway, "flowgate_upstream_requests_total");
    assert!(asked.keys().any(|key| key.contains(&format!("unix:{}", path.display()))), "{asked:?}");
}
