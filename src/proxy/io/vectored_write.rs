//! Few bytes in several parts, written as one.

use core::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll},
};
use std::io;
use tokio::io::{AsyncWrite, ReadBuf};

/// Up to how much is copied and written at once, in bytes. For a head and a short body `writev` costs
/// the kernel some 400 ns more than a copy and `send`.
const FEW: usize = 2048;

/// Writes `slices`, or a part of them.
pub(crate) fn poll_write<T: AsyncWrite + Unpin>(
    stream: &mut T,
    context: &mut Context<'_>,
    slices: &[io::IoSlice<'_>],
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
            slices: &[io::IoSlice<'_>],
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
            let slices: Vec<_> = parts.iter().map(|part| io::IoSlice::new(part)).collect();
            let mut sink = Sink { room, ..Sink::default() };
            let polled = poll_write(&mut sink, &mut Context::from_waker(Waker::noop()), &slices);
            let whole = parts.concat();
            let expected = whole.len().min(room);
            assert!(matches!(polled, Poll::Ready(Ok(count)) if count == expected), "{lengths:?}");
            assert_eq!((sink.calls, &*sink.taken), (calls, &whole[..expected]), "{lengths:?}");
        }
    }
}
