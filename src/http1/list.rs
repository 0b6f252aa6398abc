//! The fields of a message on its way through a proxy: those that came, without what was removed,
//! and those that were added.
//!
//! A list is searched from its beginning: a message has a few fields, most with names of different
//! lengths, and a hash would cost more. All fields are places in a buffer: that of the message, or
//! one with the lines that were added. So neighbouring lines are written with one copy.

use super::{
    alike::are_alike,
    field_set::{FieldKind, FieldSet},
    fields::{Field, FieldSpan, Fields, Lines, append_to_map, to_u32},
};
use bytes::Bytes;
use core::borrow::Borrow;
use http::{HeaderMap, HeaderName, HeaderValue};

/// Fields that can be changed. Names are in lower case. An empty list keeps its memory.
#[derive(Clone, Debug, Default)]
pub struct FieldList {
    /// The head that a message of HTTP/1.1 came with.
    head: Bytes,
    /// The fields in `head` that were not removed.
    came: Vec<FieldSpan>,
    /// The lines of the fields that were ever in `added`.
    lines: Vec<u8>,
    /// The fields that were added and not removed. A message of HTTP/2 came with the first of them.
    added: Vec<FieldSpan>,
    set: FieldSet,
}

impl FieldList {
    /// Returns an empty list with memory for what a proxy usually adds.
    pub fn with_spare() -> Self {
        let added = Vec::with_capacity(SPARE);
        Self { added, lines: Vec::with_capacity(SPARE * LINE), ..Self::default() }
    }

    /// Begins with the fields at `spans` of `head`, whose names are in lower case and in `set`.
    /// `spans` gets this list's memory.
    pub(super) fn begin(&mut self, head: Bytes, spans: &mut Vec<FieldSpan>, set: FieldSet) {
        self.clear();
        core::mem::swap(&mut self.came, spans);
        self.head = head;
        self.set = set;
    }

    /// Adds a field that came with the message.
    fn begin_with(&mut self, name: &HeaderName, value: &HeaderValue) {
        let span = FieldSpan::of_line(&mut self.lines, name, value);
        let bytes = value.as_bytes();
        self.set.add(name.as_str().as_bytes(), bytes, span.kind);
        if is_blank(bytes.first()) || is_blank(bytes.last()) {
            self.set.add_blanks();
        }
        self.added.push(span);
    }

    /// Returns the set of the fields.
    pub fn set(&self) -> FieldSet {
        self.set
    }

    /// Returns the value of the first field called `name`.
    pub fn get(&self, name: &HeaderName) -> Option<&[u8]> {
        self.get_all(name).next()
    }

    /// Returns the value of the first field of this kind, which has only one name. It takes less time
    /// than a search for the name.
    pub fn first(&self, kind: FieldKind) -> Option<&[u8]> {
        let of = |spans: &[FieldSpan]| spans.iter().find(|span| span.kind == kind).copied();
        match of(&self.came) {
            Some(span) => Some(span.field(&self.head).value),
            None => of(&self.added).map(|span| span.field(&self.lines).value),
        }
    }

    /// Returns the values of all fields of this kind, which are those of one name.
    pub fn all(&self, kind: FieldKind) -> impl Iterator<Item = &[u8]> {
        let came = self.came.iter().map(|span| (span, &*self.head));
        let added = self.added.iter().map(|span| (span, &*self.lines));
        let of_kind = came.chain(added).filter(move |(span, _)| span.kind == kind);
        of_kind.map(|(span, buffer)| span.field(buffer).value)
    }

    /// Returns the values of all fields called `name`: of those that came, then of those that were
    /// added.
    pub fn get_all(&self, name: &HeaderName) -> impl Iterator<Item = &[u8]> {
        Fields::from(self).get_all(name.as_str())
    }

    /// Returns the value of the first field called `name`. It shares the message's buffer if the field
    /// came in the head.
    pub fn value(&self, name: &HeaderName) -> Option<HeaderValue> {
        if !self.set.may_have(name.as_str()) {
            return None;
        }
        let mut came = self.came.iter().map(|span| span.field(&self.head));
        // It is valid by how it was parsed.
        match came.find_map(|field| field.value_of(name.as_str())) {
            Some(value) => HeaderValue::from_maybe_shared(self.head.slice_ref(value)).ok(),
            None => HeaderValue::from_bytes(self.get(name)?).ok(),
        }
    }

