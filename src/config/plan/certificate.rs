//! Certificates: two PEM files to a key that TLS can sign with, and the names it is good for.

use crate::{
    config::{
        decode::At,
        diagnostics::{Lint, Problem, SourceSpan, quoted},
        read::source::Files,
        spec::CertificateFiles,
    },
    flow::Instant,
};
use rustls::{
    InconsistentKeys, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{
        CertificateDer, PrivateKeyDer, UnixTime,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};
use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};
use webpki::KeyUsage;

/// The origin of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Files that the configuration names.
    Files,
    /// The authority, by ACME. flowgate renews it.
    Acme,
    /// flowgate, until the authority has issued one.
    SelfSigned,
}

/// A certificate, its chain and its key.
#[derive(Clone)]
pub struct Certificate {
    /// The DNS names of the certificate, lower-case; a wildcard begins with `*.`.
    pub names: Vec<String>,
    /// The chain and the key, which belong together.
    pub key: Arc<CertifiedKey>,
    /// The file of the chain.
    pub path: PathBuf,
    /// The last second in which it is valid, since 1970.
    pub not_after: u64,
    /// Its origin.
    pub origin: Origin,
    /// Where the file names it.
    pub(in crate::config) span: SourceSpan,
}

/// The certificates of a listener, at least one.
#[derive(Debug)]
pub struct Certificates {
    list: Vec<Certificate>,
}

impl Certificates {
    /// Returns certificates in the order of the file, or `None` if there is none.
    pub(in crate::config) fn new(list: Vec<Certificate>) -> Option<Self> {
        (!list.is_empty()).then_some(Self { list })
    }

