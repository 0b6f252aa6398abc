//! Heads of requests and responses: from bytes to places in the buffer.
//!
//! `httparse` reads the grammar. This module bounds it, says why a head is rejected, and has
//! [`framing`] judge where the body ends. A head is judged by its first line as soon as
//! that is whole, and by its fields when all of them are there, so that the outcome does not
//! depend on how the bytes were cut into pieces.

use super::{
    error::HeadError,
    field_kind::FieldKind,
    field_set::FieldSet,
    fields::{Field, FieldSpan, Fields, Lines, part},
    first_line::{FirstLine, Parsed, RequestLine, StatusLine, judge},
    framing::{self, Framing, RequestKind},
    list::FieldList,
    pieces::{Pieces, skip_empty_lines},
    spans::keep_fields,
};
use bytes::Bytes;
use core::mem::MaybeUninit;
use http::{StatusCode, Version};

/// The fields for which no memory is allocated while a head is read.
const STACK_FIELDS: usize = 100;

/// How large a head may be.
#[derive(Clone, Copy, Debug)]
pub struct HeadLimits {
    /// Bytes of the whole head: empty lines before it, its first line, its fields, its last line.
    pub bytes: usize,
    /// Lines with a field.
    pub fields: usize,
}

/// The head of a request.
pub type RequestHead = Head<RequestLine>;

/// The head of a response, an interim one too.
pub type ResponseHead = Head<StatusLine>;

/// A head as places in the buffer that it was read from, which the caller keeps. It can be used
/// again for the next head, which then allocates nothing.
#[derive(Clone, Debug)]
pub struct Head<Line> {
    line: Line,
    version: Version,
    framing: Framing,
    spans: Vec<FieldSpan>,
    set: FieldSet,
    pieces: Pieces,
}

impl<Line: Default> Default for Head<Line> {
    fn default() -> Self {
        Self {
            line: Line::default(),
            version: Version::HTTP_11,
            framing: Framing::NONE,
            spans: Vec::new(),
            set: FieldSet::default(),
            pieces: Pieces::default(),
        }
    }
}

impl<Line> Head<Line> {
    /// Returns the version: 1.0 or 1.1.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns how the body ends.
    pub fn framing(&self) -> &Framing {
        &self.framing
    }

    /// Returns the fields. `buffer` is what the head was read from, in this and other functions.
    pub fn fields<'a>(&'a self, buffer: &'a [u8]) -> Fields<'a> {
        let came = Lines { buffer, spans: &self.spans };
        Fields::Http1 { came, added: Lines::NONE, set: self.set }
    }

    /// Returns the fields that say how the message is framed.
    fn framing_fields<'a>(&self, buffer: &'a [u8]) -> impl Iterator<Item = Field<'a>> {
        let frames = |kind| {
            use FieldKind::{Connection, ContentLength, TransferEncoding};
            matches!(kind, Connection | ContentLength | TransferEncoding)
        };
        let spans = self.spans.iter().filter(move |span| frames(span.kind));
        spans.map(|span| span.field(buffer))
    }

    /// Writes the names of the fields in lower case.
    pub fn lower_names(&self, buffer: &mut [u8]) {
        for span in &self.spans {
            span.lower_name(buffer);
        }
    }

    /// Moves the fields into `list`, in place of what it has. Their names are in lower case, and
    /// `buffer` is shared.
    pub fn move_fields(&mut self, buffer: Bytes, list: &mut FieldList) {
        list.begin(buffer, &mut self.spans, self.set);
    }
}

impl RequestHead {
    /// Reads the head that `buffer` begins with. Returns its length once it is whole: the body
    /// begins there. Before, the caller reads more behind the same bytes, and calls again.
    ///
    /// # Errors
    ///
    /// What is no head, is ambiguous or is beyond `limits`. Nothing that follows on the connection
    /// can be trusted.
    pub fn parse(&mut self, buffer: &[u8], limits: HeadLimits) -> Result<Option<usize>, HeadError> {
        let length = self.read(buffer, limits)?;
        if length.is_some() {
            self.framing = framing::of_request(self.framing_fields(buffer), self.version)?;
        }
        Ok(length)
    }

    /// Returns the method, a token.
    pub fn method<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        part(buffer, self.line.method.start, self.line.method.length)
    }

    /// Returns the target as received: UTF-8 without blanks and control characters, at most
    /// [`MAX_TARGET`](super::MAX_TARGET) bytes. Its form is not checked.
    pub fn target<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        part(buffer, self.line.target.start, self.line.target.length)
    }
}

impl ResponseHead {
    /// Reads the head that `buffer` begins with, which answers a request of kind `request`; see
    /// [`RequestHead::parse`]. An interim response ends with its head, and another head follows.
    ///
    /// # Errors
    ///
    /// See [`RequestHead::parse`].
    pub fn parse(
        &mut self,
        buffer: &[u8],
        limits: HeadLimits,
        request: RequestKind,
    ) -> Result<Option<usize>, HeadError> {
        let length = self.read(buffer, limits)?;
        if length.is_some() {
            let fields = self.framing_fields(buffer);
            let status = self.line.status;
            self.framing = framing::of_response(fields, self.version, status, request)?;
        }
        Ok(length)
    }

    /// Returns the status.
    pub fn status(&self) -> StatusCode {
        self.line.status
    }

    /// Returns the reason phrase: empty if there is none, or if it is not ASCII.
    pub fn reason<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        part(buffer, self.line.reason.start, self.line.reason.length)
    }
}

#[expect(private_bounds, reason = "there is no third kind of line")]
impl<Line: FirstLine> Head<Line> {
    fn read(&mut self, buffer: &[u8], limits: HeadLimits) -> Result<Option<usize>, HeadError> {
        let window = &buffer[..buffer.len().min(limits.bytes)];
        let start = skip_empty_lines(window).ok_or(HeadError::EmptyLines)?;
        let mut whole = None;
        if self.pieces.advance(window, start) {
            whole = self.read_window(window, start, limits)?;
        }
        if whole.is_some() {
            self.pieces = Pieces::default();
        } else if window.len() == limits.bytes {
            let has_line = window[start..].contains(&b'\n');
            return Err(if has_line { HeadError::TooLarge } else { Line::TOO_LONG });
        }
        Ok(whole)
    }

    fn read_window(
        &mut self,
        window: &[u8],
        start: usize,
        limits: HeadLimits,
    ) -> Result<Option<usize>, HeadError> {
        let mut slots = [const { MaybeUninit::uninit() }; STACK_FIELDS];
        let read = Line::read(window, &mut slots[..limits.fields.min(STACK_FIELDS)]);
        let read = match read {
            Err(HeadError::TooManyFields) if limits.fields > STACK_FIELDS => {
                let mut slots = vec![MaybeUninit::uninit(); limits.fields];
                Line::read(window, &mut slots).and_then(|parsed| self.keep(parsed, window))
            }
            read => read.and_then(|parsed| self.keep(parsed, window)),
        };
        read.or_else(|error| judge::<Line>(&window[start..], error))
    }

    /// Keeps the places of what was read. Returns the length of the head.
    fn keep(
        &mut self,
        parsed: Option<Parsed<'_, '_, Line>>,
        window: &[u8],
    ) -> Result<Option<usize>, HeadError> {
        let Some(parsed) = parsed else { return Ok(None) };
        self.line = parsed.line;
        self.version = parsed.version;
        self.set = keep_fields(parsed.fields, window, &mut self.spans)?;
        Ok(Some(parsed.length))
    }
}
