//! Bytes that are to be written to a connection of HTTP/1.1: few are copied together, many are
//! written from where they are.

use crate::http1::chunked::{self, ChunkSize};
use bytes::{Buf, Bytes};
use core::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
};
use tokio::io::{AsyncWrite, ReadBuf};

/// Parts of a body up to this size, in bytes, are copied behind what is to be written.
const COPY_MAX: usize = 2048;

/// Most heads have fewer bytes. Memory for them is taken at once, as a head is written in many parts.
const HEAD_USUAL: usize = 512;

/// The most parts that are not copied and written at once.
pub(crate) const PARTS_MAX: usize = 16;

/// The bytes of memory that an idle connection keeps for its next message.
const KEPT_MAX: usize = 4 * 1024;

/// `bytes` come first, then `parts`.
#[derive(Debug)]
pub(crate) struct Outgoing<D> {
    bytes: Vec<u8>,
    parts: VecDeque<Part<D>>,
    /// The number of bytes of both that were written.
    written: usize,
    /// True if the stream may hold something back.
    is_unflushed: bool,
}

/// A part of a body that is not copied.
#[derive(Debug)]
struct Part<D> {
    /// There if it is a chunk.
    size: Option<ChunkSize>,
    data: D,
    end: &'static [u8],
}

impl<D: Buf> Part<D> {
    fn segments(&self) -> [&[u8]; 3] {
        [self.size.as_ref().map_or(&[], ChunkSize::as_bytes), self.data.chunk(), self.end]
    }

    fn len(&self) -> usize {
        self.segments().iter().map(|segment| segment.len()).sum()
    }
}

impl<D> Default for Outgoing<D> {
    fn default() -> Self {
        Self { bytes: Vec::new(), parts: VecDeque::new(), written: 0, is_unflushed: false }
    }
}

impl<D: Buf + From<Bytes>> Outgoing<D> {
    /// Returns where the head of a message is to be written. Nothing of a body may be left.
    pub(crate) fn head(&mut self) -> &mut Vec<u8> {
        debug_assert!(self.parts.is_empty(), "a body comes behind its head");
        self.bytes.reserve(HEAD_USUAL);
        &mut self.bytes
    }

    /// Adds a part of a body, as a chunk or as it is.
    pub(crate) fn data(&mut self, data: D, is_chunked: bool) {
        match data.remaining() {
            0 => {}
            1..=COPY_MAX if self.parts.is_empty() && is_chunked => {
                chunked::encode(data.chunk(), &mut self.bytes);
            }
            1..=COPY_MAX if self.parts.is_empty() => self.bytes.extend_from_slice(data.chunk()),
            length => {
                let size = is_chunked.then(|| ChunkSize::new(length));
                let end: &[u8] = if is_chunked { b"\r\n" } else { b"" };
                self.parts.push_back(Part { size, data, end });
            }
        }
    }

    /// Adds the end of a body, which `write` writes.
    pub(crate) fn end(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.parts.is_empty() {
            return write(&mut self.bytes);
        }
        let mut end = Vec::new();
        write(&mut end);
        self.parts.push_back(Part { size: None, data: D::from(Bytes::from(end)), end: b"" });
    }

