//! Certificates by ACME: what is wrong with them in a file, and what `check` notes.

use crate::{
    config::{Diagnostics, Origin, Plan, read},
    flow::Instant,
};
use std::fs;
use tempfile::TempDir;

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    /// Reads a file with these certificates, with `acme`, and with a listener without TLS if `plain`.
    fn read(&self, certificates: &str, acme: &str, plain: bool) -> Result<Plan, Diagnostics> {
        let plain = if plain { "  - { name: plain, listen: ':80' }\n" } else { "" };
        let text = format!(
            "listeners:
  - name: web
    listen: ':443'
    tls: {{ certificates: [{certificates}] }}
{plain}{acme}
routes: [{{ name: all, match: {{ host: a.example }}, respond: {{ status: 200 }} }}]
end: true
"
        );
        self.write("gateway.yaml", &text);
        read(&self.0.path().join("gateway.yaml"))
    }

    #[track_caller]
    fn problem(&self, certificates: &str, acme: &str) -> String {
        let problems = self.read(certificates, acme, true).unwrap_err();
        assert_eq!(problems.list().count(), 1, "{problems}");
        problems.to_string()
    }
}

const ACME: &str = "acme: { storage: store }";

#[test]
fn names_are_written_where_files_would_be() {
    let folder = Folder::new();
    let acme = "acme: { email: ops@example.com, storage: store, directory: staging }";
    let plan = folder.read("{ acme: [A.example, b.example] }, { acme: c.example }", acme, true);
    let plan = plan.unwrap();
    let acme = plan.settings.acme.as_ref().unwrap();
    assert_eq!(acme.directory, "https://acme-staging-v02.api.letsencrypt.org/directory");
    assert_eq!(acme.email.as_deref(), Some("ops@example.com"));
    assert!(acme.has_plain_listener);
    let names: Vec<_> = acme.orders.iter().map(|order| order.names.join(" ")).collect();
    assert_eq!(names, ["a.example b.example", "c.example"]);
    assert!(acme.orders.iter().all(|order| order.file.starts_with(folder.0.path().join("store"))));

    // Until they are issued, clients get self-signed ones, each for its names.
    let tls = plan.listeners[0].tls.as_ref().unwrap();
    for name in ["a.example", "b.example", "c.example"] {
        let shown = tls.find(Some(name), |_| true);
        assert!(shown.names.contains(&name.to_owned()));
        assert_eq!(shown.origin, Origin::SelfSigned);
    }
    assert!(plan.certificates().is_empty(), "they are not reported as certificates");
    assert!(!folder.0.path().join("store").exists(), "reading a file writes nothing");
}

#[test]
fn each_mistake_is_reported_with_what_to_write() {
    let folder = Folder::new();
    for (certificates, acme, words) in [
        ("{ acme: ['*.example.com'] }", ACME, &["wildcard", "DNS-01"][..]),
        ("{ acme: [192.0.2.1] }", ACME, &["is an address"]),
        ("{ acme: [a.example], cert: a.pem }", ACME, &["beside the files"]),
        ("{ acme: [] }", ACME, &["without a name"]),
        ("{ acme: [a.example, A.example] }", ACME, &["there twice"]),
        ("{ acme: [a.example] }", "", &["no authority", "write `acme: { email:"]),
        ("{ cert: a.pem }", ACME, &["`key` is missing", "acme: [NAMES]"]),
        ("{ key: a.key }", ACME, &["`cert` is missing"]),
        ("{ }", ACME, &["has no files"]),
        ("{ domains: [a.example] }", ACME, &["acme"]),
        ("{ acme: [a.example] }", "acme: { directory: 'http://ca.example/' }", &["no TLS"]),
        ("{ acme: [a.example] }", "acme: { directory: zerossl }", &["not a directory"]),
        ("{ acme: [a.example] }", "acme: { email: ops }", &["not an address of mail"]),
        ("{ acme: [a.example] }", "acme: { ca: none.pem }", &["cannot read the certificate"]),
        (
            "{ acme: [a.example] }",
            "acme: { eab: { kid: a, key_file: none.key } }",
            &["cannot read the key of the account"],
        ),
        ("{ acme: [a.example] }", "acme: { eab: { kid: a } }", &["key_file"]),
    ] {
        let problem = folder.problem(certificates, acme);
        for words in words {
            assert!(problem.contains(words), "{certificates} {acme}: {problem}");
        }
    }
    let many: Vec<_> = (0..101).map(|number| format!("a{number}.example")).collect();
    let problem = folder.problem(&format!("{{ acme: [{}] }}", many.join(", ")), ACME);
    assert!(problem.contains("101 names"), "{problem}");
}

