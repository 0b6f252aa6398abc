//! Certificates by ACME, with Debian's `pebble` as the authority: real challenges, real handshakes.

use crate::{
    common::{Gateway, eventually, http, metrics, pause},
    port::free_port,
};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::{
    fs,
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, pem::PemObject},
};

/// A process of `pebble`; ended when dropped.
struct Process(Child);

impl Process {
    fn start(mut command: Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(child.spawn().unwrap_or_else(|error| {
            panic!("{command:?}: {error}: run .ci/setup, which installs it")
        }))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// An authority that finds every name on this machine.
struct Pebble {
    dir: TempDir,
    server: Option<Process>,
    _names: Process,
    /// The percentage of requests that must be repeated with another nonce. Three in a row are a failure.
    rejected_nonces: &'static str,
    names: u16,
    api: u16,
    management: u16,
}

/// The ports at which the authority expects the answers to challenges.
#[derive(Clone, Copy)]
struct Ports {
    plain: u16,
    tls: u16,
}

impl Ports {
    fn free() -> Self {
        Self { plain: free_port(), tls: free_port() }
    }

    fn tls(self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.tls).into()
    }

    fn plain(self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.plain).into()
    }
}

impl Pebble {
    /// Starts an authority whose certificates are valid for so many seconds.
    fn start(ports: Ports, lifetime: u64) -> Self {
        Self::start_with(ports, lifetime, &serde_json::json!({}))
    }

    fn start_with(ports: Ports, lifetime: u64, more: &serde_json::Value) -> Self {
        let dir = tempfile::tempdir().expect("a folder");
        own_certificate(dir.path());
        let names = free_port();
        let api = free_port();
        let management = free_port();
        let mut pebble = serde_json::json!({
            "listenAddress": format!("127.0.0.1:{api}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": dir.path().join("api.pem"),
            "privateKey": dir.path().join("api.key"),
            "httpPort": ports.plain,
            "tlsPort": ports.tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
            "certificateValidityPeriod": lifetime,
        });
        for (key, value) in more.as_object().expect("a map") {
            pebble[key] = value.clone();
        }
        let config = serde_json::json!({ "pebble": pebble }).to_string();
        fs::write(dir.path().join("pebble.json"), config).expect("written");

        let mut command = Command::new("pebble-challtestsrv");
        let management_of_names = format!("127.0.0.1:{}", free_port());
        command
            .args(["-dns01", &format!("127.0.0.1:{names}")])
            .args(["-management", &management_of_names])
            .args(["-http01", "", "-https01", "", "-tlsalpn01", ""])
            .args(["-defaultIPv4", "127.0.0.1", "-defaultIPv6", ""]);
        let of_names = Process::start(command);
        // Where orders are counted, none fails for this.
        let rejected_nonces = if lifetime < 60 { "20" } else { "0" };
        let server = None;
        let mut pebble =
            Self { dir, server, _names: of_names, rejected_nonces, names, api, management };
        pebble.restart();
        pebble
    }

    /// Starts it, with another account database and another root.
    fn restart(&mut self) {
        let mut command = Command::new("pebble");
        command
            .args(["-config".as_ref(), self.dir.path().join("pebble.json").as_os_str()])
            .args(["-dnsserver", &format!("127.0.0.1:{}", self.names)])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_WFE_NONCEREJECT", self.rejected_nonces);
        self.server = Some(Process::start(command));
        for port in [self.api, self.management] {
            eventually("pebble listens", || TcpStream::connect(("127.0.0.1", port)).ok());
        }
    }

    fn stop(&mut self) {
        self.server = None;
    }

    /// Returns the root of the certificates that it issues.
    fn root(&self) -> CertificateDer<'static> {
        let output = Command::new("curl")
            .args(["--silent", "--fail", "--cacert"])
            .arg(self.dir.path().join("ca.pem"))
            .arg(format!("https://127.0.0.1:{}/roots/0", self.management))
            .output()
            .expect("curl is installed");
        CertificateDer::from_pem_slice(&output.stdout).expect("a root")
    }

    fn acme(&self, storage: &Path) -> String {
        format!(
            "acme: {{ email: ops@example.com, storage: {}, directory: 'https://127.0.0.1:{}/dir', ca: {} }}\n",
            storage.display(),
            self.api,
            self.dir.path().join("ca.pem").display()
        )
    }
}

