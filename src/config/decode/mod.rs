//! From the tree to the types of `spec`, by serde, without stopping at an error.
//!
//! A `Deserialize` stops at its first error. Here a value that cannot be read is reported where it
//! stands, its [`Key`] is left empty, and the rest is read: all problems of a file come in one run.

mod error;
mod keys;

pub(super) use keys::{At, Either, Entries, Key, List, Printed, Several, read_text};

use super::{
    node::{Content, Name, Node, Place},
    problem::{Problem, Problems, quoted},
    vocabulary::{self, Section, Vocabulary, nearest},
};
use ahash::AHasher;
use error::Stop;
use schemars::JsonSchema;
use serde::{
    Deserialize, Deserializer,
    de::{
        DeserializeSeed, Error, Expected, IntoDeserializer, MapAccess, SeqAccess, Unexpected,
        Visitor,
        value::{StrDeserializer, U64Deserializer, U128Deserializer},
    },
    forward_to_deserialize_any,
};
use std::{
    cell::RefCell,
    hash::{Hash, Hasher},
};

/// The names by which the types of `keys` ask for more than a value.
const KEY: &str = "$key";
const PRINTED: &str = "$printed";
const SEVERAL: &str = "$several";
const EITHER: &str = "$either";

/// What stands for the place of a key that is not written.
const NOWHERE: u128 = u128::MAX;

/// The most values of a list that a request may be compared with one by one.
const MAX_VALUES: usize = 1000;

/// The most entries of a map of the user's own names.
const MAX_ENTRIES: usize = 200;

/// What was read of a file.
#[derive(Debug)]
pub(super) struct Decoded<T> {
    /// `None` if the file is no map.
    pub value: Option<T>,
    pub problems: Problems,
    /// The keys that were reported as missing.
    pub missing: Vec<String>,
}

/// Reads the tree of the file `text` as a `T`, with all that is wrong with it. If the key
/// `example.0` is missing, `example.1` is what to write.
pub(super) fn read<T: JsonSchema + for<'de> Deserialize<'de>>(
    root: &Node<'_>,
    text: &str,
    example: Option<(&str, &str)>,
) -> Decoded<T> {
    let reader = Reader {
        text,
        vocabulary: &Vocabulary::of::<T>(),
        example,
        problems: RefCell::default(),
        missing: RefCell::default(),
    };
    let root = Value {
        shape: Shape::of(root),
        place: root.place,
        key_place: Some(root.place),
        key: None,
        reader: &reader,
    };
    let value = T::deserialize(root).map_err(|stop| root.report(stop)).ok();
    let missing = reader.missing.into_inner();
    Decoded { value, problems: reader.problems.into_inner(), missing }
}

/// What is carried along: the text of the file, its words, and the problems found so far.
struct Reader<'r> {
    text: &'r str,
    vocabulary: &'r Vocabulary,
    /// A key, and an example of it that the file gives.
    example: Option<(&'r str, &'r str)>,
    problems: RefCell<Problems>,
    /// The keys that were reported as missing.
    missing: RefCell<Vec<String>>,
}

/// A value to be read.
#[derive(Clone, Copy)]
struct Value<'n, 's> {
    shape: Shape<'n, 's>,
    place: Place,
    /// Where its key stands; `None` if the value is a default.
    key_place: Option<Place>,
    /// Its key, or that of the list or the map that it is in.
    key: Option<&'n vocabulary::Key>,
    reader: &'n Reader<'n>,
}

#[derive(Clone, Copy)]
enum Shape<'n, 's> {
    /// The key is not written, and has no default.
    Missing,
    Empty,
    Scalar(&'n str),
    List(&'n [Node<'s>]),
    Map(&'n [(Name<'s>, Node<'s>)]),
}

impl<'n, 's> Shape<'n, 's> {
    fn of(node: &'n Node<'s>) -> Self {
        match &node.content {
            Content::Empty => Self::Empty,
            Content::Scalar(text) => Self::Scalar(text),
            Content::List(items) => Self::List(items),
            Content::Map(entries) => Self::Map(entries),
        }
    }

