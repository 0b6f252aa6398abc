//! One end of a connection, in cleartext or over TLS, of HTTP/1.1 or HTTP/2, that can end in any way.

use super::{PATIENCE, http2::Frame};
use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

/// Bytes both ways.
trait Io: Read + Write + Send {
    /// Says over TLS that nothing follows.
    fn close_notify(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Io for TcpStream {}

impl Io for StreamOwned<ClientConnection, TcpStream> {
    fn close_notify(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

impl Io for StreamOwned<ServerConnection, TcpStream> {
    fn close_notify(&mut self) -> io::Result<()> {
        self.conn.send_close_notify();
        self.flush()
    }
}

/// One end of a connection.
pub(crate) struct Wire {
    io: Box<dyn Io>,
    socket: TcpStream,
}

/// Ways in which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Close {
    /// With FIN. Over TLS, nothing is said before.
    Fin,
    /// With FIN, after `close_notify` over TLS.
    Notified,
    /// With RST.
    Rst,
}

impl Wire {
    fn over(socket: TcpStream, io: impl FnOnce(TcpStream) -> Box<dyn Io>) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).expect("set");
        socket.set_nodelay(true).expect("set");
        let io = io(socket.try_clone().expect("another handle"));
        Self { io, socket }
    }

    /// Connects to `address`, over TLS with `tls`.
    pub(crate) fn connect(address: SocketAddr, tls: Option<&Arc<ClientConfig>>) -> Self {
        Self::over(TcpStream::connect(address).expect("connected"), |socket| match tls {
            None => Box::new(socket),
            Some(config) => {
                let name = ServerName::try_from("localhost").expect("a name");
                let session = ClientConnection::new(Arc::clone(config), name).expect("a session");
                Box::new(StreamOwned::new(session, socket))
            }
        })
    }

    /// Serves a connection that was accepted, over TLS with `tls`.
    pub(crate) fn accepted(socket: TcpStream, tls: Option<&Arc<ServerConfig>>) -> Self {
        Self::over(socket, |socket| match tls {
            None => Box::new(socket),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config)).expect("a session");
                Box::new(StreamOwned::new(session, socket))
            }
        })
    }

    /// Writes bytes. The other side may have gone.
    pub(crate) fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _written = self.io.write_all(bytes.as_ref()).and_then(|()| self.io.flush());
    }

    /// Writes a frame of HTTP/2.
    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend_from_slice(&stream.to_be_bytes());
        frame.extend_from_slice(payload);
        self.write(frame);
    }

    /// Reads so many bytes.
    pub(crate) fn read_exact<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.io.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads one byte; `None`: the connection has ended as it should, without TLS or after
    /// `close_notify`.
    pub(crate) fn read_byte(&mut self) -> io::Result<Option<u8>> {
        let mut byte = [0];
        Ok((self.io.read(&mut byte)? > 0).then_some(byte[0]))
    }

    /// Reads a line without its end.
    pub(crate) fn line(&mut self) -> io::Result<String> {
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            line.extend(self.read_exact::<1>()?);
        }
        Ok(String::from_utf8_lossy(&line[..line.len() - 2]).into_owned())
    }

    /// Reads the first line and the fields of a message of HTTP/1.1, in lower case.
    pub(crate) fn head(&mut self) -> io::Result<String> {
        let mut head = String::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok(head.to_ascii_lowercase());
            }
            head = head + &line + "\n";
        }
    }

    /// Reads a frame of HTTP/2.
    pub(crate) fn read_frame(&mut self) -> io::Result<Frame> {
        let head = self.read_exact::<9>()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let mut payload = vec![0; length];
        self.io.read_exact(&mut payload)?;
        Ok(Frame { kind: head[3], flags: head[4], stream, payload })
    }

    /// Ends the connection.
    pub(crate) fn close(mut self, how: Close) {
        match how {
            Close::Fin => {}
            // The other side may have gone.
            Close::Notified => drop(self.io.close_notify()),
            Close::Rst => {
                socket2::SockRef::from(&self.socket)
                    .set_linger(Some(core::time::Duration::ZERO))
                    .expect("set");
            }
        }
    }
}

/// Returns what a client runs by that speaks `protocol` and trusts `FILE.pem` alone.
pub(crate) fn client_config(folder: &Path, file: &str, protocol: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let path = folder.join(format!("{file}.pem"));
    roots.add(CertificateDer::from_pem_file(path).expect("a certificate")).expect("added");
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().expect("known versions");
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    Arc::new(config)
}
