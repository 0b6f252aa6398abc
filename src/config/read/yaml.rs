//! Text to tree, by `serde_yaml`.
//!
//! The package parses, replays aliases and bounds both. Scalars are taken from the text where they
//! stand, because YAML makes `1.1` of `1.10` and `16` of `0x10`.

use super::{
    Content, Masked, Name, Node, syntax,
    variables::{BEGIN, expand},
};
use crate::config::diagnostics::{
    Environment, Problem, Problems, SourceSpan, Substitution, Substitutions,
};
use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, SeqAccess, Visitor},
};
use serde_yaml::{
    DuplicateKeyPolicy, Location, MergeKeyPolicy, NonFiniteFloatPolicy, Options, Spanned,
};
use std::{borrow::Cow, collections::HashSet, fmt, ops::Range};

/// The most values and keys that aliases may add to a file, all together.
///
/// Ten thousand routes that share one list of three rules through an alias need 280,000; a bomb
/// that doubles at every line is stopped there in well under a second.
const MAX_ALIASED: usize = 500_000;

/// The most nodes of a file: ten thousand routes with five rules each need 600,000. It bounds the
/// tree's memory to about 200 MiB whatever the file says.
const MAX_NODES: usize = 2_000_000;

/// The deepest nesting; the deepest key of the vocabulary is at nine. Each level takes stack.
const MAX_DEPTH: usize = 24;

/// The most bytes that variables may add to a configuration, all together.
const MAX_SUBSTITUTED: usize = 16 * 1024 * 1024;

/// The room that the files of a configuration have left, all together.
#[derive(Clone, Copy, Debug)]
pub(in crate::config) struct Budget {
    nodes: usize,
    /// Values and keys that aliases add.
    aliased: usize,
    /// Bytes that variables add.
    substituted: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { nodes: MAX_NODES, aliased: MAX_ALIASED, substituted: MAX_SUBSTITUTED }
    }
}

/// A file that is parsed.
#[derive(Debug)]
pub(in crate::config) struct Tree<'s> {
    pub root: Node<'s>,
    /// Variables that cannot be replaced.
    pub problems: Problems,
    pub substitutions: Substitutions,
}

/// Reads the one document of `text`, which has no byte order mark. Without an `environment`,
/// variables stay as they are written.
///
/// # Errors
/// The first place where the text is not YAML, or where it passes a bound.
pub(in crate::config) fn read<'m>(
    text: &'m Masked<'m>,
    environment: Option<Environment>,
    budget: &mut Budget,
) -> Result<Tree<'m>, Problem> {
    let read = serde_yaml::from_str_with_options(&text.text, options(*budget));
    let raw = read.map_err(|error| syntax::problem(text.original, &error))?;
    let mut builder = Builder {
        text,
        environment,
        left: *budget,
        problems: Problems::default(),
        substitutions: Vec::new(),
    };
    let root = builder.node(raw)?;
    *budget = builder.left;
    let substitutions = Substitutions::new(builder.substitutions);
    Ok(Tree { root, problems: builder.problems, substitutions })
}

impl Tree<'_> {
    /// Returns the same tree of a text that begins `base` bytes later.
    pub(in crate::config) fn shifted(self, base: usize) -> Self {
        Self {
            root: self.root.shifted(base),
            problems: self.problems.shifted(base),
            substitutions: self.substitutions.shifted(base),
        }
    }
}

fn options(Budget { nodes, aliased, .. }: Budget) -> Options {
    serde_yaml::options! {
        budget: serde_yaml::budget! {
            max_nodes: nodes,
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            // Each node begins, and may end; the document too.
            max_events: 2 * nodes + 8,
            max_aliases: aliased,
            max_anchors: MAX_ALIASED,
            max_recorded_anchor_events: MAX_ALIASED / 2,
            enforce_alias_anchor_ratio: false,
        },
        alias_limits: serde_yaml::alias_limits! { max_total_replayed_events: 2 * aliased },
        // The decoder reports every duplicate, with the first.
        duplicate_keys: DuplicateKeyPolicy::PassThrough,
        // Merged below, so that each value keeps its span.
        merge_keys: MergeKeyPolicy::AsOrdinary,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
    }
}

/// A value as `serde_yaml` reads it.
struct Raw<'s> {
    span: SourceSpan,
    content: RawContent<'s>,
}

enum RawContent<'s> {
    Empty,
    Text(Cow<'s, str>),
    /// A truth value or a number: what counts is how it is written.
    AsWritten,
    List(Vec<Raw<'s>>),
    Map(Vec<(Raw<'s>, Raw<'s>)>),
}

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = Spanned::<RawContent<'de>>::deserialize(deserializer)?;
        let span = SourceSpan::used_at(bytes(read.defined), bytes(read.referenced));
        Ok(Self { span, content: read.value })
    }
}

/// Returns the bytes of the text at `location`. A parser of one text knows them.
fn bytes(location: Location) -> Range<usize> {
    let small = |n: Option<u64>| n.and_then(|n| usize::try_from(n).ok()).unwrap_or_default();
    let start = small(location.span().byte_offset());
    start..start + small(location.span().byte_len())
}

