//! A cursor over one map of the tree, which knows the map's keys from the vocabulary and reports
//! everything that does not fit: unknown, duplicate, missing and later keys, wrong types, bounds.
//!
//! Nothing here stops at an error. A value that cannot be read is reported and left out.

use super::{
    error::{Problem, Problems, quoted},
    node::{Content, Node, Place},
    values::{self, Invalid},
    vocabulary::{Default, Key, Kind, Section, nearest},
};
use crate::flow::Rate;
use std::time::Duration;

/// The most values of a list that a request may be compared with one by one.
const MAX_VALUES: usize = 1000;

/// The most entries of a map of the user's own names.
const MAX_ENTRIES: usize = 200;

/// A value and where it stands.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<T> {
    pub value: T,
    pub place: Place,
    /// `false` if the value is the key's default.
    pub written: bool,
}

impl<T> At<T> {
    /// Returns the value changed, at the same place.
    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> At<U> {
        At { value: change(self.value), place: self.place, written: self.written }
    }
}

/// What a decoder carries along: the text of the file and the problems found in it.
#[derive(Debug)]
pub(super) struct Decoder<'s> {
    pub text: &'s str,
    pub problems: Problems,
}

/// The values of one map, by key.
#[derive(Debug)]
pub(super) struct Fields<'n, 's> {
    section: &'static Section,
    /// Where the map begins, to say what is missing in it.
    pub place: Place,
    /// In the order of the section's keys.
    values: Vec<Option<(Place, &'n Node<'s>)>>,
}

impl<'s> Decoder<'s> {
    /// Opens the map `node` as a `section`.
    pub(super) fn fields<'n>(
        &mut self,
        node: &'n Node<'s>,
        section: &'static Section,
    ) -> Option<Fields<'n, 's>> {
        let Content::Map(entries) = &node.content else {
            self.wrong_type(node, section.title, Kind::Section(section));
            return None;
        };
        let place = entries.first().map_or(node.place, |(key, _)| key.place);
        let mut fields = Fields { section, place, values: vec![None; section.keys.len()] };
        for (key, value) in entries {
            self.field(&mut fields, key, value);
        }
        for (key, value) in section.keys.iter().zip(&fields.values) {
            if key.default == Default::Required && value.is_none() {
                let problem =
                    Problem::error(place, format!("{} needs `{}`", section.title, key.name))
                        .help(format!("write `{}: {}`", key.name, key.kind.example()));
                self.problems.add(problem);
            }
        }
        Some(fields)
    }

    fn field<'n>(&mut self, fields: &mut Fields<'n, 's>, key: &Node<'s>, value: &'n Node<'s>) {
        let section = fields.section;
        let name = match &key.content {
            Content::Scalar(name) => name.as_ref(),
            Content::Empty => "null",
            Content::List(_) | Content::Map(_) => {
                let problem = Problem::error(key.place, "a key must be a word");
                return self.problems.add(problem.help(format!("write {}", names(section))));
            }
        };
        let Some(index) = section.keys.iter().position(|known| known.name == name) else {
            let meant = if self.problems.are_many() { None } else { section.meant(name) };
            return self.problems.add(unknown_key(section, key.place, name, meant));
        };
        if matches!(section.keys[index].kind, Kind::Later) {
            let message = format!("`{name}` is not supported in this version");
            let problem = Problem::error(key.place, message).help("remove it");
            return self.problems.add(problem);
        }
        match &mut fields.values[index] {
            Some((first, _)) => self.problems.add(duplicate(name, *first, key.place)),
            empty => *empty = Some((key.place, value)),
        }
    }

    /// Reports a list or a map with more than `most` items.
    fn fits(&mut self, key: &Key, node: &Node<'s>, count: usize, most: usize) -> bool {
        if count > most {
            let message = format!("`{}` holds {count} values", key.name);
            let problem = Problem::error(node.place, message);
            self.problems.add(problem.help(format!("write at most {most}")));
        }
        count <= most
    }

    fn wrong_type(&mut self, node: &Node<'s>, name: &str, kind: Kind) {
        let found = match &node.content {
            Content::Empty => "nothing",
            Content::Scalar(_) => "a plain value",
            Content::List(_) => "a list",
            Content::Map(_) => "a map",
        };
        let problem = Problem::error(
            node.place,
            format!("expected {} for {name}, not {found}", kind.words()),
        );
        let help = format!("write `{}`", kind.example());
        self.problems.add(problem.help(help));
    }

    /// Reads one plain value with `read`.
    pub(super) fn leaf<T>(
        &mut self,
        node: &Node<'s>,
        key: &Key,
        read: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Option<At<T>> {
        let Content::Scalar(text) = &node.content else {
            self.wrong_type(node, &format!("`{}`", key.name), key.kind);
            return None;
        };
        let is_text = node.is_quoted(self.text)
            && matches!(key.kind, Kind::Flag | Kind::Integer { .. } | Kind::Status);
        let value = if is_text {
            values::invalid(
                format!("expected {} for `{}`, not a text", key.kind.words(), key.name),
                format!("write it without quotes: `{}: {text}`", key.name),
            )
        } else {
            read(text)
        };
        self.keep(value, node.place)
    }

    /// Returns the value, or reports what is wrong with it.
    pub(super) fn keep<T>(&mut self, value: Result<T, Invalid>, place: Place) -> Option<At<T>> {
        match value {
            Ok(value) => Some(At { value, place, written: true }),
            Err(Invalid { message, help }) => {
                self.problems.add(Problem::error(place, message).help(help));
                None
            }
        }
    }

    /// Reads a map of the user's own names, without duplicates.
    pub(super) fn entries<'n>(
        &mut self,
        node: &'n Node<'s>,
        key: &Key,
    ) -> Vec<(At<String>, &'n Node<'s>)> {
        let Content::Map(entries) = &node.content else {
            self.wrong_type(node, &format!("`{}`", key.name), key.kind);
            return Vec::new();
        };
        if !self.fits(key, node, entries.len(), MAX_ENTRIES) {
            return Vec::new();
        }
        let mut read: Vec<(At<String>, &Node<'s>)> = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            let Some(name) = self.leaf(name, key, values::text) else { continue };
            match read.iter().find(|(known, _)| known.value == name.value) {
                Some((first, _)) => {
                    self.problems.add(duplicate(&name.value, first.place, name.place));
                }
                None => read.push((name, value)),
            }
        }
        read
    }
}

