//! The terms on which a listener accepts TLS: the oldest version, and the certificates of clients.

use super::{certificate, server_verifier::is_of_version_1};
use crate::config::{
    decode::At,
    diagnostics::{Problem, quoted},
    read::source::Files,
};
use rustls::{
    CertificateError, Error, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::CertificateDer,
    server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
    version::{TLS12, TLS13},
};
use std::{path::PathBuf, sync::Arc};

/// The terms on which a listener accepts TLS. An edit that keeps them keeps the sessions of clients.
#[derive(Clone, Debug, Default)]
pub struct TlsTerms {
    /// True if clients must speak TLS 1.3.
    pub needs_tls13: bool,
    /// The authorities of clients' certificates, if clients are asked for one.
    pub clients: Option<ClientAuthorities>,
}

/// The authorities of clients' certificates.
#[derive(Clone, Debug)]
pub struct ClientAuthorities {
    /// True if a client without a certificate is rejected.
    pub is_required: bool,
    certificates: Vec<CertificateDer<'static>>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientAuthorities {
    /// Reads the authorities of a file.
    ///
    /// # Errors
    /// A file that cannot be read or holds no authority.
    pub(in crate::config) fn load(
        file: &At<PathBuf>,
        is_required: bool,
        files: &Files,
    ) -> Result<Self, Problem> {
        let certificates = certificate::authorities(file, files)?;
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(certificates.iter().cloned());

        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        let builder = if is_required { builder } else { builder.allow_unauthenticated() };
        match builder.build() {
            Ok(verifier) => Ok(Self { is_required, certificates, verifier }),
            Err(error) => {
                let shown = quoted(&file.value.to_string_lossy());
                let message = format!("{shown} cannot verify clients: {error}");
                Err(Problem::error(file.span, message)
                    .help("write a PEM file with the certificates of authorities"))
            }
        }
    }
}

impl TlsTerms {
    /// Returns what verifies the certificates of clients.
    pub fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        match &self.clients {
            Some(clients) => Arc::clone(&clients.verifier),
            None => Arc::new(NoClientAuth),
        }
    }

    /// Returns the versions of TLS that clients may speak.
    pub fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        static RECENT: &[&SupportedProtocolVersion] = &[&TLS13];
        static ALL: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
        if self.needs_tls13 { RECENT } else { ALL }
    }
}

/// Returns in words for operators why the handshake with a client failed.
pub fn failed_handshake(error: &Error) -> String {
    if matches!(error, Error::NoCertificatesPresented) {
        "the client shows no certificate".to_owned()
    } else if is_of_version_1(error) {
        "the client's certificate is of X.509 version 1: make one of version 3".to_owned()
    } else if let Error::InvalidCertificate(why) = error {
        rejected_certificate(why)
    } else if matches!(error, Error::InvalidMessage(_)) {
        "the client does not speak TLS".to_owned()
    } else if let Error::AlertReceived(alert) = error {
        format!("the client ended it with the alert {alert:?}")
    } else {
        error.to_string()
    }
}

/// Returns in words why the certificate of a client was rejected.
fn rejected_certificate(why: &CertificateError) -> String {
    use CertificateError::{Expired, ExpiredContext, UnknownIssuer};
    if matches!(why, UnknownIssuer) {
        "no authority in `client_ca` has signed the client's certificate".to_owned()
    } else if matches!(why, Expired | ExpiredContext { .. }) {
        "the client's certificate has expired".to_owned()
    } else {
        format!("the client's certificate is not valid: {why}")
    }
}

impl PartialEq for TlsTerms {
    fn eq(&self, other: &Self) -> bool {
        self.needs_tls13 == other.needs_tls13 && self.clients == other.clients
    }
}

impl Eq for TlsTerms {}

impl PartialEq for ClientAuthorities {
    fn eq(&self, other: &Self) -> bool {
        self.is_required == other.is_required && self.certificates == other.certificates
    }
}

impl Eq for ClientAuthorities {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::{AlertDescription, InvalidMessage, PeerIncompatible};

    #[test]
    fn a_failed_handshake_is_explained_in_words() {
        for (error, words) in [
            (Error::NoCertificatesPresented, "the client shows no certificate"),
            (
                Error::InvalidCertificate(CertificateError::UnknownIssuer),
                "no authority in `client_ca` has signed the client's certificate",
            ),
            (
                Error::InvalidCertificate(CertificateError::Expired),
                "the client's certificate has expired",
            ),
            (
                Error::InvalidCertificate(CertificateError::Revoked),
                "the client's certificate is not valid: Revoked",
            ),
            (
                Error::InvalidMessage(InvalidMessage::InvalidContentType),
                "the client does not speak TLS",
            ),
            (
                Error::AlertReceived(AlertDescription::UnknownCA),
                "the client ended it with the alert UnknownCA",
            ),
            (
                Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon),
                "peer is incompatible: NoCipherSuitesInCommon",
            ),
        ] {
            assert_eq!(failed_handshake(&error), words);
        }
    }
}
