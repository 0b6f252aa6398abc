//! Bodies that end early, as a server or a client sends them, and a gateway between all protocols.

use super::{
    Gateway,
    http2_server::{DATA, END_STREAM, GOAWAY, RST_STREAM},
    protocols::{ClientTls, PROTOCOLS, Protocol, folder, start},
    wire::{Close, Wire},
};
use std::{io, net::SocketAddr, path::Path};

/// The part of a body of ten bytes that is sent before the end.
pub(crate) const PART: &[u8] = b"half!";

/// The end of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// As it should.
    Whole,
    /// As it should, and the stream is reset with `NO_ERROR` (RFC 9113, 8.1).
    WholeAndReset,
    Closed(Close),
    /// With a chunk that is none.
    Malformed,
    Reset(u32),
    /// With GOAWAY, before the connection is closed.
    GoAway(u32),
    /// With `END_STREAM`, before the declared length.
    Short,
}

impl End {
    /// Returns the ends of connections of `protocol`.
    pub(crate) fn closed(protocol: Protocol) -> Vec<Self> {
        let mut ends = vec![Self::Closed(Close::Fin), Self::Closed(Close::Rst)];
        if protocol.is_tls {
            ends.push(Self::Closed(Close::Notified));
        }
        ends
    }

    /// Ends a body of HTTP/1.1 after [`PART`]. Returns the connection if it is still open.
    pub(crate) fn send_http1(self, mut wire: Wire, is_chunked: bool) -> Option<Wire> {
        match self {
            Self::Closed(how) => {
                wire.close(how);
                return None;
            }
            Self::Malformed => wire.write("zz\r\n"),
            Self::Whole | Self::WholeAndReset | Self::Reset(_) | Self::GoAway(_) | Self::Short => {
                wire.write(if is_chunked { &b"5\r\nhalf!\r\n0\r\n\r\n"[..] } else { PART });
            }
        }
        Some(wire)
    }

    /// Ends the body of a stream of HTTP/2 after [`PART`]; GOAWAY names `last` as the last stream that
    /// is processed. Returns the connection if it is still open.
    pub(crate) fn send_http2(self, mut wire: Wire, stream: u32, last: u32) -> Option<Wire> {
        match self {
            Self::Closed(how) => {
                wire.close(how);
                return None;
            }
            Self::GoAway(code) => {
                wire.frame(GOAWAY, 0, 0, &[last.to_be_bytes(), code.to_be_bytes()].concat());
                wire.close(Close::Fin);
                return None;
            }
            Self::Reset(code) => wire.frame(RST_STREAM, 0, stream, &code.to_be_bytes()),
            Self::Short => wire.frame(DATA, END_STREAM, stream, b"x"),
            Self::Whole | Self::Malformed => wire.frame(DATA, END_STREAM, stream, PART),
            Self::WholeAndReset => {
                wire.frame(DATA, END_STREAM, stream, PART);
                wire.frame(RST_STREAM, 0, stream, &0_u32.to_be_bytes());
            }
        }
        Some(wire)
    }
}

/// Reads the code of `RST_STREAM`.
pub(crate) fn reset_code(payload: &[u8]) -> u32 {
    payload.first_chunk().copied().map(u32::from_be_bytes).expect("a code")
}

/// Reads the rest of a chunked body after [`PART`], in chunks of as many bytes.
pub(crate) fn read_chunks(wire: &mut Wire) -> io::Result<()> {
    wire.line()?;
    while wire.line()? != "0" {
        wire.read_exact::<5>()?;
        wire.line()?;
    }
    wire.line().map(drop)
}

/// A gateway with a server of every protocol behind it.
pub(crate) struct Network<S> {
    pub gateway: Gateway,
    pub tls: ClientTls,
    pub servers: [(Protocol, S); 4],
}

impl<S> Network<S> {
    pub(crate) fn start(
        server: impl Fn(&Path, Protocol) -> S,
        address: impl Fn(&S) -> SocketAddr,
    ) -> Self {
        let folder = folder();
        let tls = ClientTls::new(folder.path());
        let servers = PROTOCOLS.map(|protocol| (protocol, server(folder.path(), protocol)));
        let addresses = servers.each_ref().map(|(protocol, server)| (*protocol, address(server)));
        let gateway = start(folder, &addresses, "");
        Self { gateway, tls, servers }
    }
}
