//! Which certificates of servers are trusted: those of upstreams, and those of admin listeners.

use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime},
    server::ParsedCertificate,
};
use std::sync::Arc;

/// Verifies servers as rustls does, with one more way: a certificate that is itself in the list of
/// those trusted is, as those that people sign themselves are often marked as an authority's.
#[derive(Debug)]
pub struct ServerVerifier {
    /// `None`: every certificate will do.
    signed: Option<Arc<WebPkiServerVerifier>>,
    listed: Vec<CertificateDer<'static>>,
    names: ListedNames,
    algorithms: WebPkiSupportedAlgorithms,
}

/// Under which names a certificate is trusted that is listed itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListedNames {
    /// Those that it has, and in its time only.
    Own,
    /// Every name, at any time.
    Any,
}

impl ServerVerifier {
    /// Trusts the certificates `listed`, and those that `roots` have signed.
    ///
    /// # Errors
    /// `roots` is empty.
    pub fn new(
        roots: Arc<RootCertStore>,
        listed: Vec<CertificateDer<'static>>,
        names: ListedNames,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let signed = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider));
        let algorithms = provider.signature_verification_algorithms;
        Ok(Self { signed: Some(signed.build()?), listed, names, algorithms })
    }

    /// Trusts every certificate.
    pub fn trusting_all(provider: &CryptoProvider) -> Self {
        let algorithms = provider.signature_verification_algorithms;
        Self { signed: None, listed: Vec::new(), names: ListedNames::Any, algorithms }
    }
}

/// Reports whether a certificate was rejected only because it is an authority's. Its time was
/// checked before.
fn is_of_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error else {
        return false;
    };
    matches!(other.downcast_ref::<webpki::Error>(), Some(webpki::Error::CaUsedAsEndEntity))
}

impl ServerCertVerifier for ServerVerifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(signed) = &self.signed else { return Ok(ServerCertVerified::assertion()) };
        let is_listed = self.listed.contains(own);
        if is_listed && self.names == ListedNames::Any {
            return Ok(ServerCertVerified::assertion());
        }
        match signed.verify_server_cert(own, chain, name, ocsp, now) {
            Err(error) if is_listed && is_of_authority(&error) => {
                verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, own, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, own, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