/// Writes an authority and the certificate of an API on loopback.
fn own_certificate(dir: &Path) {
    let key = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Another name than that of the certificate, which would look self-signed otherwise.
    params.distinguished_name.push(DnType::CommonName, "the authority of the API");
    let root = params.self_signed(&key).expect("a root");
    fs::write(dir.join("ca.pem"), root.pem()).expect("written");
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().expect("a key");
    let names = CertificateParams::new(["127.0.0.1".to_owned()]).expect("a name");
    let own = names.signed_by(&key, &issuer).expect("signed");
    fs::write(dir.join("api.pem"), own.pem()).expect("written");
    fs::write(dir.join("api.key"), key.serialize_pem()).expect("written");
}

fn text(pebble: &Pebble, storage: &Path, listeners: &str) -> String {
    let redirect = if listeners.contains("name: plain") && listeners.contains("name: web") {
        "  - { name: plain, match: { path_prefix: /, listener: plain }, redirect: https }\n"
    } else {
        ""
    };
    format!(
        "workers: 2\nlisteners:\n{listeners}admin: {{ listen: 127.0.0.1:0 }}\n{}routes:
{redirect}  - {{ name: all, match: {{ path_prefix: / }}, respond: {{ body: hello }} }}
",
        pebble.acme(storage)
    )
}

fn plain(ports: Ports) -> String {
    format!("  - {{ name: plain, listen: 127.0.0.1:{} }}\n", ports.plain)
}

fn tls(ports: Ports, certificates: &str) -> String {
    format!(
        "  - {{ name: web, listen: 127.0.0.1:{}, tls: {{ certificates: [{certificates}] }} }}\n",
        ports.tls
    )
}

