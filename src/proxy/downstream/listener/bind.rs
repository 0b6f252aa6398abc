//! Binds the sockets that listen.

use crate::proxy::downstream::tls::Acceptor;
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use rustix::io::Errno;
use socket2::{Domain, Socket, Type};
use std::{io, sync::Arc};
use tokio::sync::watch;

/// Connections that the kernel keeps until they are accepted. Ten thousand clients
/// that come at once took 12 s with the usual 1024.
pub(super) const BACKLOG: i32 = 4096;

/// One worker's socket of a listener.
#[derive(Debug)]
pub struct Bound {
    /// The socket.
    pub socket: std::net::TcpListener,
    /// As what it accepts connections. It is closed once nothing is left that could change it.
    pub listener_config: watch::Receiver<ListenerConfig>,
}

/// What a listener is to its clients. An edit may change it while the socket stays: from then on
/// all connections that are accepted see the new one, also those that clients opened before.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// As configured.
    pub name: Arc<str>,
    /// TLS, if the listener has it.
    pub tls: Option<Acceptor>,
    /// Whether each connection begins with the header of the PROXY protocol.
    pub proxy_protocol: bool,
    /// Whether another process accepts on the same sockets, so that this one stops.
    pub is_handed_over: bool,
}

/// Binds `count` sockets to one address, between which the kernel shares out
/// connections. Port 0 is replaced by a free one. With `shared` this process listens
/// there already, and does so beside the new sockets until it closes the old ones.
///
/// # Errors
///
/// The address is not one of this machine, in use by another process, or not
/// permitted.
pub fn bind(
    address: SocketAddr,
    count: usize,
    shared: bool,
) -> io::Result<(SocketAddr, Vec<std::net::TcpListener>)> {
    let mut address = address;
    let mut sockets = Vec::new();
    if address.port() == 0 {
        // The kernel picks a port of its own for this socket, which keeps it from then on.
        let first = open(address, true)?;
        address.set_port(local_address(&first)?.port());
        sockets.push(first);
    } else if !shared {
        // SO_REUSEPORT would share the port with another process silently.
        drop(open(address, false)?);
    }
    while sockets.len() < count.max(1) {
        sockets.push(open(address, true)?);
    }
    Ok((address, sockets.into_iter().map(Into::into).collect()))
}

/// Opens a socket that listens on `address`.
fn open(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    open_at(address, shared).or_else(|error| match without_ipv6(address, &error) {
        Some(address) => open_at(address, shared),
        None => Err(error),
    })
}

/// Returns the IPv4 form of `[::]`, if `error` says that the machine has no IPv6.
fn without_ipv6(address: SocketAddr, error: &io::Error) -> Option<SocketAddr> {
    let has_no_ipv6 = error.raw_os_error() == Some(Errno::AFNOSUPPORT.raw_os_error());
    let is_every_address = address.ip() == Ipv6Addr::UNSPECIFIED;
    (has_no_ipv6 && is_every_address)
        .then(|| SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())))
}

fn open_at(address: SocketAddr, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM.nonblocking(), None)?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(address.ip() != Ipv6Addr::UNSPECIFIED)?;
    }
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket)
}

fn local_address(socket: &Socket) -> io::Result<SocketAddr> {
    socket.local_addr()?.as_socket().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_ipv6_listens_on_every_address_of_ipv4() {
        let missing = io::Error::from(Errno::AFNOSUPPORT);
        let in_use = io::Error::from(Errno::ADDRINUSE);
        for (address, error, expected) in [
            ("[::]:80", &missing, Some("0.0.0.0:80")),
            ("[::]:80", &in_use, None),
            ("[::1]:80", &missing, None),
            ("0.0.0.0:80", &missing, None),
        ] {
            let address = address.parse().expect("an address");
            let expected = expected.map(|text| text.parse().expect("an address"));
            assert_eq!(without_ipv6(address, error), expected, "{address}: {error}");
        }
    }
}
