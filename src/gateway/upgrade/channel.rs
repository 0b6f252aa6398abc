//! A socket pair between two processes: whole messages, with file descriptors.
//!
//! `SOCK_SEQPACKET` keeps messages apart. A received descriptor is an `OwnedFd` of this process, so
//! nothing is taken by its number.

use rustix::{
    cmsg_space,
    io::Errno,
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
        SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg,
        sendmsg, socketpair,
        sockopt::{Timeout, set_socket_timeout, socket_type},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use std::{
    io::{self, IoSlice, IoSliceMut},
    mem::MaybeUninit,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    time::Duration,
};

/// The largest message in bytes. The kernel's default buffers hold three.
pub(super) const MAX_MESSAGE: usize = 64 * 1024;

/// Descriptors in a message; the kernel takes 253.
pub(super) const MAX_DESCRIPTORS: usize = 128;

/// One end.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

/// Why nothing was sent or received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    #[error("the other process closed the connection")]
    Closed,
    #[error("the other process did not answer in time")]
    Late,
    #[error("the other process sent something unknown")]
    Unknown(#[source] serde_json::Error),
    #[error("a message is too large")]
    TooLarge,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Channel {
    /// Returns one end, and the other for a child's standard input.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self { socket: ours }, theirs))
    }

    /// Returns the end that is `input`, if that is one.
    pub(super) fn of(input: BorrowedFd<'_>) -> io::Result<Option<Self>> {
        match socket_type(input) {
            Ok(SocketType::SEQPACKET) => Ok(Some(Self { socket: input.try_clone_to_owned()? })),
            Ok(_) | Err(Errno::NOTSOCK) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Limits how long one call may take, in both directions.
    pub(super) fn limit(&self, patience: Option<Duration>) -> io::Result<()> {
        for direction in [Timeout::Send, Timeout::Recv] {
            set_socket_timeout(&self.socket, direction, patience)?;
        }
        Ok(())
    }

    pub(super) fn send(&self, message: &impl Serialize) -> Result<(), ChannelError> {
        self.send_with(message, &[])
    }

    /// Sends a message with at most [`MAX_DESCRIPTORS`].
    pub(super) fn send_with(
        &self,
        message: &impl Serialize,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(), ChannelError> {
        let bytes = serde_json::to_vec(message).map_err(ChannelError::Unknown)?;
        if bytes.len() > MAX_MESSAGE {
            return Err(ChannelError::TooLarge);
        }
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = SendAncillaryMessage::ScmRights(descriptors);
        if !descriptors.is_empty() && !control.push(rights) {
            return Err(ChannelError::TooLarge);
        }
        loop {
            let slice = [IoSlice::new(&bytes)];
            match sendmsg(&self.socket, &slice, &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(super) fn receive<T: DeserializeOwned>(&self) -> Result<T, ChannelError> {
        Ok(self.receive_with()?.0)
    }

    /// Receives a message with its descriptors.
    pub(super) fn receive_with<T: DeserializeOwned>(
        &self,
    ) -> Result<(T, Vec<OwnedFd>), ChannelError> {
        let mut bytes = vec![0; MAX_MESSAGE];
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let slice = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.socket, slice, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        let descriptors = control
            .drain()
            .filter_map(|message| match message {
                RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
                RecvAncillaryMessage::ScmCredentials(_) | _ => None,
            })
            .flatten()
            .collect();
        if received.bytes == 0 {
            return Err(ChannelError::Closed);
        }
        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(ChannelError::TooLarge);
        }
        let message = serde_json::from_slice(&bytes[..received.bytes]);
        Ok((message.map_err(ChannelError::Unknown)?, descriptors))
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl From<Errno> for ChannelError {
    fn from(error: Errno) -> Self {
        match error {
            Errno::AGAIN => Self::Late,
            Errno::PIPE | Errno::CONNRESET => Self::Closed,
            other => Self::Io(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn pair() -> (Channel, Channel) {
        let (ours, theirs) = Channel::pair().unwrap();
        let theirs = Channel::of(theirs.as_fd()).unwrap().expect("a channel");
        (ours, theirs)
    }

    #[test]
    fn a_socket_arrives_as_the_same_socket() {
        let (ours, theirs) = pair();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        ours.send_with(&"web", &[socket.as_fd()]).unwrap();
        ours.send(&7).unwrap();
        let (name, mut sockets): (String, _) = theirs.receive_with().unwrap();
        let arrived = TcpListener::from(sockets.pop().expect("one"));
        assert_eq!((name.as_str(), sockets.len()), ("web", 0));
        assert_eq!(arrived.local_addr().unwrap(), socket.local_addr().unwrap());
        assert_eq!(theirs.receive::<u32>().unwrap(), 7);
    }

    #[test]
    fn a_silent_and_a_closed_end_are_errors() {
        let (ours, theirs) = pair();
        ours.limit(Some(Duration::from_millis(1))).unwrap();
        assert!(matches!(ours.receive::<u32>(), Err(ChannelError::Late)));
        theirs.send(&"no number").unwrap();
        assert!(matches!(ours.receive::<u32>(), Err(ChannelError::Unknown(_))));
        let large = "x".repeat(MAX_MESSAGE);
        assert!(matches!(theirs.send(&large), Err(ChannelError::TooLarge)));
        drop(theirs);
        assert!(matches!(ours.receive::<u32>(), Err(ChannelError::Closed)));
        assert!(matches!(ours.send(&1), Err(ChannelError::Closed)));
    }

    #[test]
    fn other_inputs_are_no_channel() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Channel::of(file.as_fd()).unwrap().is_none());
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Channel::of(socket.as_fd()).unwrap().is_none());
    }
}