    fn unexpected(self) -> Unexpected<'n> {
        match self {
            Self::Missing | Self::Empty => Unexpected::Unit,
            Self::Scalar(text) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        }
    }
}

impl<'n, 's> Value<'n, 's> {
    fn add(self, problem: Problem) {
        self.reader.problems.borrow_mut().add(problem);
    }

    fn report(self, stop: Stop) {
        self.add(stop.problem(self.place, self.key_name(), self.shape));
    }

    fn key_name(self) -> &'n str {
        self.key.map_or("", |key| key.name.as_str())
    }

    fn is_quoted(self) -> bool {
        self.key_place.is_some() && self.place.is_quoted(self.reader.text)
    }

    /// Returns a value within this one.
    fn item(self, node: &'n Node<'s>) -> Self {
        Self { shape: Shape::of(node), place: node.place, ..self }
    }

    /// Returns where it is said to be: a map where its first key is.
    fn start(self) -> Place {
        if let Shape::Map([(first, _), ..]) = self.shape { first.place } else { self.place }
    }

    /// Reports a list or a map with more than `most` items.
    fn fits(self, count: usize, most: usize) -> bool {
        if count > most {
            let message = format!("`{}` holds {count} values", self.key_name());
            let problem = Problem::error(self.place, message);
            self.add(problem.help(format!("write at most {most}")));
        }
        count <= most
    }

    /// Reports an empty list of what is required.
    fn demand_one(self) {
        let Some(key) = self.key.filter(|key| key.is_required) else { return };
        let example = self.reader.vocabulary.example(&key.schema);
        let problem = Problem::error(self.place, format!("`{}` is empty", key.name))
            .help(format!("write at least one: `{}: {example}`", key.name));
        self.add(problem);
    }

    /// Reports a map where a list of maps is wanted.
    fn missing_dash(self, entries: &[(Name<'s>, Node<'s>)]) {
        let first = entries.first().map_or("name", |(name, _)| &name.text);
        let name = self.key_name();
        let is_in_braces = self.reader.text[self.place.range().start..].starts_with('{');
        let (mark, help) = if is_in_braces {
            ("`[` and `]` are", format!("write `{name}: [{{ {first}: … }}]`"))
        } else {
            ("a `-` is", format!("write `- {first}: …`, and indent the item's other keys as far"))
        };
        let message = format!("{mark} missing: `{name}` is a list");
        let problem = Problem::error(self.start(), message).label("an item begins here");
        self.add(problem.help(help));
    }

    /// Reads text, or refuses what is none.
    fn text(self, expected: &dyn Expected) -> Result<&'n str, Stop> {
        let Shape::Scalar(text) = self.shape else {
            return Err(Stop::invalid_type(self.shape.unexpected(), expected));
        };
        Ok(text)
    }

    /// Reads what is a number or a truth value, and no text in quotes.
    fn plain(self, expected: &dyn Expected) -> Result<&'n str, Stop> {
        let text = self.text(expected)?;
        if self.is_quoted() {
            return Err(Stop::invalid_type(Unexpected::Other("a text"), expected));
        }
        Ok(text)
    }

    /// Refuses a word that is none of `words`.
    fn no_word(self, text: &str, words: &[&str]) -> Stop {
        let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let name = self.key_name();
        let later = self.key.and_then(|key| key.schema["x-later"].as_array());
        if later.is_some_and(|later| later.iter().any(|word| word == text)) {
            let message = format!("`{name}: {text}` is not supported in this version");
            return Stop::Invalid { message, help: format!("write one of {list}") };
        }
        let help = nearest(text, words.iter().copied()).map_or_else(
            || format!("write one of {list}"),
            |word| format!("did you mean `{word}`? write one of {list}"),
        );
        Stop::Invalid { message: format!("`{name}` cannot be {}", quoted(text)), help }
    }
}

