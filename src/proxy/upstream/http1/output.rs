//! A request on its way to its server.

use crate::{
    http1::{
        BodyLength, Fields, HeadWriter,
        chunked::{self, ChunkSize, LAST_CHUNK},
        framing::for_request,
        write_trailers,
    },
    proxy::{
        body::{Cut, RequestBody},
        gather,
        upload_buffer::UploadPart,
        upstream::io::BoxedIo,
    },
};
use bytes::{Buf, Bytes};
use core::{
    pin::Pin,
    task::{Context, Poll, ready},
};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{CONTENT_LENGTH, TRAILER, TRANSFER_ENCODING},
    request::Parts,
};
use http_body::{Body, Frame};
use smallvec::SmallVec;
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
};
use tokio::io::AsyncWrite;

/// Parts of a body up to this size, in bytes, are copied behind what is to be written. Larger ones
/// are written from where they are.
const COPY_MAX: usize = 2048;

/// Parts are gathered before they are written: up to so many bytes, and so many that are not copied.
const GATHER_MAX: usize = 256 * 1024;
const PARTS_MAX: usize = 16;

/// How many bytes of memory an idle connection keeps for its next request.
const KEPT_MAX: usize = 4 * 1024;

/// What is to be written: `bytes` first, then `parts`.
#[derive(Default)]
pub(super) struct Output {
    bytes: Vec<u8>,
    parts: VecDeque<Part>,
    /// How many bytes of both were written.
    written: usize,
    /// `None` once all of it was taken.
    body: Option<RequestBody>,
    coding: Coding,
    /// The trailers that the head announces.
    announced: Vec<HeaderName>,
    progress: Progress,
}

/// A part of the body that is not copied.
struct Part {
    /// There if it is a chunk.
    size: Option<ChunkSize>,
    data: UploadPart,
    end: &'static [u8],
}

impl Part {
    fn segments(&self) -> [&[u8]; 3] {
        [self.size.as_ref().map_or(&[], ChunkSize::as_bytes), self.data.chunk(), self.end]
    }

    fn len(&self) -> usize {
        self.segments().iter().map(|segment| segment.len()).sum()
    }
}

