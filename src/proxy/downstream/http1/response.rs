//! The response on its way to the client, and meanwhile the rest of the request's body.

use super::{client_input::ClientState, request::CurrentRequest, session::Session};
use crate::proxy::{
    io::ClientIo,
    message::{Response, ResponseHead, hop_by_hop::announced},
    response::response_body::ResponseBody,
    timeouts::timeout::Timeout,
};
use crate::{
    flow::Instant,
    http1::{
        BodyLength, FieldKind, FieldList, Fields, Framing, HeadWriter, LengthField,
        chunked::LAST_CHUNK,
        framing::{self, has_body},
        text, write_trailers,
    },
};
use core::{
    pin::Pin,
    task::{Context, Poll},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Version,
    header::{CONTENT_LENGTH, DATE},
};
use http_body::{Body, Frame};
use hyper::ext::ReasonPhrase;

/// While so much is to be written, in bytes, nothing more of the response is read.
const FULL: usize = 32 * 1024;

/// A response on its way.
pub(super) struct Relay {
    /// `None` once all of it was taken, which ends its request.
    body: Option<ResponseBody>,
    coding: Coding,
    /// The trailers that the head announces.
    announced: Vec<HeaderName>,
    /// True if it broke off.
    is_cut: bool,
    /// True if another request may follow.
    pub(super) keeps_alive: bool,
    /// The time when the request must have ended.
    deadline: Instant,
    /// True if the client has to read before more is written. Until then no more is held for it.
    is_blocked: bool,
}

/// The end of a response.
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
        let written = write(self.outgoing.head(), head, &body, current, || peer.date());
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

/// How a body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// Not at all.
    None,
    /// As it is, with so many bytes to come.
    Sized(u64),
    Chunked,
    /// As it is; the connection's end is its end.
    UntilClose,
}

/// What follows a head.
pub(super) struct Written {
    pub(super) coding: Coding,
    pub(super) announced: Vec<HeaderName>,
}

/// Writes the head of a response with this body.
pub(super) fn write(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    body: &ResponseBody,
    current: &CurrentRequest,
    date: impl FnOnce() -> HeaderValue,
) -> Written {
    let length = match (body.is_end_stream(), body.size_hint().exact()) {
        (true, _) => BodyLength::None,
        (false, Some(length)) => BodyLength::Exactly(length),
        (false, None) => BodyLength::Chunked,
    };

    let has_body = has_body(head.status, current.request);
    let declared = if has_body { None } else { declared(&head.headers) };
    let framing = Framing { body: length, declared, ..Framing::NONE };
    let field = framing::for_response(head.status, current.request, current.version, &framing);
    let coding = match (has_body, length, field) {
        (false, _, _) | (true, BodyLength::None, _) => Coding::None,
        (true, _, LengthField::ContentLength(length)) => Coding::Sized(length),
        (true, _, LengthField::Chunked) => Coding::Chunked,
        (true, _, LengthField::None) => Coding::UntilClose,
    };

    let mut writer = begin(out, head).titled(current.is_titled);
    writer.copy_all((&head.headers).into(), |kind| !is_framing(kind));
    writer.length(field);
    if !head.headers.contains_key(&DATE) {
        writer.field(&DATE, &date());
    }
    if !current.keeps_alive || coding == Coding::UntilClose {
        writer.close();
    } else if current.version == Version::HTTP_10 {
        writer.keep_alive();
    }
    writer.end();

    let has_trailers = coding == Coding::Chunked && current.takes_trailers;
    let announced = if has_trailers { announced(&head.headers) } else { Vec::new() };
    Written { coding, announced }
}

/// Writes an interim response.
pub(super) fn write_interim(out: &mut Vec<u8>, interim: &Response<()>, is_titled: bool) {
    let mut writer = HeadWriter::response(out, interim.status(), None).titled(is_titled);
    writer.copy_all(interim.headers().into(), |kind| !is_framing(kind));
    writer.end();
}

/// Writes the head by which both sides change their protocol.
pub(super) fn write_agreement(
    out: &mut Vec<u8>,
    head: &ResponseHead,
    is_titled: bool,
    date: &HeaderValue,
) {
    let mut writer = begin(out, head).titled(is_titled);
    writer.copy_all((&head.headers).into(), |_| true);
    if !head.headers.contains_key(&DATE) {
        writer.field(&DATE, date);
    }
    writer.end();
}

fn begin<'o>(out: &'o mut Vec<u8>, head: &ResponseHead) -> HeadWriter<'o> {
    let reason = head.reason.as_ref().map(ReasonPhrase::as_bytes);
    HeadWriter::response(out, head.status, reason)
}

/// Returns whether a field says where the body ends, which is said anew.
fn is_framing(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding)
}

/// Returns what `Content-Length` says, which a response to HEAD and a 304 have without a body.
#[cold]
fn declared(headers: &FieldList) -> Option<u64> {
    text(headers.get(&CONTENT_LENGTH)?)?.parse().ok()
}

/// Writes a response to a request that could not be read, after which the connection ends.
pub(super) fn write_own(
    out: &mut Vec<u8>,
    response: &Response<()>,
    body: &[u8],
    is_titled: bool,
    date: &HeaderValue,
) {
    let mut writer = HeadWriter::response(out, response.status(), None).titled(is_titled);
    writer.copy_all(response.headers().into(), |_| true);
    writer.length(LengthField::ContentLength(body.len() as u64));
    writer.field(&DATE, date);
    writer.close();
    writer.end();
    out.extend_from_slice(body);
}
