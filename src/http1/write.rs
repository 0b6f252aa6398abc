//! Writes heads and trailers: lines that came, and those that flowgate adds.
//!
//! Lines that need no change are copied together. Their names keep the case that they came in.

use super::{
    field_set::FieldKind,
    fields::{Field, FieldSpan, Fields, Lines},
    framing::{LengthField, MAX_CONNECTION_OPTIONS, trim},
};
use core::ops::Range;
use http::{
    HeaderName, HeaderValue, Method, StatusCode,
    header::{CONNECTION, CONTENT_LENGTH, COOKIE, FORWARDED, HOST, TRANSFER_ENCODING},
};
use smallvec::SmallVec;

/// Fields that `Connection` cannot remove: recipients at the end rely on them (RFC 9110, 7.6.1).
const PROTECTED: [HeaderName; 7] = [
    HOST,
    CONTENT_LENGTH,
    COOKIE,
    FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
];

/// Options of `Connection` that name no field.
const PLAIN_OPTIONS: [&str; 3] = ["close", "keep-alive", ""];

/// Writes one head to the end of a buffer.
#[derive(Debug)]
#[must_use = "a head needs its end"]
pub struct HeadWriter<'a> {
    out: &'a mut Vec<u8>,
    is_titled: bool,
}

impl<'a> HeadWriter<'a> {
    /// Begins a request. `target` is one that was parsed, or a valid one: it has no blanks and no
    /// control characters.
    pub fn request(out: &'a mut Vec<u8>, method: &Method, target: &[u8]) -> Self {
        debug_assert!(target.iter().all(|byte| *byte > b' ' && *byte != 0x7f), "it was parsed");
        out.extend_from_slice(method.as_str().as_bytes());
        out.extend_from_slice(b" ");
        out.extend_from_slice(target);
        out.extend_from_slice(b" HTTP/1.1\r\n");
        Self { out, is_titled: false }
    }

    /// Begins a response. `reason` is one that was parsed; `None` is the usual one for `status`.
    pub fn response(out: &'a mut Vec<u8>, status: StatusCode, reason: Option<&[u8]>) -> Self {
        let usual = status.canonical_reason().unwrap_or_default().as_bytes();
        let reason = reason.unwrap_or(usual);
        debug_assert!(reason.iter().all(|byte| *byte >= b' ' || *byte == b'\t'), "it was parsed");
        out.extend_from_slice(b"HTTP/1.1 ");
        out.extend_from_slice(status.as_str().as_bytes());
        out.extend_from_slice(b" ");
        out.extend_from_slice(reason);
        out.extend_from_slice(b"\r\n");
        Self { out, is_titled: false }
    }

    /// Writes the names of the fields that follow as in `Content-Type`, for recipients that depend on the
    /// case.
    pub fn titled(self, is_titled: bool) -> Self {
        Self { is_titled, ..self }
    }

    /// Copies the fields of the kinds for which `keeps` is true.
    pub fn copy_all(&mut self, fields: Fields<'_>, mut keeps: impl FnMut(FieldKind) -> bool) {
        match fields {
            Fields::Http1 { came, added, .. } => {
                self.copy_lines(came, |span| keeps(span.kind));
                self.copy_lines(added, |span| keeps(span.kind));
            }
            Fields::Map(_) => {
                let passing = fields.iter().filter(|field| keeps(field.kind));
                passing.for_each(|field| self.line(field.name, field.value));
            }
        }
    }

    /// Copies neighbouring lines together.
    fn copy_lines(&mut self, fields: Lines<'_>, mut passes: impl FnMut(&FieldSpan) -> bool) {
        let Lines { buffer, spans } = fields;
        let mut lines: Range<usize> = 0..0;
        for span in spans {
            if !passes(span) {
                continue;
            }
            let line = span.line();
            let is_whole = span.is_canonical && !self.is_titled;
            if is_whole && line.start == lines.end {
                lines.end = line.end;
                continue;
            }
            self.out.extend_from_slice(buffer.get(lines).unwrap_or_default());
            lines = if is_whole {
                line
            } else {
                let field = span.field(buffer);
                self.line(field.name, field.value);
                0..0
            };
        }
        self.out.extend_from_slice(buffer.get(lines).unwrap_or_default());
    }

