//! Reading the values of one map by their keys, each as its key's kind says.

use super::{At, Decoder, Fields};
use crate::{
    config::{
        node::{Content, Node, Place},
        problem::quoted,
        values::{self, Invalid, Limit},
        vocabulary::{Default, Key, Kind, Section, nearest},
    },
    flow::{Rate, breaker::Ratio, time::spelled},
};
use std::time::Duration;

impl<'n, 's> Fields<'n, 's> {
    /// Returns the value as it stands, with its key.
    pub(in crate::config) fn node(&self, name: &str) -> Option<(&'static Key, &'n Node<'s>)> {
        let index = self.index(name);
        self.values[index].map(|(_, node)| (&self.section.keys[index], node))
    }

    /// Returns where the key itself stands, if it is written.
    pub(in crate::config) fn key_place(&self, name: &str) -> Option<Place> {
        self.values[self.index(name)].map(|(place, _)| place)
    }

    /// Opens the map under `name`, if it is written.
    pub(in crate::config) fn map(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<Self> {
        let (key, node) = self.node(name)?;
        decoder.fields(node, section_of(key.kind)?)
    }

    /// Opens the map under `name`, or one in which every key has its default.
    pub(in crate::config) fn map_or_defaults(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
    ) -> Option<Self> {
        if self.node(name).is_some() {
            return self.map(decoder, name);
        }
        let section = section_of(self.section.keys[self.index(name)].kind)?;
        Some(Self { section, place: self.place, values: vec![None; section.keys.len()] })
    }

    /// Reports whether nothing at all is written.
    pub(in crate::config) fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }

