//! TLS towards clients.

use crate::acme::{ACME_TLS, Challenges};
use crate::auth::client_certificate;
use crate::config::{Acme, Certificates, Live, Snapshot, TlsTerms, failed_handshake};
use crate::proxy::{
    connections::registry::Protocol,
    peer::{ServerName, TlsSession},
};
use core::fmt;
use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};
use tokio_rustls::{
    LazyConfigAcceptor, TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::aws_lc_rs,
        server::{self, ClientHello, ResolvesServerCert, ServerSessionMemoryCache},
        sign::{CertifiedKey, SingleCertAndKey},
    },
    server::TlsStream,
};

const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// Some clients that speak only this name it: `curl --http1.0`.
const HTTP10: &[u8] = b"http/1.0";

/// The sessions that a listener remembers for clients without tickets, as rustls has it.
const SESSIONS: usize = 256;

/// What a client of a listener with TLS speaks.
pub(crate) enum Accepted {
    Secured(Box<TlsStream<TcpStream>>, Protocol, TlsSession),
    /// HTTP without TLS, of which nothing has been read.
    Cleartext(TcpStream),
    /// The challenge of an authority of certificates, which is over.
    Challenged,
}

/// One listener's side of TLS, shared by all workers, so that a session begun with
/// one is resumed with another.
#[derive(Clone)]
pub struct Acceptor {
    inner: Arc<Mutex<Terms>>,
    resolver: Arc<Resolver>,
}

/// A side of TLS, and the terms that it is made of.
struct Terms {
    terms: TlsTerms,
    acceptor: TlsAcceptor,
}

impl Terms {
    fn new(terms: TlsTerms, resolver: &Arc<Resolver>) -> io::Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(terms.versions())
            .map_err(io::Error::other)?
            .with_client_cert_verifier(terms.verifier())
            .with_cert_resolver(Arc::clone(resolver) as Arc<_>);
        config.alpn_protocols = [HTTP2, HTTP1, HTTP10].map(<[u8]>::to_vec).into();
        // Its keys are its own: a session that began by other terms is not resumed.
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
        config.session_storage = ServerSessionMemoryCache::new(SESSIONS);
        config.send_tls13_tickets = 1;
        Ok(Self { terms, acceptor: TlsAcceptor::from(Arc::new(config)) })
    }
}

impl Acceptor {
    /// Accepts with the certificates that `live` has for `listener` at the time of
    /// each handshake.
    ///
    /// # Errors
    ///
    /// The provider has no randomness for the ticket keys.
    pub fn new(live: Arc<Live>, listener: Arc<str>) -> io::Result<Self> {
        let resolver = Arc::new(Resolver { live, listener, last: Mutex::default() });
        // Known from the start, for a listener that is closed before its first client.
        drop(resolver.certificates());
        let terms = resolver.terms().unwrap_or_default();
        let inner = Arc::new(Mutex::new(Terms::new(terms, &resolver)?));
        Ok(Self { inner, resolver })
    }

    /// Shakes hands. The caller bounds the time.
    ///
    /// # Errors
    ///
    /// The client speaks neither TLS nor HTTP, or nothing that both speak.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        challenges: &Challenges,
    ) -> io::Result<Accepted> {
        let mut first = [0];
        // TLS begins with a byte that is no letter, HTTP with a method.
        if stream.peek(&mut first).await? > 0 && first[0].is_ascii_uppercase() {
            return Ok(Accepted::Cleartext(stream));
        }
        let acceptor = self.acceptor()?;
        let acme = self.resolver.live.load().settings.acme.clone();
        let stream = match acme {
            None => acceptor.accept(stream).await?,
            // In a box, as other listeners' clients do not need it.
            Some(acme) => match Box::pin(self.accept_or_prove(stream, &acme, challenges)).await? {
                Some(stream) => stream,
                None => return Ok(Accepted::Challenged),
            },
        };
        let stream = Box::new(stream);
        let session = stream.get_ref().1;
        let protocol = match session.alpn_protocol() {
            Some(HTTP2) => Protocol::Http2,
            _ => Protocol::Http1,
        };
        let name = session.server_name();
        // One certificate answers for every name, so nothing is to be compared then.
        let several = self.resolver.certificates().filter(|all| all.iter().nth(1).is_some());
        let server_name = name
            .zip(several)
            .map(|(name, certificates)| ServerName { name: name.to_owned(), certificates });
        let certificate = session.peer_certificates().and_then(<[_]>::first);
        let certificate = certificate.map(|shown| Arc::new(client_certificate(shown)));
        let tls = TlsSession { server_name, certificate };
        Ok(Accepted::Secured(stream, protocol, tls))
    }
}