/// Shakes hands as a client that trusts these roots. Returns the server's certificate.
fn handshake(
    address: SocketAddr,
    name: &'static str,
    roots: &[CertificateDer<'static>],
) -> Result<Vec<u8>, String> {
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(roots.iter().cloned());
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(store)
        .with_no_client_auth();
    let name = name.try_into().expect("a name");
    let mut connection = ClientConnection::new(Arc::new(config), name).expect("a client");
    let mut stream = TcpStream::connect(address).map_err(|error| error.to_string())?;
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    while connection.is_handshaking() {
        connection.complete_io(&mut stream).map_err(|error| error.to_string())?;
    }
    let shown = connection.peer_certificates().and_then(|chain| chain.first());
    Ok(shown.expect("a certificate").to_vec())
}

fn ordered(gateway: &Gateway) -> usize {
    gateway.log().matches("ordering a certificate").count()
}

#[test]
fn https_is_there_from_nothing_and_stays_through_renewals_and_an_outage_of_the_authority() {
    const LIFETIME: u64 = 24;
    let ports = Ports::free();
    let mut pebble = Pebble::start(ports, LIFETIME);
    let storage = tempfile::tempdir().expect("a folder");
    let both = plain(ports) + &tls(ports, "{ acme: [shop.example, www.example] }");
    let gateway = Gateway::start(&text(&pebble, &storage.path().join("acme"), &both));
    // Until there is a certificate, clients get one that no authority signed, and no error of TLS.
    let line = gateway.wait_log("the authority has issued a certificate");
    assert!(line.contains("shop.example, www.example"), "{line}");
    gateway.wait_log("certificate shop.example+");
    let mut roots = vec![pebble.root()];
    let before = handshake(ports.tls(), "shop.example", &roots).expect("a valid certificate");

    // For two and a half lifetimes, a client comes each fifth of a second. The authority is away for a
    // while in which a renewal is due, and comes back without its accounts and with another root.
    let began = Instant::now();
    let since = |seconds: u64| began.elapsed() >= Duration::from_secs(seconds);
    let mut handshakes = 0;
    let mut seen = std::collections::HashSet::from([before]);
    while !since(60) {
        if since(30) && pebble.server.is_none() {
            pebble.restart();
            roots.push(pebble.root());
        } else if since(26) && !since(30) && pebble.server.is_some() {
            pebble.stop();
        }
        for name in ["shop.example", "www.example"] {
            let shown = handshake(ports.tls(), name, &roots);
            seen.insert(shown.unwrap_or_else(|error| panic!("{error}\n{}", gateway.log())));
            handshakes += 1;
        }
        pause();
    }
    assert!(handshakes > 100, "{handshakes} handshakes");
    assert!(seen.len() >= 4, "{} certificates in a minute", seen.len());
    gateway.wait_log("creating another one");

    let issued = metrics(&gateway, "flowgate_acme_orders_total");
    let issued_count = issued.iter().find(|(labels, _)| labels.contains("issued"));
    assert!(issued_count.is_some_and(|(_, count)| *count >= 4.0), "{issued:?}");
    let failures = metrics(&gateway, "flowgate_acme_failures");
    assert_eq!(failures.values().copied().sum::<f64>(), 0.0, "{failures:?}");
    assert_eq!(failures.len(), 1);
}

#[test]
fn tls_alpn_serves_where_no_listener_is_plain() {
    let ports = Ports::free();
    let pebble = Pebble::start(ports, 3600);
    let storage = tempfile::tempdir().expect("a folder");
    let certificates = "{ acme: [a.example] }, { acme: [b.example] }";
    let gateway = Gateway::start(&text(&pebble, storage.path(), &tls(ports, certificates)));
    for name in ["a.example", "b.example"] {
        gateway.wait_log(&format!("certificate {name}.pem"));
        handshake(ports.tls(), name, &[pebble.root()]).expect(name);
    }
    assert_eq!(ordered(&gateway), 2, "{}", gateway.log());
}

#[test]
fn what_is_on_disk_is_private_and_a_restart_requests_nothing() {
    let ports = Ports::free();
    let mut pebble = Pebble::start(ports, 3600);
    let storage = tempfile::tempdir().expect("a folder");
    let folder = storage.path().join("deep/acme");
    let both = plain(ports) + &tls(ports, "{ acme: [a.example] }");
    let yaml = text(&pebble, &folder, &both);
    let gateway = Gateway::start(&yaml);
    gateway.wait_log("certificate a.example.pem");
    let before = handshake(ports.tls(), "a.example", &[pebble.root()]).expect("valid");
    assert_private(&folder);

    // An upgrade keeps it, and so does another process on the same folder while the authority is away.
    let root = pebble.root();
    pebble.stop();
    gateway.signal("USR2");
    gateway.wait_log("handed over");
    let after = handshake(ports.tls(), "a.example", std::slice::from_ref(&root)).expect("valid");
    assert_eq!(before, after);
    assert_eq!(ordered(&gateway), 1, "{}", gateway.log());
    drop(gateway);

    let ports = Ports::free();
    let both = plain(ports) + &tls(ports, "{ acme: [a.example] }");
    let rebuilt = Gateway::start(&text(&pebble, &folder, &both));
    let after = handshake(ports.tls(), "a.example", std::slice::from_ref(&root)).expect("valid");
    assert_eq!(before, after);
    assert_eq!(ordered(&rebuilt), 0, "{}", rebuilt.log());
}

fn assert_private(path: &Path) {
    let mode = fs::metadata(path).expect("there").permissions().mode() & 0o777;
    assert_eq!(mode, if path.is_dir() { 0o700 } else { 0o600 }, "{}", path.display());
    if path.is_dir() {
        for entry in fs::read_dir(path).expect("readable") {
            assert_private(&entry.expect("readable").path());
        }
    }
}

#[test]
fn gateways_that_share_a_folder_request_once_and_any_answers() {
    // The authority only reaches a gateway that orders nothing.
    let reached = Ports::free();
    let pebble = Pebble::start(reached, 3600);
    let storage = tempfile::tempdir().expect("a folder");
    let answering = Gateway::start(&text(&pebble, storage.path(), &plain(reached)));
    let others = [Ports::free(), Ports::free()];
    let gateways = others.map(|ports| {
        let both = plain(ports) + &tls(ports, "{ acme: [a.example] }");
        Gateway::start(&text(&pebble, storage.path(), &both))
    });
    for (gateway, ports) in gateways.iter().zip(others) {
        gateway.wait_log("certificate a.example.pem");
        handshake(ports.tls(), "a.example", &[pebble.root()]).expect("valid");
    }
    let orders: usize = gateways.iter().map(ordered).sum();
    assert_eq!((orders, ordered(&answering)), (1, 0));
}

#[test]
fn a_failing_authorization_is_reported_and_clients_get_a_self_signed_certificate() {
    // The authority looks elsewhere.
    let ports = Ports::free();
    let pebble = Pebble::start(Ports::free(), 3600);
    let storage = tempfile::tempdir().expect("a folder");
    let both = plain(ports) + &tls(ports, "{ acme: [a.example] }");
    let gateway = Gateway::start(&text(&pebble, storage.path(), &both));
    let line = gateway.wait_log("cannot get the certificate");
    assert!(line.contains("clients get a self-signed one; next attempt at "), "{line}");
    assert!(line.contains("cannot verify a.example"), "{line}");
    let error = handshake(ports.tls(), "a.example", &[pebble.root()]).expect_err("self-signed");
    assert!(error.contains("UnknownIssuer"), "{error}");

    let page = http::ask(gateway.address("admin"), "/readyz?verbose").text();
    assert!(page.contains("certificate for a.example: self-signed"), "{page}");
    let failures = metrics(&gateway, "flowgate_acme_failures");
    assert_eq!(failures.values().copied().collect::<Vec<_>>(), [1.0], "{failures:?}");
    assert_eq!(metrics(&gateway, "flowgate_acme_next_order_timestamp_seconds").len(), 1);
}

#[test]
fn an_unknown_challenge_goes_the_way_of_any_request() {
    let ports = Ports::free();
    let pebble = Pebble::start(ports, 3600);
    let storage = tempfile::tempdir().expect("a folder");
    let both = plain(ports) + &tls(ports, "{ acme: [a.example] }");
    let gateway = Gateway::start(&text(&pebble, storage.path(), &both));
    gateway.wait_log("certificate a.example.pem");

    // Other gateways could have placed it.
    let placed = storage.path().join("challenges/http-01/token-1");
    fs::write(&placed, "token-1.print").expect("written");
    let get = |path: &str| http::get(ports.plain(), path);
    let answer = get("/.well-known/acme-challenge/token-1");
    assert_eq!((answer.status, answer.text().as_str()), (200, "token-1.print"));
    for path in [
        "/.well-known/acme-challenge/token-2",
        "/.well-known/acme-challenge/",
        "/.well-known/acme-challenge/a.example.pem",
        "/other",
    ] {
        let answer = get(path);
        assert_eq!(answer.status, 308, "{path}: {}", answer.text());
    }
}

#[test]
fn an_external_account_and_an_edit_of_the_names() {
    let ports = Ports::free();
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let more = serde_json::json!({
        "externalAccountBindingRequired": true,
        "externalAccountMACKeys": { "kid-1": key },
    });
    let pebble = Pebble::start_with(ports, 3600, &more);
    let storage = tempfile::tempdir().expect("a folder");
    fs::write(pebble.dir.path().join("eab.key"), format!("{key}\n")).expect("written");
    let eab = format!(
        ", eab: {{ kid: kid-1, key_file: {} }} }}\n",
        pebble.dir.path().join("eab.key").display()
    );
    let yaml = |certificates: &str| {
        let both = plain(ports) + &tls(ports, certificates);
        text(&pebble, storage.path(), &both).replacen("ca.pem }\n", &format!("ca.pem{eab}"), 1)
    };
    let gateway = Gateway::start(&yaml("{ acme: [a.example] }"));
    gateway.wait_log("certificate a.example.pem");
    let before = handshake(ports.tls(), "a.example", &[pebble.root()]).expect("valid");

    let skip = gateway.log_len();
    gateway.edit(&yaml("{ acme: [a.example, b.example] }"));
    // The certificate with the one name serves until there is one with both.
    let shown = handshake(ports.tls(), "a.example", &[pebble.root()]).expect("valid at each time");
    gateway.wait_log_after(skip, "the authority has issued a certificate");
    eventually("both names are there", || {
        handshake(ports.tls(), "b.example", &[pebble.root()]).ok()
    });
    let after = handshake(ports.tls(), "a.example", &[pebble.root()]).expect("valid");
    assert!(after != before && (shown == before || shown == after));
}
