//! The file as a tree, which keeps every value's place.
//!
//! The tree is untyped on purpose. A typed parse stops at its first error; over a tree the decoder
//! reports all of them. Scalars keep the text that stands in the file, so that `1.10`, `0x10` and
//! `no` reach a text field as they were written, and nothing is a number before a key asks for one.

use super::{problem::Problem, yaml::Reader};
use std::{borrow::Cow, collections::HashSet, ops::Range};

/// Where a value stands in the text, as byte offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    start: u32,
    end: u32,
    /// The alias through which the value came here, or the value's own place.
    used: (u32, u32),
}

impl Place {
    /// Returns the place of the bytes `range` of the text.
    pub(super) fn of(range: Range<usize>) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let (start, end) = (small(range.start), small(range.end));
        Self { start, end, used: (start, end) }
    }

    /// Returns the bytes of the value itself.
    pub(super) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the bytes of the alias that stands for the value, if one does.
    pub(super) fn alias(self) -> Option<Range<usize>> {
        (self.used != (self.start, self.end)).then_some(self.used.0 as usize..self.used.1 as usize)
    }

    /// Reports whether the value stands in quotes, which makes it text and never a number.
    pub(super) fn is_quoted(self, text: &str) -> bool {
        text.get(self.range()).is_some_and(|t| t.starts_with(['"', '\'']))
    }
}

/// One value of the file and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node<'s> {
    pub place: Place,
    pub content: Content<'s>,
}

/// What a value is, before any key says what it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content<'s> {
    /// Nothing after the colon, `~` or `null`.
    Empty,
    /// Text, quoted or block text decoded, everything else as written.
    Scalar(Cow<'s, str>),
    List(Vec<Node<'s>>),
    /// In the order of the file, duplicates included.
    Map(Vec<(Name<'s>, Node<'s>)>),
}

/// The key of a map's entry, which is always a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name<'s> {
    pub place: Place,
    pub text: Cow<'s, str>,
}

impl<'s> Node<'s> {
    /// Parses `text`, which has no byte order mark.
    ///
    /// # Errors
    /// The first place where the text is not YAML, or where it passes a bound.
    pub(super) fn parse(text: &'s str) -> Result<Self, Problem> {
        Reader::new(text).read()
    }

    /// Returns how many values and keys it is made of.
    pub(super) fn size(&self) -> usize {
        let inside = match &self.content {
            Content::Empty | Content::Scalar(_) => 0,
            Content::List(items) => items.iter().map(Self::size).sum(),
            Content::Map(entries) => entries.iter().map(|(_, value)| 1 + value.size()).sum(),
        };
        1 + inside
    }

    /// Notes that it stands where an alias is, as all that is in it does.
    pub(super) fn use_at(&mut self, alias: Place) {
        self.place.used = alias.used;
        match &mut self.content {
            Content::Empty | Content::Scalar(_) => {}
            Content::List(items) => items.iter_mut().for_each(|item| item.use_at(alias)),
            Content::Map(entries) => {
                for (name, value) in entries {
                    name.place.used = alias.used;
                    value.use_at(alias);
                }
            }
        }
    }
}

/// Puts what a key `<<` names into the map around it: what the map says itself wins, then what is
/// named first.
pub(super) fn merge<'s>(
    entries: &mut Vec<(Name<'s>, Node<'s>)>,
    text: &str,
) -> Result<(), Problem> {
    let is_merge = |key: &Name<'_>| key.text == "<<" && !key.place.is_quoted(text);
    if !entries.iter().any(|(key, _)| is_merge(key)) {
        return Ok(());
    }
    let (merges, mut own): (Vec<_>, Vec<_>) =
        std::mem::take(entries).into_iter().partition(|(key, _)| is_merge(key));
    let mut known: HashSet<_> = own.iter().map(|(key, _)| key.text.clone()).collect();
    for (_, value) in merges {
        let sources = match value {
            Node { content: Content::List(items), .. } => items,
            one => vec![one],
        };
        for source in sources {
            let Content::Map(inherited) = source.content else {
                return Err(Problem::error(source.place, "`<<` takes maps only")
                    .label("this is not a map")
                    .help("write `<<: *anchor` where the anchor stands before a map"));
            };
            for entry in inherited {
                if known.insert(entry.0.text.clone()) {
                    own.push(entry);
                }
            }
        }
    }
    *entries = own;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    #[test]
    fn scalars_keep_the_text_of_the_file() {
        let text = "a: [1.10, 0x10, no, 1_000, '5', \"q\\t\", 2020-01-01, .nan, 'it''s', !!int 5, ~, \"\", null]";
        check(text, "{a: [1.10, 0x10, no, 1_000, 5, q\t, 2020-01-01, .nan, it's, 5, ~, , ~]}");
    }

    #[test]
    fn keys_keep_their_text_too() {
        check("on: 1\n\"x\": 2\n? y\n: 3\nü: ä\n", "{on: 1, x: 2, y: 3, ü: ä}");
    }

    #[test]
    fn every_duplicate_reaches_the_decoder() {
        check("a: 1\nb: {c: 1, c: 2, c: 3}\na: 2\n", "{a: 1, b: {c: 1, c: 2, c: 3}, a: 2}");
    }

    #[test]
    fn a_merge_key_adds_what_the_map_does_not_say() {
        check("b: &b {x: 1, y: 1}\nc: {<<: *b, y: 2}\n", "{b: {x: 1, y: 1}, c: {y: 2, x: 1}}");
        check("c: {<<: [{x: 1}, {x: 2, z: 3}], y: 2}\n", "{c: {y: 2, x: 1, z: 3}}");
        check("c: {'<<': 1}\n", "{c: {<<: 1}}");
        let problem = Node::parse("a: {<<: 5}").unwrap_err();
        assert_eq!(problem.message(), "`<<` takes maps only");
    }

    #[test]
    fn an_alias_keeps_both_of_its_places() {
        let text = "a: &x 10\nb: *x\n";
        let Content::Map(entries) = Node::parse(text).unwrap().content else { panic!("a map") };
        let place = entries[1].1.place;
        assert_eq!(&text[place.range()], "10");
        assert_eq!(place.alias().map(|r| &text[r]), Some("*x"));
        assert_eq!(entries[0].1.place.alias(), None);
    }

    #[test]
    fn a_bomb_of_aliases_is_refused() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            let inner = vec![format!("*a{}", i - 1); 9].join(",");
            writeln!(bomb, "a{i}: &a{i} [{inner}]").unwrap();
        }
        let problem = Node::parse(&bomb).unwrap_err();
        assert!(problem.message().contains("bound that protects the gateway"), "{problem:?}");
    }

    #[test]
    fn a_tower_of_brackets_is_refused() {
        for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000)] {
            let problem = Node::parse(&text).unwrap_err();
            assert!(problem.message().contains("bound"), "{problem:?}");
        }
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(shown(&Node::parse(text).unwrap()), expected);
    }

    fn shown(node: &Node<'_>) -> String {
        match &node.content {
            Content::Empty => "~".to_owned(),
            Content::Scalar(text) => text.to_string(),
            Content::List(items) => {
                format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", "))
            }
            Content::Map(entries) => {
                let entry = |(k, v): &(Name<'_>, Node<'_>)| format!("{}: {}", k.text, shown(v));
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }
}
