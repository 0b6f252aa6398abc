//! The response on its way to the client, and meanwhile the rest of the request's body.

use super::{
    current_request::CurrentRequest,
    look::ClientState,
    response::{self, Coding},
    session::Session,
};
use crate::proxy::io::client_io::ClientIo;
use crate::proxy::message::response::ResponseHead;
use crate::proxy::{response::response_body::ResponseBody, timeouts::timeout::Timeout};
use crate::{
    flow::Instant,
    http1::{Fields, chunked::LAST_CHUNK, write_trailers},
};
use core::{
    pin::Pin,
    task::{Context, Poll},
};
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame};

/// While so much is to be written, in bytes, nothing more of the response is read.
const FULL: usize = 32 * 1024;

/// A response on its way.
pub(super) struct Relay {
    /// `None` once all of it was taken, which ends its request.
    body: Option<ResponseBody>,
    coding: Coding,
    /// The trailers that the head announces.
    announced: Vec<HeaderName>,
    /// Whether it broke off.
    is_cut: bool,
    /// Whether another request may follow.
    pub(super) keeps_alive: bool,
    /// When the request must have ended.
    deadline: Instant,
    /// Whether the client has to read before more is written. Until then no more is held for it.
    is_blocked: bool,
}

/// How a response ended.
pub(super) enum Relayed {
    /// All of it was written.
    Whole,
    /// The client has left, or must see that it is not whole.
    CutOff,
}

impl<T: ClientIo> Session<'_, '_, T> {
    /// Begins to write a response.
    pub(super) fn begin_relay(
        &mut self,
        head: &ResponseHead,
        body: ResponseBody,
        current: &mut CurrentRequest,
    ) -> Relay {
        // flowgate does not read the rest once the response has ended. A response without a length may
        // last until the client has sent everything.
        let gives_up = current.has_large_rest() && body.size_hint().exact().is_some();
        current.keeps_alive = current.keeps_alive
            && !body.closes()
            && !gives_up
            && !self.has_ended
            && !self.peer.handle.is_draining();
        let peer = &self.peer;
        let written = response::write(self.outgoing.head(), head, &body, current, || peer.date());
        let deadline = body.deadline();
        let mut relay = Relay {
            body: Some(body),
            coding: written.coding,
            announced: written.announced,
            is_cut: false,
            keeps_alive: current.keeps_alive && written.coding != Coding::UntilClose,
            deadline,
            is_blocked: false,
        };
        if relay.coding == Coding::UntilClose {
            // Its client would take any other end for the end of the body.
            self.io.end_with_reset(true);
        }
        if relay.body.as_ref().is_some_and(Body::is_end_stream) {
            self.end_request(&mut relay);
        }
        relay
    }

    /// Ends the request of a response that was taken.
    fn end_request(&mut self, relay: &mut Relay) {
        self.completion = relay.body.take().map(ResponseBody::end);
    }

    /// Polls until all of a response has left for the client.
    pub(super) fn poll_relay(
        &mut self,
        relay: &mut Relay,
        current: &mut CurrentRequest,
        context: &mut Context<'_>,
    ) -> Poll<Relayed> {
        loop {
            self.peer.timer.begin();
            let is_awaited = !relay.is_blocked && self.take_parts(relay, context);
            relay.is_blocked = false;
            while !relay.is_blocked {
                match self.poll_write(context) {
                    Poll::Ready(Ok(true)) => break,
                    Poll::Ready(Ok(false)) => {}
                    Poll::Ready(Err(_)) => return Poll::Ready(Relayed::CutOff),
                    Poll::Pending => relay.is_blocked = true,
                }
            }
            if relay.body.is_none() {
                if !relay.is_blocked {
                    return Poll::Ready(self.end_relay(relay));
                }
            } else {
                if !relay.is_blocked && !is_awaited {
                    continue;
                }
                match self.look_at_client(current, context) {
                    ClientState::Sent => continue,
                    ClientState::Left => return Poll::Ready(Relayed::CutOff),
                    ClientState::Waits => {}
                }
            }
            if let Some(timeout) = self.poll_relay_deadlines(relay, context) {
                if let Some(body) = &mut relay.body {
                    body.time_out(timeout);
                }
                return Poll::Ready(Relayed::CutOff);
            }
            if self.poll_deadlines(context).is_pending() {
                return Poll::Pending;
            }
        }
    }

    /// Ends a response of which all was written.
    fn end_relay(&self, relay: &Relay) -> Relayed {
        if relay.is_cut {
            return Relayed::CutOff;
        }
        if relay.coding == Coding::UntilClose {
            self.io.end_with_reset(false);
        }
        Relayed::Whole
    }

    /// Returns which limit a response that does not move has exceeded.
    #[inline(never)]
    fn poll_relay_deadlines(
        &mut self,
        relay: &Relay,
        context: &mut Context<'_>,
    ) -> Option<Timeout> {
        if relay.is_blocked && self.poll_blocked(context).is_ready() {
            return Some(Timeout::Write);
        }
        // A response that waits for its upstream looks for itself.
        let is_late = relay.is_blocked
            && relay.deadline < Instant::FAR_FUTURE
            && self.timer.poll(relay.deadline, context).is_ready();
        is_late.then_some(Timeout::Request)
    }

    /// Takes parts of the response, as long as there is room for them. Returns whether the next one
    /// is awaited.
    fn take_parts(&mut self, relay: &mut Relay, context: &mut Context<'_>) -> bool {
        while self.outgoing.size() < FULL
            && let Some(body) = &mut relay.body
        {
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else { return true };
            let is_last = body.is_end_stream();
            match frame {
                None => self.end_body(relay, None),
                Some(Err(_)) => {
                    relay.is_cut = true;
                    relay.body = None;
                }
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(part) => {
                        self.add_part(relay, part.into_bytes());
                        if is_last {
                            self.end_body(relay, None);
                        }
                    }
                    Err(frame) => self.end_body(relay, Frame::into_trailers(frame).ok()),
                },
            }
        }
        false
    }

    fn add_part(&mut self, relay: &mut Relay, data: bytes::Bytes) {
        match &mut relay.coding {
            Coding::None => {}
            Coding::Sized(left) => {
                if let Some(rest) = left.checked_sub(data.len() as u64) {
                    *left = rest;
                    self.outgoing.data(data, false);
                } else {
                    // It would be taken for the next response.
                    relay.is_cut = true;
                    relay.body = None;
                }
            }
            Coding::Chunked => self.outgoing.data(data, true),
            Coding::UntilClose => self.outgoing.data(data, false),
        }
    }

    #[inline(never)]
    fn end_body(&mut self, relay: &mut Relay, trailers: Option<HeaderMap>) {
        self.end_request(relay);
        match relay.coding {
            Coding::None | Coding::Sized(0) | Coding::UntilClose => {}
            Coding::Sized(_) => relay.is_cut = true,
            Coding::Chunked if relay.is_cut => {}
            Coding::Chunked => self.outgoing.end(|out| match trailers {
                None => out.extend_from_slice(LAST_CHUNK),
                Some(trailers) => write_trailers(Fields::Map(&trailers), out, |field| {
                    relay.announced.iter().any(|name| name.as_str().as_bytes() == field.name)
                }),
            }),
        }
    }
}