/// How the body is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// As it is, with so many bytes to come.
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
    pub(super) fn begin(&mut self, head: &Parts, body: RequestBody) {
        self.announced.clear();
        let target = head.uri.path_and_query().map_or("/", |target| target.as_str());
        let mut writer = HeadWriter::request(&mut self.bytes, &head.method, target.as_bytes());
        let mut has_length = false;
        for (name, value) in &head.headers {
            match name {
                name if *name == CONTENT_LENGTH => has_length = true,
                name if *name == TRANSFER_ENCODING => {}
                name => writer.field(name, value),
            }
            if *name == TRAILER {
                self.announced.extend(announced(value));
            }
        }
        let length = match body.size_hint().exact() {
            Some(0) if !has_length => BodyLength::None,
            Some(length) => BodyLength::Exactly(length),
            None => BodyLength::Chunked,
        };
        writer.length(for_request(&head.method, length));
        writer.end();
        self.coding = match length {
            BodyLength::Exactly(length) => Coding::Sized(length),
            BodyLength::None => Coding::Sized(0),
            BodyLength::Chunked | BodyLength::UntilClose => Coding::Chunked,
        };
        self.body = (self.coding != Coding::Sized(0)).then_some(body);
        self.progress = Progress::Sending;
    }

    /// Whether all has left for the server, as far as the system knows.
    pub(super) fn has_left(&self) -> bool {
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
            let is_awaited = self.take_parts(context)?.is_pending();
            match ready!(self.poll_write(io, context)) {
                // A server that rejects an upload answers, closes, and resets what still comes. Its
                // answer has arrived then: reading goes on.
                Err(_) => self.give_up(),
                Ok(()) if self.body.is_none() => self.progress = Progress::Left,
                Ok(()) if is_awaited => return Poll::Pending,
                Ok(()) => {}
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Takes parts of the body, until they are enough for a write, or the next one is awaited.
    fn take_parts(&mut self, context: &mut Context<'_>) -> Result<Poll<()>, Cut> {
        while self.parts.len() < PARTS_MAX
            && self.size() < GATHER_MAX
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
            // Whoever read the body has checked its length. To be wrong here would be the beginning
            // of another request.
            *left = left.checked_sub(data.remaining() as u64).ok_or(Cut::TooLong)?;
        }
        let is_chunked = self.coding == Coding::Chunked;
        match data.remaining() {
            0 => {}
            1..=COPY_MAX if self.parts.is_empty() && is_chunked => {
                chunked::encode(data.chunk(), &mut self.bytes);
            }
            1..=COPY_MAX if self.parts.is_empty() => self.bytes.extend_from_slice(data.chunk()),
            length => {
                let size = is_chunked.then(|| ChunkSize::new(length));
                let end: &[u8] = if is_chunked { b"\r\n" } else { b"" };
                self.parts.push_back(Part { size, data, end });
            }
        }
        Ok(())
    }

    /// How many bytes there are.
    fn size(&self) -> usize {
        self.bytes.len() + self.parts.iter().map(Part::len).sum::<usize>()
    }

    /// Ends the body.
    fn end_body(&mut self, trailers: Option<HeaderMap>) -> Result<(), Cut> {
        self.body = None;
        match self.coding {
            Coding::Sized(0) => {}
            Coding::Sized(_) => return Err(Cut::ClientStalled),
            Coding::Chunked => {
                let mut end = Vec::new();
                let into = if self.parts.is_empty() { &mut self.bytes } else { &mut end };
                match trailers {
                    None => into.extend_from_slice(LAST_CHUNK),
                    Some(trailers) => write_trailers(Fields::Map(&trailers), into, |field| {
                        self.announced.iter().any(|name| name.as_str().as_bytes() == field.name)
                    }),
                }
                if !end.is_empty() {
                    let data = UploadPart::from(Bytes::from(end));
                    self.parts.push_back(Part { size: None, data, end: b"" });
                }
            }
        }
        Ok(())
    }

    /// Writes what there is.
    fn poll_write(&mut self, io: &mut BoxedIo, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.bytes.is_empty() || !self.parts.is_empty() {
            let polled = if self.parts.is_empty() {
                let bytes = self.bytes.get(self.written..).unwrap_or_default();
                Pin::new(&mut *io).poll_write(context, bytes)
            } else {
                gather::poll_write(io, context, &self.slices())
            };
            let count = ready!(polled)?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(count);
        }
        Pin::new(io).poll_flush(context)
    }

    /// Returns what is left to be written.
    fn slices(&self) -> SmallVec<[IoSlice<'_>; 3 * PARTS_MAX + 4]> {
        let mut written = self.written;
        let parts = self.parts.iter().flat_map(Part::segments);
        let left = core::iter::once(&self.bytes[..]).chain(parts).filter_map(|segment| {
            let left = segment.get(written..).unwrap_or_default();
            written = written.saturating_sub(segment.len());
            (!left.is_empty()).then(|| IoSlice::new(left))
        });
        left.collect()
    }

    /// Notes that `count` bytes were written.
    fn advance(&mut self, count: usize) {
        self.written += count;
        if self.written >= self.bytes.len() {
            self.written -= self.bytes.len();
            self.bytes.clear();
        }
        while self.bytes.is_empty()
            && let Some(part) = self.parts.front()
            && self.written >= part.len()
        {
            self.written -= part.len();
            self.parts.pop_front();
        }
    }

    fn give_up(&mut self) {
        *self = Self { progress: Progress::Rejected, ..Self::default() };
    }

    /// Gives up what an idle connection does not need.
    pub(super) fn rest(&mut self) {
        self.bytes.shrink_to(KEPT_MAX);
        self.parts.shrink_to(0);
    }
}

/// Returns the names that a line of `Trailer` lists.
fn announced(line: &HeaderValue) -> impl Iterator<Item = HeaderName> {
    let names = line.as_bytes().split(|byte| *byte == b',');
    names.filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
}
