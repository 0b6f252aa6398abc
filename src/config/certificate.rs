//! Certificates: two PEM files to a key that TLS can sign with, and the names it is good for.

use super::{
    decode::At,
    node::Place,
    problem::{Problem, quoted},
    source::Files,
    spec::CertificateSpec,
};
use crate::flow::Instant;
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use tokio_rustls::rustls::{
    self, InconsistentKeys, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem, pem::PemObject},
    sign::CertifiedKey,
};
use webpki::KeyUsage;

/// A certificate, its chain and its key.
pub struct Certificate {
    /// The DNS names of the certificate, lower-case; a wildcard begins with `*.`.
    pub names: Vec<String>,
    /// The chain and the key, which belong together.
    pub key: Arc<CertifiedKey>,
    /// Where the file names it.
    place: Place,
}

/// The certificates of a listener, at least one.
#[derive(Debug)]
pub struct Certificates {
    list: Vec<Certificate>,
}

impl Certificates {
    /// Returns certificates in the order of the file, or `None` if there is none.
    pub(super) fn new(list: Vec<Certificate>) -> Option<Self> {
        (!list.is_empty()).then_some(Self { list })
    }

    /// Returns the certificate for the server name that a client asks for: one with exactly that
    /// name, else one with a wildcard for it, else the first of the file.
    pub fn find(&self, server_name: Option<&str>) -> &Certificate {
        let found = server_name.and_then(|name| self.position(name));
        &self.list[found.unwrap_or_default()]
    }

    /// Reports whether both names are served by one certificate, so that a request for `host` may
    /// come over a connection that was opened for `server_name`.
    pub fn agree(&self, server_name: &str, host: &str) -> bool {
        let index = |name: &str| self.position(name).unwrap_or_default();
        index(server_name) == index(host)
    }

    /// Returns all certificates, in the order of the file.
    pub fn iter(&self) -> impl Iterator<Item = &Certificate> {
        self.list.iter()
    }

    fn position(&self, name: &str) -> Option<usize> {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        let exact = |c: &Certificate| c.names.contains(&name);
        let wildcard = |c: &Certificate| {
            c.names.iter().any(|n| n.strip_prefix("*.").is_some_and(|n| Some(n) == parent))
        };
        self.list.iter().position(exact).or_else(|| self.list.iter().position(wildcard))
    }
}

