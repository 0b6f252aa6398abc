//! The body of a request on its way, which can be taken back.
//!
//! A server may refuse a stream that it has not processed. So the parts that were sent of a body are
//! kept until the response begins: [`KEPT_MIN`] of each body, and [`KEPT_MAX`] beyond that of all
//! bodies of a connection. A body that needs more waits until the server has acknowledged a ping, if one
//! can be sent. It is not kept after that: the server has read the request, and has not refused it.

use crate::clock::Clock;
use crate::proxy::{
    body::request_body::{Again, Cut, RequestBody},
    connections::upload_buffer::UploadPart,
};
use bytes::Bytes;
use core::{
    future::{pending, poll_fn},
    mem,
    pin::Pin,
    sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    task::{Context, Poll, ready},
    time::Duration,
};
use h2::{Ping, PingPong, Reason, SendStream};
use http_body::{Body as _, Frame};
use std::sync::Arc;
use tokio::{
    sync::Mutex,
    task::{AbortHandle, JoinHandle},
};

/// The bytes of each body that are kept in any case, to send them again.
const KEPT_MIN: usize = 64 * 1024;

/// The bytes that are kept beyond that, of all bodies of a connection.
const KEPT_MAX: usize = 8 * 1024 * 1024;

/// The bytes that are kept now of a connection's bodies beyond [`KEPT_MIN`].
pub(super) type Total = Arc<AtomicUsize>;

/// Sends the body of a request on a stream, and keeps the parts that it may have to send again.
#[derive(Debug)]
pub(super) struct Sending {
    stream: SendStream<UploadPart>,
    body: RequestBody,
    /// A part that waits until the server takes more. The flag is true for the last one.
    waiting: Option<(UploadPart, bool)>,
    /// True if no more of it is sent.
    is_over: bool,
    /// The parts that were sent; `None` once they will not be needed.
    kept: Option<Kept>,
    pings: Arc<Pings>,
    /// The task that waits for the acknowledgment of a ping, and returns true if it came.
    acknowledged: Option<JoinHandle<bool>>,
}

/// The parts of a body that were sent.
#[derive(Debug)]
struct Kept {
    parts: Vec<Again>,
    bytes: usize,
    /// The bytes of it that count in `total`.
    counted: usize,
    total: Total,
}

impl Sending {
    /// Returns the sender of `body` over `stream`; `None` if it is empty.
    pub(super) fn new(
        stream: SendStream<UploadPart>,
        body: RequestBody,
        total: &Total,
        pings: &Arc<Pings>,
    ) -> Option<Self> {
        if matches!(body, RequestBody::Empty) {
            return None;
        }
        Some(Self {
            stream,
            body,
            waiting: None,
            is_over: false,
            kept: Some(Kept::new(total)),
            pings: Arc::clone(pings),
            acknowledged: None,
        })
    }

    /// Polls until all of the body was sent, as fast as the server takes it. If the server takes no more,
    /// its response says why.
    ///
    /// # Errors
    ///
    /// The client's body cannot be sent. The stream is reset.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Cut>> {
        if self.acknowledged.is_some() {
            // An acknowledgment is noted also while no part waits.
            _ = self.poll_kept(context);
        }

