//! First lines: what differs between requests and responses.

use super::{error::HeadError, pieces::has_empty_line, spans::Span};
use core::mem::MaybeUninit;
use http::{StatusCode, Version};
use httparse::{Header, ParserConfig, Status};

/// The longest target, 65,534 bytes: what [`http::Uri`] holds.
pub const MAX_TARGET: usize = u16::MAX as usize - 1;

/// The first line of a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestLine {
    pub(super) method: Span,
    pub(super) target: Span,
}

/// The first line of a response.
#[derive(Clone, Copy, Debug, Default)]
pub struct StatusLine {
    pub(super) status: StatusCode,
    pub(super) reason: Span,
}

/// What `httparse` reads of a head.
pub(super) struct Parsed<'fields, 'buffer, Line> {
    pub(super) line: Line,
    pub(super) version: Version,
    pub(super) length: usize,
    pub(super) fields: &'fields [Header<'buffer>],
}

/// Memory that `httparse` puts fields into.
pub(super) type Slots<'buffer> = [MaybeUninit<Header<'buffer>>];

/// What differs between requests and responses.
pub(super) trait FirstLine: Sized {
    /// Reads a head. Returns `None` if `buffer` ends before it does.
    fn read<'fields, 'buffer>(
        buffer: &'buffer [u8],
        slots: &'fields mut Slots<'buffer>,
    ) -> Result<Option<Parsed<'fields, 'buffer, Self>>, HeadError>;

    /// What is wrong with a line that does not end within the limit.
    const TOO_LONG: HeadError;

    /// Returns why no line begins with `byte`, if none does.
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

/// Decides whether an error is one already: the first line must be whole, and for the fields the
/// head. `head` begins with the first line.
pub(super) fn judge<Line: FirstLine>(
    head: &[u8],
    error: HeadError,
) -> Result<Option<usize>, HeadError> {
    let Some(end) = head.iter().position(|byte| *byte == b'\n') else {
        return match head.first() {
            // Of an empty line that has not ended.
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

/// RFC 9112, 2.3.
fn is_version(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
    matches!(text, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if digits(&[*major, *minor]))
}