    /// Returns the number of bytes that are to be written.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.parts.iter().map(Part::len).sum::<usize>() - self.written
    }

    /// Returns the number of parts that are not copied.
    pub(crate) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// True if there is nothing to write.
    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.parts.is_empty()
    }

    /// Writes once, and returns true if all bytes have left.
    pub(crate) fn poll_write<T: AsyncWrite + Unpin>(
        &mut self,
        io: &mut T,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<bool>> {
        if self.is_empty() {
            if self.is_unflushed {
                ready!(Pin::new(io).poll_flush(context))?;
                self.is_unflushed = false;
            }
            return Poll::Ready(Ok(true));
        }

        let polled = if self.parts.is_empty() {
            let bytes = self.bytes.get(self.written..).unwrap_or_default();
            Pin::new(&mut *io).poll_write(context, bytes)
        } else {
            poll_write(io, context, &self.slices())
        };

        let count = ready!(polled)?;
        if count == 0 {
            return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
        }
        self.advance(count);
        self.is_unflushed = true;
        Poll::Ready(Ok(false))
    }

    /// Returns the bytes that are left to be written.
    fn slices(&self) -> SmallVec<[IoSlice<'_>; 3 * PARTS_MAX + 4]> {
        let mut written = self.written;
        let parts = self.parts.iter().flat_map(Part::segments);
        let left = core::iter::once(&self.bytes[..]).chain(parts).filter_map(|segment| {
            let left = segment.get(written..).unwrap_or_default();
            written = written.saturating_sub(segment.len());
            (!left.is_empty()).then(|| IoSlice::new(left))
        });
        left.collect()
    }

    /// Notes that `count` bytes were written.
    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.bytes.len() {
            self.written -= self.bytes.len();
            self.bytes.clear();
        }
        while self.bytes.is_empty()
            && let Some(part) = self.parts.front()
            && self.written >= part.len()
        {
            self.written -= part.len();
            self.parts.pop_front();
        }
    }

    /// Frees the memory that an idle connection does not need.
    pub(crate) fn rest(&mut self) {
        self.bytes.shrink_to(KEPT_MAX);
        self.parts.shrink_to(0);
    }
}

/// The most bytes that are copied and written at once. For a head and a short body `writev` costs
/// the kernel some 400 ns more than a copy and `send`.
const FEW: usize = 2048;

/// Writes `slices`, or a part of them.
pub(crate) fn poll_write<T: AsyncWrite + Unpin>(
    stream: &mut T,
    context: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let stream = Pin::new(stream);
    if let [only] = slices {
        return stream.poll_write(context, only);
    }
    if slices.iter().map(|slice| slice.len()).sum::<usize>() > FEW {
        return stream.poll_write_vectored(context, slices);
    }
    let mut space = [MaybeUninit::uninit(); FEW];
    let mut whole = ReadBuf::uninit(&mut space);
    for slice in slices {
        whole.put_slice(slice);
    }
    stream.poll_write(context, whole.filled())
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::task::Waker;

    /// Takes what it can at once, and counts how often it was given one part or several.
    #[derive(Default)]
    struct Sink {
        taken: Vec<u8>,
        room: usize,
        calls: (u32, u32),
    }

    impl AsyncWrite for Sink {
        fn poll_write(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.calls.0 += 1;
            let count = bytes.len().min(self.room);
            self.taken.extend(bytes.iter().take(count));
            Poll::Ready(Ok(count))
        }

        fn poll_write_vectored(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            slices: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            self.calls.1 += 1;
            let room = self.room;
            let before = self.taken.len();
            self.taken.extend(slices.iter().flat_map(|slice| slice.iter()).take(room));
            Poll::Ready(Ok(self.taken.len() - before))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[test]
    fn few_bytes_are_written_as_one_part_and_many_where_they_are() {
        for (lengths, room, calls) in [
            (&[][..], 9, (1, 0)),
            (&[7], 9, (1, 0)),
            (&[FEW + 1], 9, (1, 0)),
            (&[3, 0, 4], 9, (1, 0)),
            (&[3, 4], 5, (1, 0)),
            (&[FEW - 1, 1], 2 * FEW, (1, 0)),
            (&[FEW, 1], 2 * FEW, (0, 1)),
            (&[FEW, 1], FEW, (0, 1)),
        ] {
            let parts: Vec<Vec<u8>> = (1..).zip(lengths).map(|(n, &len)| vec![n; len]).collect();
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
            let mut sink = Sink { room, ..Sink::default() };
            let polled = poll_write(&mut sink, &mut Context::from_waker(Waker::noop()), &slices);
            let whole = parts.concat();
            let expected = whole.len().min(room);
            assert!(matches!(polled, Poll::Ready(Ok(count)) if count == expected), "{lengths:?}");
            assert_eq!((sink.calls, &*sink.taken), (calls, &whole[..expected]), "{lengths:?}");
        }
    }
}
