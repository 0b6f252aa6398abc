//! TLS to the admin listener: which certificates are trusted, and which one is shown.

use super::{error::ClientError, options::AdminOptions};
use crate::config::{ListedNames, ServerVerifier};
use std::{fs, path::Path, sync::Arc};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// A file that cannot be used, and why.
type Unusable = Box<dyn std::error::Error>;

/// What a command shows of itself.
pub(super) struct ClientCertificate<'a> {
    cert: &'a Path,
    key: &'a Path,
}

impl<'a> ClientCertificate<'a> {
    /// Returns the certificate that the options name, if they do.
    pub(super) fn of(options: &'a AdminOptions) -> Option<Self> {
        let AdminOptions { client_cert, client_key, .. } = options;
        Some(Self { cert: client_cert.as_deref()?, key: client_key.as_deref()? })
    }

    /// Returns the error that the listener has no TLS, in which it would be shown.
    pub(super) fn without_tls(&self) -> ClientError {
        unusable(self.cert, &"the admin listener has no TLS, by which a certificate is shown")
    }

    fn chain(&self) -> Result<Vec<CertificateDer<'static>>, ClientError> {
        let chain = listed(self.cert).map_err(|error| unusable(self.cert, &error))?;
        if chain.is_empty() {
            return Err(unusable(self.cert, &"no certificate is there"));
        }
        Ok(chain)
    }

    fn key(&self) -> Result<PrivateKeyDer<'static>, ClientError> {
        let text = fs::read(self.key).map_err(|error| unusable(self.key, &error))?;
        PrivateKeyDer::from_pem_slice(&text)
            .map_err(|_| unusable(self.key, &"no private key is there that can be read"))
    }
}

fn unusable(path: &Path, cause: &dyn ToString) -> ClientError {
    ClientError::File { path: path.into(), cause: cause.to_string() }
}

/// Returns the TLS of a client that trusts the certificates in the file `ca` and those that they
/// have signed; without a file, those that the system trusts have signed. It shows `certificate`.
///
/// # Errors
/// A file cannot be read or has no certificate or key, the two do not belong together, or the system
/// trusts no certificates.
pub(super) fn config(
    ca: Option<&Path>,
    certificate: Option<&ClientCertificate<'_>>,
) -> Result<Arc<ClientConfig>, ClientError> {
    let path = ca.unwrap_or_else(|| Path::new("the certificates that this system trusts"));
    let listed = match ca {
        Some(ca) => listed(ca).map_err(|error| unusable(path, &error))?,
        None => Vec::new(),
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(match ca {
        Some(_) => listed.clone(),
        None => rustls_native_certs::load_native_certs().certs,
    });
    if roots.is_empty() {
        return Err(unusable(path, &"no certificate is there"));
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    // Certificates that people sign themselves often lack the name.
    let verifier = ServerVerifier::new(Arc::new(roots), listed, ListedNames::Any, &provider)
        .map_err(|error| unusable(path, &error))?;
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(path, &error))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match certificate {
        None => builder.with_no_client_auth(),
        Some(certificate) => builder
            .with_client_auth_cert(certificate.chain()?, certificate.key()?)
            .map_err(|error| unusable(certificate.key, &error))?,
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn listed(file: &Path) -> Result<Vec<CertificateDer<'static>>, Unusable> {
    let text = fs::read(file)?;
    Ok(CertificateDer::pem_slice_iter(&text).collect::<Result<_, _>>()?)
}
