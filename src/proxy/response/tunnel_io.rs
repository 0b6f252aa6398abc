//! The client's side of a tunnel over HTTP/2.

use crate::proxy::{body::upload_buffer::UploadBuffer, connections::upgrade_task::UpgradeTask};
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use std::{io, sync::Arc};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Takes what is read off what the connection's uploads hold.
#[derive(Debug)]
pub(crate) struct CountedTunnel<T> {
    pub(crate) io: T,
    pub(crate) buffer: Option<Arc<UploadBuffer>>,
    pub(crate) task: Arc<UpgradeTask>,
}

impl<T: AsyncRead + Unpin> AsyncRead for CountedTunnel<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        if let Some(held) = &self.buffer {
            held.on_passed((buffer.filled().len() - before) as u64);
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for CountedTunnel<T> {
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
        self.task.shut();
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