#[test]
fn the_key_of_an_account_is_read_and_never_shown() {
    let folder = Folder::new();
    let acme = "acme: { eab: { kid: kid-1, key_file: eab.key } }";
    folder.write("eab.key", "c2VjcmV0LXNlY3JldA==\n");
    let plan = folder.read("{ acme: [a.example] }", acme, true).unwrap();
    let eab = plan.settings.acme.as_ref().unwrap().eab.clone().unwrap();
    assert_eq!((&*eab.kid, eab.key.reveal()), ("kid-1", "c2VjcmV0LXNlY3JldA"));
    assert!(!format!("{:?}", plan.settings).contains("c2Vj"));
    for wrong in ["", "not base64!", "\u{e9}"] {
        folder.write("eab.key", wrong);
        let problem = folder.problem("{ acme: [a.example] }", acme);
        assert!(problem.contains("has no key in base64url"), "{problem}");
        assert!(!problem.contains("not base64!"), "{problem}");
    }
}

#[test]
fn check_notes_names_without_a_route_and_a_file_without_a_plain_listener() {
    let folder = Folder::new();
    let notes = |certificates: &str, acme: &str, plain| {
        let plan = folder.read(certificates, acme, plain).unwrap();
        plan.remarks_at(Instant::EPOCH).to_string()
    };
    let found = notes("{ acme: [a.example, other.example] }", ACME, true);
    assert!(found.contains("note[acme-name-without-route]: no route has the host `other.example`"));
    assert!(!found.contains("`a.example`") && !found.contains("plain"), "{found}");
    let found = notes("{ acme: [a.example] }", ACME, false);
    assert!(found.contains("note[acme-without-plain-listener]"), "{found}");
    assert!(found.contains("TLS-ALPN-01"), "{found}");
    assert_eq!(notes("{ acme: [a.example] }", ACME, true), "");

    let text = "acme: {}\nlisteners: [{ name: web, listen: ':80' }]\nroutes: [{ name: all, match: { path_prefix: / }, respond: { status: 200 } }]\nend: true\n";
    folder.write("gateway.yaml", text);
    let plan = read(&folder.0.path().join("gateway.yaml")).unwrap();
    assert!(plan.remarks_at(Instant::EPOCH).to_string().contains("note[acme-unused]"));
}

#[test]
fn the_terms_of_tls_are_checked() {
    let folder = Folder::new();
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(["ca.example".to_owned()]).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    folder.write("ca.pem", &params.self_signed(&key).unwrap().pem());
    let terms = |terms: &str| {
        let text = format!(
            "listeners: [{{ name: web, listen: ':443', tls: {{ certificates: [{{ acme: a.example }}], {terms} }} }}]\nacme: {{ storage: store }}\nroutes: [{{ name: all, match: {{ path_prefix: / }}, respond: {{ status: 200 }} }}]\n"
        );
        folder.write("gateway.yaml", &text);
        read(&folder.0.path().join("gateway.yaml"))
    };
    for (text, needs_tls13, is_required) in [
        ("client_ca: ca.pem", false, Some(true)),
        ("client_ca: ca.pem, client_auth: optional, min_version: 1.3", true, Some(false)),
        ("min_version: '1.2'", false, None),
    ] {
        let plan = terms(text).unwrap();
        let found = &plan.listeners[0].terms;
        assert_eq!(found.needs_tls13, needs_tls13);
        assert_eq!(found.clients.as_ref().map(|clients| clients.is_required), is_required);
    }
    for (text, words) in [
        ("client_auth: optional", "`client_auth` without `client_ca`"),
        ("client_ca: none.pem", "cannot read the certificate"),
        ("min_version: 1.1", "TLS 1.1 is not supported"),
        ("min_version: 1.4", "not a version of TLS"),
        ("client_ca: ca.pem, client_auth: maybe", "client_auth"),
        ("ssl_verify_client: on", "client_auth"),
    ] {
        let problems = terms(text).unwrap_err().to_string();
        assert!(problems.contains(words), "{text}: {problems}");
    }
}
