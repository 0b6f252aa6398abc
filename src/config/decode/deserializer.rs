//! A value as a deserializer of serde's.

use super::{
    access::{Fields, OwnEntries, Parts},
    error::Stop,
    keys::{EITHER, KEY, MANY, SEVERAL, marks},
    value::{Shape, Value},
};
use crate::config::{diagnostics::quoted, vocabulary};
use serde::{
    Deserializer,
    de::{Error, IntoDeserializer, Visitor, value::SeqDeserializer},
    forward_to_deserialize_any,
};

/// The most values of a list that a request may be compared with one by one.
pub(in crate::config) const MAX_VALUES: usize = 1000;

/// The most values of a list that is searched.
const MAX_MANY: usize = 100_000;

/// The most entries of a map of the user's own names.
const MAX_ENTRIES: usize = 200;

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
            return Err(Stop::no_map(self.shape, section.title, section.example()));
        };
        visitor.visit_map(Fields::of(self, section, entries))
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        match self.shape {
            _ if self.stands_for_list => {
                visitor.visit_seq(items(std::iter::once(Self { stands_for_list: false, ..self })))
            }
            Shape::List(items) => {
                if items.is_empty() {
                    self.demand_one();
                }
                visitor.visit_seq(self::items(items.iter().map(|item| self.item(item))))
            }
            // One item, whose own problems are reported as well.
            Shape::Map(entries) => {
                if self.report_map_of_names(entries) {
                    return Err(Stop::Reported);
                }
                self.missing_dash(entries);
                visitor.visit_seq(items(std::iter::once(self)))
            }
            Shape::Missing | Shape::Empty | Shape::Unset | Shape::Scalar(_) => {
                let example = self.key.map(vocabulary::Key::example);
                let expected = format!("a list\n{}", example.unwrap_or_default());
                Err(Stop::invalid_type(self.shape.unexpected(), &expected.as_str()))
            }
        }
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        let Shape::Map(entries) = self.shape else {
            let example = self.key.map(vocabulary::Key::example);
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
            (SEVERAL, Shape::List(items)) => {
                // The values are looked through for each request.
                let shape =
                    if self.fits(items.len(), MAX_VALUES) { self.shape } else { Shape::List(&[]) };
                visitor.visit_newtype_struct(Self { shape, ..self })
            }
            (MANY, Shape::List(items)) => {
                let shape =
                    if self.fits(items.len(), MAX_MANY) { self.shape } else { Shape::List(&[]) };
                visitor.visit_newtype_struct(Self { shape, ..self })
            }
            (SEVERAL | MANY, _) => {
                visitor.visit_newtype_struct(Self { stands_for_list: true, ..self })
            }
            (EITHER, Shape::Map(_)) => visitor.visit_newtype_struct(self),
            (name, Shape::Map(entries))
                if entries.iter().any(|(key, _)| marks(name).contains(&&*key.text)) =>
            {
                visitor.visit_newtype_struct(self)
            }
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Stop> {
        if name == KEY {
            visitor.visit_seq(Parts::of_key(self))
        } else {
            visitor.visit_seq(Parts::of_printed(self))
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Stop> {
        visitor.visit_some(self)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 i128 u8 u16 u32 u128 f32 f64 char string bytes byte_buf unit
        unit_struct tuple identifier ignored_any
    }
}

impl IntoDeserializer<'_, Stop> for Value<'_, '_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn items<'n, 's: 'n, I: Iterator<Item = Value<'n, 's>>>(items: I) -> SeqDeserializer<I, Stop> {
    SeqDeserializer::new(items)
}
