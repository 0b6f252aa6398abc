//! The authority that issues certificates by ACME (RFC 8555), and the folder that keeps them.

use super::{
    FileSpec,
    keys::keys,
    leaf::{AcmeDirectory, Email, FileName, Text},
    values::{InvalidValue, invalid},
};
use crate::config::{
    decode::At,
    diagnostics::{Source, SourceSpan, quoted},
};
use http::Uri;
use std::{
    net::IpAddr,
    path::{Path, PathBuf},
};

keys! {
    /// The authority from which flowgate gets certificates for the names in `acme` of listeners'
    /// certificates. Having this key agrees to the authority's terms of service. `docs/certificates.md`
    /// describes the whole life of a certificate.
    #[example = "{ email: ops@example.com }"]
    #[meant = &[["contact", "email"], ["url", "directory"], ["ca_server", "directory"], ["server", "directory"], ["folder", "storage"], ["path", "storage"]]]
    struct AcmeSpec: "the authority of certificates" {
        /// Where the authority sends warnings. Let's Encrypt sends none.
        email: Email, else "–";
        /// A folder for the account, the keys and the certificates, which the gateway's user may
        /// write. Several gateways may share it: one of them requests each certificate. Keep it
        /// when you rebuild a container.
        storage: FileName = "/var/lib/flowgate/acme";
        /// `letsencrypt`, `staging` (Let's Encrypt's, for tries: browsers do not trust its
        /// certificates), or the URL of another authority's directory.
        directory: AcmeDirectory = "letsencrypt";
        /// Trusted certificates for the connection to the authority, as PEM. Without it, flowgate
        /// trusts the system's.
        ca: FileName, else "the system's";
        /// The account at the authority's web site, if the authority requires one.
        eab: EabSpec, else "–";
    }

    /// An external account binding (RFC 8555, section 7.3.4). flowgate needs it once, to create its
    /// account.
    #[example = "{ kid: kid-1, key_file: eab.key }"]
    struct EabSpec: "the external account" {
        /// The identifier of the key.
        kid: Text;
        /// A file with the key and nothing else, in base64url as authorities show it.
        key_file: FileName;
    }
}

/// The directory of Let's Encrypt.
const LETS_ENCRYPT: &str = "https://acme-v02.api.letsencrypt.org/directory";
/// The directory of its authority for tries.
const STAGING: &str = "https://acme-staging-v02.api.letsencrypt.org/directory";

/// The most names of one certificate, as Let's Encrypt has it.
pub(in crate::config) const MOST_NAMES: usize = 100;

/// Reads the word or the URL of a directory.
pub(super) fn directory(text: &str) -> Result<String, InvalidValue> {
    const HELP: &str =
        "write `letsencrypt`, `staging`, or the URL of a directory, as in `https://HOST/directory`";
    match text {
        "letsencrypt" => return Ok(LETS_ENCRYPT.to_owned()),
        "staging" => return Ok(STAGING.to_owned()),
        _ => {}
    }

    if text.starts_with("http://") {
        return invalid(
            format!("{} has no TLS", quoted(text)),
            "write `https://…`: whoever answers in the authority's place could have any account; \
             `ca: FILE` names the certificate of an authority of your own",
        );
    }
    let uri = text.parse::<Uri>().ok().filter(|uri| uri.scheme_str() == Some("https"));
    let host = uri.as_ref().and_then(Uri::host).filter(|host| !host.is_empty());
    if host.is_none() || text.contains(['@', '#']) {
        return invalid(format!("{} is not a directory of ACME", quoted(text)), HELP);
    }
    Ok(text.to_owned())
}

