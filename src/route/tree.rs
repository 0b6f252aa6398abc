//! A tree of paths with one edge per segment.
//!
//! A search takes one step per segment, however many routes there are, and goes back only where a
//! literal segment and a parameter both match.

use super::{
    path::{Segment, Segments},
    rank::Search,
};
use core::hash::BuildHasherDefault;
use smallvec::SmallVec;
use std::collections::HashMap;

/// Exact paths, templates and prefixes.
#[derive(Debug)]
pub(super) struct Tree {
    /// The root first.
    nodes: Vec<Node>,
}

/// A path, given by the edges from the root.
#[derive(Debug, Default)]
struct Node {
    /// Child nodes by segment.
    literals: Names,
    /// The child for any non-empty segment.
    parameter: Option<usize>,
    /// Ranks of routes with exactly this path, best first.
    whole: SmallVec<[usize; 2]>,
    /// Ranks of routes with this prefix, best first.
    prefix: SmallVec<[usize; 2]>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node::default()] }
    }
}

impl Tree {
    /// Adds a route for exactly this path. Ranks ascend.
    pub(super) fn insert_whole(&mut self, path: &Segments, rank: usize) {
        self.node(path).whole.push(rank);
    }

    /// Adds a route for this path and all below it. Ranks ascend.
    pub(super) fn insert_prefix(&mut self, path: &Segments, rank: usize) {
        self.node(path).prefix.push(rank);
    }

    fn node(&mut self, path: &Segments) -> &mut Node {
        let mut at = 0;
        for segment in path.as_slice() {
            let new = self.nodes.len();
            let node = &mut self.nodes[at];
            at = match segment {
                Segment::Literal(text) => node.literals.number(text, new),
                Segment::Parameter(_) => *node.parameter.get_or_insert(new),
            };
            if at == new {
                self.nodes.push(Node::default());
            }
        }
        &mut self.nodes[at]
    }

    /// Offers the ranks of the routes that match `path` and may win.
    pub(super) fn search(&self, path: &str, search: &mut Search<'_>) {
        if let Some(rest) = path.strip_prefix('/') {
            self.descend(&self.nodes[0], Some(rest), search);
        }
    }

    /// Searches below `node`. `rest` is the remaining path without its slash, `None` at the end.
    /// Each node is visited at most once.
    fn descend(&self, node: &Node, rest: Option<&str>, search: &mut Search<'_>) {
        match rest {
            None => search.offer(&node.whole),
            Some(rest) => {
                let (segment, rest) = match rest.split_once('/') {
                    Some((segment, rest)) => (segment, Some(rest)),
                    None => (rest, None),
                };
                if let Some(next) = node.literals.get(segment) {
                    self.descend(&self.nodes[next], rest, search);
                }
                if let Some(next) = node.parameter
                    && !segment.is_empty()
                    && !search.has_exact()
                {
                    self.descend(&self.nodes[next], rest, search);
                }
            }
        }
        search.offer(&node.prefix);
    }
}

/// A name. Most are stored inline, which saves a memory access each.
type Name = SmallVec<[u8; 24]>;

#[derive(Debug, Default)]
pub(super) enum Names {
    #[default]
    None,
    /// Usual for path segments.
    One(Name, usize),
    /// The hash needs no secret: requests add nothing.
    Many(HashMap<Name, usize, BuildHasherDefault<ahash::AHasher>>),
}

impl Names {
    pub(super) fn get(&self, name: &str) -> Option<usize> {
        match self {
            Self::None => None,
            Self::One(only, number) => (only.as_slice() == name.as_bytes()).then_some(*number),
            Self::Many(numbers) => numbers.get(name.as_bytes()).copied(),
        }
    }

    /// Returns the number of `name`, or assigns `new`.
    pub(super) fn number(&mut self, name: &str, new: usize) -> usize {
        let name = Name::from_slice(name.as_bytes());
        match self {
            Self::None => *self = Self::One(name, new),
            Self::One(only, number) if *only == name => return *number,
            Self::One(only, number) => {
                let both = [(core::mem::take(only), *number), (name, new)];
                *self = Self::Many(both.into_iter().collect());
            }
            Self::Many(numbers) => return *numbers.entry(name).or_insert(new),
        }
        new
    }

    pub(super) fn is_empty(&self) -> bool {
        matches!(self, Self::None)
    }
}
