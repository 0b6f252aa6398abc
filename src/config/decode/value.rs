//! A value to be read, with what there is to say about it where it cannot be.

use super::error::Stop;
use crate::config::{
    diagnostics::{Problem, Problems, SourceSpan, Substitution, Substitutions, quoted},
    read::{Content, Name, Node},
    vocabulary::{self, Form, Vocabulary, nearest},
};
use serde::de::{Error, Expected, Unexpected};
use std::cell::RefCell;

/// The context of reading: the text of the file, its words, and the problems found so far.
pub(super) struct Reader<'r> {
    pub(super) text: &'r str,
    pub(super) substitutions: &'r Substitutions,
    pub(super) vocabulary: &'r Vocabulary,
    pub(super) problems: RefCell<Problems>,
    /// The keys that were reported as missing.
    pub(super) missing: RefCell<Vec<String>>,
}

/// A value to be read.
#[derive(Clone, Copy)]
pub(super) struct Value<'n, 's> {
    pub(super) shape: Shape<'n, 's>,
    pub(super) span: SourceSpan,
    /// Where its key stands; `None` if the value is a default.
    pub(super) key_span: Option<SourceSpan>,
    /// Its key, or that of the list or the map that it is in.
    pub(super) key: Option<&'static vocabulary::Key>,
    /// True if it is one item where a list may stand.
    pub(super) stands_for_list: bool,
    pub(super) reader: &'n Reader<'n>,
}

impl<'n, 's> Value<'n, 's> {
    pub(super) fn add(self, problem: Problem) {
        self.reader.problems.borrow_mut().add(problem);
    }

    pub(super) fn report(self, stop: Stop) {
        if matches!(self.shape, Shape::Unset) {
            // The variable has been reported.
            return;
        }
        let stop = match (self.substitution(), self.key) {
            (Some(Substitution { written, .. }), Some(key)) => {
                stop.without_value(written, key.name, &key.form.noun())
            }
            _ => stop,
        };
        let hint = match &stop {
            Stop::Kind { of, .. } => {
                self.unquoted().map(str::to_owned).or_else(|| self.hint(of.is_some()))
            }
            Stop::Invalid { .. } | Stop::Bound { .. } | Stop::Reported => None,
        };
        if let Some(problem) = stop.problem(self.span, self.key_name(), self.shape) {
            self.add(if let Some(hint) = hint { problem.help(hint) } else { problem });
        }
    }

    /// Returns what to write where a value of another kind stands, with the value if it is a plain
    /// one. For an item of a list, which `may_be_item`, the hint leaves out the key and the list.
    fn hint(self, may_be_item: bool) -> Option<String> {
        let key = self.key?;
        let hint = key.help?;
        let list = format!("`{}: [", key.name);
        let hint = if may_be_item && hint.contains(&list) {
            &hint.replace(&list, "`").replace("]`", "`")
        } else {
            hint
        };
        let Shape::Scalar(text) = self.shape else { return Some(hint.to_owned()) };
        // As in Traefik's ``PathPrefix(`/api`)``.
        let text = text.split('`').nth(1).filter(|path| path.starts_with('/')).unwrap_or(text);
        let is_word = text.bytes().all(|byte| byte.is_ascii_alphabetic());
        if is_word || text.contains('`') || self.substitution().is_some() {
            return Some(hint.to_owned());
        }
        let is_url = text.contains("://") || text.starts_with("unix:");
        let place = if is_url { "http://…" } else { "…" };
        Some(hint.replace(place, quoted(text).trim_matches('`')))
    }

