//! Bytes that have come over a client's or a server's connection, and are yet to be read.

use bytes::{Bytes, BytesMut};
use core::{
    mem::MaybeUninit,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};
use std::io;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    task::yield_now,
};

/// The bytes that are read at once: the former at first, and twice as many whenever a read had no room
/// left, up to the latter.
const READ_MIN: usize = 8 * 1024;
const READ_MAX: usize = 64 * 1024;

/// Below so many bytes of room it is worth making more.
const ROOM_MIN: usize = 1024;

/// The bytes that are read before other tasks of the worker have their turn.
const TURN_MAX: usize = 64 * 1024;

/// Bytes in the order in which they came.
pub(crate) struct Input {
    pub(crate) bytes: BytesMut,
    read_size: usize,
    /// Read since other tasks had their turn.
    turn: usize,
}

impl Input {
    pub(crate) fn new() -> Self {
        Self { bytes: BytesMut::new(), read_size: READ_MIN, turn: 0 }
    }

    /// Begins with what was read before.
    pub(crate) fn beginning_with(bytes: &[u8]) -> Self {
        let mut input = Self::new();
        if !bytes.is_empty() {
            input.bytes.reserve(input.read_size.max(bytes.len()));
            input.bytes.extend_from_slice(bytes);
        }
        input
    }

    /// Reads more, and returns false at the end.
    pub(crate) fn poll_read<T: AsyncRead + Unpin>(
        &mut self,
        io: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if self.turn >= TURN_MAX {
            self.turn = 0;
            // Unlike a wake by itself, it lets the runtime look at sockets and timers first.
            let _pending = pin!(yield_now()).poll(context);
            return Poll::Pending;
        }

        let mut room = self.bytes.capacity() - self.bytes.len();
        if room < ROOM_MIN || (self.bytes.is_empty() && room < self.read_size / 4) {
            self.bytes.reserve(self.read_size);
            room = self.bytes.capacity() - self.bytes.len();
        }

        let polled = pin!(io.read_buf(&mut self.bytes)).poll(context);
        if polled.is_pending() {
            self.turn = 0;
        }

        let count = ready!(polled)?;
        self.turn += count;
        if count == room {
            self.read_size = (self.read_size * 2).min(READ_MAX);
        }
        Poll::Ready(Ok(count > 0))
    }

    /// Notes that so many bytes of a message are yet to be read. If the last read had no room left,
    /// the next one has room for all of them, unless they are too many for one.
    pub(crate) fn expect(&mut self, bytes: usize) {
        if self.read_size > READ_MIN && bytes < READ_MAX {
            // One byte more: a read that fills its buffer has to be tried again.
            self.read_size = READ_MIN.max(bytes + 1);
        }
    }

    /// Makes room for the next message while nothing uses the memory of the last one, so that none
    /// has to be allocated later.
    pub(crate) fn make_room(&mut self) {
        if self.bytes.is_empty() {
            self.bytes.reserve(self.read_size);
        }
    }

    /// Takes the next `length` bytes.
    pub(crate) fn take(&mut self, length: usize) -> Bytes {
        self.bytes.split_to(length).freeze()
    }

    /// Frees the memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        if self.read_size > READ_MIN {
            *self = Self::new();
        }
    }
}

/// The bytes that are read at once: most heads are shorter, and cost no second read.
const FIRST_READ: usize = 2048;

/// Reads what has come; nothing at the end. While nothing comes, no memory is held for it.
pub(crate) fn poll_first_read<T: AsyncRead + Unpin>(
    io: &mut T,
    context: &mut Context<'_>,
) -> Poll<io::Result<Bytes>> {
    // Not a part of any future, which would be larger by as much.
    let mut space = [MaybeUninit::uninit(); FIRST_READ];
    let mut read = ReadBuf::uninit(&mut space);
    ready!(Pin::new(io).poll_read(context, &mut read))?;
    Poll::Ready(Ok(Bytes::copy_from_slice(read.filled())))
}

/// Reads `ahead` first, then `io`.
#[derive(Debug)]
pub(crate) struct Prefixed<T> {
    io: T,
    ahead: Bytes,
}

impl<T> Prefixed<T> {
    pub(crate) fn new(io: T, ahead: Bytes) -> Self {
        Self { io, ahead }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Prefixed<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.ahead.is_empty() {
            return Pin::new(&mut self.io).poll_read(context, buffer);
        }
        let count = self.ahead.len().min(buffer.remaining());
        buffer.put_slice(&self.ahead.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Prefixed<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
