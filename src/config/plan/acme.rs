//! Certificates that an authority issues by ACME: the authority, the orders, and the certificate that a
//! listener shows until the first one is issued.

use super::{Certificate, Origin, UpstreamTls};
use crate::config::{
    diagnostics::SourceSpan,
    spec::{AcmeFolder, Secret},
};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use rustls::{
    crypto::aws_lc_rs,
    pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    sign::CertifiedKey,
};
use std::{path::PathBuf, sync::Arc};

/// The authority, and the certificates to get from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acme {
    /// The address to which the authority sends warnings.
    pub email: Option<String>,
    /// The account and the certificates on disk.
    pub folder: AcmeFolder,
    /// The URL of the authority's directory.
    pub directory: String,
    /// The TLS of connections to it.
    pub tls: Arc<UpstreamTls>,
    /// The account at the authority's web site.
    pub eab: Option<Eab>,
    /// True if a listener without TLS can answer the challenge HTTP-01.
    pub has_plain_listener: bool,
    /// The certificates, each once.
    pub orders: Vec<Arc<AcmeOrder>>,
}

/// An external account binding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eab {
    /// The identifier of the key.
    pub kid: String,
    /// The key, in base64url.
    pub key: Secret,
}

/// A certificate to get.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AcmeOrder {
    /// The names that it must have, in lower case.
    pub names: Vec<String>,
    /// The file with the key and the chain.
    pub file: PathBuf,
}

impl AcmeOrder {
    /// Returns the name by which logs and metrics call it: its names, or the first one if they are long.
    pub fn label(&self) -> String {
        const LONGEST: usize = 100;
        let all = self.names.join(", ");
        match self.names.first() {
            Some(first) if all.len() > LONGEST => {
                format!("{first} and {} more", self.names.len().saturating_sub(1))
            }
            Some(_) | None => all,
        }
    }
}

/// Makes a self-signed certificate for these names. `None` if that fails.
pub(in crate::config) fn self_signed(
    names: &[String],
    file: PathBuf,
    span: SourceSpan,
) -> Option<Certificate> {
    let mut params = CertificateParams::new(names).ok()?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "flowgate, until the authority has issued");

    let pair = KeyPair::generate().ok()?;
    let chain = vec![params.self_signed(&pair).ok()?.der().clone()];
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(pair.serialize_der()));
    let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).ok()?;

    Some(Certificate {
        names: names.to_vec(),
        key: Arc::new(key),
        path: file,
        not_after: 0,
        origin: Origin::SelfSigned,
        span,
    })
}
