//! From `httparse`'s slices to places in the buffer.

use super::{
    error::HeadError, field_kind::FieldKind, field_set::FieldSet, fields::FieldSpan,
    write::write_line,
};
use http::{HeaderName, HeaderValue};
use httparse::{Header, Status};

/// A part of a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) length: u32,
}

impl Span {
    /// Returns where `part`, a slice of `buffer`, is in it.
    pub(super) fn of(part: &[u8], buffer: &[u8]) -> Self {
        let start = part.as_ptr().addr().saturating_sub(buffer.as_ptr().addr());
        Self { start: to_u32(start), length: to_u32(part.len()) }
    }
}

/// Places are counted in 32 bits: a head has a megabyte at most.
pub(super) fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// Reads whole lines of fields, and the empty line that ends them, into `spans`. Returns which there
/// are.
pub(super) fn read_fields(
    lines: &[u8],
    most: usize,
    spans: &mut Vec<FieldSpan>,
) -> Result<FieldSet, HeadError> {
    let count = lines.split(|byte| *byte == b'\n').count().saturating_sub(2);
    if count > most {
        return Err(HeadError::TooManyFields);
    }
    let mut slots = vec![httparse::EMPTY_HEADER; count];
    let read = httparse::parse_headers(lines, &mut slots);
    match read.map_err(|error| HeadError::of(error, HeadError::FieldName))? {
        Status::Complete((_, fields)) => keep_fields(fields, lines, spans),
        Status::Partial => Err(HeadError::LineEnd),
    }
}

/// Keeps the places of `fields` in `buffer`. Returns which there are.
pub(super) fn keep_fields(
    fields: &[Header<'_>],
    buffer: &[u8],
    spans: &mut Vec<FieldSpan>,
) -> Result<FieldSet, HeadError> {
    spans.clear();
    spans.reserve(fields.len());
    let mut set = FieldSet::default();
    for field in fields {
        let span = FieldSpan::of(field, buffer).ok_or(HeadError::TooLarge)?;
        set.add(field.name.as_bytes(), field.value, span.kind);
        spans.push(span);
    }
    Ok(set)
}

impl FieldSpan {
    /// Appends a line to `lines`, and returns where it is.
    pub(super) fn of_line(lines: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) -> Self {
        let text = name.as_str().as_bytes();
        let start = to_u32(lines.len());
        write_line(lines, text, value.as_bytes());
        let name_length = u16::try_from(text.len()).unwrap_or(u16::MAX);
        Self {
            name: start,
            value: start + u32::from(name_length) + 2,
            value_length: to_u32(value.len()),
            name_length,
            kind: FieldKind::of(text),
            is_canonical: true,
            is_sensitive: value.is_sensitive(),
        }
    }

    /// Appends a line to `lines` whose value consists of `parts` and should be in no table of HTTP/2,
    /// and returns where it is.
    pub(super) fn of_parts(lines: &mut Vec<u8>, name: &HeaderName, parts: &[&[u8]]) -> Self {
        let text = name.as_str().as_bytes();
        let start = to_u32(lines.len());
        lines.extend_from_slice(text);
        lines.extend_from_slice(b": ");
        let value = lines.len();
        for part in parts {
            lines.extend_from_slice(part);
        }
        let is_valid = |byte: &u8| matches!(byte, b'\t' | b' '..=b'~' | 0x80..);
        debug_assert!(lines[value..].iter().all(is_valid), "no field has such a value");
        let value_length = to_u32(lines.len() - value);
        lines.extend_from_slice(b"\r\n");
        Self {
            name: start,
            value: to_u32(value),
            value_length,
            name_length: u16::try_from(text.len()).unwrap_or(u16::MAX),
            kind: FieldKind::of(text),
            is_canonical: true,
            is_sensitive: true,
        }
    }

    /// Leaves out blanks around its value.
    pub(super) fn trim(&mut self, buffer: &[u8]) {
        let value = self.field(buffer).value;
        let trimmed = value.trim_ascii();
        if trimmed.len() < value.len() {
            let Span { start, length } = Span::of(trimmed, buffer);
            self.value = start;
            self.value_length = length;
            self.is_canonical = false;
        }
    }

    /// Returns where `field` is in `buffer`, unless its name is too long to be one.
    fn of(field: &Header<'_>, buffer: &[u8]) -> Option<Self> {
        let name = Span::of(field.name.as_bytes(), buffer);
        let value = Span::of(field.value, buffer);
        let blank = (name.start + name.length) as usize + 1;
        let end = value.start as usize + value.length as usize;
        let is_canonical = value.start as usize == blank + 1
            && buffer.get(blank) == Some(&b' ')
            && buffer.get(end..end + 2) == Some(b"\r\n");
        Some(Self {
            name: name.start,
            value: value.start,
            value_length: value.length,
            name_length: u16::try_from(name.length).ok()?,
            kind: FieldKind::of(field.name.as_bytes()),
            is_canonical,
            is_sensitive: false,
        })
    }
}
