//! Heads of requests and responses: from bytes to places in the buffer.
//!
//! `httparse` reads the grammar. This module bounds it, gives the reason why a head is rejected, and
//! lets [`framing`] judge where the body ends. A head is judged by its first line as soon as
//! that is whole, and by its fields when all of them are there, so that the outcome does not
//! depend on how the bytes were cut into pieces.

use super::{
    error::HeadError,
    field_set::{FieldKind, FieldSet},
    fields::{Field, FieldSpan, Fields, Lines, Span, keep_fields, part},
    framing::{self, Framing, RequestKind},
    list::FieldList,
};
use bytes::Bytes;
use core::mem::MaybeUninit;
use http::{StatusCode, Version};
use httparse::{Header, ParserConfig, Status};

/// The fields for which no memory is allocated while a head is read.
const STACK_FIELDS: usize = 100;

/// The bounds of a head.
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

    /// Returns the framing of the body.
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
    /// The bytes are no head, are ambiguous or are beyond `limits`. Nothing that follows on the
    /// connection can be trusted.
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
    /// `MAX_TARGET` bytes. Its form is not checked.
    pub fn target<'a>(&self, buffer: &'a [u8]) -> &'a [u8] {
        part(buffer, self.line.target.start, self.line.target.length)
    }
}

impl ResponseHead {
    /// Reads the head that `buffer` begins with, of a response to a request of kind `request`; see
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

/// The longest target, 65,534 bytes: what [`http::Uri`] holds.
pub const MAX_TARGET: usize = u16::MAX as usize - 1;

/// The first line of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestLine {
    method: Span,
    target: Span,
}

/// The first line of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusLine {
    status: StatusCode,
    reason: Span,
}

/// A head as `httparse` reads it.
struct Parsed<'fields, 'buffer, Line> {
    line: Line,
    version: Version,
    length: usize,
    fields: &'fields [Header<'buffer>],
}

/// Memory that `httparse` puts fields into.
type Slots<'buffer> = [MaybeUninit<Header<'buffer>>];

/// The differences between requests and responses.
trait FirstLine: Sized {
    /// Reads a head. Returns `None` if `buffer` ends before it does.
    fn read<'fields, 'buffer>(
        buffer: &'buffer [u8],
        slots: &'fields mut Slots<'buffer>,
    ) -> Result<Option<Parsed<'fields, 'buffer, Self>>, HeadError>;

    /// The error for a line that does not end within the limit.
    const TOO_LONG: HeadError;

    /// Returns an error if no line begins with `byte`.
    fn check_first(byte: u8) -> Result<(), HeadError>;

    /// Returns the version as written in `line`, which may be no version at all.
    fn version_in(line: &[u8]) -> &[u8];
}

impl FirstLine for RequestLine {
    const TOO_LONG: HeadError = HeadError::TargetTooLong;

    fn read<'fields, 'buffer>(
        buffer: &'buffer [u8],
        slots: &'fields mut Slots<'buffer>,
    ) -> Result<Option<Parsed<'fields, 'buffer, Self>>, HeadError> {
        let mut request = httparse::Request::new(&mut []);
        let status = request.parse_with_uninit_headers(buffer, slots);
        let wrong = if request.method.is_none() { HeadError::Method } else { HeadError::Target };
        let Status::Complete(length) = status.map_err(|error| HeadError::of(error, wrong))? else {
            return Ok(None);
        };

        let [method, target] = [request.method, request.path]
            .map(|part| Span::of(part.unwrap_or_default().as_bytes(), buffer));
        if target.length as usize > MAX_TARGET {
            return Err(HeadError::TargetTooLong);
        }
        let version = version(request.version);
        let line = Self { method, target };
        Ok(Some(Parsed { line, version, length, fields: request.headers }))
    }

    fn check_first(byte: u8) -> Result<(), HeadError> {
        let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        if is_token { Ok(()) } else { Err(HeadError::Method) }
    }

    fn version_in(line: &[u8]) -> &[u8] {
        line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default()
    }
}

impl FirstLine for StatusLine {
    const TOO_LONG: HeadError = HeadError::TooLarge;

    fn read<'fields, 'buffer>(
        buffer: &'buffer [u8],
        slots: &'fields mut Slots<'buffer>,
    ) -> Result<Option<Parsed<'fields, 'buffer, Self>>, HeadError> {
        let mut response = httparse::Response::new(&mut []);
        let status = ParserConfig::default().parse_response_with_uninit_headers(
            &mut response,
            buffer,
            slots,
        );
        let status = status.map_err(|error| HeadError::of(error, HeadError::Status))?;
        if let Some(code) = response.code
            && code < 100
        {
            return Err(HeadError::Status);
        }

        let Status::Complete(length) = status else { return Ok(None) };
        let code = response.code.unwrap_or_default();
        let status = StatusCode::from_u16(code).map_err(|_| HeadError::Status)?;
        // An empty one may be a constant of httparse's instead of a part of the buffer.
        let reason = response.reason.filter(|reason| !reason.is_empty());
        let reason = reason.map(|reason| Span::of(reason.as_bytes(), buffer));

        let version = version(response.version);
        let line = Self { status, reason: reason.unwrap_or_default() };
        Ok(Some(Parsed { line, version, length, fields: response.headers }))
    }