impl<'de> Deserialize<'de> for RawContent<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = RawContent<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawContent<'de>, E> {
        Ok(RawContent::Empty)
    }

    fn visit_bool<E>(self, _: bool) -> Result<RawContent<'de>, E> {
        Ok(RawContent::AsWritten)
    }

    fn visit_i64<E>(self, _: i64) -> Result<RawContent<'de>, E> {
        Ok(RawContent::AsWritten)
    }

    fn visit_u64<E>(self, _: u64) -> Result<RawContent<'de>, E> {
        Ok(RawContent::AsWritten)
    }

    fn visit_f64<E>(self, _: f64) -> Result<RawContent<'de>, E> {
        Ok(RawContent::AsWritten)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<RawContent<'de>, E> {
        Ok(RawContent::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<RawContent<'de>, E> {
        Ok(RawContent::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_string<E>(self, text: String) -> Result<RawContent<'de>, E> {
        Ok(RawContent::Text(Cow::Owned(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawContent<'de>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(RawContent::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawContent<'de>, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawContent::Map(entries))
    }
}

/// Makes the tree of what was read.
struct Builder<'s> {
    text: &'s Masked<'s>,
    environment: Option<Environment>,
    left: Budget,
    problems: Problems,
    substitutions: Vec<Substitution>,
}

impl<'s> Builder<'s> {
    fn node(&mut self, raw: Raw<'s>) -> Result<Node<'s>, Problem> {
        let Raw { span, content } = raw;
        self.count(span)?;
        let content = match content {
            RawContent::Empty => Content::Empty,
            RawContent::Text(text) => self.scalar(self.text.restored(text, span), span)?,
            RawContent::AsWritten => Content::Scalar(Cow::Borrowed(self.written(span))),
            RawContent::List(items) => {
                let items: Result<_, _> = items.into_iter().map(|item| self.node(item)).collect();
                Content::List(items?)
            }
            RawContent::Map(entries) => {
                let entries = entries.into_iter().map(|(key, value)| self.entry(key, value));
                let mut entries = entries.collect::<Result<_, _>>()?;
                merge(&mut entries, self.text.original)?;
                Content::Map(entries)
            }
        };
        Ok(Node { span, content })
    }

    fn entry(&mut self, key: Raw<'s>, value: Raw<'s>) -> Result<(Name<'s>, Node<'s>), Problem> {
        self.count(key.span)?;
        let text = match key.content {
            RawContent::Text(text) => self.text.restored(text, key.span),
            RawContent::AsWritten => Cow::Borrowed(self.written(key.span)),
            RawContent::Empty | RawContent::List(_) | RawContent::Map(_) => {
                return Err(syntax::no_word(self.text.original, key.span));
            }
        };
        Ok((Name { span: key.span, text }, self.node(value)?))
    }

    /// Returns a plain scalar as it stands in the text.
    fn written(&self, span: SourceSpan) -> &'s str {
        self.text.original.get(span.range()).unwrap_or_default()
    }

    /// Returns a text with the values of its variables.
    fn scalar(&mut self, text: Cow<'s, str>, span: SourceSpan) -> Result<Content<'s>, Problem> {
        let Some(environment) = self.environment.filter(|_| text.contains(BEGIN)) else {
            return Ok(Content::Scalar(text));
        };
        // Where an escape makes a `${` it is meant as it is.
        let written = self.written(span);
        if !written.contains(BEGIN) {
            return Ok(Content::Scalar(text));
        }
        let value = match expand(&text, environment) {
            Ok(value) => value,
            Err(problems) => {
                for (index, problem) in problems {
                    let found = written.match_indices(BEGIN).nth(index).map(|(at, _)| {
                        let start = span.range().start + at;
                        let length = written[at..].find('}').map_or(BEGIN.len(), |end| end + 1);
                        SourceSpan::of(start..start + length)
                    });
                    self.problems.add(problem.at(found.unwrap_or(span)));
                }
                return Ok(Content::Unset);
            }
        };
        let left = self.left.substituted.checked_sub(value.len());
        let too_much = || syntax::bound(span, "variables add more than 16 MiB");
        self.left.substituted = left.ok_or_else(too_much)?;
        self.substitutions.push(Substitution::new(span, value.clone(), text.into_owned()));
        Ok(Content::Scalar(Cow::Owned(value)))
    }

    fn count(&mut self, span: SourceSpan) -> Result<(), Problem> {
        let (left, what) = match span.alias() {
            Some(_) => (&mut self.left.aliased, "too much comes through aliases"),
            None => (&mut self.left.nodes, "it holds too many values"),
        };
        *left = left.checked_sub(1).ok_or_else(|| syntax::bound(span, what))?;
        Ok(())
    }
}

/// Puts what a key `<<` names into the map around it: what the map says itself wins, then what is
/// named first.
fn merge<'s>(entries: &mut Vec<(Name<'s>, Node<'s>)>, text: &str) -> Result<(), Problem> {
    let is_merge = |key: &Name<'_>| key.text == "<<" && !key.span.is_quoted(text);
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
                return Err(Problem::error(source.span, "`<<` takes maps only")
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
        let problem = tree("a: {<<: 5}").unwrap_err();
        assert_eq!(problem.message(), "`<<` takes maps only");
    }

    #[test]
    fn an_alias_keeps_both_of_its_spans() {
        let text = "a: &x 10\nb: *x\n";
        let Content::Map(entries) = tree(text).unwrap().content else { panic!("a map") };
        let span = entries[1].1.span;
        assert_eq!(&text[span.range()], "10");
        assert_eq!(span.alias().map(|r| &text[r]), Some("*x"));
        assert_eq!(entries[0].1.span.alias(), None);
    }

    #[test]
    fn a_bomb_of_aliases_is_rejected() {
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x]\n");
        for i in 1..9 {
            let inner = vec![format!("*a{}", i - 1); 9].join(",");
            writeln!(bomb, "a{i}: &a{i} [{inner}]").unwrap();
        }
        let problem = tree(&bomb).unwrap_err();
        assert!(problem.message().contains("bound that protects the gateway"), "{problem:?}");
    }

    #[test]
    fn the_bounds_hold_for_all_files_together() {
        let mut budget = Budget { nodes: 20, aliased: 4, substituted: 5 };
        let environment: Environment = |_| Some("xyz".into());
        let mut read_next = |text: &str| {
            let masked = Masked::of(text);
            let read = read(&masked, Some(environment), &mut budget);
            read.map(drop).map_err(|problem| problem.message().to_owned())
        };
        let shared = "a: &a [1]\nb: [*a]\n";
        assert_eq!([read_next(shared), read_next(shared)], [Ok(()), Ok(())]);
        let Err(aliased) = read_next(shared) else { panic!("four came through aliases") };
        assert!(aliased.ends_with("too much comes through aliases"), "{aliased}");
        assert_eq!(read_next("${X}"), Ok(()));
        let Err(added) = read_next("${X}") else { panic!("three bytes are there already") };
        assert!(added.ends_with("variables add more than 16 MiB"), "{added}");
        let Err(values) = read_next("[1, 2, 3, 4, 5, 6, 7, 8, 9]") else { panic!("too many") };
        assert!(values.ends_with("it holds too many values"), "{values}");
    }

    #[test]
    fn a_tower_of_brackets_is_rejected() {
        for text in ["[".repeat(100_000), "{a: ".repeat(100_000), "- ".repeat(100_000)] {
            let problem = tree(&text).unwrap_err();
            assert!(problem.message().contains("bound"), "{problem:?}");
        }
    }

    #[test]
    fn a_variable_is_one_scalar_whatever_it_holds() {
        let environment = |name: &str| Some(format!("{name}: [1]\n- #").into());
        let text = "a: ${X}\nb: { c: ${X}/1m, '${X}': *z }\nd: |\n  ${X}\n  $${X}\n"
            .replace("*z", "\"\\x24{X}\"");
        let masked = Masked::of(&text);
        let read = read(&masked, Some(environment), &mut Budget::default()).unwrap();
        let x = "X: [1]\n- #";
        assert_eq!(
            shown(&read.root),
            format!("{{a: {x}, b: {{c: {x}/1m, ${{X}}: ${{X}}}}, d: {x}\n${{X}}\n}}")
        );
        let Content::Map(entries) = &read.root.content else { panic!("a map") };
        let span = entries[0].1.span;
        assert_eq!(&text[span.range()], "${X}");
        assert_eq!(read.substitutions.at(span).map(|one| &*one.written), Some("${X}"));
    }

    #[test]
    fn every_variable_that_is_not_set_is_reported_at_its_place_once() {
        let text = "a: &a [x${A}, \"${B:-\\\"}${C}\"]\nb: *a\n";
        let masked = Masked::of(text);
        let read = read(&masked, Some(|_| None), &mut Budget::default()).unwrap();
        let found: Vec<_> = read
            .problems
            .sorted()
            .0
            .iter()
            .map(|problem| &text[problem.span().unwrap().range()])
            .collect::<Vec<_>>();
        assert_eq!(found, ["${A}", "${C}"]);
    }

    #[test]
    fn variables_cannot_fill_the_memory() {
        let environment = |_: &str| Some("x".repeat(100_000).into());
        let text = format!("a: &a ${{X}}\nb: [{}]\n", vec!["*a"; 1000].join(","));
        let problem =
            read(&Masked::of(&text), Some(environment), &mut Budget::default()).unwrap_err();
        assert!(problem.message().contains("variables add more than 16 MiB"), "{problem:?}");
    }

    fn tree(text: &str) -> Result<Node<'static>, Problem> {
        let text: &'static str = Box::leak(text.to_owned().into_boxed_str());
        let masked = Box::leak(Box::new(Masked::of(text)));
        read(masked, None, &mut Budget::default()).map(|tree| tree.root)
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(shown(&tree(text).unwrap()), expected);
    }

    fn shown(node: &Node<'_>) -> String {
        match &node.content {
            Content::Empty | Content::Unset => "~".to_owned(),
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
