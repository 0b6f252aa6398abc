//! The fields of a message, as routing, keys and rules ask for them: by name, whatever its case.
//!
//! An HTTP/1.1 head keeps its fields as places in the buffer that they came in, an HTTP/2 head has
//! them in a [`HeaderMap`]. [`Fields`] is the same view of both.

use super::{
    error::HeadError,
    field_set::{FieldKind, FieldSet},
    write::write_line,
};
use bytes::Bytes;
use core::{iter::Chain, ops::Range, slice};
use http::{
    HeaderMap, HeaderName, HeaderValue,
    header::{self, InvalidHeaderName},
};
use httparse::{Header, Status};

/// The place of a field in the buffer of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpan {
    pub(super) name: u32,
    pub(super) value: u32,
    pub(super) value_length: u32,
    pub(super) name_length: u16,
    pub(super) kind: FieldKind,
    /// True if its line is `name: value` and CRLF, as flowgate writes it: then it is copied whole.
    pub(super) is_canonical: bool,
    /// True if HTTP/2 may not compress it (RFC 7541, 7.1.3).
    pub(super) is_sensitive: bool,
}

impl FieldSpan {
    /// Returns the field in `buffer`, with empty parts where `buffer` is not the head's.
    pub(super) fn field(self, buffer: &[u8]) -> Field<'_> {
        let name = part(buffer, self.name, u32::from(self.name_length));
        let value = part(buffer, self.value, self.value_length);
        Field { name, value, kind: self.kind }
    }

    /// Writes its name in lower case.
    pub(super) fn lower_name(self, buffer: &mut [u8]) {
        let start = self.name as usize;
        let length = usize::from(self.name_length);
        let behind = buffer.get_mut(start..).unwrap_or_default();
        match behind.first_chunk_mut() {
            Some(chunk) if length <= SHORT_NAME => lower_first(chunk, length),
            _ => behind.iter_mut().take(length).for_each(u8::make_ascii_lowercase),
        }
    }

    /// Returns it for a buffer that has `more` bytes before those of its own.
    pub(super) fn behind(self, more: u32) -> Self {
        Self { name: self.name + more, value: self.value + more, ..self }
    }

    /// Returns where its line is, with CRLF, if it is canonical.
    pub(super) fn line(self) -> Range<usize> {
        self.name as usize..self.value as usize + self.value_length as usize + 2
    }

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

/// Most names are no longer.
const SHORT_NAME: usize = 16;

/// Writes the first `length` bytes in lower case, all with one instruction.
fn lower_first(bytes: &mut [u8; SHORT_NAME], length: usize) {
    let length = u8::try_from(length).unwrap_or(u8::MAX);
    for (place, byte) in (0..).zip(bytes) {
        // Without a branch, so that the compiler makes vector instructions of the loop.
        let is_upper = u8::from(byte.is_ascii_uppercase()) & u8::from(place < length);
        *byte |= is_upper << 5;
    }
}

/// Returns `length` bytes of `buffer` from `start`, or none if there are fewer.
pub(super) fn part(buffer: &[u8], start: u32, length: u32) -> &[u8] {
    let start = start as usize;
    buffer.get(start..start + length as usize).unwrap_or_default()
}

/// Returns a value as text, if it is ASCII.
pub fn text(value: &[u8]) -> Option<&str> {
    str::from_utf8(value).ok().filter(|text| text.is_ascii())
}

/// One field of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field<'a> {
    /// The name as received: a token in any case.
    pub name: &'a [u8],
    /// The value without blanks around it. It has no control character but HTAB.
    pub value: &'a [u8],
    /// Its meaning to framing and to a proxy.
    pub kind: FieldKind,
}

impl<'a> Field<'a> {
    fn new(name: &'a HeaderName, value: &'a HeaderValue) -> Self {
        let name = name.as_str().as_bytes();
        Self { name, value: value.as_bytes(), kind: FieldKind::of(name) }
    }

    /// Returns its value if it is called `name`, in any case.
    pub(super) fn value_of(&self, name: &str) -> Option<&'a [u8]> {
        let name = name.as_bytes();
        // Most are in lower case on both sides.
        let is_same = self.name.len() == name.len()
            && (self.name == name || self.name.eq_ignore_ascii_case(name));
        is_same.then_some(self.value)
    }
}

/// Fields as places in one buffer.
#[derive(Clone, Copy, Debug)]
pub struct Lines<'a> {
    pub(super) buffer: &'a [u8],
    pub(super) spans: &'a [FieldSpan],
}

impl<'a> Lines<'a> {
    pub(super) const NONE: Self = Self { buffer: &[], spans: &[] };

    fn iter(self) -> LinesIter<'a> {
        LinesIter { buffer: self.buffer, spans: self.spans.iter() }
    }
}

struct LinesIter<'a> {
    buffer: &'a [u8],
    spans: slice::Iter<'a, FieldSpan>,
}

impl<'a> Iterator for LinesIter<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        self.spans.next().map(|span| span.field(self.buffer))
    }
}

impl DoubleEndedIterator for LinesIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.spans.next_back().map(|span| span.field(self.buffer))
    }
}

/// A view of the fields of a message.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'a> {
    /// Of an HTTP/1.1 head or its trailers.
    Http1 {
        /// Those that came.
        came: Lines<'a>,
        /// Others behind them.
        added: Lines<'a>,
        /// The set of both.
        set: FieldSet,
    },
    /// Of an HTTP/2 message.
    Map(&'a HeaderMap),
}