    /// Reads a plain value, or its default.
    pub(in crate::config) fn leaf<T>(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
        read: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Option<At<T>> {
        let key = &self.section.keys[self.index(name)];
        match (self.node(name), key.default) {
            (Some((key, node)), _) => decoder.leaf(node, key, read),
            (None, Default::Value(text)) => {
                let value = read(text).ok();
                debug_assert!(value.is_some(), "the default of `{name}` does not read");
                value.map(|value| At { value, place: self.place, written: false })
            }
            (None, Default::Required | Default::Words(_) | Default::Absent) => None,
        }
    }

    /// Reads a truth value.
    pub(in crate::config) fn flag(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
    ) -> Option<At<bool>> {
        self.leaf(decoder, name, values::flag)
    }

    /// Reads a whole number within the bounds of its key.
    pub(in crate::config) fn integer(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
    ) -> Option<At<u64>> {
        let key = &self.section.keys[self.index(name)];
        self.leaf(decoder, name, |text| integer(key.name, key.kind, text))
    }

    /// Reads a duration within the bounds of its key.
    pub(in crate::config) fn duration(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
    ) -> Option<At<Duration>> {
        let kind = self.section.keys[self.index(name)].kind;
        self.leaf(decoder, name, |text| {
            let duration = values::duration(text)?;
            let Kind::Duration { min, max } = kind else { return Ok(duration) };
            let show = |d: Duration| spelled(d).replace(' ', "");
            if duration < min {
                return values::invalid(
                    format!("`{name}` cannot be {}", show(duration)),
                    format!("write at least `{}`", show(min)),
                );
            }
            if duration > max {
                return values::invalid(
                    format!("`{name}` cannot be as long as {}", quoted(text)),
                    format!("write at most `{}`", show(max)),
                );
            }
            Ok(duration)
        })
    }

    /// Reads a size within the bounds of its key.
    pub(in crate::config) fn size(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<At<u64>> {
        let kind = self.section.keys[self.index(name)].kind;
        self.leaf(decoder, name, |text| match (values::size(text)?, kind) {
            (size, Kind::Size { max }) if size > max => values::invalid(
                format!("`{name}` cannot be as large as {}", quoted(text)),
                format!("write at most `{}`", bytesize::ByteSize(max).display().iec()),
            ),
            (size, _) => Ok(size),
        })
    }

    /// Reads a part of a whole.
    pub(in crate::config) fn ratio(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
    ) -> Option<At<Ratio>> {
        self.leaf(decoder, name, values::ratio)
    }

    /// Reads one of the key's words, which mean `meanings` in their order.
    pub(in crate::config) fn word<T: Copy>(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
        meanings: &[T],
    ) -> Option<At<T>> {
        let Kind::Word { today, later } = self.section.keys[self.index(name)].kind else {
            return None;
        };
        debug_assert_eq!(today.len(), meanings.len(), "one meaning for each word of `{name}`");
        self.leaf(decoder, name, |text| {
            let known = today.iter().zip(meanings).find(|(word, _)| **word == text);
            if let Some((_, meaning)) = known {
                return Ok(*meaning);
            }
            let list = today.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
            if later.contains(&text) {
                return values::invalid(
                    format!("`{name}: {text}` is not supported in this version"),
                    format!("write one of {list}"),
                );
            }
            let meant = nearest(text, today.iter().copied());
            let help = meant.map_or_else(
                || format!("write one of {list}"),
                |word| format!("did you mean `{word}`? write one of {list}"),
            );
            values::invalid(format!("`{name}` cannot be {}", quoted(text)), help)
        })
    }

    /// Reads a rate in either of its forms.
    pub(in crate::config) fn rate(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
    ) -> Option<At<Rate>> {
        let limit = self.limit(decoder, name)?;
        decoder.keep(limit.value.steady(), limit.place)
    }

    /// Reads a limit in either of its forms.
    pub(in crate::config) fn limit(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
    ) -> Option<At<Limit>> {
        let (key, node) = self.node(name)?;
        if !matches!(node.content, Content::Map(_)) {
            return decoder.leaf(node, key, values::limit);
        }
        let fields = self.map(decoder, name)?;
        let requests = fields.integer(decoder, "requests");
        let window = fields.duration(decoder, "window");
        let rate = values::rate_of(requests?.value, window?.value);
        decoder.keep(rate.map(|rate| Limit { rate, unit: None }), node.place)
    }

    /// Reads each item of a list, of which there must be one if the key is required.
    pub(in crate::config) fn list<T>(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
        mut read: impl FnMut(&mut Decoder<'s>, &'n Node<'s>) -> Option<T>,
    ) -> Vec<T> {
        let Some((key, node)) = self.node(name) else { return Vec::new() };
        let items = match &node.content {
            Content::List(items) => items,
            // One item, whose own problems are told as well.
            Content::Map(entries) if is_of_maps(key.kind) => {
                decoder.missing_dash(key, node, entries.first().map(|(name, _)| name));
                return read(decoder, node).into_iter().collect();
            }
            Content::Empty | Content::Scalar(_) | Content::Map(_) => {
                decoder.wrong_type(node, &format!("`{name}`"), key.kind);
                return Vec::new();
            }
        };
        decoder.demand_one(key, node);
        let mut values = Vec::with_capacity(items.len());
        values.extend(items.iter().filter_map(|item| read(decoder, item)));
        values
    }

    /// Reads a plain value or a list of them, of which there must be one if the key is required.
    pub(in crate::config) fn several<T>(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
        read: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Vec<At<T>> {
        match self.node(name) {
            Some((key, node)) => {
                decoder.demand_one(key, node);
                decoder.each(key, node, read)
            }
            None => self.leaf(decoder, name, read).into_iter().collect(),
        }
    }

    fn index(&self, name: &str) -> usize {
        let index = self.section.keys.iter().position(|key| key.name == name);
        debug_assert!(index.is_some(), "`{name}` is not in the vocabulary");
        index.unwrap_or_default()
    }
}

/// Reads a whole number within the bounds of `kind`.
pub(in crate::config) fn integer(name: &str, kind: Kind, text: &str) -> Result<u64, Invalid> {
    let number = values::integer(text)?;
    if let Kind::Integer { min, max } = kind
        && !(min..=max).contains(&number)
    {
        return values::invalid(
            format!("`{name}` cannot be {number}"),
            format!("write a number from {min} to {max}"),
        );
    }
    Ok(number)
}

/// Reports whether a value of this kind is a list of maps.
fn is_of_maps(kind: Kind) -> bool {
    matches!(kind, Kind::List(of) if section_of(*of).is_some())
}

/// Returns the section that a value of this kind opens.
fn section_of(kind: Kind) -> Option<&'static Section> {
    if let Kind::Either(plain, long) = kind {
        return section_of(*plain).or_else(|| section_of(*long));
    }
    if let Kind::Section(section) = kind { Some(section) } else { None }
}