    /// Returns these with what `kept` has in place of self-signed certificates; `None` if nothing
    /// changes.
    pub(in crate::config) fn keeping<'k>(
        &self,
        kept: impl Fn(&Path) -> Vec<&'k Certificate>,
    ) -> Option<Self> {
        let mut has_changed = false;
        let mut list = Vec::with_capacity(self.list.len());
        for certificate in &self.list {
            let others =
                if certificate.is_self_signed() { kept(&certificate.path) } else { Vec::new() };
            has_changed |= !others.is_empty();
            list.extend(others.into_iter().cloned());
            list.push(certificate.clone());
        }
        has_changed.then_some(Self { list })
    }

    /// Returns the certificate for the server name that a client asks for: one with exactly that
    /// name, else one with a wildcard for it, else the first of the file. If the client cannot verify
    /// its key, which `is_accepted` reports, it is the first with the same names whose key the client
    /// can verify, such as one with an RSA key beside one with an ECDSA key.
    pub fn find(
        &self,
        server_name: Option<&str>,
        is_accepted: impl Fn(&CertifiedKey) -> bool,
    ) -> &Certificate {
        let found = server_name.and_then(|name| self.position(name));
        let first = &self.list[found.unwrap_or_default()];
        let is_other = |other: &&Certificate| other.has_names_of(first) && is_accepted(&other.key);
        if is_accepted(&first.key) {
            return first;
        }
        self.list.iter().find(is_other).unwrap_or(first)
    }

    /// Reports whether both names are served by one certificate, so that a request for `host` may
    /// come over a connection that was opened for `server_name`.
    pub fn agree(&self, server_name: &str, host: &str) -> bool {
        let index = |name: &str| self.position(name).unwrap_or_default();
        index(server_name) == index(host)
    }

    /// Returns whether one of them is for the host, or for each host of the wildcard.
    pub(in crate::config) fn cover(&self, host: &str) -> bool {
        self.position(host).is_some()
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
    /// True if it has all names of `other`.
    fn has_names_of(&self, other: &Self) -> bool {
        other.names.iter().all(|name| self.names.contains(name))
    }

    /// Makes a certificate of the two files that `spec` names.
    ///
    /// # Errors
    /// Everything that is wrong with the two: a file that cannot be read or holds no PEM, or a key
    /// of another certificate; each at the value that names the file.
    pub(in crate::config) fn load(
        spec: &CertificateFiles,
        files: &Files,
    ) -> Result<Self, Vec<Problem>> {
        let chain = chain(&spec.cert, files);
        let key = private_key(&spec.key, files);

        let ((chain, names), key) = match (chain, key) {
            (Ok(chain), Ok(key)) => (chain, key),
            (chain, key) => return Err(chain.err().into_iter().chain(key.err()).collect()),
        };

        match CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()) {
            Ok(key) => Ok(Self {
                names,
                not_after: key.cert.first().map_or(0, not_after),
                key: Arc::new(key),
                path: spec.cert.value.clone(),
                origin: Origin::Files,
                span: spec.cert.span,
            }),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                let problem =
                    Problem::error(spec.key.span, "the key belongs to another certificate")
                        .label("this key")
                        .also(spec.cert.span, "is not that of this certificate")
                        .help("write a certificate and its own key");
                Err(vec![problem])
            }
            Err(error) => {
                let message = format!("{} cannot be used: {error}", shown(&spec.key.value));
                let problem = Problem::error(spec.key.span, message);
                Err(vec![problem.help("use an RSA, ECDSA or Ed25519 key")])
            }
        }
    }

    /// Returns the last second in which it is valid, as `2026-11-21T05:00:00Z`.
    pub(in crate::config) fn valid_until(&self) -> String {
        shown_time(UnixTime::since_unix_epoch(Duration::from_secs(self.not_after)))
    }

    /// Returns, as a problem, that it lacks the last `missing` certificates of its chain.
    pub(in crate::config) fn lacks(&self, missing: usize) -> Problem {
        let message = format!(
            "the certificate file looks cut short: it lacks the last {missing} of the {} \
             certificates in force",
            self.key.cert.len() + missing
        );
        Problem::error(self.span, message).help(
            "write the whole chain; if you removed a part on purpose, send SIGHUP, or POST /reload \
             to the admin listener",
        )
    }

    /// Returns whether the authority has not issued it yet.
    pub(in crate::config) fn is_self_signed(&self) -> bool {
        self.origin == Origin::SelfSigned
    }

    /// Returns whether it has ended at `now`.
    pub(super) fn has_ended(&self, now: Instant) -> bool {
        (1..now.as_nanos() / 1_000_000_000).contains(&self.not_after)
    }

    /// Returns a warning if the certificate is not valid at `now`. `peers` is a word for the clients
    /// or servers that see it.
    pub(in crate::config) fn out_of_date(&self, now: Instant, peers: &str) -> Option<Problem> {
        if self.is_self_signed() {
            return None;
        }
        let now = UnixTime::since_unix_epoch(now.since(Instant::EPOCH));
        let failed = verify(self.key.cert.first()?, now).err();
        let message = if let Some(webpki::Error::CertExpired { not_after, .. }) = failed {
            format!("the certificate has expired: it was valid until {}", shown_time(not_after))
        } else if let Some(webpki::Error::CertNotValidYet { not_before, .. }) = failed {
            format!("the certificate is not valid before {}", shown_time(not_before))
        } else if let Some(webpki::Error::InvalidCertValidity) = failed {
            "the certificate is never valid: its time ends before it begins".to_owned()
        } else {
            return None;
        };
        let help = match self.origin {
            Origin::Files | Origin::SelfSigned => format!("{peers} reject it; get another one"),
            Origin::Acme => format!("{peers} reject it; a running gateway renews it"),
        };
        Some(Problem::warning(Lint::CertificateOutOfDate, self.span, message).help(help))
    }
}

/// Verifies a certificate without anchors, so that it always fails. If it is out of date, it fails by
/// that, which is looked at first.
fn verify(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), webpki::Error> {
    let checked = webpki::EndEntityCert::try_from(certificate)?;
    let usage = KeyUsage::server_auth();
    checked.verify_for_usage(&[], &[], &[], now, usage, None, None).map(|_| ())
}

