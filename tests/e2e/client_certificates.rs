//! Certificates of clients and versions of TLS at listeners, with curl and with sessions that are resumed.

use crate::{
    common::{Gateway, metrics, run, tls_server::Authority},
    upstream_certificates::version_1,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use rcgen::{DistinguishedName, DnType};
use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::Path,
    process::Command,
    sync::Arc,
    time::Duration,
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, Stream,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

fn text(terms: &str) -> String {
    format!(
        "workers: 1
listeners:
  - name: web
    listen: 127.0.0.1:0
    tls: {{ certificates: [{{ cert: site.pem, key: site.key }}]{terms} }}
admin: {{ listen: 127.0.0.1:0 }}
routes: [{{ name: all, match: {{ path_prefix: / }}, respond: {{ body: hello }} }}]
"
    )
}

/// Makes a folder with a server's certificate, and certificates of clients of two authorities.
fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let site = Authority::new("site");
    site.write(dir.path(), "root");
    site.sign(dir.path(), "site", &["localhost"], |_| {});
    for name in ["partners", "others"] {
        let authority = Authority::new(name);
        authority.write(dir.path(), name);
        authority.sign(dir.path(), &format!("of-{name}"), &["client"], |_| {});
        authority.sign(dir.path(), &format!("ended-{name}"), &["client"], |params| {
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2020, 1, 2);
        });
    }
    dir
}

/// Returns the body that a client gets, with a certificate if it has one.
fn ask(gateway: &Gateway, client: Option<&str>, more: &[&str]) -> Option<String> {
    let port = gateway.web().port();
    let folder = gateway.dir.path();
    let mut command = Command::new("curl");
    command.args(["--silent", "--max-time", "20", "--cacert"]).arg(folder.join("root.pem"));
    if let Some(client) = client {
        command.arg("--cert").arg(folder.join(format!("{client}.pem")));
        command.arg("--key").arg(folder.join(format!("{client}.key")));
    }
    command.args(["--resolve", &format!("localhost:{port}:127.0.0.1")]).args(more);
    let output = command.arg(format!("https://localhost:{port}/")).output().expect("curl");
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn only_clients_with_a_certificate_of_the_authority_get_a_response() {
    let gateway = Gateway::start_in(folder(), &text(", client_ca: partners.pem"), &[]);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"], &["--http1.1"]] {
        assert_eq!(ask(&gateway, Some("of-partners"), version).as_deref(), Some("hello"));
        for client in [None, Some("of-others"), Some("ended-partners"), Some("site")] {
            assert_eq!(ask(&gateway, client, version), None, "{client:?} {version:?}");
        }
    }
    let handshakes = metrics(&gateway, "flowgate_tls_handshakes_total");
    let of = |result: &str| {
        let found = handshakes.iter().find(|(labels, _)| labels.contains(result));
        found.map(|(_, count)| *count)
    };
    assert_eq!((of("ok"), of("failed")), (Some(3.0), Some(12.0)), "{handshakes:?}");
}

#[test]
fn a_rejected_certificate_is_in_the_log_with_its_reason() {
    for (client, words) in [
        (None, "the client shows no certificate"),
        (Some("of-others"), "no authority in `client_ca` has signed the client's certificate"),
        (Some("ended-partners"), "the client's certificate has expired"),
        (Some("old"), "the client's certificate is of X.509 version 1: make one of version 3"),
    ] {
        let folder = folder();
        let file = |name: &str| folder.path().join(name);
        let made = fs::read(file("of-partners.pem")).expect("there");
        let made = CertificateDer::from_pem_slice(&made).expect("a certificate");
        let old = STANDARD.encode(version_1(&made));
        let lines: Vec<&str> =
            old.as_bytes().chunks(64).map(|line| str::from_utf8(line).expect("text")).collect();
        let old = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            lines.join("\n")
        );
        fs::write(file("old.pem"), old).expect("written");
        fs::copy(file("of-partners.key"), file("old.key")).expect("copied");

        let gateway = Gateway::start_in(folder, &text(", client_ca: partners.pem"), &[]);
        assert_eq!(ask(&gateway, client, &[]), None, "{client:?}");
        gateway.wait_log(&format!("TLS handshake failed: {words}"));
    }
}