impl<'a> Fields<'a> {
    /// Returns the value of the first field with this name, in any case.
    pub fn get(self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// Returns the value of the only field with this name, in any case; `None` if there are several.
    #[inline]
    pub fn get_only(self, name: &str) -> Option<&'a [u8]> {
        if let Self::Http1 { set, .. } = self
            && !set.may_have(name)
        {
            return None;
        }
        self.find_only(name)
    }

    fn find_only(self, name: &str) -> Option<&'a [u8]> {
        let mut values = self.get_all(name);
        values.next().filter(|_| values.next().is_none())
    }

    /// Returns the values of all fields with this name, in any case, in the order of their lines.
    pub fn get_all<'n>(
        self,
        name: &'n str,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a, 'n> {
        match self {
            Self::Http1 { set, .. } if !set.may_have(name) => {
                Values::Http1(Lines::NONE.iter().chain(Lines::NONE.iter()), name)
            }
            Self::Http1 { came, added, .. } => Values::Http1(came.iter().chain(added.iter()), name),
            Self::Map(map) => Values::Map(map.get_all(name).iter()),
        }
    }

    /// Returns all fields: of HTTP/1.1 in the order of their lines, of HTTP/2 with equal names
    /// together.
    pub fn iter(self) -> impl Iterator<Item = Field<'a>> {
        match self {
            Self::Http1 { came, added, .. } => Iter::Http1(came.iter().chain(added.iter())),
            Self::Map(map) => Iter::Map(map.iter()),
        }
    }

    /// Returns the number of lines.
    pub fn len(self) -> usize {
        match self {
            Self::Http1 { came, added, .. } => came.spans.len() + added.spans.len(),
            Self::Map(map) => map.len(),
        }
    }

    /// Returns whether there is no field.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

impl<'a> From<&'a HeaderMap> for Fields<'a> {
    fn from(map: &'a HeaderMap) -> Self {
        Self::Map(map)
    }
}

/// The values of the fields with one name.
enum Values<'a, 'n> {
    Http1(Chain<LinesIter<'a>, LinesIter<'a>>, &'n str),
    Map(header::ValueIter<'a, HeaderValue>),
}

impl<'a> Iterator for Values<'a, '_> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Http1(fields, name) => fields.find_map(|field| field.value_of(name)),
            Self::Map(values) => values.next().map(HeaderValue::as_bytes),
        }
    }
}

impl DoubleEndedIterator for Values<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Http1(fields, name) => fields.rev().find_map(|field| field.value_of(name)),
            Self::Map(values) => values.next_back().map(HeaderValue::as_bytes),
        }
    }
}

/// The fields of either kind of message.
enum Iter<'a> {
    Http1(Chain<LinesIter<'a>, LinesIter<'a>>),
    Map(header::Iter<'a, HeaderValue>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        match self {
            Self::Http1(fields) => fields.next(),
            Self::Map(map) => map.next().map(|(name, value)| Field::new(name, value)),
        }
    }
}

/// Names that flowgate writes, which need no memory of their own.
static OWN_NAMES: [HeaderName; 3] = [
    HeaderName::from_static("ratelimit"),
    HeaderName::from_static("ratelimit-policy"),
    HeaderName::from_static("x-request-id"),
];

fn name_of(name: &[u8]) -> Result<HeaderName, InvalidHeaderName> {
    let own = OWN_NAMES.iter().find(|own| own.as_str().as_bytes() == name);
    own.map_or_else(|| HeaderName::from_bytes(name), |own| Ok(own.clone()))
}

/// Appends the fields at `spans` of `buffer` to `map`, for parts that speak [`HeaderMap`]. The
/// values share `buffer`.
pub(super) fn append_to_map<'a>(
    spans: impl Iterator<Item = &'a FieldSpan>,
    buffer: &Bytes,
    map: &mut HeaderMap,
) {
    for span in spans {
        let value = span.value as usize..(span.value + span.value_length) as usize;
        // Both are valid by how they were parsed, unless `buffer` is not the head's.
        if let Ok(name) = name_of(span.field(buffer).name)
            && value.end <= buffer.len()
            && let Ok(mut value) = HeaderValue::from_maybe_shared(buffer.slice(value))
        {
            value.set_sensitive(span.is_sensitive);
            map.append(name, value);
        }
    }
}

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

/// Converts a place to 32 bits, which are enough: a head has a megabyte at most.
pub(super) fn to_u32(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(u32::MAX)
}

/// Reads whole lines of fields, and the empty line that ends them, into `spans`. Returns their set.
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

/// Keeps the places of `fields` in `buffer`. Returns their set.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_lowered_and_nothing_beside_it() {
        let text = "X-AbC-\u{c4}Z[`{@^~1234567890Z: Value".as_bytes();
        let token = b"ABCXYZ-`@[{abcxyz0189^_~!ABCXYZ";
        for behind in [text, b": ", b""] {
            for length in 0..=token.len() {
                let buffer = [b"A", &token[..length], behind].concat();
                let mut lowered = buffer.clone();
                let span = FieldSpan {
                    name: 1,
                    value: 0,
                    value_length: 0,
                    name_length: u16::try_from(length).unwrap(),
                    kind: FieldKind::EndToEnd,
                    is_canonical: false,
                    is_sensitive: false,
                };
                span.lower_name(&mut lowered);
                let expected = [b"A", &*token[..length].to_ascii_lowercase(), behind].concat();
                assert_eq!(lowered, expected);
            }
        }
    }
}
