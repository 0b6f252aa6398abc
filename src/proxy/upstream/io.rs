//! Streams of bytes to servers, whatever they are over.

use core::mem::MaybeUninit;
use socket2::SockRef;
use std::io::ErrorKind;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
};
use tokio_rustls::client::TlsStream;

/// A stream of bytes to a server.
pub(super) trait Io: AsyncRead + AsyncWrite + Unpin + Send {
    /// Whether nothing has come, neither bytes nor an end. Asks the system, as the runtime may not
    /// have heard of it yet.
    fn is_silent(&self) -> bool;
}

impl Io for TcpStream {
    fn is_silent(&self) -> bool {
        is_silent(&SockRef::from(self))
    }
}

impl Io for UnixStream {
    fn is_silent(&self) -> bool {
        is_silent(&SockRef::from(self))
    }
}

impl Io for TlsStream<TcpStream> {
    fn is_silent(&self) -> bool {
        self.get_ref().0.is_silent()
    }
}

#[cfg(test)]
impl Io for tokio::io::DuplexStream {
    fn is_silent(&self) -> bool {
        true
    }
}

fn is_silent(socket: &SockRef<'_>) -> bool {
    let peeked = socket.peek(&mut [MaybeUninit::uninit()]);
    peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

/// Any of them.
pub(super) type BoxedIo = Box<dyn Io>;