    fn check_first(byte: u8) -> Result<(), HeadError> {
        if byte == b'H' { Ok(()) } else { Err(HeadError::Version) }
    }

    fn version_in(line: &[u8]) -> &[u8] {
        line.split(|byte| *byte == b' ').next().unwrap_or_default()
    }
}

fn version(minor: Option<u8>) -> Version {
    if minor == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 }
}

/// Decides whether an error counts already: the first line must be whole, and for an error in the
/// fields the head. `head` begins with the first line.
fn judge<Line: FirstLine>(head: &[u8], error: HeadError) -> Result<Option<usize>, HeadError> {
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        return match head.first() {
            // The beginning of an empty line.
            Some(b'\r') if head.len() == 1 => Ok(None),
            Some(b'\r') => Err(HeadError::LineEnd),
            Some(byte) => Line::check_first(*byte).map(|()| None),
            None => Ok(None),
        };
    };

    let line = &head[..=end];
    match Line::read(line, &mut []) {
        Err(HeadError::Version) if is_version(Line::version_in(line.trim_ascii_end())) => {
            Err(HeadError::UnknownVersion)
        }
        // As in HTTP/0.9.
        Err(HeadError::Target) if Line::version_in(line.trim_ascii_end()).is_empty() => {
            Err(HeadError::Version)
        }
        Err(error) => Err(error),
        Ok(_) if has_empty_line(head) => Err(error),
        Ok(_) => Ok(None),
    }
}

/// Returns whether `text` is a version (RFC 9112, 2.3).
fn is_version(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    matches!(text, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if digits(&[*major, *minor]))
}

/// The most empty lines before a head: a client that ends a body with one more than it declared is
/// common (RFC 9112, 2.2).
pub const MAX_EMPTY_LINES: usize = 2;

/// The progress of a head that comes in pieces.
///
/// A client may send its head byte by byte. To read it from the start after each byte would cost
/// the square of its length.
#[derive(Clone, Copy, Debug, Default)]
struct Pieces {
    seen: usize,
    has_first_line: bool,
}

impl Pieces {
    /// Notes that `window` is what there is of the head, whose first line begins at `start`.
    /// Returns whether to read it: it has the beginning of the first line, its end, or the end of
    /// the head since the last piece.
    fn advance(&mut self, window: &[u8], start: usize) -> bool {
        // A CR alone may be the beginning of an empty line.
        let is_beginning = self.seen <= start + 1;
        // The end of the head may have begun in the piece before.
        let from = self.seen.saturating_sub(2).max(start);
        self.seen = window.len();
        if is_beginning {
            return true;
        }

        let new = window.get(from..).unwrap_or_default();
        let ends_first_line = !self.has_first_line && new.contains(&b'\n');
        self.has_first_line |= ends_first_line;
        ends_first_line || has_empty_line(new)
    }
}

/// Returns whether an empty line follows a line that ends in `bytes`.
fn has_empty_line(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').skip(1).peekable();
    while let Some(line) = lines.next() {
        // The last part is no whole line.
        if matches!(line, b"" | b"\r") && lines.peek().is_some() {
            return true;
        }
    }
    false
}

/// Returns where the first line begins that is not empty, or `None` if there are more than
/// [`MAX_EMPTY_LINES`] before it.
fn skip_empty_lines(window: &[u8]) -> Option<usize> {
    let mut rest = window;
    for _ in 0..=MAX_EMPTY_LINES {
        match rest {
            [b'\n', more @ ..] | [b'\r', b'\n', more @ ..] => rest = more,
            _ => return Some(window.len() - rest.len()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_is_found_however_lines_end() {
        for (bytes, expected) in [
            ("a\r\n\r\n", true),
            ("a\n\n", true),
            ("a\r\n\n", true),
            ("a\n\r\nb", true),
            ("\n\n", true),
            ("a\r\n", false),
            ("a\r\n\r", false),
            ("a\n\rb\n", false),
            ("\r\n", false),
            ("", false),
        ] {
            assert_eq!(has_empty_line(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_head_is_read_a_few_times_at_most() {
        let head = b"\r\nGET / HTTP/1.1\r\na: b\r\nc: d\r\n\r\n";
        let mut pieces = Pieces::default();
        let reads: Vec<usize> =
            (1..=head.len()).filter(|end| pieces.advance(&head[..*end], 2)).collect();
        assert_eq!(reads, [1, 2, 3, 4, 18, head.len()]);
    }

    #[test]
    fn two_empty_lines_may_come_first() {
        for (bytes, expected) in [
            ("", Some(0)),
            ("G", Some(0)),
            ("\r\nG", Some(2)),
            ("\n\r\n", Some(3)),
            ("\n\n\r", Some(2)),
            ("\n\n\n", None),
            ("\r\n\r\n\r\n", None),
            ("\rG", Some(0)),
        ] {
            assert_eq!(skip_empty_lines(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }
}
