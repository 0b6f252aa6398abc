//! The first bytes of a client that was silent.

use bytes::Bytes;
use core::{
    mem::MaybeUninit,
    pin::Pin,
    task::{Context, Poll, ready},
};
use std::io;
use tokio::io::{AsyncRead, ReadBuf};

/// What is read at once, in bytes: most heads are shorter, and cost no second read.
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