impl<'de> Deserializer<'de> for Value<'_, '_> {
    type Error = Stop;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        Err(Stop::invalid_type(self.shape.unexpected(), &visitor))
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let text = self.text(&visitor)?;
        visitor.visit_str(text)
    }

    fn deserialize_u64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let text = self.plain(&visitor)?;
        visitor.visit_str(text)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.plain(&"`true` or `false`\ntrue")? {
            "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            text => Err(Stop::Invalid {
                message: format!("{} is neither true nor false", quoted(text)),
                help: "write `true` or `false`, without quotes".to_owned(),
            }),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let example = words.first().copied().unwrap_or_default();
        let text = self.text(&format!("a word\n{example}").as_str())?;
        if !words.contains(&text) {
            return Err(self.no_word(text, words));
        }
        visitor.visit_enum(IntoDeserializer::<Stop>::into_deserializer(text))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Stop> {
        let section = self.reader.vocabulary.section(name);
        let section = section.ok_or_else(|| Stop::custom(format!("no schema of {name}")))?;
        let Shape::Map(entries) = self.shape else {
            let example = self.reader.vocabulary.example_of(section);
            return Err(Stop::no_map(self.shape, &section.title, example));
        };
        visitor.visit_map(Fields::of(self, section, entries))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.shape {
            Shape::List(items) => {
                if items.is_empty() {
                    self.demand_one();
                }
                visitor.visit_seq(Items { list: self, rest: items.iter() })
            }
            // One item, whose own problems are reported as well.
            Shape::Map(entries) => {
                self.missing_dash(entries);
                visitor.visit_seq(OneItem(Some(self)))
            }
            Shape::Missing | Shape::Empty | Shape::Scalar(_) => {
                let example = self.key.map(|key| self.reader.vocabulary.example(&key.schema));
                let expected = format!("a list\n{}", example.unwrap_or_default());
                Err(Stop::invalid_type(self.shape.unexpected(), &expected.as_str()))
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let Shape::Map(entries) = self.shape else {
            let example = self.key.map(|key| self.reader.vocabulary.example(&key.schema));
            let expected = format!("a map\n{}", example.unwrap_or_default());
            return Err(Stop::invalid_type(self.shape.unexpected(), &expected.as_str()));
        };
        let entries = if self.fits(entries.len(), MAX_ENTRIES) { entries } else { &[] };
        visitor.visit_map(OwnEntries { map: self, all: entries, next: 0 })
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        match (name, self.shape) {
            (KEY, _) => visitor.visit_seq(Parts { of: self, next: 0 }),
            (PRINTED, _) => visitor.visit_seq(PrintedParts { of: self, next: 0 }),
            (SEVERAL, Shape::List(items)) => {
                // The values are looked through for each request.
                let shape =
                    if self.fits(items.len(), MAX_VALUES) { self.shape } else { Shape::List(&[]) };
                visitor.visit_newtype_struct(Self { shape, ..self })
            }
            (EITHER, Shape::Map(_)) => visitor.visit_newtype_struct(self),
            _ => visitor.visit_some(self),
        }
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char string bytes byte_buf option unit
        unit_struct tuple tuple_struct identifier ignored_any
    }
}

/// The parts of a [`Key`]: where it stands, where its value does, and the value if it can be read.
struct Parts<'n, 's> {
    of: Value<'n, 's>,
    next: u8,
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

/// The parts of a [`Printed`]: a hash of what is written, and the value.
struct PrintedParts<'n, 's> {
    of: Value<'n, 's>,
    next: u8,
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
struct Items<'n, 's> {
    list: Value<'n, 's>,
    rest: std::slice::Iter<'n, Node<'s>>,
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
struct OneItem<'n, 's>(Option<Value<'n, 's>>);

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
struct OwnEntries<'n, 's> {
    map: Value<'n, 's>,
    all: &'n [(Name<'s>, Node<'s>)],
    next: usize,
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
struct Fields<'n, 's> {
    map: Value<'n, 's>,
    section: &'n Section,
    /// In the order of the section's keys.
    written: Vec<Option<(Place, &'n Node<'s>)>>,
    next: usize,
}

impl<'n, 's> Fields<'n, 's> {
    fn of(map: Value<'n, 's>, section: &'n Section, entries: &'n [(Name<'s>, Node<'s>)]) -> Self {
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
