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

/// The largest packet in bytes. The kernel's default buffers hold three.
const MAX_PACKET: usize = 64 * 1024;

/// The largest message in bytes: a sliding log of some three million requests.
const MAX_MESSAGE: usize = 64 * 1024 * 1024;

/// The first byte of a packet: whether the message goes on in the next.
const MORE: u8 = 1;
const LAST: u8 = 0;

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
    #[error("a message cannot be encoded")]
    Encode(#[source] serde_json::Error),
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
        let bytes = serde_json::to_vec(message).map_err(ChannelError::Encode)?;
        if bytes.len() > MAX_MESSAGE {
            return Err(ChannelError::TooLarge);
        }

        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let rights = SendAncillaryMessage::ScmRights(descriptors);
        if !descriptors.is_empty() && !control.push(rights) {
            return Err(ChannelError::TooLarge);
        }

        let mut packets = bytes.chunks(MAX_PACKET - 1).peekable();
        while let Some(packet) = packets.next() {
            let first = [if packets.peek().is_some() { MORE } else { LAST }];
            self.send_packet(&[IoSlice::new(&first), IoSlice::new(packet)], &mut control)?;
            control.clear();
        }
        Ok(())
    }

    fn send_packet(
        &self,
        packet: &[IoSlice<'_>],
        control: &mut SendAncillaryBuffer<'_, '_, '_>,
    ) -> Result<(), ChannelError> {
        loop {
            match sendmsg(&self.socket, packet, control, SendFlags::NOSIGNAL) {
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
        let mut packet = vec![0; MAX_PACKET];
        let mut message = Vec::new();
        let mut descriptors = Vec::new();
        loop {
            let length = self.receive_packet(&mut packet, &mut descriptors)?;
            let (first, rest) = packet[..length].split_first().ok_or(ChannelError::Closed)?;
            if message.is_empty() && *first == LAST {
                let message = serde_json::from_slice(rest).map_err(ChannelError::Unknown)?;
                return Ok((message, descriptors));
            }

            message.extend_from_slice(rest);
            if message.len() > MAX_MESSAGE {
                return Err(ChannelError::TooLarge);
            }
            if *first == LAST {
                let message = serde_json::from_slice(&message).map_err(ChannelError::Unknown)?;
                return Ok((message, descriptors));
            }
        }
    }

    /// Receives a packet, and adds its descriptors. Returns its length, which is zero at the end.
    fn receive_packet(
        &self,
        packet: &mut [u8],
        descriptors: &mut Vec<OwnedFd>,
    ) -> Result<usize, ChannelError> {
        let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);

        let received = loop {
            let slice = &mut [IoSliceMut::new(packet)];
            match recvmsg(&self.socket, slice, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Ok(received) => break received,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };

        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }

        if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
            return Err(ChannelError::TooLarge);
        }
        Ok(received.bytes)
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
        drop(theirs);
        assert!(matches!(ours.receive::<u32>(), Err(ChannelError::Closed)));
        assert!(matches!(ours.send(&1), Err(ChannelError::Closed)));
    }

    #[test]
    fn a_large_message_is_sent_in_packets() {
        let (ours, theirs) = pair();
        for length in [0, MAX_PACKET - 4, MAX_PACKET - 3, MAX_PACKET - 2, 5 * MAX_PACKET] {
            let large = "x".repeat(length);
            std::thread::scope(|scope| {
                let sender = scope.spawn(|| ours.send(&large));
                assert_eq!(theirs.receive::<String>().unwrap(), large);
                sender.join().unwrap().unwrap();
            });
        }
        assert!(matches!(ours.send(&"x".repeat(MAX_MESSAGE)), Err(ChannelError::TooLarge)));
    }

    #[test]
    fn other_inputs_are_no_channel() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(Channel::of(file.as_fd()).unwrap().is_none());
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert!(Channel::of(socket.as_fd()).unwrap().is_none());
    }
}
