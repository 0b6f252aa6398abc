//! A self-signed certificate for trying TLS.

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// The file stem for which a missing certificate is created.
pub const DEVELOPMENT: &str = "localhost";

/// Returns whether [`make_if_missing`] would create this pair.
pub fn would_make(certificate: &Path, key: &Path) -> bool {
    let asked_for = certificate.file_stem().is_some_and(|stem| stem == DEVELOPMENT);
    asked_for && !certificate.exists() && !key.exists()
}

/// Creates a self-signed certificate and key for `localhost` at these paths, if both are missing
/// and the certificate's file is called `localhost`. Returns whether it did.
///
/// # Errors
///
/// A file cannot be written.
pub fn make_if_missing(certificate: &Path, key: &Path) -> io::Result<bool> {
    if !would_make(certificate, key) {
        return Ok(false);
    }
    let names = ["localhost", "127.0.0.1", "::1"].map(str::to_owned);
    let mut params = CertificateParams::new(names).map_err(io::Error::other)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "flowgate development certificate");
    let pair = KeyPair::generate().map_err(io::Error::other)?;
    let made = params.self_signed(&pair).map_err(io::Error::other)?;
    for file in [certificate, key] {
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
    }
    write_private(key, &pair.serialize_pem())?;
    fs::write(certificate, made.pem())?;
    Ok(true)
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_made_once_and_only_where_it_is_asked_for() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let cert = dir.path().join("certs/localhost.pem");
        let key = dir.path().join("certs/localhost.key");
        assert!(make_if_missing(&cert, &key).expect("written"));
        let first = fs::read(&cert).expect("there");
        assert!(!make_if_missing(&cert, &key).expect("nothing to do"));
        assert_eq!(fs::read(&cert).expect("still there"), first);
        let cert = dir.path().join("shop.pem");
        let key = dir.path().join("shop.key");
        assert!(!make_if_missing(&cert, &key).expect("nothing to do"));
        assert!(!cert.exists());
    }

    #[test]
    fn a_half_missing_pair_is_left_alone() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let cert = dir.path().join("localhost.pem");
        let key = dir.path().join("localhost.key");
        fs::write(&key, "mine").expect("written");
        assert!(!make_if_missing(&cert, &key).expect("nothing to do"));
        assert_eq!(fs::read_to_string(&key).expect("there"), "mine");
    }
}
