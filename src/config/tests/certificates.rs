//! Certificates from real files: what is rejected, at which value, and which one a name gets.

use crate::config::{Diagnostics, Live, Plan, Retired, Watched, read, read_rules};
use crate::flow::Instant;
use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use std::{fs, path::PathBuf};
use tempfile::TempDir;

#[test]
fn a_certificate_and_its_key_are_loaded_with_the_names() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com", "*.b.example.com"]);
    folder.certificate("c", &["c.example.com"]);
    let plan = folder.read("[{ cert: a.pem, key: a.key }, { cert: c.pem, key: c.key }]").unwrap();
    let tls = plan.listeners[0].tls.as_ref().unwrap();
    for (name, expected) in [
        (Some("a.example.com"), "a.example.com"),
        (Some("A.Example.com."), "a.example.com"),
        (Some("x.b.example.com"), "a.example.com"),
        (Some("c.example.com"), "c.example.com"),
        (Some("y.x.b.example.com"), "a.example.com"),
        (Some("unknown"), "a.example.com"),
        (None, "a.example.com"),
    ] {
        assert_eq!(tls.find(name, |_| true).names[0], expected, "{name:?}");
    }
    assert!(tls.agree("a.example.com", "z.b.example.com"));
    assert!(!tls.agree("a.example.com", "c.example.com"));
    let file = |name: &str| folder.path(name);
    assert_eq!(
        plan.files,
        Watched::files(["gateway.yaml", "a.pem", "a.key", "c.pem", "c.key"].map(file))
    );
}

#[test]
fn each_file_that_does_not_serve_is_reported_at_its_value() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    folder.certificate("b", &["b.example.com"]);
    fs::write(folder.path("junk.pem"), "not PEM").unwrap();
    fs::write(
        folder.path("odd.pem"),
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    )
    .unwrap();
    for (certificate, column, message) in [
        ("cert: none.pem, key: a.key", 35, "cannot read the certificate"),
        ("cert: a.pem, key: none.key", 47, "cannot read the key"),
        ("cert: a.pem, key: b.key", 47, "the key belongs to another certificate"),
        ("cert: junk.pem, key: a.key", 35, "junk.pem` has no certificate"),
        ("cert: a.pem, key: junk.pem", 47, "junk.pem` has no private key"),
        ("cert: odd.pem, key: a.key", 35, "odd.pem` is not an X.509 certificate"),
        ("cert: ., key: a.key", 35, "it is a folder"),
    ] {
        let problems = folder.read(&format!("[{{ {certificate} }}]")).unwrap_err();
        let diagnostics: Vec<_> = problems.list().collect();
        assert_eq!(diagnostics.len(), 1, "{problems}");
        assert!(diagnostics[0].message.contains(message), "{problems}");
        assert_eq!((diagnostics[0].line, diagnostics[0].column), (4, column), "{problems}");
    }
}

#[test]
fn problems_of_a_certificate_and_of_its_key_are_reported_together() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    folder.certificate("b", &["b.example.com"]);
    fs::write(folder.path("junk.key"), "not PEM").unwrap();
    let problems = folder
        .read("[{ cert: none.pem, key: junk.key }, { cert: a.pem, key: b.key }]")
        .unwrap_err();
    let found: Vec<_> = problems.list().map(|diagnostic| diagnostic.message).collect();
    assert_eq!(found.len(), 3, "{problems}");
    for (message, words) in found.iter().zip([
        "cannot read the certificate",
        "junk.key` has no private key",
        "the key belongs to another certificate",
    ]) {
        assert!(message.contains(words), "{problems}");
    }
}

#[test]
fn a_certificate_file_that_breaks_off_is_rejected_or_must_be_confirmed() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    folder.certificate("b", &["b.example.com"]);
    let [own, other] =
        ["a.pem", "b.pem"].map(|name| fs::read_to_string(folder.path(name)).unwrap());
    let file = "[{ cert: chain.pem, key: a.key }]";
    let write = |text: &str| fs::write(folder.path("chain.pem"), text).unwrap();
    write(&format!("{own}{other}"));
    let live = Live::start(folder.read(file).unwrap(), Instant::EPOCH);
    write(&format!("{own}{}", &other[..other.len() / 2]));
    let problems = folder.read(file).unwrap_err().to_string();
    assert!(problems.contains("chain.pem` ends within a certificate"), "{problems}");
    write(&own);
    let doubt = live.doubt(&folder.read(file).unwrap()).unwrap().to_string();
    assert!(doubt.contains("it lacks the last 1 of the 2 certificates in force"), "{doubt}");
    // Another chain is none that was cut.
    fs::copy(folder.path("b.key"), folder.path("a.key")).unwrap();
    write(&other);
    assert!(live.doubt(&folder.read(file).unwrap()).is_none());
}

