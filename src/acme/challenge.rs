//! The answers to challenges: any gateway that shares the folder gives them.
//!
//! They are read from disk when the authority connects, so that a gateway answers challenges of orders
//! that another one has placed. A slow disk must not hold up a worker: other threads read, at most
//! [`MOST_READS`] at once for each worker.

use super::storage::{ChallengeKind, read};
use crate::config::AcmeFolder;
use bytes::Bytes;
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    sign::CertifiedKey,
};
use std::{path::PathBuf, sync::Arc};
use tokio::{sync::Semaphore, task};

/// The protocol of TLS-ALPN-01 (RFC 8737).
pub const ACME_TLS: &[u8] = b"acme-tls/1";

/// The path of HTTP-01 (RFC 8555, section 8.3), before the token.
const WELL_KNOWN: &str = "/.well-known/acme-challenge/";

/// The longest token: authorities send 43 characters.
const LONGEST_TOKEN: usize = 128;

/// The most files that a worker has read at once.
const MOST_READS: usize = 8;

/// Returns the token that a request for this path asks about, if it is one of HTTP-01.
pub fn token(path: &str) -> Option<&str> {
    path.strip_prefix(WELL_KNOWN).filter(|token| is_token(token))
}

/// Reports whether a text is a token, which may be the name of a file.
pub(super) fn is_token(text: &str) -> bool {
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(is_safe)
}

/// The reader of challenges of a worker.
#[derive(Clone, Debug)]
pub struct Challenges {
    reads: Arc<Semaphore>,
}

impl Default for Challenges {
    fn default() -> Self {
        Self { reads: Arc::new(Semaphore::new(MOST_READS)) }
    }
}

impl Challenges {
    /// Returns what a request of HTTP-01 is answered with, if there is such a challenge.
    pub async fn key_authorization(&self, folder: &AcmeFolder, token: &str) -> Option<Bytes> {
        let file = ChallengeKind::Http01.file(folder, token);
        self.read(file).await.map(Bytes::from)
    }

    /// Returns the certificate that answers TLS-ALPN-01 for a name, if there is such a challenge.
    pub async fn certificate(&self, folder: &AcmeFolder, name: &str) -> Option<Arc<CertifiedKey>> {
        let name = name.to_ascii_lowercase();
        let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.');
        if name.starts_with('.') || name.len() > 253 || !name.bytes().all(is_safe) {
            return None;
        }
        let pem = self.read(ChallengeKind::TlsAlpn01.file(folder, &name)).await?;
        let key = PrivateKeyDer::from_pem_slice(&pem).ok()?;
        let chain = vec![CertificateDer::from_pem_slice(&pem).ok()?];
        // Not `from_der`, which rejects the extension of the challenge: it is critical by the standard.
        let key = aws_lc_rs::default_provider().key_provider.load_private_key(key).ok()?;
        Some(Arc::new(CertifiedKey::new(chain, key)))
    }

    async fn read(&self, file: PathBuf) -> Option<Vec<u8>> {
        let permit = Arc::clone(&self.reads).acquire_owned().await.ok()?;
        let reading = task::spawn_blocking(move || {
            let read = read(&file);
            // A reading goes on when its client has left, and counts until it ends.
            drop(permit);
            read
        });
        reading.await.ok()?.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acme::{order::challenge_certificate, storage::Storage};

    fn folder(root: &std::path::Path) -> AcmeFolder {
        AcmeFolder { storage: root.to_owned(), authority: root.join("test") }
    }

    #[test]
    fn a_token_cannot_lead_out_of_the_folder() {
        assert_eq!(token("/.well-known/acme-challenge/aB-_9"), Some("aB-_9"));
        for path in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge",
            "/.well-known/acme-challenge/..",
            "/.well-known/acme-challenge/../x",
            "/.well-known/acme-challenge/a/b",
            "/.well-known/acme-challenge/a%2fb",
            "/.well-known/acme-challenge/a.b",
            "/.WELL-known/acme-challenge/a",
            "/x/.well-known/acme-challenge/a",
        ] {
            assert_eq!(token(path), None, "{path}");
        }
        assert_eq!(token(&format!("{WELL_KNOWN}{}", "a".repeat(129))), None);
    }

    #[tokio::test]
    async fn a_challenge_is_answered_while_its_file_is_there() {
        let root = tempfile::tempdir().unwrap();
        let folder = folder(root.path());
        let challenges = Challenges::default();
        assert_eq!(challenges.key_authorization(&folder, "token").await, None, "no folder");

        let storage = Storage::open(&folder).unwrap();
        assert_eq!(challenges.key_authorization(&folder, "token").await, None);
        let placed = storage.place(ChallengeKind::Http01, "token", "token.print").unwrap();
        let answer = challenges.key_authorization(&folder, "token").await.unwrap();
        assert_eq!(answer, "token.print");
        drop(placed);
        assert_eq!(challenges.key_authorization(&folder, "token").await, None);

        let pem = challenge_certificate("c.example", &[7; 32]).unwrap();
        let _proof = storage.place(ChallengeKind::TlsAlpn01, "c.example", &pem).unwrap();
        assert!(challenges.certificate(&folder, "C.example").await.is_some());

        // What is no certificate is no answer; nor is a name that leads elsewhere.
        let _placed = storage.place(ChallengeKind::TlsAlpn01, "a.example", "text").unwrap();
        for name in ["a.example", "../http-01/token", "", "..", "b.example"] {
            assert!(challenges.certificate(&folder, name).await.is_none(), "{name}");
        }
    }
}