/// Reads the name of a certificate, in lower case.
pub(super) fn name(text: &str) -> Result<String, InvalidValue> {
    const HELP: &str = "write a name that clients use, as in `shop.example.com`";
    let name = text.to_ascii_lowercase();
    let wrong = |why: &str, help: &str| invalid(format!("{} {why}", quoted(text)), help);

    if name.contains('*') {
        return wrong(
            "is a wildcard, which only the challenge DNS-01 proves, and flowgate has no DNS-01",
            "list the names, up to 100 in one certificate; or have another program get the \
             certificate, as in `certbot certonly --manual --preferred-challenges dns`, and write \
             `cert` and `key`",
        );
    }
    if name.parse::<IpAddr>().is_ok() || name.starts_with('[') {
        return wrong("is an address: flowgate gets certificates for names", HELP);
    }
    if !name.is_ascii() {
        return wrong(
            "has a letter that names in certificates do not have",
            "write it as `xn--…`, as `idn` or a browser's address bar shows it",
        );
    }
    if name.ends_with('.') {
        return wrong("ends with a dot", "remove the dot");
    }

    let is_label = |label: &str| {
        let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(is_inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() > 253 || !name.split('.').all(is_label) {
        return wrong("is not the name of a host", HELP);
    }
    Ok(name)
}

/// Reads an address of mail.
pub(super) fn email(text: &str) -> Result<String, InvalidValue> {
    let text = text.strip_prefix("mailto:").unwrap_or(text);
    let is_plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
    };
    match text.split_once('@') {
        Some((user, host)) if is_plain(user) && is_plain(host) && !host.contains('@') => {
            Ok(text.to_owned())
        }
        _ => invalid(
            format!("{} is not an address of mail", quoted(text)),
            "write one address, as in `ops@example.com`",
        ),
    }
}

/// The folder of an authority's account and certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeFolder {
    /// The folder that the file names.
    pub storage: PathBuf,
    /// The part of it that belongs to this authority.
    pub authority: PathBuf,
}

impl AcmeFolder {
    fn new(storage: PathBuf, directory: &str) -> Self {
        let name = match directory {
            LETS_ENCRYPT => "letsencrypt".to_owned(),
            STAGING => "staging".to_owned(),
            other => {
                let uri = other.parse::<Uri>().ok();
                let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
                let host: String = host.chars().filter(|letter| *letter != '/').collect();
                format!("{}-{:016x}", host.trim_matches(['[', ']']), fnv(other.as_bytes()))
            }
        };
        Self { authority: storage.join(name), storage }
    }

    /// Returns the folder of the certificates.
    pub fn certificates(&self) -> PathBuf {
        self.authority.join("certificates")
    }

    /// Returns the folder of the challenges, in which any gateway finds them.
    pub fn challenges(&self) -> PathBuf {
        self.storage.join("challenges")
    }

    /// Returns the file for a certificate with exactly these names, in any order.
    pub fn certificate<'n>(&self, names: impl Iterator<Item = &'n str>) -> PathBuf {
        /// Names of files have at most 255 bytes.
        const LONGEST: usize = 200;
        let mut names: Vec<&str> = names.collect();
        let first = names.first().copied().unwrap_or_default();
        let short = &first[..first.len().min(LONGEST)];
        names.sort_unstable();
        let file = match &names[..] {
            [name] if name.len() <= LONGEST => format!("{name}.pem"),
            _ => format!("{short}+{:016x}.pem", fnv(names.join("\n").as_bytes())),
        };
        self.certificates().join(file)
    }
}

/// Returns the FNV-1a hash, which is the same in each version of the program. File names have it.
fn fnv(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(PRIME))
}

/// A certificate that the authority is to issue.
#[derive(Clone, Debug)]
pub(in crate::config) struct AcmeNames {
    /// The names, in lower case, in the order of the file.
    pub names: Vec<At<String>>,
    /// Where the file has them.
    pub span: SourceSpan,
}

impl AcmeSpec {
    /// Returns the files that it names.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let eab = self.eab.value().and_then(|eab| eab.key_file.path());
        [self.ca.path(), eab].into_iter().flatten().map(|at| at.value)
    }

    /// Has relative names of files meant from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        self.storage.resolve(source);
        self.ca.resolve(source);
        if let Some(eab) = &mut self.eab.at {
            eab.value.key_file.resolve(source);
        }
    }

    /// Returns where the account and the certificates are.
    pub(in crate::config) fn folder(&self) -> Option<AcmeFolder> {
        let storage = self.storage.path()?.value;
        Some(AcmeFolder::new(storage, &self.directory.value()?.0))
    }
}

