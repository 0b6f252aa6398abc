//! Waiting for a response, and for the next attempt.

use super::request::UpstreamRequest;
use crate::flow::Instant;
use crate::proxy::{
    body::{
        request_body::RequestBody,
        upload::{Upload, UploadState},
    },
    message::{hop_by_hop::strip_hop_by_hop, request::Request, response::Response},
    placeholders,
    response::failure::Failure,
    timeouts::timeout::Timeout,
    upstream::{error::Unanswered, lease::Lease},
};
use core::{
    future::poll_fn,
    mem,
    pin::{Pin, pin},
    task::{Context, Poll, Waker},
    time::Duration,
};
use http::header;

/// How many parts of a response are read that is given up.
const DROPPED_PARTS: u32 = 8;

impl UpstreamRequest<'_> {
    /// Sends the request over what is on `lease`, and waits until it is `answered`, or must be given up.
    pub(super) async fn await_response(
        &self,
        lease: &mut Lease,
        request: &mut Option<Request<RequestBody>>,
        sent: Option<&Upload>,
        answered: &mut Option<Result<Response<()>, Unanswered>>,
    ) {
        let since = lease.since;
        let (Some(connection), Some(request)) = (lease.connection_mut(), request) else { return };
        let body = mem::replace(request.body_mut(), RequestBody::Empty);
        let begun = connection.begin(request, body, || self.peer.spare_heads.response());
        if let Err(unanswered) = begun {
            *answered = Some(Err(unanswered));
            return;
        }
        let arrival = poll_fn(|context| {
            let answer = connection.poll_answer(context);
            if let Some(interim) = connection.take_interim() {
                self.forward_interim(interim);
            }
            answer.map(|answer| *answered = Some(answer))
        });
        self.wait(pin!(arrival), sent, since).await;
    }

    /// Forwards interim responses, without what was for this gateway only.
    #[cold]
    fn forward_interim(&self, interim: Vec<Response<()>>) {
        let edits = &self.route.options.response_headers;
        for mut response in interim {
            let headers = response.headers_mut();
            let fields = headers.set();
            strip_hop_by_hop(headers, fields);
            // No 1xx may have one (RFC 9110, 8.6), and clients of HTTP/2 take it for an error.
            headers.remove(&header::CONTENT_LENGTH);
            if fields.have_blanks() {
                headers.trim();
            }
            placeholders::edit(headers, edits, self.values);
            match (self.peer.http2.get(), self.stream) {
                (Some(activity), Some(stream)) => activity.send_interim(stream, response),
                _ => self.peer.interim.push(response),
            }
        }
    }

    /// Waits for the answer's head: `first_byte` long from the end of the request,
    /// which was begun at `since`. While its body is under way, neither the client nor the
    /// server may let it stand still for `idle`.
    async fn wait(
        &self,
        mut answer: Pin<&mut impl Future<Output = ()>>,
        sent: Option<&Upload>,
        since: Instant,
    ) {
        let mut look = None;
        poll_fn(|context| {
            if answer.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut at = *look.get_or_insert_with(|| self.next_check(sent, since, since));
            while self.peer.poll_deadline(self.stream, at, context).is_ready() {
                let now = self.peer.worker.clock.now();
                at = self.next_check(sent, since, now);
                look = Some(at);
                if at <= now {
                    return Poll::Ready(());
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Returns when to look again at the request that was begun at `since`: if that is
    /// not after `now`, the wait is over.
    ///
    /// While its body is under way, the server must go on taking it. The look comes early
    /// enough for a body that ends, or of which a part is taken, just after `now`.
    fn next_check(&self, sent: Option<&Upload>, since: Instant, now: Instant) -> Instant {
        let timeouts = &self.route.options.timeouts;
        let first_byte = timeouts.first_byte;
        let idle = timeouts.idle;
        let taken = sent.and_then(Upload::taken).unwrap_or(since).max(since);
        let look = match sent.map_or(UploadState::Done, Upload::state) {
            UploadState::UnderWay => (taken + idle).min(now + first_byte),
            // The client has a limit of its own.
            UploadState::Awaited => now + first_byte.min(idle),
            UploadState::Done
            | UploadState::TooLong
            | UploadState::Stalled
            | UploadState::Broken
            | UploadState::Slow => taken + first_byte,
        };
        self.deadline.min(look)
    }

    /// Waits for `wait` from `now`, before the next attempt. Returns when it may begin.
    ///
    /// # Errors
    ///
    /// No time is left for it.
    pub(super) async fn wait_for_retry(
        &mut self,
        wait: Duration,
        now: Instant,
    ) -> Result<Instant, Failure> {
        let clock = &self.peer.worker.clock;
        clock.sleep_until(self.deadline.min(now + wait)).await;
        let now = clock.now();
        if now >= self.deadline {
            self.timeout = Some(Timeout::Request);
            return Err(Failure::Timeout);
        }
        Ok(now)
    }

    /// Gives up a response. Its connection is kept if all of it is here already.
    #[cold]
    pub(super) fn discard_response(&self, lease: &mut Lease) {
        let mut context = Context::from_waker(Waker::noop());
        if let Some(connection) = lease.connection_mut() {
            let mut parts = 0;
            while parts < DROPPED_PARTS
                && let Poll::Ready(Some(Ok(_))) = connection.poll_frame(&mut context)
            {
                parts += 1;
            }
            if connection.is_end() {
                lease.give_back(self.peer.worker.clock.now(), &self.peer.reservation);
            }
        }
    }
}
