//! The PROXY protocol towards servers: the header of a connection that names its client, in versions 1 and 2, as
//! HAProxy specifies them.

use crate::config::SendProxyProtocol;
use core::net::{IpAddr, SocketAddr};

/// The first bytes of a header of version 2.
const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, for a connection of another one, and of the sender's own.
const PROXY: u8 = 0x21;
const LOCAL: u8 = 0x20;

/// TCP over IPv4, and over IPv6.
const TCP4: u8 = 0x11;
const TCP6: u8 = 0x21;

/// A client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proxied {
    /// The client; port 0 if that is not known.
    pub(crate) from: SocketAddr,
    /// The address that it has connected to; unspecified if that is not known.
    pub(crate) to: SocketAddr,
}

/// Returns the header of a connection for a client; `None`: for flowgate itself, or one that it does not know.
pub(crate) fn header(version: SendProxyProtocol, of: Option<Proxied>) -> Box<[u8]> {
    let addresses = of.map(|Proxied { from, to }| {
        let from_ip = from.ip().to_canonical();
        let to_ip = to.ip().to_canonical();
        // Both have one family.
        match (from_ip, to_ip) {
            (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                (from_ip, to_ip, from.port(), to.port())
            }
            (IpAddr::V4(from_ip), IpAddr::V6(to_ip)) => {
                (from_ip.to_ipv6_mapped().into(), to_ip.into(), from.port(), to.port())
            }
            (IpAddr::V6(from_ip), IpAddr::V4(to_ip)) => {
                (from_ip.into(), to_ip.to_ipv6_mapped().into(), from.port(), to.port())
            }
        }
    });

    match (version, addresses) {
        (SendProxyProtocol::V1, None) => Box::from(*b"PROXY UNKNOWN\r\n"),
        (SendProxyProtocol::V1, Some((from, to, from_port, to_port))) => {
            let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
            let line = format!("PROXY {family} {from} {to} {from_port} {to_port}\r\n");
            line.into_bytes().into()
        }
        (SendProxyProtocol::V2, None) => [&SIGNATURE[..], &[LOCAL, 0, 0, 0]].concat().into(),
        (SendProxyProtocol::V2, Some((from, to, from_port, to_port))) => {
            let mut rest = Vec::with_capacity(36);
            for ip in [from, to] {
                match ip {
                    IpAddr::V4(ip) => rest.extend_from_slice(&ip.octets()),
                    IpAddr::V6(ip) => rest.extend_from_slice(&ip.octets()),
                }
            }
            rest.extend_from_slice(&from_port.to_be_bytes());
            rest.extend_from_slice(&to_port.to_be_bytes());
            let family = if from.is_ipv4() { TCP4 } else { TCP6 };
            // 12 or 36 bytes.
            let length = u8::try_from(rest.len()).unwrap_or(u8::MAX);
            [&SIGNATURE[..], &[PROXY, family, 0, length], &rest].concat().into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::downstream::read_proxy_header;
    use SendProxyProtocol::{V1, V2};
    use proptest::prelude::*;

    fn proxied(from: &str, to: &str) -> Proxied {
        Proxied { from: from.parse().expect("an address"), to: to.parse().expect("an address") }
    }

    #[test]
    fn a_line_names_both_ends() {
        for (from, to, line) in [
            ("192.0.2.1:4711", "10.0.0.1:80", "PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n"),
            ("[::ffff:192.0.2.1]:1", "10.0.0.1:80", "PROXY TCP4 192.0.2.1 10.0.0.1 1 80\r\n"),
            ("[2001:db8::1]:1", "[::1]:443", "PROXY TCP6 2001:db8::1 ::1 1 443\r\n"),
            ("192.0.2.1:1", "[2001:db8::1]:2", "PROXY TCP6 ::ffff:192.0.2.1 2001:db8::1 1 2\r\n"),
            ("[2001:db8::1]:0", "0.0.0.0:0", "PROXY TCP6 2001:db8::1 ::ffff:0.0.0.0 0 0\r\n"),
        ] {
            assert_eq!(&*header(V1, Some(proxied(from, to))), line.as_bytes());
        }
        assert_eq!(&*header(V1, None), b"PROXY UNKNOWN\r\n");
        assert_eq!(&*header(V2, None), b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0");
    }

    proptest! {
        #[test]
        fn a_reader_finds_the_client(from: SocketAddr, to: SocketAddr) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
            for version in [V1, V2] {
                let written = header(version, Some(Proxied { from, to }));
                let read = runtime.block_on(read_proxy_header(&mut &*written)).expect("a header");
                let read = read.expect("a client");
                prop_assert_eq!(read.ip().to_canonical(), from.ip().to_canonical());
                prop_assert_eq!(read.port(), from.port());
                let none = header(version, None);
                prop_assert_eq!(runtime.block_on(read_proxy_header(&mut &*none)), Ok(None));
            }
        }
    }
}
