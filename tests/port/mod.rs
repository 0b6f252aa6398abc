//! Ports that no other process takes.

use socket2::{Domain, Socket, Type};
use std::{
    mem,
    net::{Ipv4Addr, SocketAddr},
};

/// Returns a port that nobody listens on, and that no other process is given until this one ends.
///
/// A socket that is bound but does not listen keeps it: the kernel then gives the port to nobody who asks for any, neither
/// to listen nor to connect from, and refuses who connects to it. A server with `SO_REUSEADDR`, which redis-server,
/// flowgate and the standard library set, can still listen on it, again and again.
pub(crate) fn free_port() -> u16 {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("set");
    // On all addresses, so that a server may listen on any of them.
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    socket.bind(&any.into()).expect("a free port");
    let address =
        socket.local_addr().ok().and_then(|address| address.as_socket()).expect("an address");
    // Kept until the process ends: who has the number may use it at any time.
    mem::forget(socket);
    address.port()
}
