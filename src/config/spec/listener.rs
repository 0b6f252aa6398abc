//! Where clients and operators connect.

use super::other_words::file::{
    ADMIN_MEANT, LISTENER_INSTEAD, LISTENER_MEANT, TLS_INSTEAD, TLS_MEANT,
};
use super::{
    NetworksSpec, RuleSpec,
    acme::AcmeNames,
    keys::keys,
    leaf::{
        AcmeName, Address, AdminToken, ClientIpHeader, FileMode, FileName, Listen, Name, TlsVersion,
    },
    values::ListenAddress,
    words::ClientAuth,
};
use crate::config::{
    decode::{At, List, Printed, Several},
    diagnostics::Source,
};
use std::path::PathBuf;

keys! {
    /// An address that accepts connections: HTTP/1.1 and HTTP/2, with TLS if `tls` is set. An edit
    /// of the file can add and remove listeners.
    #[instead = LISTENER_INSTEAD]
    #[meant = LISTENER_MEANT]
    struct ListenerSpec: "a listener" {
        /// The listener's name in logs and metrics.
        name: Name;
        /// IP address and port, as in `127.0.0.1:8080`. `:8080`, `8080` and `[::]:8080` listen on
        /// every address, IPv4 and IPv6, or IPv4 alone on a machine without IPv6;
        /// `0.0.0.0:8080` listens on every IPv4 address. `unix:/PATH` listens on a Unix socket. A list
        /// listens on several.
        listen: Several<Listen>;
        /// The permissions of its Unix sockets: three octal digits in quotes. A client needs the right
        /// to write.
        unix_mode: FileMode = "0660";
        /// The trusted proxies of this listener, in place of the file's list. `[]` trusts none, `unix`
        /// the clients of Unix sockets.
        trusted_proxies: NetworksSpec, else "the file's";
        /// The field in which the trusted proxies of this listener name the client, in place of the
        /// file's.
        client_ip_header: ClientIpHeader, else "the file's";
        /// Whether the trusted proxies begin each connection with a PROXY protocol header (version
        /// 1 or 2), which has the client's address. flowgate closes connections without this
        /// header, and connections of other peers.
        proxy_protocol: bool = false;
        /// Certificates. Without `tls`, the listener speaks cleartext.
        tls: TlsSpec, else "–";
        /// Rules and budgets for the requests of this listener, whatever their route.
        flow: List<Printed<RuleSpec>>, else "no rules";
    }

    /// The server name that the client sends selects the certificate. If none matches, flowgate
    /// uses the first one. Of several with the same names, such as one with an ECDSA key and one with
    /// an RSA key, flowgate uses the first that the client can verify. flowgate watches the files and
    /// reloads them like this file.
    #[instead = TLS_INSTEAD]
    #[meant = TLS_MEANT]
    struct TlsSpec: "the TLS of a listener" {
        /// At least one certificate with its key.
        certificates: List<CertificateSpec>;
        /// Authorities of clients' certificates, as PEM. flowgate asks each client for a certificate
        /// of one of them, and closes the connection of a client with any other.
        client_ca: FileName, else "–";
        /// Whether a client without a certificate is rejected as well.
        client_auth: ClientAuth = "required";
        /// The oldest version of TLS that clients may speak: `1.2` or `1.3`.
        min_version: TlsVersion = "1.2";
    }

    /// Two PEM files, whose names are relative to the folder of this file; or the names for which
    /// flowgate gets a certificate.
    #[example = "{ cert: certs/site.pem, key: certs/site.key }"]
    #[meant = &[["domains", "acme"], ["domain", "acme"], ["names", "acme"], ["hosts", "acme"]]]
    struct CertificateSpec: "a certificate" {
        /// The certificate, followed by its intermediates.
        cert: FileName, else "–";
        /// Its private key.
        key: FileName, else "–";
        /// The names of one certificate, up to 100, which flowgate gets from the authority in
        /// `acme` and renews. Without `cert` and `key`.
        #[example = "[shop.example.com, www.example.com]"]
        acme: Several<AcmeName>, else "–";
    }

    /// Health, metrics, and pages that show and change the gateway's state: `docs/admin.md` lists
    /// them. On an address other than loopback, every page except `/healthz` and `/readyz` requires
    /// a token or a client certificate.
    #[example = "{ listen: 127.0.0.1:9901 }"]
    #[meant = ADMIN_MEANT]
    struct AdminSpec: "the admin listener" {
        /// IP address and port, or a port alone for every address.
        listen: Address = "127.0.0.1:9901";
        /// The token that clients send as `Authorization: Bearer TOKEN`, 16 to 1024 characters.
        /// `${NAME}` reads it from the environment.
        token: AdminToken, else "–";
        /// A file with the token and nothing else. flowgate watches it and reloads it like this
        /// file.
        token_file: FileName, else "–";
        /// The listener's certificate. Without it, the listener speaks cleartext.
        tls: AdminTlsSpec, else "–";
        /// Whether operators may edit this file in the dashboard.
        edit: bool = false;
        /// Whether pages, commands and the gateway's own log show the keys of clients: addresses,
        /// users, values of header fields. With `false`, they show fingerprints, and `/requests`
        /// shows nothing.
        show_keys: bool = false;
    }

    /// PEM files. flowgate watches them and reloads them like this file.
    struct AdminTlsSpec: "the TLS of the admin listener" {
        /// The certificate, followed by its intermediates.
        cert: FileName;
        /// Its private key.
        key: FileName;
        /// Authorities of client certificates. A client with such a certificate needs no token.
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
    /// Returns its addresses.
    pub(in crate::config) fn addresses(&self) -> impl Iterator<Item = At<ListenAddress>> {
        let places = self.listen.items().iter();
        places.map(|at| At { value: at.value.0.clone(), span: at.span, written: at.written })
    }

    /// Reports whether it asks clients for certificates: also where the files of `tls` are left out.
    pub(in crate::config) fn asks_for_certificates(&self) -> bool {
        let tls = self.tls.value();
        tls.map_or_else(|| self.tls.is_written(), |tls| tls.client_ca.is_written())
    }

    pub(in crate::config) fn certificates(&self) -> impl Iterator<Item = CertificateFiles> {
        let tls = self.tls.value();
        let list = tls.map_or(&[][..], |tls| tls.certificates.items()).iter();
        list.filter_map(|at| {
            Some(CertificateFiles { cert: at.value.cert.path()?, key: at.value.key.path()? })
        })
    }

    /// Returns the certificates of which the file has the names.
    pub(in crate::config) fn acme_names(&self) -> impl Iterator<Item = AcmeNames> {
        let tls = self.tls.value();
        let list = tls.map_or(&[][..], |tls| tls.certificates.items()).iter();
        list.filter_map(|at| at.value.names())
    }
}

impl TlsSpec {
    /// Has relative names of files meant from the folder of the file that they stand in.
    pub(super) fn resolve(&mut self, source: &Source) {
        self.client_ca.resolve(source);
        for certificate in self.certificates.at.iter_mut().flat_map(|at| &mut at.value.0) {
            certificate.value.cert.resolve(source);
            certificate.value.key.resolve(source);
        }
    }
}

impl CertificateSpec {
    /// Returns whether it has neither both files nor names.
    pub(super) const fn lacks_a_file(&self) -> bool {
        let has_files = self.cert.is_written() && self.key.is_written();
        !has_files && !self.acme.is_written()
    }

    /// Returns the names for which the authority is to issue it, if it has any.
    pub(in crate::config) fn names(&self) -> Option<AcmeNames> {
        let names = self.acme.items().iter().map(|at| at.as_ref().map(|name| name.0.clone()));
        let names: Vec<_> = names.collect();
        let span = self.acme.as_ref().map(|at| at.span).filter(|_| !names.is_empty())?;
        Some(AcmeNames { names, span })
    }
}

/// The two files of a certificate, as the configuration names them.
#[derive(Clone, Debug)]
pub(in crate::config) struct CertificateFiles {
    pub cert: At<PathBuf>,
    pub key: At<PathBuf>,
}
