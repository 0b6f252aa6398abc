//! Opening connections to upstream servers: over TCP, with TLS or without, or to a Unix socket.

use super::{
    http1, http2,
    transport::{BoxedIo, ConnectionSettings},
};
use crate::{
    clock::Clock,
    config::{Server, Upstream, UpstreamProtocol, UpstreamTls},
};
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::TlsConnector;

/// A way to make new connections.
#[derive(Debug, Default)]
pub enum Connector {
    /// To the server's address.
    #[default]
    Network,
    /// To a server in this process, which receives the other ends.
    #[cfg(test)]
    Memory(tokio::sync::mpsc::UnboundedSender<tokio::io::DuplexStream>),
    /// To a server that never accepts.
    #[cfg(test)]
    Stuck,
    /// To a server in this process, by its port.
    #[cfg(test)]
    Simulated(SimulatedNetwork),
}

/// Connects to servers in this process.
#[cfg(test)]
pub struct SimulatedNetwork(Box<dyn Fn(u16) -> Connecting + Send + Sync>);

#[cfg(test)]
type Connecting =
    core::pin::Pin<Box<dyn Future<Output = io::Result<tokio::io::DuplexStream>> + Send>>;

#[cfg(test)]
impl SimulatedNetwork {
    pub(crate) fn new(connect: impl Fn(u16) -> Connecting + Send + Sync + 'static) -> Self {
        Self(Box::new(connect))
    }
}

#[cfg(test)]
impl core::fmt::Debug for SimulatedNetwork {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("SimulatedNetwork").finish_non_exhaustive()
    }
}

/// A new connection.
pub(crate) enum Opened {
    Http1(Box<http1::Connection>),
    Http2(Arc<http2::Connection>),
}

/// The protocols that flowgate offers to a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Offer {
    /// HTTP/1.1 alone, for a request that changes its protocol.
    Http1,
    /// Those that the upstream is set to. HTTP/2 begins with `streams` requests at once.
    Any { streams: usize },
}

impl Connector {
    /// Connects to a server of `upstream`, and begins with `header`. The caller bounds the time.
    ///
    /// # Errors
    ///
    /// The server cannot be reached, cannot be trusted, or does not speak the required protocol.
    pub(crate) async fn connect(
        &self,
        server: &Server,
        upstream: &Upstream,
        offer: Offer,
        header: Option<&[u8]>,
        clock: &Clock,
    ) -> io::Result<Opened> {
        let protocol = upstream.options.protocol;
        let settings = ConnectionSettings::of(server, upstream);
        let streams = match (protocol, offer) {
            (UpstreamProtocol::H2, Offer::Http1) => {
                return Err(io::Error::other("an upgrade needs HTTP/1.1, and `protocol` is h2"));
            }
            (UpstreamProtocol::H2, Offer::Any { streams }) => Some(streams),
            (UpstreamProtocol::H1 | UpstreamProtocol::Auto, _) => None,
        };

        match self {
            Self::Network => {
                if let Some(path) = server.socket() {
                    let mut stream = UnixStream::connect(path).await?;
                    write_header(&mut stream, header).await?;
                    return begin(Box::new(stream), settings, streams, clock).await;
                }

                let mut stream = match server.ip {
                    Some(ip) => TcpStream::connect((ip, server.port)).await?,
                    None => TcpStream::connect((&*server.host, server.port)).await?,
                };
                stream.set_nodelay(true)?;
                write_header(&mut stream, header).await?;
                match upstream.tls_of(server) {
                    None => begin(Box::new(stream), settings, streams, clock).await,
                    Some(tls) => begin_secured(stream, tls, server, settings, offer, clock).await,
                }
            }
            #[cfg(test)]
            Self::Memory(accept) => {
                let (near, far) = tokio::io::duplex(64 * 1024);
                accept.send(far).map_err(|_| io::ErrorKind::ConnectionRefused)?;
                begin(Box::new(near), settings, streams, clock).await
            }
            #[cfg(test)]
            Self::Stuck => core::future::pending().await,
            #[cfg(test)]
            Self::Simulated(SimulatedNetwork(connect)) => {
                begin(Box::new(connect(server.port).await?), settings, streams, clock).await
            }
        }
    }
}

/// Writes what a connection begins with, before TLS.
async fn write_header(
    stream: &mut (impl AsyncWrite + Unpin),
    header: Option<&[u8]>,
) -> io::Result<()> {
    match header {
        Some(header) => stream.write_all(header).await,
        None => Ok(()),
    }
}

/// Begins HTTP/2 with `streams` requests at once, or HTTP/1.1 if that is `None`.
async fn begin(
    stream: BoxedIo,
    settings: ConnectionSettings,
    streams: Option<usize>,
    clock: &Clock,
) -> io::Result<Opened> {
    Ok(match streams {
        Some(streams) => {
            Opened::Http2(http2::Connection::open(stream, settings, streams, clock).await?)
        }
        None => Opened::Http1(http1::Connection::new(stream, settings)),
    })
}

/// Makes the TLS handshake with `server`, and begins the protocol that it chose.
async fn begin_secured(
    stream: TcpStream,
    tls: &UpstreamTls,
    server: &Server,
    settings: ConnectionSettings,
    offer: Offer,
    clock: &Clock,
) -> io::Result<Opened> {
    let name = tls
        .name_of(&server.host)
        .ok_or_else(|| io::Error::other("no certificate can be for it"))?;
    let (config, streams) = match offer {
        Offer::Http1 => (tls.config_of_http1(), None),
        Offer::Any { streams } => (tls.config(), Some(streams)),
    };

    let connector = TlsConnector::from(Arc::clone(config));
    let stream = connector.connect(name, stream).await.map_err(|error| {
        let is_end = error.kind() == io::ErrorKind::UnexpectedEof;
        if is_end { io::Error::other("TLS: the server ended the handshake") } else { error }
    });
    let stream = stream?;

    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    if settings.protocol == UpstreamProtocol::H2 && !is_http2 {
        return Err(io::Error::other("TLS: the server does not speak HTTP/2"));
    }
    begin(Box::new(stream), settings, streams.filter(|_| is_http2), clock).await
}