    /// Returns what to write where a text in braces, or one with a `,` within braces, has no quotes.
    /// The text may be a secret, so the hint does not show it.
    fn unquoted(self) -> Option<&'static str> {
        let start = self.span.range().start;
        let rest = self.reader.text.get(start..)?;
        if let Shape::Map([(name, node)]) = self.shape
            && matches!(node.content, Content::Empty)
            && rest.starts_with(&format!("{{{}}}", name.text))
        {
            return Some("write a text in braces in quotes, as in `\"{client_ip}\"`");
        }
        let before = self.reader.text[..start].trim_end_matches([' ', ',']);
        let word = before.rsplit(['{', ',', '\n']).next()?.trim();
        let is_rest = matches!(self.shape, Shape::Empty)
            && rest.trim_start().starts_with(['}', ','])
            && !word.is_empty()
            && !word.contains(':');
        is_rest.then_some("write a text that contains a `,` in quotes, as in `\"one, two\"`")
    }

    /// Returns the substitution in it, if a variable is in it.
    fn substitution(self) -> Option<&'n Substitution> {
        self.key_span.and_then(|_| self.reader.substitutions.at(self.span))
    }

    pub(super) fn key_name(self) -> &'static str {
        self.key.map_or("", |key| key.name)
    }

    /// Reports whether it is text and never a number. A variable may need quotes in any case.
    pub(super) fn is_quoted(self) -> bool {
        self.key_span.is_some()
            && self.span.is_quoted(self.reader.text)
            && self.substitution().is_none()
    }

    pub(super) fn item(self, node: &'n Node<'s>) -> Self {
        Self { shape: Shape::of(node), span: node.span, ..self }
    }

    /// Returns where it is said to be: a map where its first key is.
    pub(super) fn start(self) -> SourceSpan {
        if let Shape::Map([(first, _), ..]) = self.shape { first.span } else { self.span }
    }

    /// Reports a list or a map with more than `most` items.
    pub(super) fn fits(self, count: usize, most: usize) -> bool {
        if count > most {
            let message = format!("`{}` holds {count} values", self.key_name());
            let problem = Problem::error(self.span, message);
            self.add(problem.help(format!("write at most {most}")));
        }
        count <= most
    }

    /// Reports an empty list of what is required.
    pub(super) fn demand_one(self) {
        let Some(key) = self.key.filter(|key| key.is_required()) else { return };
        let example = key.example();
        let problem = Problem::error(self.span, format!("`{}` is empty", key.name))
            .help(format!("write at least one: `{}: {example}`", key.name));
        self.add(problem);
    }

    /// Reports a map of names where a list of maps is wanted; returns whether this is one.
    pub(super) fn report_map_of_names(self, entries: &[(Name<'s>, Node<'s>)]) -> bool {
        let Some(Form::List(Form::Map(section))) = self.key.map(|key| key.form) else {
            return false;
        };
        let Some((first, _)) = entries.first() else { return false };
        let is_item = |(name, node): &(Name<'_>, Node<'_>)| {
            matches!(node.content, Content::Map(_))
                && section.keys.iter().all(|key| key.name != name.text)
        };
        if !entries.iter().all(is_item) {
            return false;
        }
        let name = self.key_name();
        let first = quoted(&first.text);
        let item = match section.keys.first() {
            Some(key) if key.name == "name" => format!("name: {}", first.trim_matches('`')),
            Some(key) => format!("{}: …", key.name),
            None => return false,
        };
        let message = format!("`{name}` is a list, not a map of names");
        let help = if self.is_in_braces() {
            format!("write `{name}: [{{ {item}, … }}]`")
        } else {
            format!("write `- {item}` in place of {first}, and the other keys below it")
        };
        self.add(Problem::error(self.start(), message).help(help));
        true
    }

    fn is_in_braces(self) -> bool {
        self.reader.text[self.span.range().start..].starts_with('{')
    }

    /// Reports a map where a list of maps is wanted.
    pub(super) fn missing_dash(self, entries: &[(Name<'s>, Node<'s>)]) {
        let first = entries.first().map_or("name", |(name, _)| &name.text);
        // The item's own problem says what is wrong.
        if first.strip_prefix('-').is_some_and(|key| !key.is_empty()) {
            return;
        }
        let name = self.key_name();
        let (mark, help) = if self.is_in_braces() {
            ("`[` and `]` are", format!("write `{name}: [{{ {first}: … }}]`"))
        } else {
            ("a `-` is", format!("write `- {first}: …`, and indent the item's other keys as far"))
        };
        let message = format!("{mark} missing: `{name}` is a list");
        let problem = Problem::error(self.start(), message).label("an item begins here");
        self.add(problem.help(help));
    }

    pub(super) fn text(self, expected: &dyn Expected) -> Result<&'n str, Stop> {
        let Shape::Scalar(text) = self.shape else {
            return Err(Stop::invalid_type(self.shape.unexpected(), expected));
        };
        Ok(text)
    }

    /// Reads what is a number or a truth value, and no text in quotes.
    pub(super) fn plain(self, expected: &dyn Expected) -> Result<&'n str, Stop> {
        let text = self.text(expected)?;
        if self.is_quoted() {
            return Err(Stop::invalid_type(Unexpected::Other("a text"), expected));
        }
        Ok(text)
    }

    /// Returns what is wrong with a word that is none of `words`.
    pub(super) fn no_word(self, text: &str, words: &[&str]) -> Stop {
        let list = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let name = self.key_name();
        let meant = self.key.and_then(|key| key.form.synonym(text));
        let help = meant.or_else(|| nearest(text, words.iter().copied())).map_or_else(
            || format!("write one of {list}"),
            |word| format!("did you mean `{word}`? write one of {list}"),
        );
        Stop::Invalid { message: format!("`{name}` cannot be {}", quoted(text)), help }
    }
}

#[derive(Clone, Copy)]
pub(super) enum Shape<'n, 's> {
    /// The key is not written, and has no default.
    Missing,
    Empty,
    /// See [`Content::Unset`].
    Unset,
    Scalar(&'n str),
    List(&'n [Node<'s>]),
    Map(&'n [(Name<'s>, Node<'s>)]),
}

impl<'n, 's> Shape<'n, 's> {
    pub(super) fn of(node: &'n Node<'s>) -> Self {
        match &node.content {
            Content::Empty => Self::Empty,
            Content::Unset => Self::Unset,
            Content::Scalar(text) => Self::Scalar(text),
            Content::List(items) => Self::List(items),
            Content::Map(entries) => Self::Map(entries),
        }
    }

    pub(super) fn unexpected(self) -> Unexpected<'n> {
        match self {
            Self::Missing | Self::Empty | Self::Unset => Unexpected::Unit,
            Self::Scalar(text) => Unexpected::Str(text),
            Self::List(_) => Unexpected::Seq,
            Self::Map(_) => Unexpected::Map,
        }
    }
}