        loop {
            if let Some((part, is_last)) = self.waiting.take() {
                if self.poll_kept(context).is_pending() || self.poll_room(context).is_pending() {
                    self.waiting = Some((part, is_last));
                    return Poll::Pending;
                }
                self.send(part, is_last);
            }
            if self.is_over {
                return Poll::Ready(Ok(()));
            }

            match ready!(Pin::new(&mut self.body).poll_frame(context)) {
                Some(Ok(frame)) => self.take(frame),
                None => self.send(Bytes::new().into(), true),
                Some(Err(cut)) => {
                    self.is_over = true;
                    self.kept = None;
                    self.stream.send_reset(Reason::CANCEL);
                    return Poll::Ready(Err(cut));
                }
            }
        }
    }

    /// Polls until the part that was kept last may be sent, because there is room to keep it, or because
    /// it need not be kept.
    fn poll_kept(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let Some(kept) = self.kept.as_ref().filter(|kept| kept.needs_much()) else {
            return Poll::Ready(());
        };

        if self.acknowledged.is_none() && self.pings.may_ask() {
            let pings = Arc::clone(&self.pings);
            self.acknowledged = Some(tokio::spawn(async move { pings.round_trip().await }));
        }

        let mut is_read = false;
        if let Some(acknowledged) = &mut self.acknowledged {
            match Pin::new(acknowledged).poll(context) {
                Poll::Pending if kept.fits() => return Poll::Ready(()),
                Poll::Pending => return Poll::Pending,
                Poll::Ready(acknowledged) => is_read = acknowledged.unwrap_or_default(),
            }
            self.acknowledged = None;
        }

        // A reset that the server sent before may have been read together with its acknowledgment.
        if self.stream.poll_reset(context).is_ready() {
            self.is_over = true;
        } else if is_read || !kept.fits() {
            self.kept = None;
        }
        Poll::Ready(())
    }

    /// Polls until the server takes a part. Room is reserved only for a part that has come: a byte of the
    /// connection's window that an idle body holds could make all others wait.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_over {
            return Poll::Ready(());
        }
        self.stream.reserve_capacity(1);
        while !self.is_over && self.stream.capacity() == 0 {
            // No capacity will come once the stream is over.
            let more = ready!(self.stream.poll_capacity(context));
            self.is_over = !matches!(more, Some(Ok(_)));
        }
        Poll::Ready(())
    }

    /// Takes the next part of the body. Empty parts and trailers need no room.
    fn take(&mut self, frame: Frame<UploadPart>) {
        let is_last = self.body.is_end_stream();
        if let Some(kept) = &mut self.kept {
            kept.keep(&frame);
        }
        match frame.into_data() {
            Ok(part) if part.bytes().is_empty() && !is_last => {}
            Ok(part) if part.bytes().is_empty() => self.send(part, is_last),
            Ok(part) => self.waiting = Some((part, is_last)),
            Err(_) if !self.body.sends_trailers_in_http2() => self.send(Bytes::new().into(), true),
            Err(frame) => {
                self.is_over = true;
                // An error means that the stream is over.
                drop(self.stream.send_trailers(frame.into_trailers().unwrap_or_default()));
            }
        }
    }

    fn send(&mut self, part: UploadPart, is_last: bool) {
        if !self.is_over {
            self.is_over = self.stream.send_data(part, is_last).is_err() || is_last;
        }
    }

    /// Returns the body as it was before any of it was sent, if all of it was kept.
    pub(super) fn take_back(mut self) -> Option<RequestBody> {
        let mut kept = self.kept.take()?;
        let mut body = mem::replace(&mut self.body, RequestBody::Empty);
        body.begin_again(mem::take(&mut kept.parts));
        Some(body)
    }

    /// Sends the rest in a task of its own, until that is aborted.
    pub(super) fn finish(mut self) -> AbortHandle {
        let sending = tokio::spawn(async move {
            // The response says why the server takes no more.
            drop(poll_fn(|context| self.poll(context)).await);
            pending::<()>().await;
        });
        sending.abort_handle()
    }

    /// Notes that the response has begun, so that the body will not be sent again.
    pub(super) fn settle(&mut self) {
        self.kept = None;
        self.acknowledged = None;
        self.pings.note_response();
    }
}

impl Drop for Sending {
    /// Resets the stream unless it is over: also if all was passed to h2, and has not left.
    fn drop(&mut self) {
        self.stream.send_reset(Reason::CANCEL);
    }
}

impl Kept {
    fn new(total: &Total) -> Self {
        Self { parts: Vec::new(), bytes: 0, counted: 0, total: Arc::clone(total) }
    }

    /// Keeps a part that is about to be sent.
    fn keep(&mut self, frame: &Frame<UploadPart>) {
        if let Some(part) = frame.data_ref() {
            // Small parts take more memory than they have bytes.
            self.count(part.bytes().len() + size_of::<Again>());
            self.parts.push(Again::Data(part.bytes().clone()));
        } else if let Some(trailers) = frame.trailers_ref() {
            self.parts.push(Again::Trailers(trailers.clone()));
        }
    }

