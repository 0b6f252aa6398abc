//! What a value holds, one after the other: the parts of a key, the items of a list, the entries of
//! a map.

use super::{error::Stop, keys::NOWHERE, shape::Shape, value::Value};
use crate::config::{
    diagnostics::{Place, Problem, quoted},
    read::{Name, Node},
    vocabulary::{self, Section},
};
use ahash::AHasher;
use serde::de::{
    DeserializeSeed, Error, IntoDeserializer, MapAccess, SeqAccess,
    value::{StrDeserializer, U64Deserializer, U128Deserializer},
};
use std::hash::{Hash, Hasher};

/// The parts of a [`Key`](super::keys::Key): where it stands, where its value does, and the value if it can be read.
pub(super) struct Parts<'n, 's> {
    pub(super) of: Value<'n, 's>,
    pub(super) next: u8,
}

impl<'de> SeqAccess<'de> for Parts<'_, '_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        let value = self.of;
        self.next += 1;
        match self.next {
            1 => {
                let bits = value.key_place.map_or(NOWHERE, Place::bits);
                seed.deserialize(U128Deserializer::<Stop>::new(bits)).map(Some)
            }
            2 => seed.deserialize(U128Deserializer::<Stop>::new(value.start().bits())).map(Some),
            _ if matches!(value.shape, Shape::Missing) => Ok(None),
            _ => Ok(seed.deserialize(value).map_err(|stop| value.report(stop)).ok()),
        }
    }
}

/// The parts of a [`Printed`](super::keys::Printed): a hash of what is written, and the value.
pub(super) struct PrintedParts<'n, 's> {
    pub(super) of: Value<'n, 's>,
    pub(super) next: u8,
}

impl<'de> SeqAccess<'de> for PrintedParts<'_, '_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        self.next += 1;
        if self.next > 1 {
            return seed.deserialize(self.of).map(Some);
        }
        let mut hasher = AHasher::default();
        hash(self.of.shape, &mut hasher);
        seed.deserialize(U64Deserializer::<Stop>::new(hasher.finish())).map(Some)
    }
}

/// Hashes what a value says, without its place, its layout and its comments.
fn hash(shape: Shape<'_, '_>, hasher: &mut AHasher) {
    match shape {
        Shape::Missing | Shape::Empty => 0u8.hash(hasher),
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

/// The items of a list.
pub(super) struct Items<'n, 's> {
    pub(super) list: Value<'n, 's>,
    pub(super) rest: std::slice::Iter<'n, Node<'s>>,
}

impl<'de> SeqAccess<'de> for Items<'_, '_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        self.rest.next().map(|item| seed.deserialize(self.list.item(item))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// A value that stands for a list of it.
pub(super) struct OneItem<'n, 's>(pub(super) Option<Value<'n, 's>>);

impl<'de> SeqAccess<'de> for OneItem<'_, '_> {
    type Error = Stop;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Stop> {
        self.0.take().map(|item| seed.deserialize(item)).transpose()
    }
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
                self.map.add(duplicate(&name.text, first.place, name.place));
                continue;
            }
            let key = Value { shape: Shape::Scalar(&name.text), place: name.place, ..self.map };
            return seed.deserialize(key).map(Some);
        }
        Ok(None)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        let entry = self.next.checked_sub(1).and_then(|last| self.all.get(last));
        let (name, value) = entry.ok_or_else(|| Stop::custom("a value before its key"))?;
        seed.deserialize(Value { key_place: Some(name.place), ..self.map.item(value) })
    }
}

/// The keys of a map that `section` describes, each once, those that are not written with their
/// defaults.
pub(super) struct Fields<'n, 's> {
    pub(super) map: Value<'n, 's>,
    pub(super) section: &'n Section,
    /// In the order of the section's keys.
    pub(super) written: Vec<Option<(Place, &'n Node<'s>)>>,
    pub(super) next: usize,
}

impl<'n, 's> Fields<'n, 's> {
    pub(super) fn of(
        map: Value<'n, 's>,
        section: &'n Section,
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
            Some((first, _)) => self.map.add(duplicate(&name.text, *first, name.place)),
            empty => *empty = Some((name.place, node)),
        }
    }

    /// Reports a key that is not known, and takes its value for that of the key that is meant.
    fn unknown(&mut self, name: &Name<'s>, node: &'n Node<'s>) {
        let section = self.section;
        let error = |message: String| Problem::error(name.place, message);
        let other = section.instead.iter().find(|(known, _)| *known == name.text);
        if let Some((_, help)) = other {
            let message = format!("{} takes no `{}`", section.title, name.text);
            return self.map.add(error(message).help(help));
        }
        if section.later.iter().any(|known| *known == name.text) {
            let message = format!("`{}` is not supported in this version", name.text);
            return self.map.add(error(message).help("remove it"));
        }
        let message = format!("{} has no key {}", section.title, quoted(&name.text));
        if self.map.reader.problems.borrow().are_many() {
            return self.map.add(error(message).help("remove it"));
        }
        let Some(meant) = section.meant(&name.text) else {
            let names: Vec<_> = section.keys.iter().map(|key| format!("`{}`", key.name)).collect();
            let help = format!("write one of {}", names.join(", "));
            return self.map.add(error(message).help(help));
        };
        let message = format!("{message}; did you mean `{meant}`?");
        self.map.add(error(message).help(format!("write `{meant}`")));
        if let Some(index) = self.index(meant) {
            self.written[index].get_or_insert((name.place, node));
        }
    }

    /// Reports the keys that are missing.
    fn demand(&self) {
        for (key, written) in self.section.keys.iter().zip(&self.written) {
            if key.is_required && written.is_none() {
                let reader = self.map.reader;
                let own = reader.example.filter(|(name, _)| *name == key.name);
                let example = own.map_or_else(
                    || reader.vocabulary.example(&key.schema),
                    |(_, example)| example.to_owned(),
                );
                let message = format!("{} needs `{}`", self.section.title, key.name);
                let problem = Problem::error(self.map.start(), message);
                self.map.add(problem.help(format!("write `{}: {example}`", key.name)));
                reader.missing.borrow_mut().push(key.name.clone());
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
        let name: StrDeserializer<'_, Stop> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Stop> {
        let key = &self.section.keys[self.next];
        let value = Value { key: Some(key), place: self.map.start(), key_place: None, ..self.map };
        let value = match (self.written[self.next], &key.default) {
            (Some((place, node)), _) => Value { key_place: Some(place), ..value.item(node) },
            (None, vocabulary::Default::Text(text)) => {
                Value { shape: Shape::Scalar(text), ..value }
            }
            (None, vocabulary::Default::Map) => Value { shape: Shape::Map(&[]), ..value },
            (None, vocabulary::Default::None) => Value { shape: Shape::Missing, ..value },
        };
        self.next += 1;
        seed.deserialize(value)
    }
}

fn duplicate(name: &str, first: Place, again: Place) -> Problem {
    Problem::error(again, format!("{} is written twice", quoted(name)))
        .label("again here")
        .also(first, "first here")
        .help("remove one of the two")
}