    /// Adds a field.
    pub fn field(&mut self, name: &HeaderName, value: &HeaderValue) {
        self.line(name.as_str().as_bytes(), value.as_bytes());
    }

    /// Adds a field whose name and value are valid.
    pub fn valid_line(&mut self, name: &str, value: &[u8]) {
        self.line(name.as_bytes(), value);
    }

    /// Adds the field that says where the body ends.
    pub fn length(&mut self, length: LengthField) {
        match length {
            LengthField::None => {}
            LengthField::Chunked => self.line(TRANSFER_ENCODING.as_str().as_bytes(), b"chunked"),
            LengthField::ContentLength(length) => {
                let mut digits = itoa::Buffer::new();
                let digits = digits.format(length).as_bytes();
                self.line(CONTENT_LENGTH.as_str().as_bytes(), digits);
            }
        }
    }

    /// Adds `Connection: close`: no other message follows.
    pub fn close(&mut self) {
        self.connection(b"close");
    }

    /// Adds `Connection: keep-alive`, for a client of HTTP/1.0 that asked for it.
    pub fn keep_alive(&mut self) {
        self.connection(b"keep-alive");
    }

    fn connection(&mut self, option: &[u8]) {
        self.line(CONNECTION.as_str().as_bytes(), option);
    }

    fn line(&mut self, name: &[u8], value: &[u8]) {
        let start = self.out.len();
        write_line(self.out, name, value);
        if self.is_titled {
            title(&mut self.out[start..start + name.len()]);
        }
    }

    /// Ends the head.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

/// Appends a line to `out`.
pub(super) fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of a chunked body to `out`, with the trailers for which `keeps` is true. Hop-by-hop
/// fields, those that `Connection` names, `Host` and framing are no trailers (RFC 9110, 6.5.1).
pub fn trailers(fields: Fields<'_>, out: &mut Vec<u8>, mut keeps: impl FnMut(&Field<'_>) -> bool) {
    let named = named_by(fields);
    let is_named = |name: &[u8]| named.iter().any(|other| other.eq_ignore_ascii_case(name));
    out.extend_from_slice(b"0\r\n");
    let mut writer = HeadWriter { out, is_titled: false };
    for field in fields.iter() {
        if is_trailer(field.kind) && !is_named(field.name) && keeps(&field) {
            writer.line(field.name, field.value);
        }
    }
    writer.end();
}

/// Writes the first letter, and those behind hyphens, in upper case.
fn title(name: &mut [u8]) {
    let mut is_first = true;
    for byte in name {
        if is_first {
            byte.make_ascii_uppercase();
        }
        is_first = *byte == b'-';
    }
}

fn is_trailer(kind: FieldKind) -> bool {
    !matches!(kind, FieldKind::ContentLength | FieldKind::Host) && !kind.is_hop_by_hop()
}

/// Returns the options of `Connection` that name fields, and may.
fn named_by(fields: Fields<'_>) -> SmallVec<[&[u8]; 8]> {
    let mut named = SmallVec::new();
    fields.get_all(CONNECTION.as_str()).for_each(|list| add_named(list, &mut named));
    named
}

fn add_named<'a>(list: &'a [u8], named: &mut SmallVec<[&'a [u8]; 8]>) {
    for option in list.split(|byte| *byte == b',').map(trim) {
        let is = |known: &str| option.eq_ignore_ascii_case(known.as_bytes());
        let names_field = !PLAIN_OPTIONS.iter().any(|plain| is(plain))
            && !PROTECTED.iter().any(|name| is(name.as_str()));
        // Bounds the time that trailers take.
        if names_field && named.len() < MAX_CONNECTION_OPTIONS {
            named.push(option);
        }
    }
}