impl Acceptor {
    /// Returns the side of TLS by the terms in force. A listener that an edit took away keeps its terms.
    fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(terms) = self.resolver.terms_unlike(&inner.terms) {
            *inner = Terms::new(terms, &self.resolver)?;
        }
        Ok(inner.acceptor.clone())
    }

    /// Shakes hands with a client, or with an authority that tests whether this gateway has a name: such a
    /// connection is not used further (TLS-ALPN-01, RFC 8737).
    async fn accept_or_prove(
        &self,
        stream: TcpStream,
        acme: &Acme,
        challenges: &Challenges,
    ) -> io::Result<Option<TlsStream<TcpStream>>> {
        let start = LazyConfigAcceptor::new(server::Acceptor::default(), stream).await?;
        let hello = start.client_hello();
        let is_challenge = hello.alpn().is_some_and(|mut offered| {
            offered.next() == Some(ACME_TLS) && offered.next().is_none()
        });
        if !is_challenge {
            return start.into_stream(Arc::clone(self.acceptor()?.config())).await.map(Some);
        }

        let name = hello.server_name().map(str::to_owned);
        let unknown = || io::Error::other("no challenge for this name");
        let name = name.ok_or_else(unknown)?;
        let key = challenges.certificate(&acme.folder, &name).await.ok_or_else(unknown)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![ACME_TLS.to_vec()];
        let mut stream = start.into_stream(Arc::new(config)).await?;
        stream.shutdown().await?;
        Ok(None)
    }
}

/// Returns why a handshake failed, unless the connection has only ended.
pub(crate) fn why_failed(error: &io::Error) -> Option<String> {
    let inner = error.get_ref()?.downcast_ref::<rustls::Error>()?;
    Some(failed_handshake(inner))
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("listener", &self.resolver.listener)
            .finish_non_exhaustive()
    }
}

/// Returns the certificates that `snapshot` has for a listener, if it speaks TLS.
pub(crate) fn certificates<'a>(snapshot: &'a Snapshot, listener: &str) -> Option<&'a Certificates> {
    shared_certificates(snapshot, listener).map(|certificates| &**certificates)
}

fn shared_certificates<'a>(
    snapshot: &'a Snapshot,
    listener: &str,
) -> Option<&'a Arc<Certificates>> {
    snapshot.listeners.iter().find(|known| &*known.name == listener)?.tls.as_ref()
}

/// Picks a certificate from the rules in force, so that a reload changes it
/// without touching the socket.
struct Resolver {
    live: Arc<Live>,
    listener: Arc<str>,
    /// What the rules had last, for clients that a listener still has after an edit
    /// took it away, renamed it or switched TLS off.
    last: Mutex<Option<Arc<Certificates>>>,
}

impl Resolver {
    fn certificates(&self) -> Option<Arc<Certificates>> {
        let snapshot = self.live.load();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(now) = shared_certificates(&snapshot, &self.listener)
            && last.as_ref().is_none_or(|last| !Arc::ptr_eq(last, now))
        {
            *last = Some(Arc::clone(now));
        }
        last.clone()
    }
}

impl Resolver {
    /// Returns the terms in force, if the listener still has TLS.
    fn terms(&self) -> Option<TlsTerms> {
        let snapshot = self.live.load();
        let listener = snapshot.listener(&self.listener)?;
        listener.tls.is_some().then(|| listener.terms.clone())
    }

    /// Returns the terms in force if they are others.
    fn terms_unlike(&self, known: &TlsTerms) -> Option<TlsTerms> {
        let snapshot = self.live.load();
        let listener = snapshot.listener(&self.listener)?;
        let is_other = listener.tls.is_some() && listener.terms != *known;
        is_other.then(|| listener.terms.clone())
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let certificates = self.certificates()?;
        // rustls leaves out the schemes that no cipher suite of the client can use.
        let schemes = hello.signature_schemes();
        let is_accepted = |key: &CertifiedKey| key.key.choose_scheme(schemes).is_some();
        Some(Arc::clone(&certificates.find(hello.server_name(), is_accepted).key))
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("listener", &self.listener).finish_non_exhaustive()
    }
}
