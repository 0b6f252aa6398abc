//! Certificates of servers that the standard library of TLS does not take: of version 1, with a common
//! name alone, with extensions that nobody knows.

use crate::common::{
    Gateway, http,
    tls_server::{TlsServer, config_of},
};
use rcgen::{BasicConstraints, CertificateParams, CustomExtension, DnType, IsCa, KeyPair};
use std::fs;
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The tags of a version and of extensions in a certificate.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;

/// Returns the tag of the first value of some, its content, and what follows.
fn value(der: &[u8]) -> (u8, &[u8], &[u8]) {
    let (length, start) = match der[1] {
        short if short < 0x80 => (usize::from(short), 2),
        0x81 => (usize::from(der[2]), 3),
        0x82 => (usize::from(der[2]) << 8 | usize::from(der[3]), 4),
        other => panic!("a length of {other:#x}"),
    };
    let (content, rest) = der[start..].split_at(length);
    (der[0], content, rest)
}

fn encoded(tag: u8, content: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(content.len()).expect("short").to_be_bytes();
    let length = match (high, low) {
        (0, ..0x80) => vec![low],
        (0, _) => vec![0x81, low],
        _ => vec![0x82, high, low],
    };
    [&[tag], &length[..], content].concat()
}

/// Makes a certificate one of version 1. Its signature is wrong by that, which nobody looks at.
pub(crate) fn version_1(certificate: &[u8]) -> Vec<u8> {
    let (_, whole, _) = value(certificate);
    let (sequence, mut fields, signature) = value(whole);
    let mut kept = Vec::new();
    while !fields.is_empty() {
        let (tag, _, rest) = value(fields);
        if tag != VERSION && tag != EXTENSIONS {
            kept.extend_from_slice(&fields[..fields.len() - rest.len()]);
        }
        fields = rest;
    }
    encoded(sequence, &[&encoded(sequence, &kept), signature].concat())
}

/// A certificate that its server has signed itself, with its key.
fn certificate(common_name: &str, edit: impl Fn(&mut CertificateParams)) -> (Vec<u8>, KeyPair) {
    let mut params = CertificateParams::new(Vec::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, common_name);
    edit(&mut params);
    let key = KeyPair::generate().expect("a key");
    let made = params.self_signed(&key).expect("a certificate");
    (made.der().to_vec(), key)
}

fn as_authority(params: &mut CertificateParams) {
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
}

fn with_critical_extension(params: &mut CertificateParams) {
    let mut extension = CustomExtension::from_oid_content(&[1, 2, 3, 4], vec![5, 0]);
    extension.set_criticality(true);
    params.custom_extensions.push(extension);
}

/// Writes a certificate as `own.pem`.
fn write(folder: &TempDir, certificate: &[u8]) {
    use base64::Engine;
    let text = base64::prelude::BASE64_STANDARD.encode(certificate);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    fs::write(folder.path().join("own.pem"), pem).expect("written");
}

fn text(server: &TlsServer, host: &str, tls: &str) -> String {
    format!(
        "workers: 1\nlisteners: [{{ name: web, listen: 127.0.0.1:0 }}]\n\
         upstreams: [{{ name: up, servers: [{{ url: 'https://{host}:{}' }}], tls: {tls} }}]\n\
         routes: [{{ name: all, match: {{ path_prefix: / }}, upstream: up }}]\n",
        server.address.port()
    )
}

/// Starts a server with a certificate and a key, which may be another one's, that speaks TLS 1.2 or
/// 1.3 alone.
fn serve(certificate: &[u8], key: &KeyPair, is_tls12: bool) -> TlsServer {
    let chain = vec![CertificateDer::from(certificate.to_vec())];
    TlsServer::start(config_of(chain, key, is_tls12), "")
}

const PINNED: &str = "{ ca: own.pem }";
const INSECURE: &str = "{ insecure: true }";

#[test]
fn a_certificate_that_is_trusted_itself_may_be_of_version_1_or_have_a_common_name_only() {
    let unchanged = |_: &mut CertificateParams| {};
    let (plain, plain_key) = certificate("localhost", unchanged);
    let (authority, authority_key) = certificate("localhost", as_authority);
    let (address, address_key) = certificate("127.0.0.1", as_authority);
    let (first, first_key) = certificate("localhost", unchanged);
    for (own, key, host, other) in [
        (plain, plain_key, "localhost", "127.0.0.1"),
        (authority, authority_key, "localhost", "127.0.0.1"),
        (address, address_key, "127.0.0.1", "localhost"),
        (version_1(&first), first_key, "localhost", "127.0.0.1"),
    ] {
        for is_tls12 in [false, true] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            write(&folder, &own);
            let server = serve(&own, &key, is_tls12);
            let gateway = Gateway::start_in(folder, &text(&server, host, PINNED), &[]);
            assert_eq!(http::get(gateway.web(), "/").status, 200, "{}", gateway.log());
            gateway.edit(&text(&server, other, PINNED));
            assert_eq!(http::get(gateway.web(), "/").status, 502, "its name is still verified");
            gateway.edit(&text(&server, other, INSECURE));
            assert_eq!(http::get(gateway.web(), "/").status, 200, "{}", gateway.log());
        }
    }
}

#[test]
fn a_server_that_has_not_the_key_of_its_certificate_gets_no_request() {
    let (own, _) = certificate("localhost", |_| {});
    let own = version_1(&own);
    let other_key = KeyPair::generate().expect("a key");
    for is_tls12 in [false, true] {
        for tls in [PINNED, INSECURE] {
            let folder = tempfile::tempdir().expect("a temporary directory");
            write(&folder, &own);
            let server = serve(&own, &other_key, is_tls12);
            let gateway = Gateway::start_in(folder, &text(&server, "localhost", tls), &[]);
            assert_eq!(http::get(gateway.web(), "/").status, 502, "{tls}");
            gateway.wait_log("TLS: invalid peer certificate: BadSignature");
            assert!(server.seen().is_empty(), "{tls}");
        }
    }
}

#[test]
fn insecure_takes_a_critical_extension_and_otherwise_the_log_says_what_to_do() {
    let (critical, critical_key) = certificate("localhost", with_critical_extension);
    let (first, first_key) = certificate("localhost", |_| {});
    let (nameless, nameless_key) = certificate("localhost", |_| {});
    let (pinned, _) = certificate("elsewhere", |_| {});
    for (own, key, cause) in [
        (critical, critical_key, "a critical extension that flowgate does not know"),
        (version_1(&first), first_key, "of version 1: give the server one of version 3"),
        (nameless, nameless_key, "UnknownIssuer"),
    ] {
        let folder = tempfile::tempdir().expect("a temporary directory");
        // Another one is trusted.
        write(&folder, &pinned);
        let server = serve(&own, &key, false);
        let gateway = Gateway::start_in(folder, &text(&server, "localhost", PINNED), &[]);
        assert_eq!(http::get(gateway.web(), "/").status, 502, "{cause}");
        let line = gateway.wait_log("cannot connect: TLS");
        assert!(line.contains(cause), "{line}");
        gateway.edit(&text(&server, "localhost", INSECURE));
        assert_eq!(http::get(gateway.web(), "/").status, 200, "{}", gateway.log());
    }
}
