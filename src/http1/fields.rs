//! The fields of a message, as routing, keys and rules ask for them: by name, whatever its case.
//!
//! An HTTP/1.1 head keeps its fields as places in the buffer that they came in, an HTTP/2 head has
//! them in a [`HeaderMap`]. [`Fields`] is the same view of both.

use super::{field_kind::FieldKind, field_set::FieldSet};
use bytes::Bytes;
use core::{ops::Range, slice};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// Where a field is in the buffer of its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpan {
    pub(super) name: u32,
    pub(super) value: u32,
    pub(super) value_length: u32,
    pub(super) name_length: u16,
    pub(super) kind: FieldKind,
    /// Whether its line is `name: value` and CRLF, as flowgate writes it: then it is copied whole.
    pub(super) is_canonical: bool,
}

impl FieldSpan {
    /// Returns the field in `buffer`, with empty parts where `buffer` is not the head's.
    pub(super) fn field(self, buffer: &[u8]) -> Field<'_> {
        let name = part(buffer, self.name, u32::from(self.name_length));
        let value = part(buffer, self.value, self.value_length);
        Field { name, value, kind: self.kind }
    }

    /// Returns its value if it is called `name`, in any case.
    pub(super) fn value_of<'a>(self, name: &str, buffer: &'a [u8]) -> Option<&'a [u8]> {
        if usize::from(self.name_length) != name.len() {
            return None;
        }
        let field = self.field(buffer);
        let name = name.as_bytes();
        // Most are in lower case on both sides.
        let is_same = field.name == name || field.name.eq_ignore_ascii_case(name);
        is_same.then_some(field.value)
    }

    /// Returns where its line is, with CRLF, if it is canonical.
    pub(super) fn line(self) -> Range<usize> {
        self.name as usize..self.value as usize + self.value_length as usize + 2
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
    /// What it means to framing and to a proxy.
    pub kind: FieldKind,
}

impl<'a> Field<'a> {
    fn new(name: &'a HeaderName, value: &'a HeaderValue) -> Self {
        let name = name.as_str().as_bytes();
        Self { name, value: value.as_bytes(), kind: FieldKind::of(name) }
    }
}

/// A view of the fields of a message.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'a> {
    /// Of an HTTP/1.1 head or its trailers.
    Http1 {
        /// The buffer that they came in.
        buffer: &'a [u8],
        /// Where they are.
        spans: &'a [FieldSpan],
        /// Others behind them.
        added: &'a [(HeaderName, HeaderValue)],
        /// Which of both there are.
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
    pub fn get_only(self, name: &str) -> Option<&'a [u8]> {
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
                Values::Http1 { buffer: &[], spans: [].iter(), added: [].iter(), name }
            }
            Self::Http1 { buffer, spans, added, .. } => {
                Values::Http1 { buffer, spans: spans.iter(), added: added.iter(), name }
            }
            Self::Map(map) => Values::Map(map.get_all(name).iter()),
        }
    }

    /// Returns all fields: of HTTP/1.1 in the order of their lines, of HTTP/2 with equal names
    /// together.
    pub fn iter(self) -> impl Iterator<Item = Field<'a>> {
        match self {
            Self::Http1 { buffer, spans, added, .. } => {
                Iter::Http1 { buffer, spans: spans.iter(), added: added.iter() }
            }
            Self::Map(map) => Iter::Map(map.iter()),
        }
    }

    /// Returns how many lines there are.
    pub fn len(self) -> usize {
        match self {
            Self::Http1 { spans, added, .. } => spans.len() + added.len(),
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
    Http1 {
        buffer: &'a [u8],
        spans: slice::Iter<'a, FieldSpan>,
        added: slice::Iter<'a, (HeaderName, HeaderValue)>,
        name: &'n str,
    },
    Map(header::ValueIter<'a, HeaderValue>),
}

impl<'a> Iterator for Values<'a, '_> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        match self {
            Self::Http1 { buffer, spans, added, name } => spans
                .find_map(|span| span.value_of(name, buffer))
                .or_else(|| added.find_map(|field| added_value(field, name))),
            Self::Map(values) => values.next().map(HeaderValue::as_bytes),
        }
    }
}

impl DoubleEndedIterator for Values<'_, '_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self {
            Self::Http1 { buffer, spans, added, name } => {
                let added = added.rev().find_map(|field| added_value(field, name));
                added.or_else(|| spans.rev().find_map(|span| span.value_of(name, buffer)))
            }
            Self::Map(values) => values.next_back().map(HeaderValue::as_bytes),
        }
    }
}

/// Returns the value of a field that is called `name`, in any case.
fn added_value<'a>((own, value): &'a (HeaderName, HeaderValue), name: &str) -> Option<&'a [u8]> {
    own.as_str().eq_ignore_ascii_case(name).then(|| value.as_bytes())
}

/// The fields of either kind of message.
enum Iter<'a> {
    Http1 {
        buffer: &'a [u8],
        spans: slice::Iter<'a, FieldSpan>,
        added: slice::Iter<'a, (HeaderName, HeaderValue)>,
    },
    Map(header::Iter<'a, HeaderValue>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        match self {
            Self::Http1 { buffer, spans, added } => {
                let came = spans.next().map(|span| span.field(buffer));
                came.or_else(|| added.next().map(|(name, value)| Field::new(name, value)))
            }
            Self::Map(map) => map.next().map(|(name, value)| Field::new(name, value)),
        }
    }
}

/// Appends the fields at `spans` of `buffer` to `map`, for parts that speak [`HeaderMap`]. The
/// values share `buffer`.
pub(super) fn append_to_map(spans: &[FieldSpan], buffer: &Bytes, map: &mut HeaderMap) {
    map.reserve(spans.len());
    for span in spans {
        let value = span.value as usize..(span.value + span.value_length) as usize;
        // Both are valid by how they were parsed, unless `buffer` is not the head's.
        if let Ok(name) = HeaderName::from_bytes(span.field(buffer).name)
            && value.end <= buffer.len()
            && let Ok(value) = HeaderValue::from_maybe_shared(buffer.slice(value))
        {
            map.append(name, value);
        }
    }
}
