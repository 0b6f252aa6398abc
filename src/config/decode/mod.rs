//! A cursor over one map of the tree, which knows the map's keys from the vocabulary and reports
//! everything that does not fit: unknown, duplicate, missing and later keys, wrong types, bounds.
//!
//! Nothing here stops at an error. A value that cannot be read is reported and left out.

mod fields;

pub(super) use fields::integer;

use super::{
    node::{Content, Name, Node, Place},
    problem::{Problem, Problems, quoted},
    values::{self, Invalid},
    vocabulary::{Default, Key, Kind, Section},
};
use std::sync::Arc;

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
    /// The keys that were reported as missing.
    pub missing: Vec<&'static str>,
    /// An upstream of the file, for hints.
    pub upstream: Option<Arc<str>>,
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
    pub(super) fn new(text: &'s str) -> Self {
        Self { text, problems: Problems::default(), missing: Vec::new(), upstream: None }
    }

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
        let (known, unknown): (Vec<_>, Vec<_>) =
            entries.iter().partition(|(key, _)| section.has(&key.text));
        // A misspelled key stands for the one that is meant, unless that is written too.
        for (key, value) in known.into_iter().chain(unknown) {
            self.field(&mut fields, key, value);
        }
        for (key, value) in section.keys.iter().zip(&fields.values) {
            if key.default == Default::Required && value.is_none() {
                self.report_missing(section, key, place);
            }
        }
        Some(fields)
    }

    fn report_missing(&mut self, section: &Section, key: &Key, place: Place) {
        let value = match &self.upstream {
            Some(upstream) if key.name == "upstream" => upstream.to_string(),
            _ => key.kind.example(),
        };
        let message = format!("{} needs `{}`", section.title, key.name);
        let help = format!("write `{}: {value}`", key.name);
        self.problems.add(Problem::error(place, message).help(help));
        self.missing.push(key.name);
    }

    fn field<'n>(&mut self, fields: &mut Fields<'n, 's>, key: &Name<'s>, value: &'n Node<'s>) {
        let (section, name) = (fields.section, key.text.as_ref());
        let Some(index) = section.keys.iter().position(|known| known.name == name) else {
            return self.unknown(fields, key, value);
        };
        if let Some(problem) = refused_key(section, &section.keys[index], key.place) {
            return self.problems.add(problem);
        }
        match &mut fields.values[index] {
            Some((first, _)) => self.problems.add(duplicate(name, *first, key.place)),
            empty => *empty = Some((key.place, value)),
        }
    }

    /// Reports a key that is not known, and reads its value as that of the key that is meant.
    fn unknown<'n>(&mut self, fields: &mut Fields<'n, 's>, key: &Name<'s>, value: &'n Node<'s>) {
        let section = fields.section;
        let message = format!("{} has no key {}", section.title, quoted(&key.text));
        if self.problems.are_many() {
            return self.problems.add(Problem::error(key.place, message).help("remove it"));
        }
        let Some(meant) = section.meant(&key.text) else {
            let help = format!("write {}", names(section));
            return self.problems.add(Problem::error(key.place, message).help(help));
        };
        let message = format!("{message}; did you mean `{meant}`?");
        self.problems.add(Problem::error(key.place, message).help(format!("write `{meant}`")));
        let index = section.keys.iter().position(|known| known.name == meant);
        if let Some(index) = index.filter(|at| section.keys[*at].takes_a_value()) {
            fields.values[index].get_or_insert((key.place, value));
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

    /// Reports a map where a list of maps is wanted.
    fn missing_dash(&mut self, key: &Key, node: &Node<'s>, first: Option<&Name<'s>>) {
        let place = first.map_or(node.place, |name| name.place);
        let first = first.map_or("name", |name| &name.text);
        let name = key.name;
        let is_in_braces = self.text[node.place.range().start..].starts_with('{');
        let (mark, help) = if is_in_braces {
            ("`[` and `]` are", format!("write `{name}: [{{ {first}: … }}]`"))
        } else {
            ("a `-` is", format!("write `- {first}: …`, and indent the item's other keys as far"))
        };
        let message = format!("{mark} missing: `{name}` is a list");
        let problem = Problem::error(place, message).label("an item begins here");
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
        let is_text = node.place.is_quoted(self.text)
            && matches!(key.kind, Kind::Flag | Kind::Integer { .. } | Kind::Ratio | Kind::Status);
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

    /// Reports an empty list of what is required.
    fn demand_one(&mut self, key: &Key, node: &Node<'s>) {
        if matches!(&node.content, Content::List(items) if items.is_empty())
            && key.default == Default::Required
        {
            let name = key.name;
            let problem = Problem::error(node.place, format!("`{name}` is empty"))
                .help(format!("write at least one: `{name}: {}`", key.kind.example()));
            self.problems.add(problem);
        }
    }

    /// Reads a plain value or a list of them.
    pub(super) fn each<T>(
        &mut self,
        key: &Key,
        node: &Node<'s>,
        read: impl Fn(&str) -> Result<T, Invalid>,
    ) -> Vec<At<T>> {
        match &node.content {
            Content::List(items) => {
                // The values are looked through for each request.
                let fits = self.fits(key, node, items.len(), MAX_VALUES);
                let items = if fits { &items[..] } else { &[] };
                items.iter().filter_map(|item| self.leaf(item, key, &read)).collect()
            }
            Content::Empty | Content::Scalar(_) | Content::Map(_) => {
                self.leaf(node, key, &read).into_iter().collect()
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
            let Some(name) = self.keep(values::text(&name.text), name.place) else { continue };
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

fn duplicate(name: &str, first: Place, again: Place) -> Problem {
    Problem::error(again, format!("{} is written twice", quoted(name)))
        .label("again here")
        .also(first, "first here")
        .help("remove one of the two")
}

/// Returns what is wrong with a key that is known, and takes no value.
fn refused_key(section: &Section, key: &Key, place: Place) -> Option<Problem> {
    let (message, help) = if matches!(key.kind, Kind::Foreign) {
        (format!("{} takes no `{}`", section.title, key.name), key.doc)
    } else if matches!(key.kind, Kind::Later) {
        (format!("`{}` is not supported in this version", key.name), "remove it")
    } else {
        return None;
    };
    Some(Problem::error(place, message).help(help))
}

fn names(section: &Section) -> String {
    let today = section.keys.iter().filter(|key| key.takes_a_value());
    let names: Vec<_> = today.map(|key| format!("`{}`", key.name)).collect();
    format!("one of {}", names.join(", "))
}
