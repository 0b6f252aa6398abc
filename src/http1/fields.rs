//! The fields of a message, as routing, keys and rules ask for them: by name, whatever its case.
//!
//! An HTTP/1.1 head keeps its fields as places in the buffer that they came in, an HTTP/2 head has
//! them in a [`HeaderMap`]. [`Fields`] is the same view of both.

use bytes::Bytes;
use core::{ops::Range, slice};
use http::{HeaderMap, HeaderName, HeaderValue, header};

/// What a field means to framing and to a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// `Host`.
    Host,
    /// `Content-Length`.
    ContentLength,
    /// `Transfer-Encoding`.
    TransferEncoding,
    /// `Connection`.
    Connection,
    /// Another field for the next neighbour only: `Keep-Alive`, `Proxy-Connection`, `TE`,
    /// `Upgrade`, `HTTP2-Settings`, `Proxy-Authenticate`, `Proxy-Authorization`.
    HopByHop,
    /// A field for the recipient at the end.
    EndToEnd,
}

impl FieldKind {
    /// Returns the kind of the field `name`, in any case.
    pub fn of(name: &[u8]) -> Self {
        let Some(first) = name.first() else { return Self::EndToEnd };
        // Two bytes tell nearly all other names apart.
        let (known, kind) = match (name.len(), first.to_ascii_lowercase()) {
            (2, b't') => ("te", Self::HopByHop),
            (4, b'h') => ("host", Self::Host),
            (7, b'u') => ("upgrade", Self::HopByHop),
            (10, b'c') => ("connection", Self::Connection),
            (10, b'k') => ("keep-alive", Self::HopByHop),
            (14, b'c') => ("content-length", Self::ContentLength),
            (14, b'h') => ("http2-settings", Self::HopByHop),
            (16, b'p') => ("proxy-connection", Self::HopByHop),
            (17, b't') => ("transfer-encoding", Self::TransferEncoding),
            (18, b'p') => ("proxy-authenticate", Self::HopByHop),
            (19, b'p') => ("proxy-authorization", Self::HopByHop),
            _ => return Self::EndToEnd,
        };
        if name.eq_ignore_ascii_case(known.as_bytes()) { kind } else { Self::EndToEnd }
    }
}

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

/// A view of the fields of a message.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'a> {
    /// Of an HTTP/1.1 head or its trailers.
    Http1 {
        /// The buffer that they came in.
        buffer: &'a [u8],
        /// Where they are.
        spans: &'a [FieldSpan],
    },
    /// Of an HTTP/2 message.
    Map(&'a HeaderMap),
}

impl<'a> Fields<'a> {
    /// Returns the value of the first field with this name.
    pub fn get(self, name: &HeaderName) -> Option<&'a [u8]> {
        match self {
            Self::Http1 { .. } => self.get_all(name).next(),
            Self::Map(map) => map.get(name).map(HeaderValue::as_bytes),
        }
    }

    /// Returns the values of all fields with this name, in the order of their lines.
    pub fn get_all(self, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
        let name = name.as_str().as_bytes();
        let fields = self.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        fields.map(|field| field.value)
    }

    /// Returns all fields: of HTTP/1.1 in the order of their lines, of HTTP/2 with equal names
    /// together.
    pub fn iter(self) -> impl Iterator<Item = Field<'a>> {
        match self {
            Self::Http1 { buffer, spans } => Iter::Http1 { buffer, spans: spans.iter() },
            Self::Map(map) => Iter::Map(map.iter()),
        }
    }

    /// Returns how many lines there are.
    pub fn len(self) -> usize {
        match self {
            Self::Http1 { spans, .. } => spans.len(),
            Self::Map(map) => map.len(),
        }
    }

    /// Returns whether there is no field.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }
}

/// The fields of either kind of message.
enum Iter<'a> {
    Http1 { buffer: &'a [u8], spans: slice::Iter<'a, FieldSpan> },
    Map(header::Iter<'a, HeaderValue>),
}

impl<'a> Iterator for Iter<'a> {
    type Item = Field<'a>;

    fn next(&mut self) -> Option<Field<'a>> {
        match self {
            Self::Http1 { buffer, spans } => spans.next().map(|span| span.field(buffer)),
            Self::Map(map) => map.next().map(|(name, value)| {
                let name = name.as_str().as_bytes();
                Field { name, value: value.as_bytes(), kind: FieldKind::of(name) }
            }),
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
