//! A stream on which the gateway reads and writes little at a time, and which may break off.

use super::plan::Connection;
use crate::proxy::io::ClientIo;
use core::{
    pin::Pin,
    task::{Context, Poll},
};
use fastrand::Rng;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

/// The gateway's end of a client's connection.
pub(super) struct Unsteady {
    io: DuplexStream,
    rng: Rng,
    portion: usize,
    /// Bytes left until the connection is reset.
    left: Option<usize>,
}

impl ClientIo for Unsteady {}

impl Unsteady {
    pub(super) fn new(io: DuplexStream, plan: &Connection) -> Self {
        let rng = Rng::with_seed(plan.seed);
        Self { io, rng, portion: plan.portion, left: plan.reset_after }
    }

    /// Sometimes nothing is ready at first, though it will be at once.
    fn is_hesitant(&mut self, context: &Context<'_>) -> bool {
        let hesitates = self.rng.u8(..8) == 0;
        if hesitates {
            context.waker().wake_by_ref();
        }
        hesitates
    }

    fn portion(&mut self, most: usize) -> io::Result<usize> {
        let portion = self.rng.usize(1..=self.portion).min(most);
        match self.left {
            None => Ok(portion),
            Some(0) => Err(io::ErrorKind::ConnectionReset.into()),
            Some(left) => Ok(portion.min(left)),
        }
    }

    fn note(&mut self, moved: usize) {
        self.left = self.left.map(|left| left - moved);
    }
}

impl AsyncRead for Unsteady {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.is_hesitant(context) {
            return Poll::Pending;
        }
        let most = self.portion(buffer.remaining())?;
        let mut block = vec![0; most];
        let mut portion = ReadBuf::new(&mut block);
        let read = Pin::new(&mut self.io).poll_read(context, &mut portion);
        if read.is_ready() {
            let filled = portion.filled();
            self.left = self.left.map(|left| left - filled.len());
            buffer.put_slice(filled);
        }
        read
    }
}

impl AsyncWrite for Unsteady {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_hesitant(context) {
            return Poll::Pending;
        }
        let most = self.portion(bytes.len())?;
        let written = Pin::new(&mut self.io).poll_write(context, &bytes[..most]);
        if let Poll::Ready(Ok(written)) = written {
            self.note(written);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
