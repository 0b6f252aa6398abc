//! What a value holds, one after the other: the parts of a key, the items of a list, the entries of
//! a map.

use super::{
    error::Stop,
    keys::NOWHERE,
    value::{Shape, Value},
};
use crate::config::{
    diagnostics::{Problem, SourceSpan, quoted},
    read::{Content, Name, Node},
    vocabulary::{self, Section},
};
use ahash::AHasher;
use serde::de::{
    DeserializeSeed, Error, IntoDeserializer, MapAccess, SeqAccess,
    value::{StrDeserializer, U128Deserializer},
};
use std::hash::{Hash, Hasher};

/// The parts of a [`Key`](super::Key) or of a [`Printed`](super::Printed): numbers, then the value.
pub(super) struct Parts<'n, 's, I> {
    numbers: I,
    value: Option<Value<'n, 's>>,
    /// True if a value that cannot be read is reported and left out.
    is_key: bool,
}

impl<'n, 's> Parts<'n, 's, std::array::IntoIter<u128, 2>> {
    /// Where a key stands, where its value does, and the value.
    pub(super) fn of_key(value: Value<'n, 's>) -> Self {
        let key = value.key_span.map_or(NOWHERE, SourceSpan::bits);
        let written = (!matches!(value.shape, Shape::Missing)).then_some(value);
        Self { numbers: [key, value.start().bits()].into_iter(), value: written, is_key: true }
    }
}

impl<'n, 's> Parts<'n, 's, std::array::IntoIter<u128, 1>> {
    /// A hash of what is written, and the value.
    pub(super) fn of_printed(value: Value<'n, 's>) -> Self {
        let mut hasher = AHasher::default();
        hash(value.shape, &mut hasher);
        let numbers = [u128::from(hasher.finish())].into_iter();
        Self { numbers, value: Some(value), is_key: false }
    }
}

impl<'de, I: Iterator<Item = u128>> SeqAccess<'de> for Parts<'_, '_, I> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        if let Some(number) = self.numbers.next() {
            return seed.deserialize(U128Deserializer::<Stop>::new(number)).map(Some);
        }
        let Some(value) = self.value.take() else { return Ok(None) };
        if self.is_key {
            return Ok(seed.deserialize(value).map_err(|stop| value.report(stop)).ok());
        }
        seed.deserialize(value).map(Some)
    }
}

/// Hashes what a value says, without its span, its layout and its comments.
fn hash(shape: Shape<'_, '_>, hasher: &mut AHasher) {
    match shape {
        Shape::Missing | Shape::Empty | Shape::Unset => 0u8.hash(hasher),
        Shape::Scalar(text) => (1u8, text).hash(hasher),
        Shape::List(items) => {
            (2u8, items.len()).hash(hasher);
            for item in items {
                hash(Shape::of(item), hasher);
            }
        }
        Shape::Map(entries) => {
            (3u8, entries.len()).hash(hasher);
            for (key, value) in entries {
                key.text.hash(hasher);
                hash(Shape::of(value), hasher);
            }
        }
    }
}

/// Returns a key as flowgate would write it: `stripPrefix`, which Traefik has, as `strip_prefix`.
fn in_snake_case(key: &str) -> String {
    let mut word = String::with_capacity(key.len() + 2);
    for c in key.chars() {
        if c.is_ascii_uppercase() && word.ends_with(|last: char| last.is_ascii_lowercase()) {
            word.push('_');
        }
        word.push(if c == '-' { '_' } else { c.to_ascii_lowercase() });
    }
    word
}

/// The entries of a map of the user's own names, without duplicates.
pub(super) struct OwnEntries<'n, 's> {
    pub(super) map: Value<'n, 's>,
    pub(super) all: &'n [(Name<'s>, Node<'s>)],
    pub(super) next: usize,
}

impl<'de> MapAccess<'de> for OwnEntries<'_, '_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stop> {
        while let Some((name, _)) = self.all.get(self.next) {
            let before = self.all[..self.next].iter();
            self.next += 1;
            if let Some((first, _)) = before.into_iter().find(|(known, _)| known.text == name.text)
            {
                self.map.add(Problem::duplicate(&name.text, first.span, name.span));
                continue;
            }
            let key = Value { shape: Shape::Scalar(&name.text), span: name.span, ..self.map };
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        let entry = self.next.checked_sub(1).and_then(|last| self.all.get(last));
        let (name, value) = entry.ok_or_else(|| Stop::custom("a value before its key"))?;
        seed.deserialize(Value { key_span: Some(name.span), ..self.map.item(value) })
    }
}

/// The value of a key that has been reported.
static UNSET: Node<'static> = Node { span: SourceSpan::START, content: Content::Unset };

/// The keys of a map that `section` describes, each once, those that are not written with their
/// defaults.
pub(super) struct Fields<'n, 's> {
    pub(super) map: Value<'n, 's>,
    pub(super) section: &'static Section,
    /// In the order of the section's keys.
    pub(super) written: Vec<Option<(SourceSpan, &'n Node<'s>)>>,
    pub(super) next: usize,
}

impl<'n, 's> Fields<'n, 's> {
    pub(super) fn of(
        map: Value<'n, 's>,
        section: &'static Section,
        entries: &'n [(Name<'s>, Node<'s>)],
    ) -> Self {
        let written = vec![None; section.keys.len()];
        let mut fields = Self { map, section, written, next: 0 };
        let is_known = |name: &Name<'_>| section.keys.iter().any(|key| key.name == name.text);
        let (known, unknown): (Vec<_>, Vec<_>) =
            entries.iter().partition(|(name, _)| is_known(name));
        // A misspelled key stands for the one that is meant, unless that is written too.
        for (name, node) in known {
            fields.take(name, node);
        }
        for (name, node) in unknown {
            fields.unknown(name, node);
        }
        fields.demand();
        fields
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.section.keys.iter().position(|key| key.name == name)
    }

