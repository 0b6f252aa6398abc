//! The bytes of a client's connection of HTTP/2, between its socket and the h2 crate: the requests that h2
//! rejects in frames.
//!
//! The h2 crate rejects a request that it cannot read by itself: it resets its stream with
//! `PROTOCOL_ERROR`, or sends 431 without a body, and reports nothing. Some clients take such a
//! reset for a fault of the connection: Go's client opens another one and retries, some thousand
//! times. So this reads the frames on their way to the client. It counts what h2 rejects, and
//! puts a 400 before the reset of a request that has no response yet. A reset after the response, as of
//! an upload that its client breaks off, passes as it is and is not counted. A reset of a stream that
//! its client has not opened, as for a priority that is not valid, also passes as it is: no request is
//! there to respond.

use super::client_frames::ClientFrames;
use crate::proxy::{
    downstream::unreadable::UnreadableRequest,
    message::http2_frame::{
        CONTINUATION, END_HEADERS, END_STREAM, FrameHead, GOAWAY, HEAD, HEADERS, RST_STREAM,
    },
    peer::Peer,
};
use bytes::Bytes;
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use http::StatusCode;
use std::{
    io::{self, IoSlice},
    sync::Arc,
};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The size of an `RST_STREAM` frame.
const RESET: usize = HEAD + 4;

const NO_ERROR: u32 = 0;
const PROTOCOL_ERROR: u32 = 1;

/// `:status: 400` by its index, 12, in HPACK's static table (RFC 7541, appendix A).
const STATUS_400: u8 = 0x8c;

/// Begins a field with a name of its own that changes no table (RFC 7541, 6.2.2).
const LITERAL: u8 = 0;

/// Says why in the header (RFC 9209), as h2 counts what a client takes of bodies: a body that h2 knows
/// nothing of would let it send more than the client allows, which ends the connection.
const PROXY_STATUS: &str = "flowgate; error=http_request_error; details=\"a field, the path or the framing is not \
                            valid; one possible cause: in a path or query, write \\\" as %22, < as %3C, > as %3E, a \
                            backtick as %60\"";

const MALFORMED: UnreadableRequest = UnreadableRequest::malformed(
    "HTTP/2: a field, the path or the framing of a request is not valid, and the HTTP/2 library does not say \
     which. One possible cause is a character in the path or query that must be encoded: `\"` as `%22`, `<` as \
     `%3C`, `>` as `%3E`, a backtick as `%60`",
);

const TOO_LARGE: UnreadableRequest = UnreadableRequest::too_large(
    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
    "HTTP/2: the header is larger than `limits.header_bytes` allows",
);

const TRAILERS: UnreadableRequest =
    UnreadableRequest::ended("HTTP/2: trailers have a pseudo-header field");

const CONNECTION_ENDED: UnreadableRequest =
    UnreadableRequest::ended("HTTP/2: the connection ended with GOAWAY for what its client sent");

/// See the module.
#[derive(Debug)]
pub(crate) struct FrameFilter<T> {
    inner: T,
    peer: Arc<Peer>,
    frames: Frames,
    client_frames: ClientFrames,
    /// Whole frames that are written before anything else.
    own: Bytes,
}

impl<T> FrameFilter<T> {
    pub(crate) fn new(inner: T, peer: Arc<Peer>) -> Self {
        let frames = Frames::default();
        let client_frames = ClientFrames::default();
        Self { inner, peer, frames, client_frames, own: Bytes::new() }
    }
}

impl<T: AsyncWrite + Unpin> FrameFilter<T> {
    /// Writes what comes before anything else.
    fn poll_own(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.own.is_empty() {
            let written = ready!(Pin::new(&mut self.inner).poll_write(context, &self.own))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            drop(self.own.split_to(written));
        }
        Poll::Ready(Ok(()))
    }

