//! TLS towards clients, with curl and with certificates of several names.

use crate::common::{Gateway, connect, curl, eventually, http::Client, upstream};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
    sync::Arc,
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

fn certificate(dir: &Path, file: &str, names: &[&str]) {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
    fs::write(dir.join(format!("{file}.pem")), made.cert.pem()).expect("written");
    fs::write(dir.join(format!("{file}.key")), made.signing_key.serialize_pem()).expect("written");
}

fn text(upstream: std::net::SocketAddr, certificates: &str) -> String {
    format!(
        "workers: 2\nlisteners:\n  - name: web\n    listen: 127.0.0.1:0\n    tls: {{ certificates: [{certificates}] }}\n\
         admin: {{ listen: 127.0.0.1:0 }}\n\
         upstreams:\n  - {{ name: up, servers: [{{ url: \"http://{upstream}\" }}] }}\n\
         routes:\n  - {{ name: all, match: {{ path_prefix: / }}, upstream: up }}\n"
    )
}

/// Asks for `host` over TLS, trusting `file` only.
fn ask(gateway: &Gateway, host: &str, file: &str, more: &[&str]) -> Result<String, String> {
    let port = gateway.web().port();
    let output = Command::new("curl")
        .args(["--silent", "--show-error", "--max-time", "20", "--cacert"])
        .arg(gateway.dir.path().join(format!("{file}.pem")))
        .args(["--resolve", &format!("{host}:{port}:127.0.0.1")])
        .args(more)
        .arg(format!("https://{host}:{port}/x"))
        .output()
        .expect("curl is installed");
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn two_certificates(upstream: std::net::SocketAddr) -> Gateway {
    let dir = tempfile::tempdir().expect("a temporary directory");
    certificate(dir.path(), "shop", &["shop.test"]);
    certificate(dir.path(), "any", &["*.wild.test", "plain.test"]);
    let text = text(upstream, "{ cert: shop.pem, key: shop.key }, { cert: any.pem, key: any.key }");
    Gateway::start_in(dir, &text, &[])
}

#[test]
fn the_name_asked_for_picks_the_certificate() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    for (host, file) in [("shop.test", "shop"), ("plain.test", "any"), ("a.wild.test", "any")] {
        let body = ask(&gateway, host, file, &[]).expect(host);
        assert!(body.contains("GET /x HTTP/1.1"), "{body}");
        assert!(body.contains("\"x-forwarded-proto\",\"https\""), "{body}");
    }
    assert!(ask(&gateway, "shop.test", "any", &[]).is_err(), "the other certificate is not shown");
}

#[test]
fn a_client_gets_the_certificate_of_its_name_that_it_can_verify() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    certificate(dir.path(), "ecdsa", &["shop.test"]);
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_RSA_SHA256).expect("an RSA key");
    let names = rcgen::CertificateParams::new(["shop.test".to_owned()]).expect("names");
    let made = names.self_signed(&key).expect("a certificate");
    fs::write(dir.path().join("rsa.pem"), made.pem()).expect("written");
    fs::write(dir.path().join("rsa.key"), key.serialize_pem()).expect("written");
    let text = text(
        upstream.address,
        "{ cert: ecdsa.pem, key: ecdsa.key }, { cert: rsa.pem, key: rsa.key }",
    );
    let gateway = Gateway::start_in(dir, &text, &[]);
    let only_rsa = ["--tls-max", "1.2", "--ciphers", "ECDHE-RSA-AES128-GCM-SHA256"];
    let only_ecdsa = ["--tls-max", "1.2", "--ciphers", "ECDHE-ECDSA-AES128-GCM-SHA256"];
    for (file, more) in [("ecdsa", &[][..]), ("ecdsa", &only_ecdsa), ("rsa", &only_rsa)] {
        let body = ask(&gateway, "shop.test", file, more).expect(file);
        assert!(body.contains("GET /x HTTP/1.1"), "{body}");
    }
}

#[test]
fn alpn_chooses_the_version_of_http() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    let version = |flag: &str| {
        ask(&gateway, "shop.test", "shop", &[flag, "-o", "/dev/null", "-w", "%{http_version}"])
            .expect("an answer")
    };
    assert_eq!(version("--http2"), "2");
    assert_eq!(version("--http1.1"), "1.1");
    assert_eq!(version("--http1.0"), "1.1", "which a server says to a client of 1.0, too");
}

#[test]
fn a_host_of_another_certificate_is_misdirected() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    let status = |host: &str| {
        let field = format!("Host: {host}");
        ask(&gateway, "shop.test", "shop", &["-H", &field, "-o", "/dev/null", "-w", "%{http_code}"])
            .expect("an answer")
    };
    assert_eq!(status("plain.test"), "421");
    assert_eq!(status("shop.test"), "200");
    let rejected = crate::common::metrics(&gateway, "flowgate_http_rejected_total");
    assert_eq!(rejected.values().sum::<f64>(), 1.0, "{rejected:?}");
}

#[test]
fn a_client_that_sends_no_server_name_may_ask_for_any_host() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    // No name is sent for an address.
    let url = format!("https://{}/x", gateway.web());
    for host in ["shop.test", "plain.test"] {
        let field = format!("Host: {host}");
        let status = curl(&["-k", "-H", &field, "-o", "/dev/null", "-w", "%{http_code}", &url]);
        assert_eq!(status, "200", "{host}");
    }
}