    fn take(&mut self, name: &Name<'s>, node: &'n Node<'s>) {
        let Some(index) = self.index(&name.text) else { return };
        match &mut self.written[index] {
            Some((first, _)) => self.map.add(Problem::duplicate(&name.text, *first, name.span)),
            empty => *empty = Some((name.span, node)),
        }
    }

    /// Reports a key that is not known, and takes its value for that of the key that is meant.
    fn unknown(&mut self, name: &Name<'s>, node: &'n Node<'s>) {
        let section = self.section;
        let title = &section.title;
        let error = |message: String| Problem::error(name.span, message);

        let word = in_snake_case(&name.text);
        let other = section.instead.iter().find(|[known, _]| *known == word);
        if let Some([_, help]) = other {
            // The hint names the key where it belongs: that this one is missing is the same mistake.
            let is_named = |key: &vocabulary::Key| {
                ["`", ":"].iter().any(|end| help.contains(&format!("`{}{end}", key.name)))
            };
            if let Some(index) = section.keys.iter().position(is_named) {
                self.written[index].get_or_insert((name.span, &UNSET));
            }
            let message = format!("{title} {} no `{}`", section.verb("takes", "take"), name.text);
            return self.map.add(error(message).help(*help));
        }

        if let Some((key, problem)) = self.without_blank(name) {
            self.written[key].get_or_insert((name.span, &UNSET));
            return self.map.add(problem);
        }

        // As in `jwt:plan`, which is a condition elsewhere.
        let kind = name.text.split_once(':').map(|(kind, _)| in_snake_case(kind));
        let other = section.instead.iter().find(|[known, _]| kind.as_deref() == Some(known));
        if let Some([_, help]) = other {
            let message = format!("{title} {} no `{}`", section.verb("takes", "take"), name.text);
            return self.map.add(error(message).help(*help));
        }

        let message =
            format!("{title} {} no key {}", section.verb("has", "have"), quoted(&name.text));
        if self.map.reader.problems.borrow().are_many() {
            return self.map.add(error(message).help("remove it"));
        }

        let Some(meant) = section.meant(&word) else {
            // A list is no value of a field that the key might name.
            let any = section.instead.iter().find(|[known, _]| *known == "*");
            if let Some([_, help]) = any.filter(|_| !matches!(node.content, Content::List(_))) {
                return self.map.add(error(message).help(*help));
            }
            let names: Vec<_> = section.keys.iter().map(|key| format!("`{}`", key.name)).collect();
            let help = format!("write one of {}", names.join(", "));
            return self.map.add(error(message).help(help));
        };

        let message = format!("{message}; did you mean `{meant}`?");
        self.map.add(error(message).help(format!("write `{meant}`")));
        if let Some(index) = self.index(meant) {
            self.written[index].get_or_insert((name.span, node));
        }
    }

    /// Returns the index and the problem of a key that YAML has read together with what stands
    /// beside it, as `-name` or, within braces, `name:web`.
    fn without_blank(&self, name: &Name<'s>) -> Option<(usize, Problem)> {
        let (mark, key, meant) = if let Some((key, value)) = name.text.split_once(':') {
            (':', key, format!("{key}: {value}"))
        } else {
            let key = name.text.strip_prefix('-')?;
            ('-', key, format!("- {key}"))
        };
        let index = self.index(key)?;
        let message = format!("a space is missing after the `{mark}` in {}", quoted(&name.text));
        let problem = Problem::error(name.span, message);
        Some((index, problem.help(format!("write {}", quoted(&meant)))))
    }

    /// Reports the keys that are missing.
    fn demand(&self) {
        for (key, written) in self.section.keys.iter().zip(&self.written) {
            if key.is_required() && written.is_none() {
                let reader = self.map.reader;
                let example = key.example();
                let verb = self.section.verb("needs", "need");
                let message = format!("{} {verb} `{}`", self.section.title, key.name);
                let problem = Problem::error(self.map.start(), message);
                self.map.add(problem.help(format!("write `{}: {example}`", key.name)));
                reader.missing.borrow_mut().push(key.name.to_owned());
            }
        }
    }
}

impl<'de> MapAccess<'de> for Fields<'_, '_> {
    type Error = Stop;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Stop> {
        let Some(key) = self.section.keys.get(self.next) else { return Ok(None) };
        let name: StrDeserializer<'_, Stop> = key.name.into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        let key = &self.section.keys[self.next];
        let value = Value { key: Some(key), span: self.map.start(), key_span: None, ..self.map };
        let value = match (self.written[self.next], &key.default) {
            (Some((span, node)), _) => Value { key_span: Some(span), ..value.item(node) },
            (None, vocabulary::Default::Text { text, .. }) => {
                Value { shape: Shape::Scalar(text), ..value }
            }
            (None, vocabulary::Default::Map) => Value { shape: Shape::Map(&[]), ..value },
            (None, vocabulary::Default::Required | vocabulary::Default::Words(_)) => {
                Value { shape: Shape::Missing, ..value }
            }
        };
        self.next += 1;
        seed.deserialize(value)
    }
}
