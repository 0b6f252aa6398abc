//! Where clients and operators connect.

use super::{
    keys::keys,
    leaf::{Address, AdminToken, FileName, Name, Network},
};
use crate::config::{
    decode::{At, List, Several},
    diagnostics::Source,
};
use std::path::PathBuf;

keys! {
    /// An address to accept connections on: HTTP/1.1 and HTTP/2, with TLS where `tls` says so.
    /// Listeners come and go with the file.
    #[cfg_attr(test, schemars(extend("x-meant" = [["port", "listen"], ["address", "listen"], ["bind", "listen"]])))]
    struct ListenerSpec: "a listener" {
        /// The listener's name in logs and metrics.
        name: Name;
        /// IP address and port, as in `127.0.0.1:8080`. `:8080` or `8080` listens on every address,
        /// IPv4 and IPv6, as `[::]:8080` does; `0.0.0.0:8080` on every IPv4 address.
        listen: Address;
        /// Whose `X-Forwarded-For` is believed here, in place of the file's list; `[]`: that of none.
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

    /// Health, metrics, and pages that show and change what the gateway does: `docs/admin.md` lists
    /// them. On another address than loopback, every page but `/healthz` and `/readyz` asks for a
    /// token or a client certificate.
    struct AdminSpec: "the admin listener" {
        /// IP address and port, or a port alone for every address. Read at start only.
        listen: Address = "127.0.0.1:9901";
        /// What clients send as `Authorization: Bearer TOKEN`, 16 to 1024 characters. `${NAME}` takes
        /// it from the environment.
        token: AdminToken, else "–";
        /// A file that holds the token and nothing else. It is watched and reloaded like this file.
        token_file: FileName, else "–";
        /// The listener's certificate; without it the listener speaks cleartext.
        tls: AdminTlsSpec, else "–";
        /// Whether operators may edit this file in the dashboard.
        edit: bool = false;
        /// Whether pages, commands and the log name the keys of clients: addresses, users, values of
        /// header fields. Without it they are known by fingerprint, and `/requests` shows nothing.
        show_keys: bool = false;
    }

    /// PEM files, watched and reloaded like this file.
    struct AdminTlsSpec: "the TLS of the admin listener" {
        /// The certificate, followed by its intermediates.
        cert: FileName;
        /// Its private key.
        key: FileName;
        /// Authorities whose clients need no token: they show a certificate instead.
        client_ca: FileName, else "–";
    }
}

impl AdminSpec {
    /// Returns the files that it names.
    pub(super) fn files(&self) -> impl Iterator<Item = PathBuf> {
        let tls = self.tls.value();
        let of_tls = tls.into_iter().flat_map(|tls| [&tls.cert, &tls.key, &tls.client_ca]);
        of_tls.chain([&self.token_file]).filter_map(|file| Some(file.path()?.value))
    }

    /// Has relative names of files meant from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        self.token_file.resolve(source);
        if let Some(tls) = &mut self.tls.at {
            tls.value.cert.resolve(source);
            tls.value.key.resolve(source);
            tls.value.client_ca.resolve(source);
        }
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