/// A connection that was opened for `name` and is kept, trusting `file` only.
fn connection(
    gateway: &Gateway,
    name: &str,
    file: &str,
) -> StreamOwned<ClientConnection, TcpStream> {
    let path = gateway.dir.path().join(format!("{file}.pem"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path).expect("a certificate")).expect("added");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("known versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = name.to_owned().try_into().expect("a name");
    let session = ClientConnection::new(Arc::new(config), name).expect("a session");
    StreamOwned::new(session, connect(gateway.web()))
}

/// The status of the answer to a request for `host`.
fn status(connection: &mut (impl Read + Write), host: &str) -> u16 {
    write!(connection, "HEAD / HTTP/1.1\r\nHost: {host}\r\n\r\n").expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        connection.read_exact(&mut byte).expect("an answer");
        head.extend(byte);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status")
}

#[test]
fn a_connection_is_held_to_its_certificate_after_its_listener_is_renamed() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    let mut kept = connection(&gateway, "shop.test", "shop");
    assert_eq!(status(&mut kept, "shop.test"), 200);
    assert_eq!(status(&mut kept, "plain.test"), 421);
    let text = fs::read_to_string(&gateway.config).expect("read");
    gateway.edit(&text.replace("name: web", "name: front"));
    assert_eq!(status(&mut kept, "shop.test"), 200);
    assert_eq!(status(&mut kept, "plain.test"), 421);
}

#[test]
fn a_certificate_is_replaced_while_the_gateway_runs() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    assert!(ask(&gateway, "shop.test", "shop", &[]).is_ok());
    let seen = gateway.log_len();
    // A pair that does not match is rejected; the old one stays.
    certificate(gateway.dir.path(), "other", &["shop.test"]);
    fs::copy(gateway.dir.path().join("shop.pem"), gateway.dir.path().join("old.pem"))
        .expect("copied");
    crate::common::replace(
        &gateway.dir.path().join("shop.pem"),
        &fs::read_to_string(gateway.dir.path().join("other.pem")).expect("read"),
    );
    gateway.wait_log_after(seen, "error");
    assert!(ask(&gateway, "shop.test", "old", &[]).is_ok());
    crate::common::replace(
        &gateway.dir.path().join("shop.key"),
        &fs::read_to_string(gateway.dir.path().join("other.key")).expect("read"),
    );
    eventually("the new certificate is shown", || ask(&gateway, "shop.test", "shop", &[]).ok());
}

#[test]
fn a_certificate_that_was_missing_is_taken_when_it_is_there() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    let before = fs::read_to_string(&gateway.config).expect("read");
    let seen = gateway.log_len();
    let late = before
        .replace("certificates: [", "certificates: [{ cert: new/late.pem, key: new/late.key }, ");
    crate::common::replace(&gateway.config, &late);
    gateway.wait_log_after(seen, "configuration rejected");
    assert!(ask(&gateway, "shop.test", "shop", &[]).is_ok());
    let seen = gateway.log_len();
    fs::create_dir(gateway.dir.path().join("new")).expect("made");
    certificate(gateway.dir.path(), "new/late", &["late.test"]);
    gateway.wait_log_after(seen, "reloaded");
    assert!(ask(&gateway, "late.test", "new/late", &[]).is_ok());
}

#[test]
fn a_development_certificate_is_made_on_first_use() {
    let upstream = upstream::echo();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let text = text(upstream.address, "{ cert: certs/localhost.pem, key: certs/localhost.key }");
    let gateway = Gateway::start_in(dir, &text, &[]);
    gateway.wait_log("development certificate");
    let key = gateway.dir.path().join("certs/localhost.key");
    assert_eq!(fs::metadata(&key).expect("made").permissions().mode() & 0o777, 0o600);
    assert!(ask(&gateway, "localhost", "certs/localhost", &[]).is_ok());
}

#[test]
fn a_client_that_does_not_speak_tls_is_answered_or_cut_off() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    let mut plain = Client::new(gateway.web());
    plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = plain.try_read("GET").expect("an answer");
    assert_eq!(answer.status, 400);
    assert!(answer.text().contains("use https://"), "{}", answer.text());
    assert!(plain.try_read("GET").is_none(), "the connection goes on");
    eventually("the log says why", || gateway.log().contains("use https://").then_some(()));
    let mut neither = Client::new(gateway.web());
    neither.send("\0\0\0\0\0\0\0\0");
    assert!(neither.try_read("GET").is_none());
    assert!(ask(&gateway, "shop.test", "shop", &[]).is_ok());
    let page = curl(&[&format!("http://{}/metrics", gateway.address("admin"))]);
    assert!(page.contains("flowgate_tls_"), "{page}");
}

#[test]
fn tls_is_switched_off_and_on_while_the_gateway_runs() {
    let upstream = upstream::echo();
    let gateway = two_certificates(upstream.address);
    let web = gateway.web();
    let with = fs::read_to_string(&gateway.config).expect("read");
    let without: Vec<_> = with.lines().filter(|line| !line.contains("tls:")).collect();
    assert!(ask(&gateway, "shop.test", "shop", &[]).is_ok());
    let line = gateway.edit(&without.join("\n"));
    assert!(!line.contains("next start"), "{line}");
    eventually("cleartext is spoken", || {
        let mut plain = Client::new(web);
        plain.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        plain.try_read("GET").filter(|answer| answer.status == 200)
    });
    gateway.edit(&with);
    eventually("TLS is spoken", || ask(&gateway, "shop.test", "shop", &[]).ok());
}
