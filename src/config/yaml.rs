//! Text to tree: one pass of the YAML parser over a file.
//!
//! The parser says what comes next and where; values, anchors and bounds are made of that here.
//! What goes through serde's data model on the way takes twice as long, and ten thousand routes
//! are read while requests are served.

use super::{
    node::{Content, Name, Node, Place},
    problem::Problem,
    syntax,
};
use granit_parser::{Event, Parser, ScalarStyle, Span, StrInput, Tag};
use std::{borrow::Cow, collections::HashMap};

/// The most nodes that aliases may add to a file, all together, and the most that may stand under
/// anchors.
///
/// Ten thousand routes that share one list of three rules through an alias need 280,000; a bomb
/// that doubles at every line is stopped there in well under a second.
const MAX_ALIASED: usize = 500_000;

/// The most nodes of a file: ten thousand routes with five rules each need 600,000. It bounds the
/// tree's memory to about 200 MiB whatever the file says.
const MAX_NODES: usize = 2_000_000;

/// The deepest nesting; the deepest key of the vocabulary is at nine.
const MAX_DEPTH: usize = 64;

/// What is read of a file, so far.
pub(super) struct Reader<'s> {
    text: &'s str,
    events: Parser<'s, StrInput<'s>>,
    /// Values by the number of their anchor; `None` for one that is not whole yet.
    anchors: HashMap<usize, Option<Node<'s>>>,
    /// Entries of the maps that are being read, the innermost last, so that each map takes its
    /// memory once it is whole, and no more than it needs: ten thousand routes have forty thousand.
    entries: Vec<(Name<'s>, Node<'s>)>,
    nodes: usize,
    /// Nodes that aliases added.
    aliased: usize,
    /// Nodes under anchors, kept for aliases to come.
    kept: usize,
    depth: usize,
}

impl<'s> Reader<'s> {
    pub(super) fn new(text: &'s str) -> Self {
        let mut options = granit_parser::options! {
            flow_nesting_limit: MAX_DEPTH,
            block_nesting_limit: MAX_DEPTH,
        };
        options.set_emit_comments(false);
        Self {
            text,
            events: Parser::new_from_str_with_options(text, options),
            anchors: HashMap::new(),
            entries: Vec::new(),
            nodes: 0,
            aliased: 0,
            kept: 0,
            depth: 0,
        }
    }

    /// Reads the one document of the text; an empty one if there is none.
    ///
    /// # Errors
    /// The first place where the text is not YAML, or where it passes a bound.
    pub(super) fn read(mut self) -> Result<Node<'s>, Problem> {
        let mut root = None;
        while let Some((event, span)) = self.next()? {
            if !matches!(event, Event::DocumentStart(..)) {
                continue;
            }
            if root.is_some() {
                return Err(syntax::several_documents(place(span)));
            }
            root = Some(self.node()?);
        }
        let empty = || Node { place: Place::default(), content: Content::Empty };
        Ok(root.unwrap_or_else(empty))
    }

    fn next(&mut self) -> Result<Option<(Event<'s>, Span)>, Problem> {
        self.events.next().transpose().map_err(|error| syntax::problem(self.text, &error))
    }

    fn expect(&mut self) -> Result<(Event<'s>, Span), Problem> {
        self.next()?.ok_or_else(|| syntax::ended(self.text))
    }

    fn node(&mut self) -> Result<Node<'s>, Problem> {
        let (event, span) = self.expect()?;
        self.node_of(event, span)
    }

    /// Reads the node that begins with `event`.
    #[expect(clippy::wildcard_enum_match_arm, reason = "of all events four begin a node")]
    fn node_of(&mut self, event: Event<'s>, span: Span) -> Result<Node<'s>, Problem> {
        let place = place(span);
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(syntax::bound(place, "it holds too many values"));
        }
        let (anchor, content) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar(text, style, tag.as_deref()))
            }
            Event::SequenceStart(_, anchor, _) => (anchor, self.inside(anchor, place, Self::list)?),
            Event::MappingStart(_, anchor, _) => (anchor, self.inside(anchor, place, Self::map)?),
            _ => return Err(syntax::ended(self.text)),
        };
        let node = Node { place, content };
        self.keep(anchor, &node)?;
        Ok(node)
    }

    /// Reads what a list or a map holds, which its own `anchor` does not stand for yet.
    fn inside(
        &mut self,
        anchor: usize,
        place: Place,
        read: impl FnOnce(&mut Self) -> Result<Content<'s>, Problem>,
    ) -> Result<Content<'s>, Problem> {
        if self.depth == MAX_DEPTH {
            return Err(syntax::bound(place, "it is nested too deeply"));
        }
        if anchor != 0 {
            self.anchors.insert(anchor, None);
        }
        self.depth += 1;
        let content = read(self)?;
        self.depth -= 1;
        Ok(content)
    }

    fn list(&mut self) -> Result<Content<'s>, Problem> {
        let mut items = Vec::new();
        loop {
            match self.expect()? {
                (Event::SequenceEnd, _) => return Ok(Content::List(items)),
                (event, span) => items.push(self.node_of(event, span)?),
            }
        }
    }

    fn map(&mut self) -> Result<Content<'s>, Problem> {
        let first = self.entries.len();
        loop {
            let key = match self.expect()? {
                (Event::MappingEnd, _) => break,
                (event, span) => self.node_of(event, span)?,
            };
            // First what follows: a bracket too many makes a key of what was to be a map.
            let value = self.node()?;
            let Content::Scalar(text) = key.content else { return Err(syntax::no_word(key.place)) };
            self.entries.push((Name { place: key.place, text }, value));
        }
        let mut entries = self.entries.split_off(first);
        super::node::merge(&mut entries, self.text)?;
        Ok(Content::Map(entries))
    }

    /// Keeps a value for the aliases of its anchor, if it has one.
    fn keep(&mut self, anchor: usize, node: &Node<'s>) -> Result<(), Problem> {
        if anchor == 0 {
            return Ok(());
        }
        self.kept += node.size();
        if self.kept > MAX_ALIASED {
            return Err(syntax::bound(node.place, "too much stands under anchors"));
        }
        self.anchors.insert(anchor, Some(node.clone()));
        Ok(())
    }

    /// Returns what the alias at `place` stands for.
    fn alias(&mut self, anchor: usize, place: Place) -> Result<Node<'s>, Problem> {
        let Some(Some(node)) = self.anchors.get(&anchor) else {
            return Err(syntax::recursive(place));
        };
        self.aliased += node.size();
        if self.aliased > MAX_ALIASED {
            return Err(syntax::bound(place, "too much comes through aliases"));
        }
        let mut node = node.clone();
        node.use_at(place);
        Ok(node)
    }
}

fn scalar<'s>(text: Cow<'s, str>, style: ScalarStyle, tag: Option<&Tag>) -> Content<'s> {
    let is_null = text.is_empty() || text == "~" || text.eq_ignore_ascii_case("null");
    if is_null && style == ScalarStyle::Plain && tag.is_none() {
        return Content::Empty;
    }
    Content::Scalar(text)
}

fn place(span: Span) -> Place {
    // A parser of one text knows the bytes of everything that it finds.
    Place::of(span.byte_range().unwrap_or_default())
}
