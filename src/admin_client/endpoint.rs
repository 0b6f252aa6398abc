//! The address of an admin listener, as people write it.

use super::{error::ClientError, search::AdminOptions};
use crate::config::{ListedNames, ServerVerifier};
use core::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    str::FromStr,
};
use http::Uri;
use std::{fs, path::Path, sync::Arc};
use tokio_rustls::rustls::{
    ClientConfig, RootCertStore,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

/// Where an admin listener is, and whether it has TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminEndpoint {
    /// A name or an address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) has_tls: bool,
}

impl AdminEndpoint {
    /// Returns how a listener is reached that listens on `address`: one that listens on all
    /// addresses is reached on loopback.
    pub(super) fn of_listener(address: SocketAddr, has_tls: bool) -> Self {
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            IpAddr::V4(_) | IpAddr::V6(_) => address.ip(),
        };
        Self { host: ip.to_string(), port: address.port(), has_tls }
    }

    /// Returns host and port as `Host` has them.
    pub(super) fn authority(&self) -> String {
        let Self { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

impl fmt::Display for AdminEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.has_tls { "https://" } else { "" })?;
        f.write_str(&self.authority())
    }
}

impl FromStr for AdminEndpoint {
    type Err = &'static str;

    /// Reads `host:port`, `http://host:port` or `https://host:port`. In a URL the port may be
    /// missing.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const USAGE: &str = "write an address as 127.0.0.1:9901, or a URL as https://gateway:9901";
        let has_scheme = text.contains("://");
        let url = if has_scheme { text.to_owned() } else { format!("http://{text}") };
        let url: Uri = url.parse().map_err(|_| USAGE)?;
        let has_tls = match url.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("the admin listener speaks http:// or https://"),
        };
        if !matches!(url.path_and_query().map(http::uri::PathAndQuery::as_str), None | Some("/")) {
            return Err("name the listener without a path");
        }
        let authority = url.authority().filter(|authority| !authority.as_str().contains('@'));
        let authority = authority.ok_or(USAGE)?;
        let usual = has_scheme.then_some(if has_tls { 443 } else { 80 });
        let port = authority.port_u16().or(usual).ok_or(USAGE)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']');
        if host.is_empty() {
            return Err(USAGE);
        }
        Ok(Self { host: host.to_owned(), port, has_tls })
    }
}

/// A file that cannot be used, and why.
type Unusable = Box<dyn std::error::Error>;

/// The certificate that a command presents.
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
pub(super) fn tls_config(
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_urls_are_read() {
        let read = |text: &str| text.parse::<AdminEndpoint>().map(|endpoint| endpoint.to_string());
        for (text, shown) in [
            ("127.0.0.1:9901", "127.0.0.1:9901"),
            ("[::1]:9901", "[::1]:9901"),
            ("gateway:9901", "gateway:9901"),
            ("http://gateway:9901/", "gateway:9901"),
            ("http://gateway", "gateway:80"),
            ("https://gateway.internal:9901", "https://gateway.internal:9901"),
            ("https://[::1]", "https://[::1]:443"),
        ] {
            assert_eq!(read(text).as_deref(), Ok(shown), "{text}");
        }
        for text in [
            "",
            "9901",
            "127.0.0.1",
            ":9901",
            "ftp://a:1",
            "http://a:1/routes",
            "http://me@a:1",
            "a:99999",
            "a b:1",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_listener_on_all_addresses_is_reached_on_loopback() {
        let reached =
            |text: &str| AdminEndpoint::of_listener(text.parse().unwrap(), false).authority();
        assert_eq!(reached("0.0.0.0:9901"), "127.0.0.1:9901");
        assert_eq!(reached("[::]:9901"), "[::1]:9901");
        assert_eq!(reached("192.0.2.1:9901"), "192.0.2.1:9901");
    }
}
