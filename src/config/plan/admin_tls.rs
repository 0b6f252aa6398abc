//! TLS of the admin listener.

use super::certificate::{self, Certificate};
use crate::config::{
    decode::At, diagnostics::Problem, read::source::Files, spec::CertificateFiles,
};
use rustls::{
    RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::CertificateDer,
    server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
    sign::SingleCertAndKey,
};
use std::{path::PathBuf, sync::Arc};

/// The admin listener's certificate, and the authorities of its clients.
#[derive(Clone, Debug)]
pub struct AdminTls {
    config: Arc<ServerConfig>,
    certificate: Arc<Certificate>,
    /// Empty if clients show no certificates.
    authorities: Vec<CertificateDer<'static>>,
}

impl AdminTls {
    /// Makes it of the files.
    ///
    /// # Errors
    /// Everything that is wrong with them, each at the value that names the file.
    pub(in crate::config) fn load(
        named: &CertificateFiles,
        client_ca: Option<At<PathBuf>>,
        files: &Files,
    ) -> Result<Self, Vec<Problem>> {
        let certificate = Certificate::load(named, files).map_err(|problems| {
            // None of these is made where it is missing.
            problems.into_iter().map(|problem| problem.missing_file(false)).collect::<Vec<_>>()
        });
        let authorities = client_ca.map(|file| certificate::authorities(&file, files));
        let authorities = authorities.transpose().map(Option::unwrap_or_default);
        let (certificate, authorities) = match (certificate, authorities) {
            (Ok(certificate), Ok(authorities)) => (certificate, authorities),
            (certificate, authorities) => {
                let problems = certificate.err().into_iter().flatten();
                return Err(problems.chain(authorities.err()).collect());
            }
        };
        let config = server_config(&certificate, &authorities).map_err(|error| {
            vec![Problem::error(named.cert.span, format!("TLS cannot be used: {error}"))]
        })?;
        Ok(Self { config: Arc::new(config), certificate: Arc::new(certificate), authorities })
    }

    /// Returns what a session is accepted with.
    pub fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Returns whether it asks clients for certificates. A client that shows none is accepted, and
    /// one whose certificate no authority has signed is not.
    pub fn knows_clients(&self) -> bool {
        !self.authorities.is_empty()
    }

    /// Returns the listener's certificate.
    pub fn certificate(&self) -> &Certificate {
        &self.certificate
    }
}

impl PartialEq for AdminTls {
    fn eq(&self, other: &Self) -> bool {
        self.certificate.key.cert == other.certificate.key.cert
            && self.authorities == other.authorities
    }
}

impl Eq for AdminTls {}

fn server_config(
    certificate: &Certificate,
    authorities: &[CertificateDer<'static>],
) -> Result<ServerConfig, Box<dyn core::error::Error>> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier: Arc<dyn ClientCertVerifier> = if authorities.is_empty() {
        Arc::new(NoClientAuth)
    } else {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(authorities.iter().cloned());
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?
    };
    let shown = SingleCertAndKey::from(Arc::clone(&certificate.key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(shown));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