#[test]
fn a_reload_names_the_certificates_that_changed() {
    let folder = Folder::new();
    for name in ["a", "b"] {
        folder.certificate(name, &["a.example.com"]);
    }
    let read = |list: &str| folder.read(list).unwrap();
    let live = Live::start(read("[{ cert: a.pem, key: a.key }]"), Instant::EPOCH);
    let mut retired = Retired::default();
    let mut apply = |plan| live.apply(plan, Instant::EPOCH, &mut retired).changes.to_string();
    assert_eq!(apply(read("[{ cert: a.pem, key: a.key }]")), "nothing changed");
    folder.certificate("a", &["a.example.com"]);
    assert_eq!(apply(read("[{ cert: a.pem, key: a.key }]")), "certificate a.pem");
    let both = read("[{ cert: a.pem, key: a.key }, { cert: b.pem, key: b.key }]");
    assert_eq!(apply(both), "listener web (+certificate b.pem)");
}

#[test]
fn what_a_store_is_trusted_by_is_reported_at_its_value_unless_only_rules_are_read() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    let file = |name: &str| folder.path(name);
    let mixed = fs::read_to_string(file("a.pem")).unwrap()
        + "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    fs::write(file("mixed.pem"), mixed).unwrap();
    let named = |ca: &str| {
        folder.write(&format!(
            "store:\n  redis: rediss://a\n  ca: {ca}\n\
             listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
             upstreams: [{{ name: app, servers: [{{ url: http://a }}] }}]\n\
             routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"
        ))
    };
    for (ca, message) in [
        ("none.pem", "cannot read the certificate"),
        ("a.key", "a.key` has no certificate to trust"),
        ("mixed.pem", "mixed.pem` has no certificate to trust"),
    ] {
        let path = named(ca);
        let problems = read(&path).unwrap_err();
        let diagnostics: Vec<_> = problems.list().collect();
        assert_eq!(
            (diagnostics[0].line, diagnostics[0].column, diagnostics.len()),
            (3, 7, 1),
            "{problems}"
        );
        assert!(diagnostics[0].message.contains(message), "{problems}");
        assert!(!problems.are_missing_files(), "no command makes it");
        assert!(read_rules(&path).is_ok(), "{ca}");
    }
    assert!(read(&named("a.pem")).is_ok());
}

#[test]
fn what_is_wrong_with_the_tls_of_an_upstream_is_reported_at_its_value() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    folder.certificate("b", &["b.example.com"]);
    let file = |scheme: &str, tls: &str| {
        folder.write(&format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
             upstreams:\n  - name: app\n    servers: [{{ url: '{scheme}a_b' }}]\n    tls: {{ {tls} }}\n\
             routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"
        ))
    };
    for (scheme, tls, column, message) in [
        ("https://", "ca: none.pem", 16, "cannot read the certificate"),
        ("https://", "ca: a.key", 16, "a.key` has no certificate to trust"),
        ("https://", "ca: a.pem, cert: none.pem, key: a.key", 29, "cannot read the certificate"),
        ("https://", "ca: a.pem, cert: a.pem, key: b.key", 41, "belongs to another certificate"),
        ("https://", "ca: a.pem, cert: a.pem", 23, "`cert` without `key`"),
        ("https://", "ca: a.pem, key: a.key", 23, "`key` without `cert`"),
        ("https://", "ca: a.pem, server_name: 'a b'", 36, "`a b` is not a name that a certificate"),
        ("http://", "ca: a.pem", 5, "`tls` without a server that speaks TLS"),
    ] {
        let path = file(scheme, tls);
        let problems = read(&path).unwrap_err();
        let diagnostics: Vec<_> = problems.list().collect();
        assert_eq!((diagnostics[0].line, diagnostics[0].column), (5, column), "{problems}");
        assert_eq!(diagnostics.len(), 1, "{problems}");
        assert!(diagnostics[0].message.contains(message), "{problems}");
        assert!(!problems.are_missing_files(), "no command makes it");
        assert!(read_rules(&path).is_ok(), "{tls}");
    }
    let path = file("https://", "ca: a.pem, cert: b.pem, key: b.key, server_name: shop.test");
    let plan = read(&path).unwrap();
    let names = ["gateway.yaml", "a.pem", "b.pem", "b.key"].map(|name| folder.path(name));
    assert_eq!(plan.files, Watched::files(names), "watched");
    let plan = read(&file("https://", "insecure: true")).unwrap();
    let warnings: Vec<_> = plan.warnings_at(Instant::EPOCH).list().collect();
    assert_eq!((warnings[0].line, warnings[0].column, warnings.len()), (5, 22, 1));
    assert_eq!(warnings[0].message, "the servers' certificates are not verified");
}

#[test]
fn the_tls_of_an_upstream_is_kept_until_it_changes() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    folder.certificate("b", &["b.example.com"]);
    let file = |more: &str| {
        folder.write(&format!(
            "listeners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
             upstreams: [{{ name: app, servers: [{{ url: https://a }}], tls: {{ ca: a.pem }}{more} }}]\n\
             routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"
        ))
    };
    let live = Live::start(read(&file("")).unwrap(), Instant::EPOCH);
    let tls = || live.load_full().upstreams[0].options.tls.clone().unwrap();
    let apply = |path: &PathBuf| {
        live.apply(read(path).unwrap(), Instant::EPOCH, &mut Retired::default()).changes.to_string()
    };
    let first = tls();
    assert_eq!(apply(&file(", max_idle: 3")), "upstream app (max_idle 1024 → 3)");
    assert!(std::sync::Arc::ptr_eq(&first, &tls()));
    fs::copy(folder.path("b.pem"), folder.path("a.pem")).unwrap();
    assert_eq!(apply(&file(", max_idle: 3")), "upstream app (tls)");
    assert!(!std::sync::Arc::ptr_eq(&first, &tls()));
}

#[test]
fn a_missing_file_names_its_whole_path_and_is_listed_before_it_exists() {
    let folder = Folder::new();
    let certificates = "[{ cert: certs/a.pem, key: /k/a.key }]";
    let problems = folder.read(certificates).unwrap_err();
    let drawn = problems.to_string();
    assert!(drawn.contains(&folder.path("certs/a.pem").display().to_string()), "{drawn}");
    let files = problems.certificate_files();
    assert_eq!(files, [(folder.path("certs/a.pem"), PathBuf::from("/k/a.key"))]);
}

#[test]
fn tls_without_a_certificate_is_rejected() {
    let problems = Folder::new().read("[]").unwrap_err();
    assert_eq!(problems.list().next().unwrap().message, "`certificates` is empty");
}

#[test]
fn a_certificate_out_of_date_is_warned_of_at_its_value() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    let plan = folder.read("[{ cert: a.pem, key: a.key }]").unwrap();
    let warnings = |seconds: u64| plan.warnings_at(Instant::from_nanos(seconds * 1_000_000_000));
    for (now, expected) in [
        (981_158_399, "the certificate is not valid before 2001-02-03T00:00:00Z"),
        (1_795_219_201, "the certificate has expired: it was valid until 2026-11-21T00:00:00Z"),
    ] {
        let found: Vec<_> = warnings(now).list().collect();
        assert_eq!(found.len(), 1);
        assert_eq!((&*found[0].message, found[0].line, found[0].column), (expected, 4, 35));
    }
    assert!([981_158_400, 1_795_219_200].into_iter().all(|now| warnings(now).is_empty()));
}

#[test]
fn a_certificate_that_ends_before_it_begins_is_warned_of_at_any_time() {
    let folder = Folder::new();
    folder.certificate_of("a", &["a.example.com"], (2026, 2001));
    let plan = folder.read("[{ cert: a.pem, key: a.key }]").unwrap();
    for seconds in [0, 981_158_400, 1_795_219_201] {
        let found = plan.warnings_at(Instant::from_nanos(seconds * 1_000_000_000));
        let found: Vec<_> = found.list().map(|diagnostic| diagnostic.message).collect();
        assert_eq!(found, ["the certificate is never valid: its time ends before it begins"]);
    }
}

#[test]
fn a_host_that_no_certificate_names_is_warned_of() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com", "*.b.example.com"]);
    let found = |certificates: &str, route: &str| -> Vec<String> {
        let text = format!(
            "listeners:\n  - {{ name: web, listen: 127.0.0.1:0 }}\n  \
             - {{ name: tls, listen: 127.0.0.1:0, tls: {{ certificates: {certificates} }} }}\n\
             routes: [{{ name: r, match: {{ {route} }}, respond: 204 }}]\n"
        );
        let plan = read(&folder.write(&text)).unwrap();
        let warnings = plan.warnings_at(Instant::from_nanos(1_000_000_000_000_000_000));
        warnings.list().map(|diagnostic| (*diagnostic.message).to_owned()).collect()
    };
    let own = "[{ cert: a.pem, key: a.key }]";
    for covered in [
        "path: /",
        "host: a.example.com",
        "host: [x.b.example.com, '*.b.example.com']",
        "host: c.example.com, listener: web",
        "host: [192.0.2.1, '[2001:db8::1]', localhost, a.localhost]",
    ] {
        assert_eq!(found(own, covered), Vec::<String>::new(), "{covered}");
    }
    for (route, host) in [
        ("host: c.example.com", "c.example.com"),
        ("host: [a.example.com, b.example.com]", "b.example.com"),
        ("host: y.x.b.example.com, listener: [web, tls]", "y.x.b.example.com"),
        ("host: '*.example.com'", "*.example.com"),
    ] {
        assert_eq!(found(own, route), [format!("no certificate names the host `{host}`")]);
    }
    folder.certificate("c", &["c.example.com"]);
    let both = "[{ cert: a.pem, key: a.key }, { cert: c.pem, key: c.key }]";
    assert_eq!(found(both, "host: c.example.com"), Vec::<String>::new());
    folder.certificate("trial", &["localhost"]);
    let trial = "[{ cert: trial.pem, key: trial.key }]";
    assert_eq!(found(trial, "host: c.example.com"), Vec::<String>::new());
    // That it has no name is said already.
    folder.certificate("none", &[]);
    let none = "[{ cert: none.pem, key: none.key }]";
    assert_eq!(found(none, "host: c.example.com"), ["the certificate names no host"]);
}

#[test]
fn a_private_key_never_reaches_a_log() {
    let folder = Folder::new();
    folder.certificate("a", &["a.example.com"]);
    let plan = folder.read("[{ cert: a.pem, key: a.key }]").unwrap();
    let shown = format!("{:?}", plan.listeners[0]);
    assert!(shown.contains("a.example.com") && shown.len() < 400, "{shown}");
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn certificate(&self, name: &str, hosts: &[&str]) {
        self.certificate_of(name, hosts, (2001, 2026));
    }

    /// Writes one that is valid from 3 February of a year to 21 November of another.
    fn certificate_of(&self, name: &str, hosts: &[&str], (from, to): (i32, i32)) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(hosts).unwrap();
        params.not_before = date_time_ymd(from, 2, 3);
        params.not_after = date_time_ymd(to, 11, 21);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        fs::write(self.path(&format!("{name}.pem")), certificate.pem()).unwrap();
        fs::write(self.path(&format!("{name}.key")), key.serialize_pem()).unwrap();
    }

    fn read(&self, certificates: &str) -> Result<Plan, Diagnostics> {
        let text = format!(
            "listeners:\n  - name: web\n    listen: 127.0.0.1:0\n    tls: {{ certificates: {certificates} }}\n\
             upstreams: [{{ name: app, servers: [{{ url: http://a }}] }}]\n\
             routes: [{{ name: r, match: {{ path: / }}, upstream: app }}]\n"
        );
        read(&self.write(&text))
    }

    fn write(&self, text: &str) -> PathBuf {
        let path = self.path("gateway.yaml");
        fs::write(&path, text).unwrap();
        path
    }
}
