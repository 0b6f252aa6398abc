//! Bytes on connections: streams to clients, bytes that have come, and bytes that are to be written.

pub(crate) mod input;
pub(crate) mod outgoing;

use core::time::Duration;
use socket2::SockRef;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::server::TlsStream;

/// A stream of bytes to a client.
pub(crate) trait ClientIo: AsyncRead + AsyncWrite + Unpin + Send {
    /// Has the connection end with RST, however it ends, or again with FIN, if it can.
    fn end_with_reset(&self, _is_reset: bool) {}
}

impl ClientIo for TcpStream {
    fn end_with_reset(&self, is_reset: bool) {
        // An error says that the connection is over.
        drop(SockRef::from(self).set_linger(is_reset.then_some(Duration::ZERO)));
    }
}

impl<T: ClientIo> ClientIo for Box<TlsStream<T>> {
    fn end_with_reset(&self, is_reset: bool) {
        self.get_ref().0.end_with_reset(is_reset);
    }
}

#[cfg(test)]
impl ClientIo for tokio::io::DuplexStream {}