    /// Tells the client that the connection ends for its fault, if that can be written at once.
    #[cold]
    fn go_away(&mut self, context: &mut Context<'_>) {
        if self.own.is_empty() && self.frames.is_between() {
            let mut frame = vec![0, 0, 8, GOAWAY, 0, 0, 0, 0, 0];
            frame.extend_from_slice(&self.client_frames.newest().to_be_bytes());
            frame.extend_from_slice(&PROTOCOL_ERROR.to_be_bytes());
            // The connection ends also if it is not written.
            drop(Pin::new(&mut self.inner).poll_write(context, &frame));
            drop(Pin::new(&mut self.inner).poll_flush(context));
        }
    }

    /// Notes that so many of `bytes` were written.
    fn wrote(&mut self, bytes: &[u8], written: usize) {
        self.frames.advance(bytes, written, |rejected| rejected.note(&self.peer));
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncRead for FrameFilter<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if self.client_frames.is_malformed(&buffer.filled()[before..]) {
            TRAILERS.note(&self.peer);
            self.go_away(context);
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FrameFilter<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_own(context))?;
        match self.frames.reset(bytes, self.client_frames.newest()) {
            Some(0) => {
                let response = self.frames.response(bytes);
                MALFORMED.note(&self.peer);
                self.own = response.into();
                Poll::Ready(Ok(RESET))
            }
            until => {
                let bytes = &bytes[..until.unwrap_or(bytes.len())];
                let written = ready!(Pin::new(&mut self.inner).poll_write(context, bytes))?;
                self.wrote(bytes, written);
                Poll::Ready(Ok(written))
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Frames that are looked for are whole in the first slice; what else there is is data.
        let first = slices.iter().find(|slice| !slice.is_empty()).map_or(&[][..], |slice| slice);
        let is_own = !self.own.is_empty();
        if is_own || self.frames.reset(first, self.client_frames.newest()).is_some() {
            return self.poll_write(context, first);
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write_vectored(context, slices))?;
        let mut left = written;
        for slice in slices {
            let count = left.min(slice.len());
            left -= count;
            self.wrote(slice, count);
        }
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(context))?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_own(context))?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

/// Writes a short text without Huffman's code (RFC 7541, 5.2), behind its length in 7 bits or more
/// (5.1).
fn write_text(block: &mut Vec<u8>, text: &[u8]) {
    const MOST: usize = 0x7f;
    if text.len() < MOST {
        block.push(u8::try_from(text.len()).unwrap_or_default());
    } else {
        block.push(0x7f);
        let mut left = text.len() - MOST;
        while left >= 0x80 {
            block.push(u8::try_from(left & 0x7f).unwrap_or_default() | 0x80);
            left >>= 7;
        }
        block.push(u8::try_from(left).unwrap_or_default());
    }
    block.extend_from_slice(text);
}

/// Returns the header of what comes before a reset.
fn rejection() -> Vec<u8> {
    let mut block = vec![STATUS_400, LITERAL];
    write_text(&mut block, b"proxy-status");
    write_text(&mut block, PROXY_STATUS.as_bytes());
    block
}

/// Where frames begin in what is written, and the highest stream that was answered.
#[derive(Debug, Default)]
struct Frames {
    /// Bytes of a frame that have yet to be written. The most that there are: nothing is known any
    /// more.
    left: usize,
    answered: u32,
    /// True if a header is begun, of which no frame of another stream may part the frames.
    is_in_header: bool,
}

impl Frames {
    /// Returns whether a frame of another stream may be written next.
    fn is_between(&self) -> bool {
        self.left == 0 && !self.is_in_header
    }

    /// Returns where in `bytes`, which are to be written next, the first reset is that a request
    /// gets in place of a response. `newest` is the last stream that the client opened.
    fn reset(&self, bytes: &[u8], newest: u32) -> Option<usize> {
        let mut at = self.left;
        let mut answered = self.answered;
        loop {
            let rest = bytes.get(at..)?;
            let head = FrameHead::read(rest)?;
            if head.kind == RST_STREAM
                && head.stream > answered
                && head.stream <= newest
                && code(rest.get(HEAD..)?) == Some(PROTOCOL_ERROR)
            {
                return Some(at);
            }
            if head.kind == HEADERS {
                answered = answered.max(head.stream);
            }
            at += HEAD + head.length;
        }
    }

    /// Returns what is written in place of the reset at the start of `bytes`: a response that rejects the
    /// request, and the reset behind it.
    fn response(&mut self, bytes: &[u8]) -> Vec<u8> {
        let stream = FrameHead::read(bytes).map_or(0, |head| head.stream);
        self.answered = self.answered.max(stream);
        let block = rejection();
        let length = u32::try_from(block.len()).unwrap_or_default().to_be_bytes();
        let flags = END_STREAM | END_HEADERS;
        let mut response = vec![length[1], length[2], length[3], HEADERS, flags];
        response.extend_from_slice(&stream.to_be_bytes());
        response.extend_from_slice(&block);
        response.extend_from_slice(&[0, 0, 4, RST_STREAM, 0]);
        response.extend_from_slice(&stream.to_be_bytes());
        response.extend_from_slice(&PROTOCOL_ERROR.to_be_bytes());
        response
    }

    /// Notes that so many of `bytes` were `written`, and what was rejected in them.
    fn advance(
        &mut self,
        bytes: &[u8],
        written: usize,
        mut rejected: impl FnMut(UnreadableRequest),
    ) {
        let mut at = self.left;
        while at < written {
            let rest = bytes.get(at..).unwrap_or_default();
            // h2 has the head of a frame whole in its buffer, however much of it the kernel takes.
            let Some(head) = FrameHead::read(rest) else {
                at = usize::MAX;
                break;
            };
            let payload = rest.get(HEAD..).unwrap_or_default();
            let payload = &payload[..payload.len().min(head.length)];
            self.note(&head, payload, &mut rejected);
            at += HEAD + head.length;
        }
        self.left = at - written;
    }

    fn note(
        &mut self,
        head: &FrameHead,
        payload: &[u8],
        rejected: &mut impl FnMut(UnreadableRequest),
    ) {
        if matches!(head.kind, HEADERS | CONTINUATION) {
            self.is_in_header = head.flags & END_HEADERS == 0;
        }
        match head.kind {
            HEADERS if head.stream > self.answered => {
                self.answered = head.stream;
                // The gateway's own have a date at least.
                let is_last = head.flags & END_STREAM != 0 && head.flags & END_HEADERS != 0;
                if is_last && is_one_field(payload) {
                    rejected(TOO_LARGE);
                }
            }
            // The body of an answered request is no request: its client may have broken it off.
            RST_STREAM if head.stream > self.answered && code(payload) == Some(PROTOCOL_ERROR) => {
                rejected(MALFORMED);
            }
            // Behind the last stream that was served.
            GOAWAY if payload.get(4..).and_then(code).is_some_and(|code| code != NO_ERROR) => {
                rejected(CONNECTION_ENDED);
            }
            _ => {}
        }
    }
}

fn code(payload: &[u8]) -> Option<u32> {
    payload.first_chunk::<4>().map(|code| u32::from_be_bytes(*code))
}

/// Reports whether HPACK encodes one field so, as h2 does a status and nothing else: by its index,
/// or by that of its name and its value.
fn is_one_field(block: &[u8]) -> bool {
    match block {
        [index] => *index > 0x80,
        [name, length, value @ ..] => {
            *name & 0xc0 == 0x40 && *name & 0x3f != 0 && usize::from(*length & 0x7f) == value.len()
        }
        [] => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("short");
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    fn rejected(frames: &mut Frames, bytes: &[u8]) -> Vec<UnreadableRequest> {
        let mut found = Vec::new();
        frames.advance(bytes, bytes.len(), |unread| found.push(unread));
        found
    }

    #[test]
    fn a_reset_of_a_request_that_was_not_answered_is_found_and_replaced() {
        let settings = frame(4, 0, 0, &[0; 6]);
        let response = frame(HEADERS, END_HEADERS, 1, &[0x88, 0x61]);
        let reset = frame(RST_STREAM, 0, 3, &PROTOCOL_ERROR.to_be_bytes());
        let all = [&*settings, &response, &reset].concat();
        let mut frames = Frames::default();
        let at = settings.len() + response.len();
        assert_eq!(frames.reset(&all, 3), Some(at));
        assert_eq!(frames.reset(&all, 1), None, "the client has not opened the stream");
        frames.advance(&all, 7, |_| panic!("nothing is rejected"));
        assert_eq!(frames.left, settings.len() - 7);
        assert_eq!(frames.reset(&all[7..], 3), Some(at - 7));
        assert_eq!(rejected(&mut frames, &all[7..at]), []);
        assert_eq!(frames.reset(&all[at..], 3), Some(0));
        let expected = [
            frame(HEADERS, END_STREAM | END_HEADERS, 3, &rejection()),
            frame(RST_STREAM, 0, 3, &PROTOCOL_ERROR.to_be_bytes()),
        ]
        .concat();
        assert_eq!(frames.response(&all[at..]), expected);
        assert_eq!(frames.reset(&reset, 3), None, "once");
    }

    #[test]
    fn nothing_is_written_within_a_header_or_a_frame() {
        let head = frame(HEADERS, 0, 1, &[0x88]);
        let rest = frame(CONTINUATION, END_HEADERS, 1, &[1, 2, 3]);
        let data = frame(0, 0, 1, &[0; 20]);
        let mut frames = Frames::default();
        assert!(frames.is_between());
        for (part, is_between) in [(&head, false), (&rest, true), (&data, true)] {
            frames.advance(part, 3, |_| panic!("nothing is rejected"));
            assert!(!frames.is_between());
            frames.advance(&part[3..], part.len() - 3, |_| panic!("nothing is rejected"));
            assert_eq!(frames.is_between(), is_between);
        }
    }

    #[test]
    fn a_reset_behind_an_answer_or_for_another_reason_stays() {
        let response = frame(HEADERS, END_HEADERS, 5, &[0x88, 0x61]);
        let late = frame(RST_STREAM, 0, 5, &PROTOCOL_ERROR.to_be_bytes());
        let cancel = frame(RST_STREAM, 0, 7, &8_u32.to_be_bytes());
        let all = [&*response, &late, &cancel].concat();
        let mut frames = Frames::default();
        assert_eq!(frames.reset(&all, 7), None);
        assert_eq!(rejected(&mut frames, &all), [], "the request has its answer");
    }

    #[test]
    fn what_h2_rejects_by_itself_is_counted() {
        // As its encoder writes the first one and the next ones.
        for block in [&[0x48, 0x82, 0x68, 0x43][..], &[0xbe]] {
            let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, block);
            assert_eq!(rejected(&mut Frames::default(), &head), [TOO_LARGE]);
        }
        for block in [&[0x88, 0xbe][..], &[0x48, 0x82, 0x68, 0x43, 0xbe]] {
            let head = frame(HEADERS, END_STREAM | END_HEADERS, 1, block);
            assert_eq!(rejected(&mut Frames::default(), &head), []);
        }
        let mut frames = Frames::default();
        let response = frame(HEADERS, END_HEADERS, 1, &[0x88]);
        let trailers = frame(HEADERS, END_STREAM | END_HEADERS, 1, &[0xbe]);
        assert_eq!(rejected(&mut frames, &[response, trailers].concat()), []);
        let ended = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11]);
        let drained = frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0]);
        assert_eq!(rejected(&mut frames, &drained), []);
        assert_eq!(rejected(&mut frames, &ended), [CONNECTION_ENDED]);
    }
}