impl Certificate {
    /// Makes a certificate of the two files that `spec` names.
    ///
    /// # Errors
    /// A file that cannot be read or holds no PEM, or a key of another certificate; each at the
    /// value that names the file.
    pub(super) fn load(spec: &CertificateSpec, files: &Files) -> Result<Self, Problem> {
        let cert = contents(files, &spec.cert.value, "certificate")
            .map_err(|problem| problem(spec.cert.place))?;
        let key = contents(files, &spec.key.value, "key").map_err(|p| p(spec.key.place))?;
        let refuse =
            |place, message: String, help: &str| Err(Problem::error(place, message).help(help));

        let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(cert).collect();
        let chain = match chain {
            Ok(chain) if !chain.is_empty() => chain,
            _ => {
                let message = format!("{} holds no certificate", shown(&spec.cert.value));
                let help = "write a PEM file with `-----BEGIN CERTIFICATE-----`";
                return refuse(spec.cert.place, message, help);
            }
        };
        let Ok(key) = PrivateKeyDer::from_pem_slice(key) else {
            let message = format!("{} holds no private key", shown(&spec.key.value));
            let help = "write a PEM file with `-----BEGIN PRIVATE KEY-----`, without a passphrase";
            return refuse(spec.key.place, message, help);
        };
        let names = match webpki::EndEntityCert::try_from(&chain[0]) {
            Ok(cert) => cert.valid_dns_names().map(str::to_ascii_lowercase).collect(),
            Err(error) => {
                let message =
                    format!("{} is no X.509 certificate: {error}", shown(&spec.cert.value));
                return refuse(
                    spec.cert.place,
                    message,
                    "write the server's own certificate first",
                );
            }
        };
        match CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()) {
            Ok(key) => Ok(Self { names, key: Arc::new(key), place: spec.cert.place }),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                Err(Problem::error(spec.key.place, "the key belongs to another certificate")
                    .label("this key")
                    .also(spec.cert.place, "is not that of this certificate")
                    .help("write the two files that were made together"))
            }
            Err(error) => {
                let message = format!("{} cannot be used: {error}", shown(&spec.key.value));
                refuse(spec.key.place, message, "write an RSA, ECDSA or Ed25519 key")
            }
        }
    }

    /// Returns a warning if the certificate is not valid at `now`.
    pub(super) fn out_of_date(&self, now: Instant) -> Option<Problem> {
        let checked = webpki::EndEntityCert::try_from(self.key.cert.first()?).ok()?;
        let (now, usage) =
            (UnixTime::since_unix_epoch(now.since(Instant::EPOCH)), KeyUsage::server_auth());
        // Without anchors all certificates fail; those out of date fail by that, which is
        // looked at first.
        let failed = checked.verify_for_usage(&[], &[], &[], now, usage, None, None).err();
        let message = if let Some(webpki::Error::CertExpired { not_after, .. }) = failed {
            format!("the certificate has expired: it was valid until {}", shown_time(not_after))
        } else if let Some(webpki::Error::CertNotValidYet { not_before, .. }) = failed {
            format!("the certificate is not valid before {}", shown_time(not_before))
        } else if let Some(webpki::Error::InvalidCertValidity) = failed {
            "the certificate is never valid: its time ends before it begins".to_owned()
        } else {
            return None;
        };
        Some(Problem::warning(self.place, message).help("clients refuse it; get another one"))
    }
}

// The key inside must never reach a log.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Looks whether a file holds certificates that can be trusted, as a client of them will.
///
/// # Errors
/// A file that cannot be read, or holds no such certificate; at the value that names the file.
pub(super) fn authorities(file: &At<PathBuf>, files: &Files) -> Result<(), Problem> {
    let pem = contents(files, &file.value, "certificate")
        // It is none of those that are made where they are missing.
        .map_err(|problem| problem(file.place).missing_file(false))?;
    let mut trusted = RootCertStore::empty();
    let each = CertificateDer::pem_slice_iter(pem);
    let added: Option<Vec<()>> = each.map(|it| trusted.add(it.ok()?).ok()).collect();
    if added.is_some_and(|added| !added.is_empty()) {
        return Ok(());
    }
    let message = format!("{} holds no certificate to be trusted", shown(&file.value));
    Err(Problem::error(file.place, message)
        .help("write a PEM file with `-----BEGIN CERTIFICATE-----`"))
}

/// Returns what the file holds, or what is wrong with it, still without its place.
fn contents<'f>(
    files: &'f Files,
    path: &Path,
    what: &str,
) -> Result<&'f [u8], impl FnOnce(Place) -> Problem> {
    let (why, is_missing) = match files.get(path) {
        Some(Ok(bytes)) => return Ok(bytes),
        Some(Err(why)) => (why.to_string(), why.kind() == io::ErrorKind::NotFound),
        None => ("it was not read".to_owned(), false),
    };
    let message = format!("cannot read the {what} {}: {why}", shown(path));
    Err(move |place| {
        Problem::error(place, message)
            .help("write the name of a PEM file; relative names are meant from this file's folder")
            .missing_file(is_missing)
    })
}

/// Writes a time as `2026-11-21T05:00:00Z`; years beyond 9999, which X.509 cannot write either, as
/// the last second of that.
fn shown_time(time: UnixTime) -> String {
    const LAST: Duration = Duration::from_secs(253_402_300_799);
    let time = Duration::from_secs(time.as_secs()).min(LAST);
    humantime::format_rfc3339_seconds(UNIX_EPOCH + time).to_string()
}

fn shown(path: &Path) -> String {
    quoted(&path.to_string_lossy())
}