    /// Returns whether there is a field called `name`.
    pub fn contains_key(&self, name: &HeaderName) -> bool {
        self.set.may_have(name.as_str()) && self.get(name).is_some()
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.came.len() + self.added.len()
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
    pub fn insert(&mut self, name: impl Borrow<HeaderName>, value: impl Borrow<HeaderValue>) {
        self.remove(name.borrow());
        self.append(name, value);
    }

    /// Adds a field behind all others.
    pub fn append(&mut self, name: impl Borrow<HeaderName>, value: impl Borrow<HeaderValue>) {
        let name = name.borrow();
        self.set.add_name(name.as_str().as_bytes());
        self.added.push(FieldSpan::of_line(&mut self.lines, name, value.borrow()));
    }

    /// Adds a field in place of all others with its name. `parts` are its value, which is valid, and
    /// another one in most messages: HTTP/2 is to keep the room of its table for other fields. (The
    /// h2 crate compares a value with all those of its name in the table.)
    pub fn insert_changing(&mut self, name: &HeaderName, parts: &[&[u8]]) {
        self.remove(name);
        self.set.add_name(name.as_str().as_bytes());
        self.added.push(FieldSpan::of_parts(&mut self.lines, name, parts));
    }

    /// Adds what was added to `others` behind all fields.
    pub fn append_all(&mut self, others: &Self) {
        let start = to_u32(self.lines.len());
        self.lines.extend_from_slice(&others.lines);
        self.added.extend(others.added.iter().map(|span| span.behind(start)));
        self.set.add_names(others.set);
    }

    /// Removes all fields called `name`.
    #[inline]
    pub fn remove(&mut self, name: &HeaderName) {
        if self.set.may_have(name.as_str()) {
            self.remove_all(name.as_str());
        }
    }

    fn remove_all(&mut self, name: &str) {
        let Self { head, came, lines, added, .. } = self;
        came.retain(|span| span.field(head).value_of(name).is_none());
        added.retain(|span| span.field(lines).value_of(name).is_none());
    }

    /// Removes all fields called `name`, and those that lenient servers may take for it, except those
    /// with exactly a name in `kept`, which are in lower case.
    #[inline]
    pub fn remove_alike(&mut self, name: &HeaderName, kept: &[&str]) {
        if self.set.may_have_alike(name.as_str()) {
            self.remove_all_alike(name.as_str(), kept);
        }
    }

    fn remove_all_alike(&mut self, name: &str, kept: &[&str]) {
        let name = name.as_bytes();
        let is_kept = |sent: &[u8]| kept.iter().any(|kept| kept.as_bytes() == sent);
        self.remove_names(|sent| are_alike(sent, name) && (sent == name || !is_kept(sent)));
    }

    /// Removes the fields that lenient servers may take for one called as in `names`, which are in lower
    /// case, but are not called so.
    #[inline]
    pub fn remove_other_spellings(&mut self, names: &[&str]) {
        if names.iter().any(|name| self.set.may_have_alike(name)) {
            self.remove_all_other_spellings(names);
        }
    }

    fn remove_all_other_spellings(&mut self, names: &[&str]) {
        let is_other = |sent: &[u8], name: &str| {
            let name = name.as_bytes();
            sent.len() == name.len() && sent != name && are_alike(sent, name)
        };
        self.remove_names(|sent| names.iter().any(|name| is_other(sent, name)));
    }

    /// Removes the fields of the kinds that `is_removed` names.
    pub fn remove_kinds(&mut self, is_removed: impl Fn(FieldKind) -> bool) {
        self.came.retain(|span| !is_removed(span.kind));
        self.added.retain(|span| !is_removed(span.kind));
    }

    /// Removes the fields with the names that `is_removed` takes. Names are in lower case.
    pub fn remove_names(&mut self, is_removed: impl Fn(&[u8]) -> bool) {
        let Self { head, came, lines, added, .. } = self;
        came.retain(|span| !is_removed(span.field(head).name));
        added.retain(|span| !is_removed(span.field(lines).name));
    }

    /// Removes blanks around values, which HTTP/2 may have.
    pub fn trim(&mut self) {
        for span in &mut self.added {
            span.trim(&self.lines);
        }
    }

    /// Removes all fields, and keeps the memory.
    pub fn clear(&mut self) {
        self.head = Bytes::new();
        self.came.clear();
        self.lines.clear();
        self.added.clear();
        self.set = FieldSet::default();
    }

    /// Returns the number of bytes for which it has memory.
    pub fn capacity(&self) -> usize {
        let spans = self.came.capacity() + self.added.capacity();
        spans * size_of::<FieldSpan>() + self.lines.capacity()
    }

    /// Returns the fields as HTTP/2 has them.
    pub fn into_map(self) -> HeaderMap {
        // hyper asks for the room of one more, to look for a field.
        let mut map = HeaderMap::with_capacity(self.len() + 1);
        append_to_map(self.came.iter(), &self.head, &mut map);
        append_to_map(self.added.iter(), &Bytes::from(self.lines), &mut map);
        map
    }

    /// Returns the fields of the kinds that `is_kept` names, as HTTP/2 has them, with room for one
    /// more.
    pub fn to_map(&self, is_kept: impl Fn(FieldKind) -> bool) -> HeaderMap {
        let is_kept = |span: &&FieldSpan| is_kept(span.kind);
        let mut map = HeaderMap::with_capacity(self.len() + 1);
        append_to_map(self.came.iter().filter(is_kept), &self.head, &mut map);
        let lines = Bytes::copy_from_slice(&self.lines);
        append_to_map(self.added.iter().filter(is_kept), &lines, &mut map);
        map
    }
}

impl From<HeaderMap> for FieldList {
    fn from(map: HeaderMap) -> Self {
        (&map).into_iter().collect()
    }
}

fn is_blank(byte: Option<&u8>) -> bool {
    matches!(byte, Some(b' ' | b'\t'))
}

impl<'a> From<&'a FieldList> for Fields<'a> {
    fn from(list: &'a FieldList) -> Self {
        Self::Http1 {
            came: Lines { buffer: &list.head, spans: &list.came },
            added: Lines { buffer: &list.lines, spans: &list.added },
            set: list.set,
        }
    }
}

