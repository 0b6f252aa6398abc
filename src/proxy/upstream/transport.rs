//! Streams of bytes to servers, whatever they are over, and the settings that they were opened with.

use crate::config::{
    AnswerLimits, SendProxyProtocol, Server, Upstream, UpstreamProtocol, UpstreamTls,
};
use core::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Waker},
};
use socket2::SockRef;
use std::{io, sync::Arc};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

/// The settings that a connection was opened with.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionSettings {
    pub(crate) limits: AnswerLimits,
    pub(crate) protocol: UpstreamProtocol,
    /// The PROXY protocol that it began with, if it did.
    pub(crate) header: Option<SendProxyProtocol>,
    /// `None`: cleartext.
    pub(crate) tls: Option<Arc<UpstreamTls>>,
}

impl ConnectionSettings {
    pub(crate) fn of(server: &Server, upstream: &Upstream) -> Self {
        let limits = upstream.options.limits;
        let protocol = upstream.options.protocol;
        let header = upstream.options.send_proxy_protocol;
        Self { limits, protocol, header, tls: upstream.tls_of(server).cloned() }
    }

    /// True if a connection would be opened in the same way with the current configuration.
    pub(crate) fn fit(&self, server: &Server, upstream: &Upstream) -> bool {
        is_secured_alike(self.tls.as_ref(), upstream.tls_of(server))
            && self.limits == upstream.options.limits
            && self.protocol == upstream.options.protocol
            && self.header == upstream.options.send_proxy_protocol
    }

    /// True if connections with `other` settings can serve the same requests.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        is_secured_alike(self.tls.as_ref(), other.tls.as_ref())
            && self.limits == other.limits
            && self.protocol == other.protocol
            && self.header == other.header
    }
}

fn is_secured_alike(one: Option<&Arc<UpstreamTls>>, other: Option<&Arc<UpstreamTls>>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// A stream of bytes to a server.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {
    /// True if neither bytes nor an end have come, as far as the runtime has heard. A byte that has come
    /// may be lost.
    fn is_quiet_by_runtime(&mut self) -> bool {
        let mut space = [0];
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(self).poll_read(&mut context, &mut ReadBuf::new(&mut space)).is_pending()
    }

    /// True if neither bytes nor an end have come, as the system says. The runtime may not have heard of
    /// them yet.
    fn is_quiet_by_kernel(&self) -> bool;
}

impl Io for TcpStream {
    fn is_quiet_by_runtime(&mut self) -> bool {
        would_block(&self.try_read(&mut [0]))
    }

    fn is_quiet_by_kernel(&self) -> bool {
        is_quiet_by_kernel(&SockRef::from(self))
    }
}

impl Io for UnixStream {
    fn is_quiet_by_runtime(&mut self) -> bool {
        would_block(&self.try_read(&mut [0]))
    }

    fn is_quiet_by_kernel(&self) -> bool {
        is_quiet_by_kernel(&SockRef::from(self))
    }
}

impl Io for TlsStream<TcpStream> {
    fn is_quiet_by_kernel(&self) -> bool {
        self.get_ref().0.is_quiet_by_kernel()
    }
}

#[cfg(test)]
impl Io for tokio::io::DuplexStream {
    fn is_quiet_by_kernel(&self) -> bool {
        true
    }
}

fn is_quiet_by_kernel(socket: &SockRef<'_>) -> bool {
    would_block(&socket.peek(&mut [MaybeUninit::uninit()]))
}

fn would_block(read: &io::Result<usize>) -> bool {
    read.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// A stream of bytes of any kind.
pub(super) type BoxedIo = Box<dyn Io>;
