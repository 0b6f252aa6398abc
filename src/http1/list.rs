//! The fields of a message on its way through a proxy: those that came, without what was removed,
//! and those that were added.
//!
//! A list is searched from its beginning: a message has a few fields, each with a name of another
//! length, and what a hash costs is more. A message of HTTP/1.1 keeps its fields as places in its
//! buffer, so that neighbouring lines are written with one copy.

use super::{
    field_kind::FieldKind,
    field_set::FieldSet,
    fields::{Field, FieldSpan, Fields, append_to_map},
};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Fields that can be changed. Names are in lower case. An empty list keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct FieldList {
    /// What the spans are places in.
    buffer: Bytes,
    spans: Vec<FieldSpan>,
    added: Vec<(HeaderName, HeaderValue)>,
    set: FieldSet,
}

impl FieldList {
    /// Begins with the fields at `spans` of `buffer`, whose names are in lower case and in `set`.
    /// `spans` gets this list's memory.
    pub(super) fn begin(&mut self, buffer: Bytes, spans: &mut Vec<FieldSpan>, set: FieldSet) {
        self.clear();
        core::mem::swap(&mut self.spans, spans);
        self.buffer = buffer;
        self.set = set;
    }

    /// Adds a field that came with the message.
    fn begin_with(&mut self, name: HeaderName, value: HeaderValue) {
        let text = name.as_str().as_bytes();
        let bytes = value.as_bytes();
        self.set.add(text, bytes, FieldKind::of(text));
        if is_blank(bytes.first()) || is_blank(bytes.last()) {
            self.set.add_blanks();
        }
        self.added.push((name, value));
    }

    /// Returns which fields the message came with.
    pub fn set(&self) -> FieldSet {
        self.set
    }

    /// Returns the value of the first field called `name`.
    pub fn get(&self, name: &HeaderName) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// Returns the values of all fields called `name`, in the order of their lines.
    pub fn get_all(&self, name: &HeaderName) -> impl Iterator<Item = &[u8]> {
        Fields::from(self).get_all(name.as_str())
    }

    /// Returns the value of the first field called `name`, which shares the message's buffer.
    pub fn value(&self, name: &HeaderName) -> Option<HeaderValue> {
        if !self.set.may_have(name.as_str()) {
            return None;
        }
        let came = self.spans.iter().find_map(|span| span.value_of(name.as_str(), &self.buffer));
        if let Some(value) = came {
            // It is valid by how it was parsed.
            return HeaderValue::from_maybe_shared(self.buffer.slice_ref(value)).ok();
        }
        let added = self.added.iter().find(|(other, _)| other == name);
        added.map(|(_, value)| value.clone())
    }

    /// Returns whether there is a field called `name`.
    pub fn contains_key(&self, name: &HeaderName) -> bool {
        self.get(name).is_some()
    }

    /// Returns how many fields there are.
    pub fn len(&self) -> usize {
        self.spans.len() + self.added.len()
    }

    /// Returns whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all fields: those that came, then those that were added.
    pub fn iter(&self) -> impl Iterator<Item = Field<'_>> {
        Fields::from(self).iter()
    }

    /// Adds a field in place of all others with its name.
    pub fn insert(&mut self, name: impl Into<HeaderName>, value: HeaderValue) {
        let name = name.into();
        self.remove(&name);
        self.append(name, value);
    }

    /// Adds a field behind all others.
    pub fn append(&mut self, name: HeaderName, value: HeaderValue) {
        self.set.add_name(name.as_str().as_bytes());
        self.added.push((name, value));
    }

    /// Removes all fields called `name`.
    pub fn remove(&mut self, name: &HeaderName) {
        if !self.set.may_have(name.as_str()) {
            return;
        }
        let Self { buffer, spans, added, .. } = self;
        spans.retain(|span| span.value_of(name.as_str(), buffer).is_none());
        added.retain(|(other, _)| other != name);
    }

    /// Removes blanks around values, which HTTP/2 may have.
    pub fn trim(&mut self) {
        for (_, value) in &mut self.added {
            let trimmed = value.as_bytes().trim_ascii();
            if trimmed.len() < value.len()
                && let Ok(trimmed) = HeaderValue::from_bytes(trimmed)
            {
                *value = trimmed;
            }
        }
    }

    /// Removes all fields, and keeps the memory.
    pub fn clear(&mut self) {
        self.buffer = Bytes::new();
        self.spans.clear();
        self.added.clear();
        self.set = FieldSet::default();
    }

    /// Returns for how many fields there is memory.
    pub fn capacity(&self) -> usize {
        self.spans.capacity() + self.added.capacity()
    }

    /// Returns the fields as HTTP/2 has them.
    pub fn into_map(self) -> HeaderMap {
        let mut map = HeaderMap::with_capacity(self.len());
        append_to_map(&self.spans, &self.buffer, &mut map);
        for (name, value) in self.added {
            map.append(name, value);
        }
        map
    }
}

impl From<HeaderMap> for FieldList {
    fn from(map: HeaderMap) -> Self {
        let mut list = Self { added: Vec::with_capacity(map.len() + SPARE), ..Self::default() };
        for (name, value) in map {
            // A further value of the same field comes without its name.
            let name = name.or_else(|| list.added.last().map(|(name, _)| name.clone()));
            if let Some(name) = name {
                list.begin_with(name, value);
            }
        }
        list
    }
}

fn is_blank(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\t'))
}

/// How many fields a proxy usually adds.
const SPARE: usize = 8;

impl<'a> From<&'a FieldList> for Fields<'a> {
    fn from(list: &'a FieldList) -> Self {
        Self::Http1 { buffer: &list.buffer, spans: &list.spans, added: &list.added, set: list.set }
    }
}

impl Extend<(HeaderName, HeaderValue)> for FieldList {
    fn extend<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, fields: I) {
        for (name, value) in fields {
            self.append(name, value);
        }
    }
}

impl FromIterator<(HeaderName, HeaderValue)> for FieldList {
    fn from_iter<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(fields: I) -> Self {
        let mut list = Self::default();
        for (name, value) in fields {
            list.begin_with(name, value);
        }
        list
    }
}
