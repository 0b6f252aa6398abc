//! Listening sockets that another process has opened: the old flowgate, or systemd.

use super::message::SocketName;
use crate::{config::ListenAddress, proxy::ListenSocket};
use rustix::{
    io::{FdFlags, fcntl_setfd},
    net::{
        SocketType,
        sockopt::{socket_acceptconn, socket_type},
    },
};
use std::{io, os::fd::OwnedFd};

/// The name of the admin listener's socket for systemd.
const ADMIN: &str = "admin";

/// Inherited sockets that no listener has taken yet.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    sockets: Vec<InheritedSocket>,
    /// The listeners of the old process whose sockets were taken; `None` is the admin listener.
    taken: Vec<Option<String>>,
}

/// The sockets of one address that another process has opened.
#[derive(Debug)]
pub(crate) struct Taken {
    /// With the actual port.
    pub(crate) address: ListenAddress,
    pub(crate) sockets: Vec<ListenSocket>,
    /// True if systemd keeps them for the next process, with their paths.
    pub(crate) is_of_systemd: bool,
}

#[derive(Debug)]
struct InheritedSocket {
    owner: Owner,
    /// With the actual port.
    address: ListenAddress,
    socket: ListenSocket,
}

#[derive(Debug)]
enum Owner {
    /// A listener of the old process.
    Process(SocketName),
    /// A unit of systemd, with the `FileDescriptorName` of the socket.
    Systemd(String),
}

impl Inherited {
    /// Adds a socket of the old process.
    pub(super) fn add(&mut self, name: SocketName, descriptor: OwnedFd) -> io::Result<()> {
        self.push(Owner::Process(name), descriptor)
    }

    /// Returns the sockets that systemd passes to this process (`LISTEN_FDS`), if it does.
    pub(super) fn of_systemd() -> Self {
        let mut inherited = Self::default();
        let passed = sd_listen_fds::get().unwrap_or_else(|error| {
            tracing::warn!(%error, "the sockets of systemd cannot be used");
            Vec::new()
        });
        for (name, descriptor) in passed {
            let name = name.unwrap_or_default();
            let owner = Owner::Systemd(name.clone());
            if let Err(error) = inherited.push(owner, descriptor.into_std()) {
                tracing::warn!(socket = %name, %error, "a socket of systemd cannot be used");
            }
        }
        inherited
    }

    fn push(&mut self, owner: Owner, descriptor: OwnedFd) -> io::Result<()> {
        // Systemd's are inherited by every process that is started.
        fcntl_setfd(&descriptor, FdFlags::CLOEXEC)?;
        if socket_type(&descriptor)? != SocketType::STREAM || !socket_acceptconn(&descriptor)? {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no listening stream socket"));
        }
        let (address, socket) = ListenSocket::inherit(descriptor)?;
        self.sockets.push(InheritedSocket { owner, address, socket });
        Ok(())
    }

    /// Takes the sockets of a listener, or with no name those of the admin listener, which the
    /// configuration wants at `wanted`. Returns them with their address, if there are any.
    pub(crate) fn take(&mut self, listener: Option<&str>, wanted: &ListenAddress) -> Option<Taken> {
        let named = |socket: &InheritedSocket| match &socket.owner {
            Owner::Process(_) => false,
            Owner::Systemd(name) => name == listener.unwrap_or(ADMIN),
        };
        let there = |socket: &InheritedSocket| match &socket.owner {
            Owner::Process(name) if wanted.has_any_port() => {
                name.configured == *wanted && name.listener.as_deref() == listener
            }
            Owner::Process(_) | Owner::Systemd(_) => socket.address == *wanted,
        };

        let is_named = self.sockets.iter().any(named);
        let (mine, others) = self
            .sockets
            .drain(..)
            .partition(|socket| if is_named { named(socket) } else { there(socket) });
        self.sockets = others;
        let mine: Vec<InheritedSocket> = mine;

        let address = mine.first()?.address.clone();
        for socket in &mine {
            if let Owner::Process(name) = &socket.owner
                && !self.taken.contains(&name.listener)
            {
                self.taken.push(name.listener.clone());
            }
        }

        let is_of_systemd = mine.iter().any(|socket| match &socket.owner {
            Owner::Process(name) => name.is_of_systemd,
            Owner::Systemd(_) => true,
        });
        let sockets = mine.into_iter().map(|named| named.socket).collect();
        Some(Taken { address, sockets, is_of_systemd })
    }

    /// Returns whether another process listens at an address that `overlaps`, as far as its sockets
    /// are here.
    pub(crate) fn any(&self, overlaps: impl Fn(&ListenAddress) -> bool) -> bool {
        self.sockets.iter().any(|socket| overlaps(&socket.address))
    }

    /// Closes the sockets that no listener wants, and returns the old process's listeners whose
    /// sockets were taken.
    pub(crate) fn finish(self) -> Vec<Option<String>> {
        for socket in &self.sockets {
            if let Owner::Systemd(name) = &socket.owner {
                tracing::warn!(
                    socket = %name, address = %socket.address,
                    "no listener has this socket of systemd: name it after a listener \
                     (FileDescriptorName=) or use its address"
                );
            }
        }
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn socket() -> (ListenAddress, OwnedFd) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        (socket.local_addr().unwrap().into(), socket.into())
    }

    fn name(listener: Option<&str>, configured: &ListenAddress) -> SocketName {
        let listener = listener.map(str::to_owned);
        SocketName { listener, configured: configured.clone(), is_of_systemd: false }
    }

    #[test]
    fn a_listener_takes_the_sockets_at_its_address_whatever_its_name() {
        let (here, first) = socket();
        let second = first.try_clone().unwrap();
        let (there, other) = socket();
        let mut inherited = Inherited::default();
        for (name, socket) in [
            (name(Some("web"), &here), first),
            (name(Some("web"), &here), second),
            (name(None, &there), other),
        ] {
            inherited.add(name, socket).unwrap();
        }
        let nowhere = ListenAddress::try_from("127.0.0.1:1".to_owned()).unwrap();
        assert!(inherited.take(Some("web"), &nowhere).is_none());
        assert!(inherited.any(|address| *address == here));
        let Taken { address, sockets, .. } =
            inherited.take(Some("renamed"), &here).expect("its sockets");
        assert_eq!((&address, sockets.len()), (&here, 2));
        assert!(inherited.take(Some("web"), &here).is_none(), "taken once");
        assert_eq!(inherited.take(None, &there).expect("the admin listener").address, there);
        assert_eq!(inherited.finish(), [Some("web".to_owned()), None]);
    }

    #[test]
    fn with_port_0_a_name_and_the_same_words_find_the_socket() {
        let any = ListenAddress::try_from("127.0.0.1:0".to_owned()).unwrap();
        let (here, first) = socket();
        let (there, second) = socket();
        let mut inherited = Inherited::default();
        inherited.add(name(Some("web"), &any), first).unwrap();
        inherited.add(name(None, &any), second).unwrap();
        assert_eq!(inherited.take(None, &any).expect("one").address, there);
        assert!(inherited.take(Some("new"), &any).is_none());
        assert_eq!(inherited.take(Some("web"), &any).expect("one").address, here);
    }

    #[test]
    fn what_does_not_listen_is_no_listener() {
        let (here, _socket) = socket();
        let stream = std::net::TcpStream::connect(here.ip().unwrap()).unwrap();
        let error = Inherited::default().add(name(None, &here), stream.into()).unwrap_err();
        assert_eq!(error.to_string(), "no listening stream socket");
    }
}
