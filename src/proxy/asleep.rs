//! An idle HTTP/1.1 connection that holds nothing but its socket.

use super::io::Watched;
use core::{
    pin::Pin,
    task::{Context, Poll},
};
use tokio::io::{AsyncRead, AsyncWrite};

/// Waits until the client sends something or leaves, or it is closed.
#[derive(Debug)]
pub(super) struct Asleep<T> {
    io: Watched<T>,
    closing: bool,
}

impl<T> Asleep<T> {
    pub(super) fn new(io: Watched<T>) -> Self {
        Self { io, closing: false }
    }

    /// Closes the connection in good order.
    pub(super) fn close(&mut self) {
        self.closing = true;
    }

    /// Returns the connection if the client has sent something.
    pub(super) fn woken(self) -> Option<Watched<T>> {
        Some(self.io).filter(|io| !self.closing && io.is_rewound())
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Future for Asleep<T> {
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let Self { io, closing } = self.get_mut();
        if !*closing && !io.is_rewound() {
            match io.poll_early(context) {
                Poll::Ready(Ok(stays)) => *closing = !stays,
                Poll::Ready(Err(_)) => return Poll::Ready(Ok(())),
                // TLS may have something of its own to say.
                Poll::Pending => match Pin::new(&mut *io).poll_flush(context) {
                    Poll::Ready(Err(_)) => return Poll::Ready(Ok(())),
                    Poll::Ready(Ok(())) | Poll::Pending => return Poll::Pending,
                },
            }
        }
        // How well it is closed makes no difference any more.
        if *closing {
            return Pin::new(io).poll_shutdown(context).map(|_| Ok(()));
        }
        Poll::Ready(Ok(()))
    }
}