impl Extend<(HeaderName, HeaderValue)> for FieldList {
    fn extend<I: IntoIterator<Item = (HeaderName, HeaderValue)>>(&mut self, fields: I) {
        for (name, value) in fields {
            self.append(name, value);
        }
    }
}

impl<N: Borrow<HeaderName>, V: Borrow<HeaderValue>> FromIterator<(N, V)> for FieldList {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(fields: I) -> Self {
        let fields = fields.into_iter();
        let mut list = Self::default();
        list.added.reserve(fields.size_hint().0 + SPARE);
        list.lines.reserve(SPARE * 128);
        for (name, value) in fields {
            list.begin_with(name.borrow(), value.borrow());
        }
        list
    }
}

/// The number of fields that a proxy usually adds.
const SPARE: usize = 8;

/// The number of bytes that such a field usually has.
const LINE: usize = 40;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::folded_name;
    use proptest::prelude::*;

    /// A list of fields with these names, of which the first `came` came with the message.
    fn list(names: &[String], came: usize) -> FieldList {
        let field = |(at, name): (usize, &String)| {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            (name, HeaderValue::from(at))
        };
        let mut fields = names.iter().enumerate().map(field);
        let mut list: FieldList = fields.by_ref().take(came).collect();
        list.extend(fields);
        list
    }

    fn names(list: &FieldList) -> Vec<String> {
        list.iter().map(|field| String::from_utf8(field.name.to_vec()).unwrap()).collect()
    }

    fn without(sent: &[String], is_removed: impl Fn(&str) -> bool) -> Vec<String> {
        let lower = sent.iter().map(|name| name.to_ascii_lowercase());
        lower.filter(|name| !is_removed(name)).collect()
    }

    proptest! {
        #[test]
        fn every_spelling_of_a_name_is_removed_and_no_other_field(
            sent in proptest::collection::vec("[a-b_.!-]{1,3}|[A-B]-b", 0..8),
            came in 0_usize..8,
            name in "[a-b_.!-]{1,3}",
            kept in "[a-b_.!-]{1,3}",
        ) {
            let called = HeaderName::from_bytes(name.as_bytes()).unwrap();
            let is_alike = |sent: &str| folded_name(sent) == folded_name(&name);

            let mut all = list(&sent, came);
            all.remove_alike(&called, &[]);
            prop_assert_eq!(names(&all), without(&sent, is_alike));

            let mut but_kept = list(&sent, came);
            but_kept.remove_alike(&called, &[&kept]);
            let expected =
                without(&sent, |sent| is_alike(sent) && (sent == name || sent != kept));
            prop_assert_eq!(names(&but_kept), expected);

            let mut others = list(&sent, came);
            others.remove_other_spellings(&[&name, &kept]);
            let is_other = |sent: &str, of: &str| folded_name(sent) == folded_name(of) && sent != of;
            let expected = without(&sent, |sent| is_other(sent, &name) || is_other(sent, &kept));
            prop_assert_eq!(names(&others), expected);
        }
    }
}