    fn count(&mut self, bytes: usize) {
        self.bytes += bytes;
        let more = self.bytes.saturating_sub(KEPT_MIN) - self.counted;
        if more > 0 {
            self.counted += more;
            self.total.fetch_add(more, Relaxed);
        }
    }

    /// True if a ping is due, so that its acknowledgment comes before the room is used up.
    fn needs_much(&self) -> bool {
        self.counted > 0 && self.total.load(Relaxed) > KEPT_MAX / 2
    }

    /// True if there is room for it.
    fn fits(&self) -> bool {
        self.counted == 0 || self.total.load(Relaxed) <= KEPT_MAX
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if self.counted > 0 {
            self.total.fetch_sub(self.counted, Relaxed);
        }
    }
}

/// Pings at most until the next response begins: gRPC servers end connections that ping often.
const PINGS_MAX: u32 = 2;

/// The time that a server may take to acknowledge one.
const PATIENCE: Duration = Duration::from_secs(2);

/// The pings of a connection: they show whether the server has read what was written before. It reads
/// frames in order, and acknowledges a ping (RFC 9113, 6.7) after all that came before it.
#[derive(Debug)]
pub(super) struct Pings {
    /// The number of requests that have asked for a ping.
    asked: AtomicU64,
    /// Pings since a response began.
    sent: AtomicU32,
    /// True if one was not acknowledged.
    is_unacknowledged: AtomicBool,
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    ping_pong: Option<PingPong>,
    /// The value of `asked` when the last acknowledged ping was sent.
    acknowledged: u64,
}

impl Pings {
    pub(super) fn new(ping_pong: Option<PingPong>, clock: Clock) -> Self {
        let state = Mutex::new(State { ping_pong, acknowledged: 0 });
        Self {
            asked: AtomicU64::new(0),
            sent: AtomicU32::new(0),
            is_unacknowledged: AtomicBool::new(false),
            clock,
            state,
        }
    }

    /// Notes that the server has begun a response.
    pub(super) fn note_response(&self) {
        self.sent.store(0, Relaxed);
    }

    /// True if a ping may be sent now.
    pub(super) fn may_ask(&self) -> bool {
        self.sent.load(Relaxed) < PINGS_MAX && !self.is_unacknowledged.load(Relaxed)
    }

    /// Waits until the server has read what was written before this call, and returns true if it has. The
    /// caller polls it to its end.
    pub(super) async fn round_trip(&self) -> bool {
        let number = self.asked.fetch_add(1, Relaxed) + 1;
        let mut state = self.state.lock().await;
        if state.acknowledged >= number {
            return true;
        }
        let Some(ping_pong) = state.ping_pong.as_mut().filter(|_| self.may_ask()) else {
            return false;
        };
        self.sent.fetch_add(1, Relaxed);
        let asked = self.asked.load(Relaxed);
        let ping = ping_pong.ping(Ping::opaque());
        let is_acknowledged = matches!(self.clock.timeout(PATIENCE, ping).await, Ok(Ok(_)));
        if is_acknowledged {
            state.acknowledged = asked;
        } else {
            self.is_unacknowledged.store(true, Relaxed);
        }
        is_acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_bounded_for_all_together_beyond_a_little_of_each() {
        let total = Total::default();
        let kept = |bytes| {
            let mut kept = Kept::new(&total);
            kept.count(bytes);
            kept
        };
        let half = kept(KEPT_MAX / 2 + KEPT_MIN);
        assert!(!half.needs_much());
        let more = kept(KEPT_MIN + 1);
        assert!(half.needs_much() && more.needs_much() && more.fits());
        let most = kept(KEPT_MAX / 2 + KEPT_MIN - 1);
        assert!(most.fits());
        let mut small = kept(KEPT_MIN);
        assert_eq!(total.load(Relaxed), KEPT_MAX);
        small.count(1);
        assert!(!most.fits() && !small.fits());
        let smallest = kept(KEPT_MIN);
        assert!(smallest.fits() && !smallest.needs_much(), "a small body always fits");
        drop(small);
        assert!(most.fits());
        drop((half, more, most, smallest));
        assert_eq!(total.load(Relaxed), 0);
    }
}