#[test]
fn a_certificate_may_be_optional_and_must_then_be_a_valid_one() {
    let terms = ", client_ca: partners.pem, client_auth: optional";
    let gateway = Gateway::start_in(folder(), &text(terms), &[]);
    for client in [None, Some("of-partners")] {
        assert_eq!(ask(&gateway, client, &[]).as_deref(), Some("hello"), "{client:?}");
    }
    for client in ["of-others", "ended-partners"] {
        assert_eq!(ask(&gateway, Some(client), &[]), None, "{client}");
    }
}

#[test]
fn older_versions_are_rejected() {
    let gateway = Gateway::start_in(folder(), &text(", min_version: 1.3"), &[]);
    assert_eq!(ask(&gateway, None, &[]).as_deref(), Some("hello"));
    assert_eq!(ask(&gateway, None, &["--tls-max", "1.2"]), None);
    gateway.edit(&text(", min_version: 1.2"));
    assert_eq!(ask(&gateway, None, &["--tls-max", "1.2"]).as_deref(), Some("hello"));
    gateway.edit(&text(", min_version: '1.3'"));
    assert_eq!(ask(&gateway, None, &["--tls-max", "1.2"]), None);
}

const BY_CERTIFICATE: &str = "
  - name: ann
    match: { path_prefix: /, client_cert: { subject: 'CN=ann,O=Example' } }
    respond: { body: 'ann {client_cert_subject} {client_cert_fingerprint}' }
    flow: [{ name: each, limit: 2/6h, key: client_cert }]
  - name: others-of-example
    match: { path_prefix: /, client_cert: { subject: { regex: 'CN=[^,]+,O=Example' } } }
    respond: { body: 'example {client_cert_subject}' }
  - name: known
    match: { path_prefix: /, client_cert: { fingerprint: FINGERPRINT } }
    respond: { body: known }
  - name: any
    match: { path_prefix: /, client_cert: true }
    respond: { body: any }
  - name: without
    match: { path_prefix: / }
    respond: { body: 'none <{client_cert_subject}>' }
";

/// Returns the SHA-256 of a certificate's file, as `openssl` prints it.
fn fingerprint(folder: &Path, name: &str) -> String {
    let der = CertificateDer::from_pem_slice(
        &fs::read(folder.join(format!("{name}.pem"))).expect("there"),
    );
    let digest = sha256(&der.expect("a certificate"));
    digest.iter().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().join(":")
}

fn sha256(der: &[u8]) -> Vec<u8> {
    let suite = aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().expect("a suite of TLS 1.3");
    suite.common.hash_provider.hash(der).as_ref().to_vec()
}

/// Makes a folder with certificates of four people, of one authority.
fn people() -> tempfile::TempDir {
    let folder = folder();
    let partners = Authority::new("people");
    partners.write(folder.path(), "people");
    for (file, name, organization) in [
        ("ann", "ann", "Example"),
        ("bob", "bob", "Example"),
        ("carl", "carl", "Else"),
        ("dora", "dora", "Else"),
    ] {
        partners.sign(folder.path(), file, &["client"], |params| {
            let mut owner = DistinguishedName::new();
            owner.push(DnType::OrganizationName, organization);
            owner.push(DnType::CommonName, name);
            params.distinguished_name = owner;
        });
    }
    folder
}

