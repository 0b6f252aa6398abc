//! The body of a request over HTTP/2, which can be taken back from hyper.
//!
//! A server may refuse a stream that it has not processed, and hyper drops the body then. So the
//! body is shared with the request's task, and what was sent of it is kept until the answer begins:
//! up to [`KEPT_MAX`], and all requests of a connection together [`TOTAL_MAX`] beyond [`KEPT_MIN`] of
//! each.

use crate::proxy::body::{
    request_body::{Again, Cut, RequestBody},
    upload_buffer::UploadPart,
};
use core::{
    any::Any,
    mem,
    pin::Pin,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, Waker},
};
use h2::Reason;
use http_body::{Body, Frame, SizeHint};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much of a body that was sent is kept, to send it again, in bytes: servers read so much ahead.
const KEPT_MAX: usize = 1024 * 1024;

/// How much of each body is kept in any case.
const KEPT_MIN: usize = 64 * 1024;

/// How much is kept beyond that of all bodies of a connection.
const TOTAL_MAX: usize = 8 * 1024 * 1024;

/// How much is kept now of a connection's bodies beyond [`KEPT_MIN`].
pub(crate) type Total = Arc<AtomicUsize>;

/// A body that hyper sends.
#[derive(Debug)]
pub(crate) struct SharedBody(Option<Arc<Upload>>);

/// A body that is being sent, for the request's task.
#[derive(Debug)]
pub(crate) struct Upload {
    state: Mutex<State>,
    /// The stream is not over before its body is.
    _place: Arc<dyn Any + Send + Sync>,
}

#[derive(Debug)]
struct State {
    /// `None` once it was taken back or given up.
    body: Option<RequestBody>,
    /// What was sent of it; `None` if that was too much, or will not be needed.
    kept: Option<Kept>,
    is_given_up: bool,
    /// The task that sends.
    sender: Option<Waker>,
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

impl SharedBody {
    /// Shares `body`, unless it is empty.
    pub(crate) fn new(
        body: RequestBody,
        place: Arc<dyn Any + Send + Sync>,
        total: &Total,
    ) -> (Self, Option<Arc<Upload>>) {
        if matches!(body, RequestBody::Empty) {
            return (Self(None), None);
        }
        let state = State {
            body: Some(body),
            kept: Some(Kept { parts: Vec::new(), bytes: 0, counted: 0, total: Arc::clone(total) }),
            is_given_up: false,
            sender: None,
        };
        let upload = Arc::new(Upload { state: Mutex::new(state), _place: place });
        (Self(Some(Arc::clone(&upload))), Some(upload))
    }
}

impl Upload {
    /// Takes the body back as it was before any of it was sent, if that can be.
    pub(crate) fn take_back(&self) -> Option<RequestBody> {
        let mut state = self.lock();
        let mut kept = state.kept.take()?;
        let mut body = state.body.take()?;
        body.begin_again(mem::take(&mut kept.parts));
        Some(body)
    }

    /// Notes that the answer has begun, so that the body will not be sent again.
    pub(crate) fn settle(&self) {
        self.lock().kept = None;
    }

    /// Ends the sending: the stream is reset, unless all was sent.
    pub(crate) fn give_up(&self) {
        let mut state = self.lock();
        state.is_given_up = true;
        state.kept = None;
        let unsent = state.body.take();
        let sender = state.sender.take();
        drop(state);
        drop(unsent);
        sender.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Keeps a part that is about to be sent.
    fn keep(&mut self, frame: &Frame<UploadPart>) {
        let Some(kept) = &mut self.kept else { return };
        if let Some(part) = frame.data_ref() {
            // Small parts take more memory than they have bytes.
            kept.bytes += part.bytes().len() + size_of::<Again>();
            kept.parts.push(Again::Data(part.bytes().clone()));
        } else if let Some(trailers) = frame.trailers_ref() {
            kept.parts.push(Again::Trailers(trailers.clone()));
        }
        if !kept.fits() {
            self.kept = None;
        }
    }
}

impl Kept {
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

impl Body for SharedBody {
    type Data = UploadPart;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<UploadPart>, Cut>>> {
        let Some(upload) = &self.0 else { return Poll::Ready(None) };
        let mut state = upload.lock();
        if state.is_given_up {
            return Poll::Ready(Some(Err(Cut::GivenUp(Reason::CANCEL.into()))));
        }
        let Some(body) = &mut state.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(context);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => state.keep(frame),
            Poll::Ready(Some(Err(_))) => state.kept = None,
            Poll::Ready(None) => {}
            Poll::Pending => state.sender = Some(context.waker().clone()),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(|upload| {
            let state = upload.lock();
            !state.is_given_up && state.body.as_ref().is_none_or(Body::is_end_stream)
        })
    }

    fn size_hint(&self) -> SizeHint {
        let none = || SizeHint::with_exact(0);
        self.0.as_ref().map_or_else(none, |upload| {
            upload.lock().body.as_ref().map_or_else(none, Body::size_hint)
        })
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
