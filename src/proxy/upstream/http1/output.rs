//! The bytes of a request on their way to its server.

use crate::http1::{
    BodyLength, FieldKind, Fields, HeadWriter, chunked::LAST_CHUNK, framing::for_request,
    write_trailers,
};
use crate::proxy::{
    body::{Cut, RequestBody},
    connections::upload_buffer::UploadPart,
    io::outgoing::{Outgoing, PARTS_MAX},
    message::{Request, hop_by_hop::announced},
    upstream::transport::BoxedIo,
};
use crate::traces::TRACEPARENT;
use bytes::Buf as _;
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use http::{HeaderMap, HeaderName};
use http_body::{Body, Frame};
use std::io;

/// The number of bytes of a body that are gathered before they are written.
const GATHER_MAX: usize = 256 * 1024;

/// A request that is being written.
#[derive(Default)]
pub(super) struct Output {
    outgoing: Outgoing<UploadPart>,
    /// `None` once all of it was taken.
    body: Option<RequestBody>,
    coding: Coding,
    /// The trailers that the head announces.
    announced: Vec<HeaderName>,
    progress: Progress,
}

/// The form in which the body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// As it is, with this number of bytes to come.
    Sized(u64),
    Chunked,
}

impl Default for Coding {
    fn default() -> Self {
        Self::Sized(0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Progress {
    /// All has left for the server, as far as the system knows.
    #[default]
    Left,
    Sending,
    /// The server takes no more. It may have answered before.
    Rejected,
}

impl Output {
    /// Begins a request.
    pub(super) fn begin(&mut self, request: &Request<RequestBody>, body: RequestBody) {
        self.announced.clear();

        let method = request.method();
        let target = request.target().map_or("/", |target| target.as_str());
        let mut writer = HeadWriter::request(self.outgoing.head(), method, target.as_bytes());
        let mut has_length = false;
        writer.copy_all(request.headers().into(), |kind| {
            has_length |= kind == FieldKind::ContentLength;
            !matches!(kind, FieldKind::ContentLength | FieldKind::TransferEncoding)
        });
        if let Some(trace) = &request.head().trace {
            writer.valid_line(TRACEPARENT.as_str(), &trace.text());
        }
        if request.headers().set().has(FieldKind::Trailer) {
            self.announced = announced(request.headers());
        }

        let length = match body.size_hint().exact() {
            Some(0) if !has_length => BodyLength::None,
            Some(length) => BodyLength::Exactly(length),
            None => BodyLength::Chunked,
        };
        writer.length(for_request(method, length));
        writer.end();

        self.coding = match length {
            BodyLength::Exactly(length) => Coding::Sized(length),
            BodyLength::None => Coding::Sized(0),
            BodyLength::Chunked | BodyLength::UntilClose => Coding::Chunked,
        };
        self.body = (self.coding != Coding::Sized(0)).then_some(body);
        self.progress = Progress::Sending;
    }

    /// True if all has left for the server, as far as the system knows.
    pub(super) fn is_sent(&self) -> bool {
        self.progress == Progress::Left
    }

    /// Polls until all has left, or the server takes no more.
    ///
    /// # Errors
    ///
    /// The client's body cannot be sent.
    #[inline]
    pub(super) fn poll(
        &mut self,
        io: &mut BoxedIo,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Cut>> {
        while self.progress == Progress::Sending {
            let is_awaited = self.body.is_some() && self.take_parts(context)?.is_pending();
            match ready!(self.poll_write(io, context)) {
                // A server that rejects an upload sends its response, closes, and resets the connection
                // when more comes. The response has arrived then: reading goes on.
                Err(_) => self.give_up(),
                Ok(()) if self.body.is_none() => self.progress = Progress::Left,
                Ok(()) if is_awaited => return Poll::Pending,
                Ok(()) => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes parts of the body, until they are enough for a write, or the next one is awaited.
    #[inline(never)]
    fn take_parts(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Cut> {
        while self.outgoing.parts() < PARTS_MAX
            && self.outgoing.size() < GATHER_MAX
            && let Some(body) = &mut self.body
        {
            let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(context) else {
                return Ok(Poll::Pending);
            };
            let is_last = body.is_end_stream();
            match frame.transpose()?.map(Frame::into_data) {
                None => self.end_body(None)?,
                Some(Ok(data)) => {
                    self.add(data)?;
                    if is_last || self.coding == Coding::Sized(0) {
                        self.end_body(None)?;
                    }
                }
                Some(Err(frame)) => self.end_body(frame.into_trailers().ok())?,
            }
        }
        Ok(Poll::Ready(()))
    }

    /// Adds a part of the body.
    fn add(&mut self, data: UploadPart) -> Result<(), Cut> {
        if let Coding::Sized(left) = &mut self.coding {
            // The reader of the body has checked its length. More bytes would begin another request.
            *left = left.checked_sub(data.remaining() as u64).ok_or(Cut::TooLong)?;
        }
        self.outgoing.data(data, self.coding == Coding::Chunked);
        Ok(())
    }

    /// Ends the body.
    fn end_body(&mut self, trailers: Option<HeaderMap>) -> Result<(), Cut> {
        self.body = None;
        match self.coding {
            Coding::Sized(0) => {}
            Coding::Sized(_) => return Err(Cut::ClientStalled),
            Coding::Chunked => self.outgoing.end(|out| match trailers {
                None => out.extend_from_slice(LAST_CHUNK),
                Some(trailers) => write_trailers(Fields::Map(&trailers), out, |field| {
                    self.announced.iter().any(|name| name.as_str().as_bytes() == field.name)
                }),
            }),
        }
        Ok(())
    }

    /// Writes all that is to be written.
    fn poll_write(&mut self, io: &mut BoxedIo, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !ready!(self.outgoing.poll_write(io, context))? {}
        Poll::Ready(Ok(()))
    }

    #[cold]
    fn give_up(&mut self) {
        *self = Self { progress: Progress::Rejected, ..Self::default() };
    }

    /// Frees the memory that an idle connection does not need.
    pub(super) fn rest(&mut self) {
        self.outgoing.rest();
    }
}
