//! Text to tree: one pass of the YAML parser over a file, keeping every node's place.
//!
//! The tree is untyped on purpose. A typed parse stops at its first error; over a tree the decoder
//! reports all of them. Scalars keep the text that stands in the file, so that `1.10`, `0x10` and
//! `no` reach a text field as they were written, and nothing is a number before a key asks for one.

use super::{problem::Problem, syntax};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_yaml::{
    Location, Options, Spanned,
    options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy},
};
use std::{borrow::Cow, collections::HashSet, fmt, ops::Range};

/// The most events that aliases may add to a file, all together.
///
/// Ten thousand routes that share one list of three rules through an alias need 320,000; a bomb
/// that doubles at every line is stopped there in well under a second.
const MAX_ALIASED: usize = 500_000;

/// The most nodes of a file: ten thousand routes with five rules each need 600,000. It bounds the
/// tree's memory to about 200 MiB whatever the file says.
const MAX_NODES: usize = 2_000_000;

/// The deepest nesting; the deepest key of the vocabulary is at nine.
const MAX_DEPTH: usize = 64;

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

    fn from_locations(defined: Location, referenced: Location) -> Self {
        let range = |location: Location| {
            let span = location.span();
            let small = |n: Option<u64>| u32::try_from(n.unwrap_or(0)).unwrap_or(u32::MAX);
            let start = small(span.byte_offset());
            (start, start.saturating_add(small(span.byte_len())))
        };
        let (start, end) = range(defined);
        Self { start, end, used: range(referenced) }
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
        let mut root: Self = serde_yaml::from_str_with_options(text, options())
            .map_err(|e| syntax::problem(text, &e))?;
        root.settle(text)?;
        Ok(root)
    }

    /// Gives every plain scalar its text as written, and resolves merge keys.
    fn settle(&mut self, text: &'s str) -> Result<(), Problem> {
        match &mut self.content {
            // The parser gives a number or a truth value as such; `Empty` only says that there was none.
            Content::Scalar(written) if written.is_empty() => {
                if let Some(slice) = text.get(self.place.range())
                    && !slice.starts_with(['"', '\''])
                {
                    *written = Cow::Borrowed(slice);
                }
            }
            Content::Empty | Content::Scalar(_) => {}
            Content::List(items) => items.iter_mut().try_for_each(|item| item.settle(text))?,
            Content::Map(entries) => {
                entries.iter_mut().try_for_each(|(_, value)| value.settle(text))?;
                merge(entries, text)?;
            }
        }
        Ok(())
    }
}

fn options() -> Options {
    serde_yaml::options! {
        with_snippet: false,
        // Every entry is streamed to the visitor, so that the decoder can report all duplicates.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        // Which texts are truth values is for a key to say; this asks the parser about fewest.
        strict_booleans: true,
        alias_limits: serde_yaml::alias_limits! {
            max_total_replayed_events: MAX_ALIASED,
            max_replay_stack_depth: 16,
        },
        budget: serde_yaml::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            // Two, so that a second one is refused as such and not as a bound.
            max_documents: 2,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
            max_aliases: 200_000,
            max_anchors: 10_000,
            max_recorded_anchor_events: MAX_ALIASED,
            enforce_alias_anchor_ratio: false,
        },
    }
}

/// Puts what a key `<<` names into the map around it: what the map says itself wins, then what is
/// named first.
fn merge<'s>(entries: &mut Vec<(Name<'s>, Node<'s>)>, text: &str) -> Result<(), Problem> {
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

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Content<'de>>::deserialize(deserializer)?;
        let place = Place::from_locations(spanned.defined, spanned.referenced);
        Ok(Self { place, content: spanned.value })
    }
}

impl<'de> Deserialize<'de> for Content<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// Numbers and truth values become an empty text, which `Node::settle` replaces by what is written.
const AS_WRITTEN: Content<'static> = Content::Scalar(Cow::Borrowed(""));

struct ContentVisitor;

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(AS_WRITTEN)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(AS_WRITTEN)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(AS_WRITTEN)
    }

    fn visit_i128<E>(self, _: i128) -> Result<Self::Value, E> {
        Ok(AS_WRITTEN)
    }

    fn visit_u128<E>(self, _: u128) -> Result<Self::Value, E> {
        Ok(AS_WRITTEN)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(AS_WRITTEN)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Scalar(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Scalar(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Content::Scalar(Cow::Owned(text)))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Empty)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Content::Empty)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Content::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Content::Map(entries))
    }
}

impl<'de> Deserialize<'de> for Name<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Word<'de>>::deserialize(deserializer)?;
        let place = Place::from_locations(spanned.defined, spanned.referenced);
        Ok(Self { place, text: spanned.value.0 })
    }
}

/// A text that is borrowed where the file has it as it is. (`Cow` of serde never borrows.)
struct Word<'s>(Cow<'s, str>);

impl<'de> Deserialize<'de> for Word<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(WordVisitor)
    }
}

struct WordVisitor;

impl<'de> Visitor<'de> for WordVisitor {
    type Value = Word<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a word")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Word(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Word(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<Self::Value, E> {
        Ok(Word(Cow::Owned(text)))
    }
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