#[test]
fn routes_rules_and_placeholders_know_the_certificate() {
    let folder = people();
    let prints = ["ann", "carl"].map(|name| fingerprint(folder.path(), name));
    let terms = ", client_ca: people.pem, client_auth: optional";
    let routes = BY_CERTIFICATE.replace("FINGERPRINT", &prints[1]);
    let text =
        text(terms).split("routes:").next().expect("a part").to_owned() + "routes:" + &routes;
    let gateway = Gateway::start_in(folder, &text, &[]);

    let digits = prints[0].replace(':', "").to_lowercase();
    for (client, expected) in [
        (Some("ann"), format!("ann CN=ann,O=Example {digits}")),
        (Some("bob"), "example CN=bob,O=Example".to_owned()),
        (Some("carl"), "known".to_owned()),
        (Some("dora"), "any".to_owned()),
        (None, "none <>".to_owned()),
    ] {
        for version in ["--http2", "--tls-max"] {
            let more: &[&str] = if version == "--http2" {
                &["--http2"]
            } else {
                &["--tls-max", "1.2", "--http1.1"]
            };
            assert_eq!(
                ask(&gateway, client, more).as_ref(),
                Some(&expected),
                "{client:?} {version}"
            );
        }
    }
    let third = ask(&gateway, Some("ann"), &[]).expect("a response");
    assert!(third.contains("rate"), "{third}");

    let explain = |more: &[&str]| {
        let all: Vec<&str> = ["explain", "GET", "/"].iter().chain(more).copied().collect();
        run(&gateway, &all)
    };
    let ann = explain(&[
        "--client-cert-subject",
        "CN=ann,O=Example",
        "--client-cert-fingerprint",
        &prints[0],
    ]);
    assert!(ann.contains("rejected (rate)") && ann.contains("client_cert = "), "{ann}");
    let subject = explain(&["--client-cert-subject", "CN=ann,O=Example"]);
    assert!(subject.contains("route ann ") && subject.contains("pass it too"), "{subject}");
    let any = explain(&["--client-cert-subject", "CN=dora,O=Else"]);
    assert!(any.contains("route any "), "{any}");
    assert!(any.ends_with("the gateway itself responds with 200\n"), "{any}");
    let without = explain(&[]);
    assert!(without.contains("without"), "{without}");
}

/// Returns how a client with a certificate began its session; `None` if it gets no response.
fn session(gateway: &Gateway, config: &Arc<ClientConfig>) -> Option<HandshakeKind> {
    let name = "localhost".try_into().expect("a name");
    let mut connection = ClientConnection::new(Arc::clone(config), name).expect("a client");
    let mut socket = TcpStream::connect(gateway.web()).expect("connected");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let mut stream = Stream::new(&mut connection, &mut socket);
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).ok()?;
    let mut response = Vec::new();
    drop(stream.read_to_end(&mut response));
    response.starts_with(b"HTTP/1.1 200").then(|| connection.handshake_kind())?
}

fn client(folder: &Path, name: &str) -> Arc<ClientConfig> {
    let read = |file: String| fs::read(folder.join(file)).expect("there");
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(&read("root.pem".to_owned())).expect("a root");
    roots.add(root).expect("a root");
    let chain = CertificateDer::from_pem_slice(&read(format!("{name}.pem"))).expect("its own");
    let key = PrivateKeyDer::from_pem_slice(&read(format!("{name}.key"))).expect("a key");
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![chain], key);
    Arc::new(config.expect("a key of its certificate"))
}

#[test]
fn a_session_does_not_outlive_the_authority_that_it_began_with() {
    let gateway = Gateway::start_in(folder(), &text(", client_ca: partners.pem"), &[]);
    let partner = client(gateway.dir.path(), "of-partners");
    assert_eq!(session(&gateway, &partner), Some(HandshakeKind::Full));
    assert_eq!(session(&gateway, &partner), Some(HandshakeKind::Resumed));

    // An edit that does not change the terms keeps the sessions.
    gateway.edit(&text(", client_ca: partners.pem").replace("hello", "hello again"));
    assert_eq!(session(&gateway, &partner), Some(HandshakeKind::Resumed));

    // The file itself gets another authority.
    let skip = gateway.log_len();
    let others = fs::read(gateway.dir.path().join("others.pem")).expect("there");
    fs::write(gateway.dir.path().join("partners.pem"), others).expect("written");
    gateway.wait_log_after(skip, "reloaded");
    assert_eq!(session(&gateway, &partner), None);
    let other = client(gateway.dir.path(), "of-others");
    assert_eq!(session(&gateway, &other), Some(HandshakeKind::Full));

    gateway.edit(&text(""));
    assert_eq!(session(&gateway, &partner), Some(HandshakeKind::Full), "no client is asked");
}