/// Returns the last second in which a certificate is valid, since 1970; 0 if it never is.
fn not_after(certificate: &CertificateDer<'static>) -> u64 {
    let latest = UnixTime::since_unix_epoch(Duration::from_secs(u64::MAX));
    match verify(certificate, latest) {
        Err(webpki::Error::CertExpired { not_after, .. }) => not_after.as_secs(),
        Ok(()) | Err(_) => 0,
    }
}

// The key inside must never reach a log.
impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("names", &self.names).finish_non_exhaustive()
    }
}

/// Reads a chain, its own certificate first, with the names of that.
fn chain(
    file: &At<PathBuf>,
    files: &Files,
) -> Result<(Vec<CertificateDer<'static>>, Vec<String>), Problem> {
    let pem = contents(files, &file.value, "certificate").map_err(|at| at(file.span))?;
    let wrong = |message: String, help: &str| Err(Problem::error(file.span, message).help(help));
    let chain: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    let chain = match chain {
        Ok(chain) if !chain.is_empty() => chain,
        Err(pem::Error::MissingSectionEnd { .. }) => {
            let message = format!("{} ends within a certificate", shown(&file.value));
            return wrong(message, "write the whole file: it looks cut short");
        }
        _ => {
            let message = format!("{} has no certificate", shown(&file.value));
            return wrong(message, "write a PEM file with `-----BEGIN CERTIFICATE-----`");
        }
    };
    match webpki::EndEntityCert::try_from(&chain[0]) {
        Ok(own) => {
            let names = own.valid_dns_names().map(str::to_ascii_lowercase).collect();
            Ok((chain, names))
        }
        Err(error) => wrong(
            format!("{} is not an X.509 certificate: {error}", shown(&file.value)),
            "write the server's own certificate first",
        ),
    }
}

fn private_key(file: &At<PathBuf>, files: &Files) -> Result<PrivateKeyDer<'static>, Problem> {
    let pem = contents(files, &file.value, "key").map_err(|at| at(file.span))?;
    PrivateKeyDer::from_pem_slice(pem).map_err(|_| {
        let message = format!("{} has no private key", shown(&file.value));
        Problem::error(file.span, message)
            .help("write a PEM file with `-----BEGIN PRIVATE KEY-----`, without a passphrase")
    })
}

/// Returns the certificates of a file, all of which can be trusted.
///
/// # Errors
/// A file that cannot be read, or holds no such certificate; at the value that names the file.
pub(in crate::config) fn authorities(
    file: &At<PathBuf>,
    files: &Files,
) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let pem = contents(files, &file.value, "certificate")
        // It is none of those that are made where they are missing.
        .map_err(|problem| problem(file.span).missing_file(false))?;
    let list: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(pem).collect();
    let is_fit =
        |authority: &CertificateDer<'_>| RootCertStore::empty().add(authority.clone()).is_ok();
    if let Ok(list) = list
        && !list.is_empty()
        && list.iter().all(is_fit)
    {
        return Ok(list);
    }
    let message = format!("{} has no certificate to trust", shown(&file.value));
    Err(Problem::error(file.span, message)
        .help("write a PEM file with `-----BEGIN CERTIFICATE-----`"))
}

/// Returns what the file holds, or what is wrong with it, still without its span.
fn contents<'f>(
    files: &'f Files,
    path: &Path,
    what: &str,
) -> Result<&'f [u8], impl FnOnce(SourceSpan) -> Problem> {
    let (why, is_missing) = match files.get(path) {
        Some(Ok(bytes)) => return Ok(bytes),
        Some(Err(why)) => (why.to_string(), why.kind() == io::ErrorKind::NotFound),
        None => ("it was not read".to_owned(), false),
    };
    let message = format!("cannot read the {what} {}: {why}", shown(path));
    Err(move |span| {
        Problem::error(span, message)
            .help("write the name of a PEM file; relative names start from this file's folder")
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