impl FileSpec {
    /// Returns the files of the certificates that the authority issues.
    pub(in crate::config) fn acme_certificates(&self) -> Vec<PathBuf> {
        let Some(folder) = self.acme.value().and_then(AcmeSpec::folder) else { return Vec::new() };
        let listeners = self.listeners.items().iter();
        let orders = listeners.flat_map(|at| at.value.acme_names());
        let file =
            |names: Vec<At<String>>| folder.certificate(names.iter().map(|at| at.value.as_str()));
        orders.map(|order| file(order.names)).collect()
    }

    /// Returns the other files that `acme` names.
    pub(in crate::config) fn acme_files(&self) -> Vec<PathBuf> {
        self.acme.value().into_iter().flat_map(AcmeSpec::files).collect()
    }
}

/// Returns whether `file` lies in the folder of `certificates`.
pub(in crate::config) fn is_beside(file: &Path, certificate: &Path) -> bool {
    file.parent() == certificate.parent()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_a_host() {
        assert_eq!(name("Shop.Example.COM").unwrap(), "shop.example.com");
        for (text, words) in [
            ("*.example.com", "DNS-01"),
            ("192.0.2.1", "is an address"),
            ("[::1]", "is an address"),
            ("bücher.example", "letter"),
            ("example.com.", "ends with a dot"),
            ("a b.example", "not the name of a host"),
            ("-a.example", "not the name of a host"),
            ("a..example", "not the name of a host"),
            ("https://a.example", "not the name of a host"),
            ("", "not the name of a host"),
        ] {
            let InvalidValue { message, .. } = name(text).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
        assert!(name(&format!("{}.example", "a".repeat(64))).is_err());
        assert!(name("a.".repeat(127).trim_end_matches('.')).is_ok());
    }

    #[test]
    fn a_directory_is_a_word_or_has_tls() {
        assert_eq!(directory("letsencrypt").unwrap(), LETS_ENCRYPT);
        assert_eq!(directory("staging").unwrap(), STAGING);
        let own = "https://ca.internal:9000/acme/acme/directory";
        assert_eq!(directory(own).unwrap(), own);
        for (text, words) in [
            ("http://ca.internal/directory", "no TLS"),
            ("zerossl", "not a directory"),
            ("https:///directory", "not a directory"),
            ("https://me@ca.internal/", "not a directory"),
            ("", "not a directory"),
        ] {
            let InvalidValue { message, .. } = directory(text).unwrap_err();
            assert!(message.contains(words), "{message}");
        }
    }

    #[test]
    fn a_file_is_the_same_for_the_same_names_at_the_same_authority() {
        let of = |directory: &str, names: &[&str]| {
            let folder = AcmeFolder::new("/s".into(), directory);
            folder.certificate(names.iter().copied()).display().to_string()
        };
        let one = "/s/letsencrypt/certificates/a.example.pem";
        assert_eq!(of(LETS_ENCRYPT, &["a.example"]), one);
        assert_eq!(of(STAGING, &["a.example"]), one.replace("letsencrypt", "staging"));

        // The names of files do not depend on the version of the program.
        let both = "/s/letsencrypt/certificates/a.example+d7ab5a1fb0f8e2a6.pem";
        let found = of(LETS_ENCRYPT, &["a.example", "b.example"]);
        assert_eq!(found.len(), both.len());
        assert_ne!(found, of(LETS_ENCRYPT, &["a.example", "c.example"]));

        let long = format!("{0}.{0}.{0}.{0}.example", "a".repeat(60));
        assert!(of(LETS_ENCRYPT, &[&long]).len() < 255);
        let own = of("https://ca.internal:9000/a/directory", &["a.example"]);
        assert!(own.starts_with("/s/ca.internal-"), "{own}");
        assert_ne!(own, of("https://ca.internal:9001/a/directory", &["a.example"]));
    }

    #[test]
    fn an_address_of_mail_is_one() {
        assert_eq!(email("mailto:ops@example.com").unwrap(), "ops@example.com");
        for text in ["ops", "@example.com", "a@b@c", "a@b,c@d", "a b@c", ""] {
            assert!(email(text).is_err(), "{text}");
        }
    }
}
