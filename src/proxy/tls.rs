//! TLS towards clients.

use super::{connection::Protocol, peer::ServerName};
use crate::config::{Certificates, Live, Snapshot};
use core::fmt;
use std::{io, sync::Arc};
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        server::{ClientHello, ResolvesServerCert},
        sign::CertifiedKey,
    },
    server::TlsStream,
};

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";

/// One listener's side of TLS, shared by all workers, so that a session begun with
/// one is resumed with another.
#[derive(Clone)]
pub struct Acceptor {
    inner: TlsAcceptor,
    listener: Arc<str>,
}

impl Acceptor {
    /// Accepts with the certificates that `live` has for `listener` at the time of
    /// each handshake.
    ///
    /// # Errors
    ///
    /// The provider has no randomness for the ticket keys.
    pub fn new(live: Arc<Live>, listener: Arc<str>) -> io::Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let resolver = Arc::new(Resolver { live, listener: Arc::clone(&listener) });
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP1.to_vec()];
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
        config.send_tls13_tickets = 1;
        Ok(Self { inner: TlsAcceptor::from(Arc::new(config)), listener })
    }

    /// Shakes hands. The caller bounds the time.
    ///
    /// # Errors
    ///
    /// The client does not speak TLS, or nothing that both speak.
    pub(super) async fn accept(
        &self,
        stream: TcpStream,
    ) -> io::Result<(TlsStream<TcpStream>, Protocol, Option<ServerName>)> {
        let stream = self.inner.accept(stream).await?;
        let session = stream.get_ref().1;
        let protocol = match session.alpn_protocol() {
            Some(HTTP2) => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let server_name = session
            .server_name()
            .map(|name| ServerName { listener: Arc::clone(&self.listener), name: name.to_owned() });
        Ok((stream, protocol, server_name))
    }
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor").field("listener", &self.listener).finish_non_exhaustive()
    }
}

/// Returns the certificates that `snapshot` has for a listener, if it speaks TLS.
pub(crate) fn certificates<'a>(snapshot: &'a Snapshot, listener: &str) -> Option<&'a Certificates> {
    snapshot.listeners.iter().find(|known| &*known.name == listener)?.tls.as_deref()
}

/// Picks a certificate from the rules in force, so that a reload changes it
/// without touching the socket.
struct Resolver {
    live: Arc<Live>,
    listener: Arc<str>,
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let snapshot = self.live.load();
        let certificates = certificates(&snapshot, &self.listener)?;
        Some(Arc::clone(&certificates.find(hello.server_name()).key))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("listener", &self.listener).finish_non_exhaustive()
    }
}
