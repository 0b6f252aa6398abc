//! Sockets that listen: at an IP address and a port, or at the path of a Unix socket.

use crate::{config::ListenAddress, route::NO_ADDRESS};
use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};
use std::{
    fs, io,
    net::{TcpListener, TcpStream},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::{
            fs::{FileTypeExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
};

/// Connections that the kernel keeps until they are accepted. Ten thousand clients
/// that come at once took 12 s with the usual 1024.
pub(super) const BACKLOG: i32 = 4096;

/// A socket that listens. It does not block.
#[derive(Debug)]
pub enum ListenSocket {
    /// At an IP address and a port.
    Tcp(TcpListener),
    /// At the path of a Unix socket.
    Unix(UnixListener),
}

impl ListenSocket {
    /// Returns a socket for a descriptor of another process, with its address.
    ///
    /// # Errors
    ///
    /// It is a socket of another kind, or has no path.
    pub fn inherit(descriptor: OwnedFd) -> io::Result<(ListenAddress, Self)> {
        let socket = Socket::from(descriptor);
        socket.set_nonblocking(true)?;
        let address = socket.local_addr()?;
        if let Some(ip) = address.as_socket() {
            return Ok((ip.into(), Self::Tcp(socket.into())));
        }
        let path = address.as_pathname().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok((ListenAddress::Unix(path.into()), Self::Unix(socket.into())))
    }

    /// Returns another descriptor of the same socket.
    ///
    /// # Errors
    ///
    /// The process has no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        match self {
            Self::Tcp(socket) => socket.try_clone().map(Self::Tcp),
            Self::Unix(socket) => socket.try_clone().map(Self::Unix),
        }
    }

    /// Returns the next connection that waits, with its client's address.
    pub(super) fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        match self {
            Self::Tcp(socket) => socket.accept(),
            Self::Unix(socket) => socket.accept().map(|(stream, _)| of_unix(stream)),
        }
    }
}

impl AsFd for ListenSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// Returns a connection to a Unix socket in the type that all connections have, so that those of TCP cost
/// no distinction. They are read, written and shut down, which is the same for both; their client has no
/// address.
pub(super) fn of_unix(stream: UnixStream) -> (TcpStream, SocketAddr) {
    (OwnedFd::from(stream).into(), SocketAddr::new(NO_ADDRESS, 0))
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
) -> io::Result<(SocketAddr, Vec<TcpListener>)> {
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

/// Opens a Unix socket at `path` with these permissions. A socket that a dead process has left there is
/// replaced.
///
/// # Errors
///
/// A process listens there, something other than a socket is there, or the folder is not there or not
/// writable.
pub fn bind_unix(path: &Path, mode: u32) -> io::Result<ListenSocket> {
    remove_dead(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // No client can connect before it listens.
    set_mode(path, mode).and_then(|()| socket.listen(BACKLOG)).inspect_err(|_| {
        drop(fs::remove_file(path));
    })?;
    Ok(ListenSocket::Unix(socket.into()))
}

/// Gives a Unix socket these permissions.
///
/// # Errors
///
/// It is not there any more, or belongs to another user.
pub fn set_mode(path: &Path, mode: u32) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Removes a socket to which no process listens any more.
fn remove_dead(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "there is something else than a socket",
            ));
        }
        Ok(_) => {}
    }
    let probe = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        // Also with a full queue a process listens.
        Ok(()) | Err(_) => Err(io::ErrorKind::AddrInUse.into()),
    }
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

    #[test]
    fn a_dead_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.sock");
        let kind = |path: &Path| bind_unix(path, 0o600).map(drop).map_err(|error| error.kind());

        let first = bind_unix(&path, 0o640).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(kind(&path), Err(io::ErrorKind::AddrInUse), "its process lives");
        drop(first);
        assert_eq!(kind(&path), Ok(()));

        let file = folder.path().join("file");
        fs::write(&file, "text").unwrap();
        assert_eq!(kind(&file), Err(io::ErrorKind::AlreadyExists));
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
        let nowhere = folder.path().join("no/web.sock");
        assert_eq!(kind(&nowhere), Err(io::ErrorKind::NotFound));
    }

    #[test]
    fn a_socket_of_another_process_keeps_its_kind_and_address() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("web.sock");
        let unix = UnixListener::bind(&path).unwrap();
        let (address, socket) = ListenSocket::inherit(unix.into()).unwrap();
        assert_eq!(address, ListenAddress::Unix(path.as_path().into()));
        let client = UnixStream::connect(&path).unwrap();
        let (_stream, from) = socket.accept().unwrap();
        assert_eq!(from.ip(), NO_ADDRESS);
        drop(client);

        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let here = tcp.local_addr().unwrap();
        let (address, socket) = ListenSocket::inherit(tcp.into()).unwrap();
        assert_eq!(address, here.into());
        assert!(matches!(socket, ListenSocket::Tcp(_)));
    }
}
