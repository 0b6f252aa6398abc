//! TLS to the admin listener: which certificates are trusted.

use super::error::ClientError;
use std::{fs, path::Path, sync::Arc};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{
        WebPkiSupportedAlgorithms, aws_lc_rs, verify_tls12_signature, verify_tls13_signature,
    },
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

/// Returns the TLS of a client that trusts the certificates in the file `ca` and those that they
/// have signed; without a file, those that the system trusts have signed.
///
/// # Errors
/// The file cannot be read or has no certificate, or the system trusts none.
pub(super) fn config(ca: Option<&Path>) -> Result<Arc<ClientConfig>, ClientError> {
    let path = ca.unwrap_or_else(|| Path::new("the certificates that this system trusts"));
    let unusable =
        |cause: &dyn ToString| ClientError::File { path: path.into(), cause: cause.to_string() };
    let listed = match ca {
        Some(ca) => listed(ca).map_err(|error| unusable(&error))?,
        None => Vec::new(),
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(match ca {
        Some(_) => listed.clone(),
        None => rustls_native_certs::load_native_certs().certs,
    });
    if roots.is_empty() {
        return Err(unusable(&"no certificate is there"));
    }
    client_config(roots, listed).map_err(|error| unusable(&error))
}

fn listed(file: &Path) -> Result<Vec<CertificateDer<'static>>, Box<dyn std::error::Error>> {
    let text = fs::read(file)?;
    Ok(CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>()?)
}

fn client_config(
    roots: RootCertStore,
    listed: Vec<CertificateDer<'static>>,
) -> Result<Arc<ClientConfig>, Box<dyn std::error::Error>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let algorithms = provider.signature_verification_algorithms;
    let signed =
        WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = Verifier { signed: signed.build()?, listed, algorithms };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Verifies as rustls does, with one more way: the very certificate that the file lists is trusted
/// under any name. Those that people sign themselves often lack the name, or are an authority's.
#[derive(Debug)]
struct Verifier {
    signed: Arc<WebPkiServerVerifier>,
    listed: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        own: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.listed.contains(own) {
            return Ok(ServerCertVerified::assertion());
        }
        self.signed.verify_server_cert(own, chain, name, ocsp, now)
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