impl<'n, 's> Fields<'n, 's> {
    /// Returns the value as it stands, with its key.
    pub(super) fn node(&self, name: &str) -> Option<(&'static Key, &'n Node<'s>)> {
        let index = self.index(name);
        self.values[index].map(|(_, node)| (&self.section.keys[index], node))
    }

    /// Returns where the key itself stands, if it is written.
    pub(super) fn key_place(&self, name: &str) -> Option<Place> {
        self.values[self.index(name)].map(|(place, _)| place)
    }

    /// Opens the map under `name`, if it is written.
    pub(super) fn map(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<Self> {
        let (key, node) = self.node(name)?;
        decoder.fields(node, section_of(key.kind)?)
    }

    /// Opens the map under `name`, or one in which every key has its default.
    pub(super) fn map_or_defaults(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<Self> {
        if self.node(name).is_some() {
            return self.map(decoder, name);
        }
        let section = section_of(self.section.keys[self.index(name)].kind)?;
        Some(Self { section, place: self.place, values: vec![None; section.keys.len()] })
    }

    /// Reports whether nothing at all is written.
    pub(super) fn is_empty(&self) -> bool {
        self.values.iter().all(Option::is_none)
    }

    /// Reads a plain value, or its default.
    pub(super) fn leaf<T>(
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
    pub(super) fn flag(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<At<bool>> {
        self.leaf(decoder, name, values::flag)
    }

    /// Reads a whole number within the bounds of its key.
    pub(super) fn integer(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<At<u64>> {
        let key = &self.section.keys[self.index(name)];
        self.leaf(decoder, name, |text| integer(key.name, key.kind, text))
    }

    /// Reads a duration within the bounds of its key.
    pub(super) fn duration(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<At<Duration>> {
        let kind = self.section.keys[self.index(name)].kind;
        self.leaf(decoder, name, |text| {
            let duration = values::duration(text)?;
            let Kind::Duration { min, max } = kind else { return Ok(duration) };
            let show = |d: Duration| humantime::format_duration(d).to_string().replace(' ', "");
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
    pub(super) fn size(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<At<u64>> {
        let kind = self.section.keys[self.index(name)].kind;
        self.leaf(decoder, name, |text| match (values::size(text)?, kind) {
            (size, Kind::Size { max }) if size > max => values::invalid(
                format!("`{name}` cannot be as large as {}", quoted(text)),
                format!("write at most `{}`", bytesize::ByteSize(max).display().iec()),
            ),
            (size, _) => Ok(size),
        })
    }

    /// Reads one of the key's words, which mean `meanings` in their order.
    pub(super) fn word<T: Copy>(
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
    pub(super) fn rate(&self, decoder: &mut Decoder<'s>, name: &str) -> Option<At<Rate>> {
        let (key, node) = self.node(name)?;
        if !matches!(node.content, Content::Map(_)) {
            return decoder.leaf(node, key, values::rate);
        }
        let fields = self.map(decoder, name)?;
        let requests = fields.integer(decoder, "requests");
        let window = fields.duration(decoder, "window");
        decoder.keep(values::rate_of(requests?.value, window?.value), node.place)
    }

    /// Reads each item of a list, of which there must be one if the key is required.
    pub(super) fn list<T>(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
        mut read: impl FnMut(&mut Decoder<'s>, &'n Node<'s>) -> Option<T>,
    ) -> Vec<T> {
        let Some((key, node)) = self.node(name) else { return Vec::new() };
        let Content::List(items) = &node.content else {
            decoder.wrong_type(node, &format!("`{name}`"), key.kind);
            return Vec::new();
        };
        if items.is_empty() && key.default == Default::Required {
            let problem = Problem::error(node.place, format!("`{name}` is empty"))
                .help(format!("write at least one: `{name}: {}`", key.kind.example()));
            decoder.problems.add(problem);
        }
        items.iter().filter_map(|item| read(decoder, item)).collect()
    }

    /// Reads a plain value or a list of them.
    pub(super) fn several<T>(
        &self,
        decoder: &mut Decoder<'s>,
        name: &str,
        read: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Vec<At<T>> {
        match self.node(name) {
            Some((key, node)) => match &node.content {
                Content::List(items) => {
                    // The values are looked through for each request.
                    let items = if decoder.fits(key, node, items.len(), MAX_VALUES) {
                        &items[..]
                    } else {
                        &[]
                    };
                    items.iter().filter_map(|item| decoder.leaf(item, key, &read)).collect()
                }
                Content::Empty | Content::Scalar(_) | Content::Map(_) => {
                    decoder.leaf(node, key, &read).into_iter().collect()
                }
            },
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
pub(super) fn integer(name: &str, kind: Kind, text: &str) -> Result<u64, Invalid> {
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

/// Returns the section that a value of this kind opens.
fn section_of(kind: Kind) -> Option<&'static Section> {
    if let Kind::Either(plain, long) = kind {
        return section_of(*plain).or_else(|| section_of(*long));
    }
    if let Kind::Section(section) = kind { Some(section) } else { None }
}

fn duplicate(name: &str, first: Place, again: Place) -> Problem {
    Problem::error(again, format!("{} is written twice", quoted(name)))
        .label("again here")
        .also(first, "first here")
        .help("remove one of the two")
}

fn unknown_key(section: &Section, place: Place, name: &str, meant: Option<&str>) -> Problem {
    let problem = Problem::error(place, format!("{} has no key {}", section.title, quoted(name)));
    problem.help(meant.map_or_else(
        || format!("write {}", names(section)),
        |meant| format!("did you mean `{meant}`?"),
    ))
}

fn names(section: &Section) -> String {
    let today = section.keys.iter().filter(|key| !matches!(key.kind, Kind::Later));
    let names: Vec<_> = today.map(|key| format!("`{}`", key.name)).collect();
    format!("one of {}", names.join(", "))
}
