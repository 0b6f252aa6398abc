//! An admin listener that takes operators by their certificates, and the commands that ask it.

use crate::common::{Gateway, http};
use std::{fs, path::Path, process::Command};

const YAML: &str = "\
workers: 1
listeners: [{ name: web, listen: 127.0.0.1:0 }]
admin:
  listen: 127.0.0.1:0
  show_keys: true
  tls: { cert: gateway.pem, key: gateway.key, client_ca: operators.pem }
routes:
  - name: login
    match: { path: /login }
    respond: { status: 200 }
    flow: [{ name: per-address, limit: 5/6h, burst: 5, key: client_ip }]
end: true
";

/// Writes a certificate with its key and the authority that has signed it: `NAME.pem`, `NAME.key` and
/// `NAMEs.pem`.
fn sign(folder: &Path, name: &str) {
    let mut authority = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    let ca = authority.self_signed(&key).expect("signed");
    let issuer = rcgen::Issuer::new(authority, key);
    let own = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("a name");
    let certificate = certificate.signed_by(&own, &issuer).expect("signed");
    let write = |name: String, text: String| fs::write(folder.join(name), text).expect("written");
    write(format!("{name}.pem"), certificate.pem());
    write(format!("{name}.key"), own.serialize_pem());
    write(format!("{name}s.pem"), ca.pem());
}

fn start() -> Gateway {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["gateway", "operator", "stranger"] {
        sign(folder.path(), name);
    }
    Gateway::start_in(folder, YAML, &[])
}

/// Runs a command against the gateway. Returns its exit code and what it prints.
fn run(gateway: &Gateway, arguments: &[&str], options: &[&str]) -> (i32, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    let url = format!("https://{}", gateway.address("admin"));
    command.args(arguments).args(["--admin", &url, "--ca", "gateways.pem"]).args(options);
    command.current_dir(gateway.dir.path()).env_remove("FLOWGATE_ADMIN_TOKEN");
    let output = command.output().expect("it runs");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("an exit code"), String::from_utf8(text).expect("a text"))
}

#[test]
fn every_command_may_ask_by_a_certificate() {
    let gateway = start();
    assert_eq!(http::get(gateway.web(), "/login").status, 200);
    for (arguments, code, expected) in [
        (&["explain", "/login"][..], 0, "per-address"),
        (&["rejections"], 0, "rejections since the start: 0"),
        (&["keys"], 0, "used            1 of 5"),
        (&["reset", "login", "per-address", "--all"], 0, "has its whole budget again"),
        (&["grant", "login", "per-address", "127.0.0.1", "3", "--for", "10m"], 0, "has 3 more"),
        (&["top", "--once"], 0, "login"),
        (&["preview", "gateway.yaml", "--for", "1s"], 0, ""),
        (&["apply"], 1, "preview"),
        (&["suggest", "--live", "--for", "1s"], 1, "0 requests of the gateway at https://"),
    ] {
        let identity = ["--client-cert", "operator.pem", "--client-key", "operator.key"];
        let (found, text) = run(&gateway, arguments, &identity);
        assert!(found == code && text.contains(expected), "{arguments:?}: {found} {text}");
        let (code, text) = run(&gateway, arguments, &[]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("--client-cert"), "{text}");
    }
}

#[test]
fn a_certificate_that_cannot_be_shown_or_is_not_taken_is_named() {
    let gateway = start();
    let with = |cert: &str, key: &str| {
        run(&gateway, &["keys"], &["--client-cert", cert, "--client-key", key])
    };
    for (cert, key, expected) in [
        ("none.pem", "operator.key", "cannot use none.pem"),
        ("operator.key", "operator.key", "cannot use operator.key: no certificate is there"),
        ("operator.pem", "none.key", "cannot use none.key"),
        ("operator.pem", "operator.pem", "no private key is there"),
        ("operator.pem", "stranger.key", "cannot use stranger.key"),
        ("stranger.pem", "stranger.key", "the admin listener at https://"),
    ] {
        let (code, text) = with(cert, key);
        assert!(code == 2 && text.contains(expected), "{cert} {key}: {code} {text}");
    }
    let (code, text) = run(&gateway, &["keys"], &["--client-cert", "operator.pem"]);
    assert!(code == 2 && text.contains("--client-key"), "{text}");

    let tls = "  tls: { cert: gateway.pem, key: gateway.key, client_ca: operators.pem }\n";
    let plain = Gateway::start(&YAML.replace(tls, ""));
    let admin = plain.address("admin").to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
    let identity = ["--client-cert", "operator.pem", "--client-key", "operator.key"];
    command.args(["keys", "--admin", &admin]).args(identity).current_dir(gateway.dir.path());
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && text.contains("has no TLS"), "{text}");
}
