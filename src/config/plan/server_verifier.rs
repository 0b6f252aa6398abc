//! The certificates of servers that are trusted: those of upstreams, and those of admin listeners.

use super::lenient_certificate::LenientCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
    client::{
        VerifierBuilderError, WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
        verify_server_name,
    },
    crypto::{
        CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature,
        verify_tls13_signature_with_raw_key,
    },
    pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime},
    server::ParsedCertificate,
};
use std::{
    sync::Arc,
    time::{Duration, UNIX_EPOCH},
};

/// The sizes of RSA keys by which signatures can be verified, in bits.
const RSA_BITS: core::ops::RangeInclusive<usize> = 2048..=8192;

/// Verifies servers as rustls does, with one more way: a certificate that is itself in the list of
/// those trusted is, in its time and for its name, also if it is marked as an authority's, of version
/// 1, or has its name as the common name only. Those that people sign themselves often are.
///
/// The server must always prove that it has the certificate's key, with one exception: if every
/// certificate will do, also one whose key is too small or too large to verify anything by.
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

/// The unsupported part of a server's certificate, and a hint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnsupportedCertificate {
    /// It is of version 1, which has no names and no purpose.
    #[error(
        "the server's certificate is of version 1: give the server one of version 3, or write this \
         certificate itself as `tls: {{ ca: FILE }}`"
    )]
    Version,
    /// It has a critical extension that is not known.
    #[error(
        "the server's certificate has a critical extension that flowgate does not know: give the \
         server one without it"
    )]
    Extension,
    /// Its names are not written as such.
    #[error(
        "the server's certificate is not for this name: it has no subject alternative name, and a \
         common name counts only for a certificate that is itself written as `tls: {{ ca: FILE }}`"
    )]
    CommonName,
    /// Its key is too small or too large.
    #[error(
        "the server's RSA key has {0} bits: give the server a key of 2048 to 8192 bits, or one of \
         ECDSA"
    )]
    RsaKey(usize),
}

impl From<UnsupportedCertificate> for Error {
    fn from(why: UnsupportedCertificate) -> Self {
        CertificateError::Other(OtherError(Arc::new(why))).into()
    }
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

    /// Verifies the time and the name of a certificate that is listed itself, and that was rejected
    /// for its form, or for the lack of names beside the common name.
    fn verify_listed(
        own: &CertificateDer<'_>,
        name: &ServerName<'_>,
        now: UnixTime,
        why: Error,
    ) -> Result<ServerCertVerified, Error> {
        let read = LenientCertificate::read(own).ok_or(CertificateError::BadEncoding)?;
        let now = UNIX_EPOCH + Duration::from_secs(now.as_secs());
        if !read.is_valid_at(&humantime::format_rfc3339_seconds(now).to_string()) {
            return Err(CertificateError::Expired.into());
        }
        if read.has_alternative_names {
            verify_server_name(&ParsedCertificate::try_from(own)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        let is_its_own = if let ServerName::DnsName(host) = name {
            read.is_for_host(host.as_ref())
        } else if let ServerName::IpAddress(address) = name {
            read.is_for_address((*address).into())
        } else {
            false
        };
        if is_its_own {
            return Ok(ServerCertVerified::assertion());
        }
        Err(if is_of_name(&why) { why } else { CertificateError::NotValidForName.into() })
    }

    /// Verifies by the certificate's key alone that a server has it, where `why` is why it cannot be
    /// by the certificate.
    fn verify_by_key(
        &self,
        own: &CertificateDer<'_>,
        why: Error,
        verify: impl FnOnce(&SubjectPublicKeyInfoDer<'_>) -> Result<HandshakeSignatureValid, Error>,
    ) -> Result<HandshakeSignatureValid, Error> {
        let Some(read) = LenientCertificate::read(own) else { return Err(why) };
        let takes_all = self.signed.is_none();
        if let Some(bits) = read.rsa_bits().filter(|bits| !RSA_BITS.contains(bits)) {
            // Whoever is between could show a certificate with any other key as well.
            let error = || UnsupportedCertificate::RsaKey(bits).into();
            return takes_all.then(HandshakeSignatureValid::assertion).ok_or_else(error);
        }
        if !takes_all && !self.listed.contains(own) {
            return Err(why);
        }
        verify(&SubjectPublicKeyInfoDer::from(read.key))
    }

    /// Verifies a signature in TLS 1.2 by a public key.
    fn verify_tls12_by_key(
        &self,
        message: &[u8],
        key: &SubjectPublicKeyInfoDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let key =
            webpki::RawPublicKeyEntity::try_from(key).map_err(|_| CertificateError::BadEncoding)?;
        let mapping = self.algorithms.mapping.iter();
        let all = mapping.filter(|(scheme, _)| *scheme == signed.scheme).flat_map(|(_, all)| *all);
        let is_valid =
            all.copied().any(|one| key.verify_signature(one, message, signed.signature()).is_ok());
        is_valid
            .then(HandshakeSignatureValid::assertion)
            .ok_or_else(|| CertificateError::BadSignature.into())
    }
}

/// Returns why the certificate `own` was rejected, with what to do about it if that is not clear from
/// the error.
fn explained(error: Error, own: &CertificateDer<'_>) -> Error {
    if is_of_name(&error) {
        let read = LenientCertificate::read(own);
        let is_nameless = read.is_some_and(|read| !read.has_alternative_names);
        return if is_nameless { UnsupportedCertificate::CommonName.into() } else { error };
    }
    match unsupported(&error) {
        Some(webpki::Error::UnsupportedCertVersion) => UnsupportedCertificate::Version.into(),
        Some(webpki::Error::UnsupportedCriticalExtension) => {
            UnsupportedCertificate::Extension.into()
        }
        _ => error,
    }
}

/// Returns whether a certificate was rejected because it is of X.509 version 1.
pub(super) fn is_of_version_1(error: &Error) -> bool {
    matches!(unsupported(error), Some(webpki::Error::UnsupportedCertVersion))
}

/// Returns why webpki rejects a certificate, where rustls has no word for it.
fn unsupported(error: &Error) -> Option<&webpki::Error> {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(other))) = error else {
        return None;
    };
    other.downcast_ref()
}

/// Reports whether a certificate was rejected only for its form: it is marked as an authority's, of
/// version 1, or has extensions that are not known.
fn is_of_form(error: &Error) -> bool {
    matches!(
        unsupported(error),
        Some(
            webpki::Error::CaUsedAsEndEntity
                | webpki::Error::UnsupportedCertVersion
                | webpki::Error::UnsupportedCriticalExtension
        )
    )
}

/// Reports whether a certificate was rejected for its names, after all else was verified.
fn is_of_name(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    )
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
        let verified = match signed.verify_server_cert(own, chain, name, ocsp, now) {
            Err(error) if is_listed && (is_of_form(&error) || is_of_name(&error)) => {
                Self::verify_listed(own, name, now, error)
            }
            verified => verified,
        };
        verified.map_err(|error| explained(error, own))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = verify_tls12_signature(message, own, signed, &self.algorithms);
        verified.or_else(|why| {
            self.verify_by_key(own, why, |key| self.verify_tls12_by_key(message, key, signed))
        })
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        own: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let verified = verify_tls13_signature(message, own, signed, &self.algorithms);
        verified.or_else(|why| {
            self.verify_by_key(own, why, |key| {
                verify_tls13_signature_with_raw_key(message, key, signed, &self.algorithms)
            })
        })
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
