//! Where clients and operators connect.

use super::leaf::{Address, FileName, Name};
use crate::config::decode::{At, Key, List};
use schemars::JsonSchema;
use serde::Deserialize;
use std::path::PathBuf;

/// An address to accept connections on: HTTP/1.1 and HTTP/2, with TLS where `tls` says so.
/// Listeners come and go with the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a listener")]
pub(in crate::config) struct ListenerSpec {
    /// The listener's name in logs and metrics.
    pub name: Key<Name>,
    /// IP address and port, as in `127.0.0.1:8080`. `:8080` or `8080` listens on every address,
    /// IPv4 and IPv6, as `[::]:8080` does; `0.0.0.0:8080` on every IPv4 address.
    pub listen: Key<Address>,
    /// Certificates; a listener without speaks cleartext.
    #[serde(default)]
    pub tls: Key<TlsSpec>,
}

/// The client's server name picks the certificate, the first one where none fits. The files are
/// watched and reloaded like this file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the TLS of a listener")]
pub(in crate::config) struct TlsSpec {
    /// At least one certificate with its key.
    pub certificates: Key<List<CertificateSpec>>,
}

/// Two PEM files. Names are relative to the folder of this file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "a certificate")]
pub(in crate::config) struct CertificateSpec {
    /// The certificate, followed by its intermediates.
    pub cert: Key<FileName>,
    /// Its private key.
    pub key: Key<FileName>,
}

/// Serves `/healthz`, `/readyz`, `/metrics`, `/routes`, and `POST /reload`, which reads the
/// configuration again. Whoever reaches it can do so, and read the rules: keep it on loopback or
/// inside the network. Read at start only.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "the admin listener")]
pub(in crate::config) struct AdminSpec {
    /// IP address and port, or a port alone for every address.
    #[serde(default)]
    #[schemars(extend("default" = "127.0.0.1:9901"))]
    pub listen: Key<Address>,
}

impl ListenerSpec {
    /// Returns the files of its certificates; there is none for cleartext.
    pub(in crate::config) fn certificates(&self) -> impl Iterator<Item = CertificateFiles> {
        let tls = self.tls.value();
        let list = tls.map_or(&[][..], |tls| tls.certificates.items()).iter();
        list.filter_map(|at| {
            Some(CertificateFiles { cert: at.value.cert.path()?, key: at.value.key.path()? })
        })
    }
}

/// The two files of a certificate, as the configuration names them.
#[derive(Clone, Debug)]
pub(in crate::config) struct CertificateFiles {
    pub cert: At<PathBuf>,
    pub key: At<PathBuf>,
}
