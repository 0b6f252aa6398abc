//! Where clients and operators connect.

use super::{
    keys::keys,
    leaf::{Address, FileName, Name, Network},
};
use crate::config::decode::{At, List, Several};
use std::path::PathBuf;

keys! {
    /// An address to accept connections on: HTTP/1.1 and HTTP/2, with TLS where `tls` says so.
    /// Listeners come and go with the file.
    struct ListenerSpec: "a listener" {
        /// The listener's name in logs and metrics.
        name: Name;
        /// IP address and port, as in `127.0.0.1:8080`. `:8080` or `8080` listens on every address,
        /// IPv4 and IPv6, as `[::]:8080` does; `0.0.0.0:8080` on every IPv4 address.
        listen: Address;
        /// Whose `X-Forwarded-For` is believed here, in place of the file's list; `[]`: nobody's.
        trusted_proxies: Several<Network>, else "the file's";
        /// Whether the trusted proxies begin each connection with a header of the PROXY protocol
        /// (version 1 or 2), which names the client. Connections without, and those of others, are
        /// closed.
        proxy_protocol: bool = false;
        /// Certificates; a listener without speaks cleartext.
        tls: TlsSpec, else "–";
    }

    /// The client's server name picks the certificate, the first one where none fits. The files are
    /// watched and reloaded like this file.
    struct TlsSpec: "the TLS of a listener" {
        /// At least one certificate with its key.
        certificates: List<CertificateSpec>;
    }

    /// Two PEM files. Names are relative to the folder of this file.
    struct CertificateSpec: "a certificate" {
        /// The certificate, followed by its intermediates.
        cert: FileName;
        /// Its private key.
        key: FileName;
    }

    /// Serves `/healthz`, `/readyz`, `/metrics`, `/routes`, and `POST /reload`, which reads the
    /// configuration again. Whoever reaches it can do so, and read the rules: keep it on loopback
    /// or inside the network. Read at start only.
    struct AdminSpec: "the admin listener" {
        /// IP address and port, or a port alone for every address.
        listen: Address = "127.0.0.1:9901";
    }
}

impl ListenerSpec {
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
