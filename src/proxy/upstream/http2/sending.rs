//! The body of a request on its way, which can be taken back.
//!
//! A server may refuse a stream that it has not processed. So what was sent of a body is kept until
//! the answer begins: up to [`KEPT_MAX`], and all requests of a connection together [`TOTAL_MAX`]
//! beyond [`KEPT_MIN`] of each.

use crate::proxy::body::{
    request_body::{Again, Cut, RequestBody},
    upload_buffer::UploadPart,
};
use bytes::Bytes;
use core::{
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll},
};
use h2::{Reason, SendStream};
use http_body::{Body as _, Frame};
use std::sync::Arc;

/// How much of a body that was sent is kept, to send it again, in bytes: servers read so much ahead.
const KEPT_MAX: usize = 1024 * 1024;

/// How much of each body is kept in any case.
const KEPT_MIN: usize = 64 * 1024;

/// How much is kept beyond that of all bodies of a connection.
const TOTAL_MAX: usize = 8 * 1024 * 1024;

/// How much is kept now of a connection's bodies beyond [`KEPT_MIN`].
pub(super) type Total = Arc<AtomicUsize>;

/// See the module.
#[derive(Debug)]
pub(super) struct Sending {
    stream: SendStream<UploadPart>,
    body: RequestBody,
    /// Whether no more of it is sent.
    is_over: bool,
    /// What was sent of it; `None` if that was too much, or will not be needed.
    kept: Option<Kept>,
}

/// What was sent of a body.
#[derive(Debug)]
struct Kept {
    parts: Vec<Again>,
    bytes: usize,
    /// How much of it counts in `total`.
    counted: usize,
    total: Total,
}

impl Sending {
    /// Returns what sends `body` over `stream`, unless it is empty.
    pub(super) fn new(
        stream: SendStream<UploadPart>,
        body: RequestBody,
        total: &Total,
    ) -> Option<Self> {
        if matches!(body, RequestBody::Empty) {
            return None;
        }
        let kept = Kept { parts: Vec::new(), bytes: 0, counted: 0, total: Arc::clone(total) };
        Some(Self { stream, body, is_over: false, kept: Some(kept) })
    }

    /// Sends what there is of the body, as far as the server takes it. If it takes no more, its
    /// answer says why.
    ///
    /// # Errors
    ///
    /// The client's body cannot be sent. The stream is reset.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Result<(), Cut> {
        while !self.is_over && self.has_room(context) {
            let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) else { break };
            match frame {
                Some(Ok(frame)) => self.send(frame),
                None => self.end(),
                Some(Err(cut)) => {
                    self.is_over = true;
                    self.kept = None;
                    self.stream.send_reset(Reason::CANCEL);
                    return Err(cut);
                }
            }
        }
        Ok(())
    }

    /// Whether the server takes more now.
    fn has_room(&mut self, context: &mut Context<'_>) -> bool {
        // The length of the next part is not known yet.
        self.stream.reserve_capacity(1);
        while self.stream.capacity() == 0 {
            match self.stream.poll_capacity(context) {
                Poll::Pending => return false,
                Poll::Ready(Some(Ok(_))) => {}
                Poll::Ready(Some(Err(_)) | None) => {
                    self.is_over = true;
                    return false;
                }
            }
        }
        true
    }

    /// Sends a part of the body.
    fn send(&mut self, frame: Frame<UploadPart>) {
        let is_last = self.body.is_end_stream();
        self.kept.take_if(|kept| !kept.keep(&frame));
        let sent = match frame.into_data() {
            Ok(data) if data.bytes().is_empty() && !is_last => return,
            Ok(data) => {
                self.is_over = is_last;
                self.stream.send_data(data, is_last)
            }
            Err(frame) => {
                self.is_over = true;
                self.stream.send_trailers(frame.into_trailers().unwrap_or_default())
            }
        };
        self.is_over |= sent.is_err();
    }

    /// Ends the body, which has no trailers.
    fn end(&mut self) {
        self.is_over = true;
        // An error would say that the stream is over.
        _ = self.stream.send_data(Bytes::new().into(), true);
    }

    /// Returns the body as it was before any of it was sent, if that can be.
    pub(super) fn take_back(mut self) -> Option<RequestBody> {
        let kept = &mut self.kept?;
        self.body.begin_again(core::mem::take(&mut kept.parts));
        Some(self.body)
    }

    /// Notes that the answer has begun, so that the body will not be sent again.
    pub(super) fn settle(&mut self) {
        self.kept = None;
    }
}

impl Kept {
    /// Keeps a part that is about to be sent. Returns whether that may be so much.
    fn keep(&mut self, frame: &Frame<UploadPart>) -> bool {
        if let Some(part) = frame.data_ref() {
            // Small parts take more memory than they have bytes.
            self.bytes += part.bytes().len() + size_of::<Again>();
            self.parts.push(Again::Data(part.bytes().clone()));
        } else if let Some(trailers) = frame.trailers_ref() {
            self.parts.push(Again::Trailers(trailers.clone()));
        }
        self.fits()
    }

    /// Counts what is kept, and returns whether that may be so much.
    fn fits(&mut self) -> bool {
        let more = self.bytes.saturating_sub(KEPT_MIN) - self.counted;
        if more == 0 {
            return true;
        }
        self.counted += more;
        let before = self.total.fetch_add(more, Relaxed);
        before + more <= TOTAL_MAX && self.bytes <= KEPT_MAX
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.counted > 0 {
            self.total.fetch_sub(self.counted, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_for_each_body_and_for_all_together() {
        let total = Total::default();
        let kept = |bytes| Kept { parts: Vec::new(), bytes, counted: 0, total: Arc::clone(&total) };
        assert!(!kept(KEPT_MAX + 1).fits());
        let most = TOTAL_MAX / (KEPT_MAX - KEPT_MIN);
        let mut all: Vec<_> = (0..=most).map(|_| kept(KEPT_MAX)).collect();
        let fitting = all.iter_mut().map(Kept::fits).filter(|fits| *fits).count();
        assert_eq!(fitting, most);
        assert!(kept(KEPT_MIN).fits(), "a small body always is");
        all.clear();
        let mut growing = kept(KEPT_MIN);
        for bytes in [KEPT_MIN, KEPT_MIN + 1, KEPT_MAX] {
            growing.bytes = bytes;
            assert!(growing.fits());
            assert_eq!(growing.counted, bytes - KEPT_MIN);
        }
        drop(growing);
        assert_eq!(total.load(Relaxed), 0);
    }
}
