//! Members of a request's JSON body, for keys and reserves.
//!
//! A [`Scanner`] reads a body in pieces of any size, and keeps the values at each path of its
//! [`MemberPaths`]. Names and values are decoded, so that no spelling of a name hides it.

mod scanner;
mod written;

pub use scanner::Scanner;
pub use written::json_body;

use super::{NoKey, OnDuplicate, ParseError};
use core::fmt;
use std::sync::Arc;

/// The most members in a path.
const MAX_LEVELS: usize = 8;

/// The longest name in a path, in bytes.
const MAX_NAME: usize = 128;

/// The most paths of one route. Each object notes in a bit which of them it has had.
const MAX_PATHS: usize = 64;

/// The place of the whole body in the tree of names.
const ROOT: usize = 0;

/// The path of a member, as in `model` or `options.num_predict`: names with dots between them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MemberPath(Box<str>);

impl MemberPath {
    /// Reads a path: at most 8 names of at most 128 bytes, with dots between them.
    ///
    /// # Errors
    ///
    /// A name is empty or too long, there are too many, or a character separates parts of keys.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        const HELP: &str =
            "write the name of a member, or names with dots between them, as in `options.seed`";
        let shown = text.escape_debug();
        let is_apart = |c: char| c.is_whitespace() || c.is_control() || matches!(c, ',' | ';');
        let names = || text.split('.');

        let message = if text.starts_with('$') || text.contains('[') || names().any(str::is_empty) {
            format!("`{shown}` is not the path of a member")
        } else if text.contains(is_apart) {
            format!("`{shown}` has a character that separates keys")
        } else if names().any(|name| name.len() > MAX_NAME) {
            format!("a name in `{shown}` is longer than {MAX_NAME} bytes")
        } else if names().count() > MAX_LEVELS {
            format!("`{shown}` has more than {MAX_LEVELS} names")
        } else {
            return Ok(Self(text.into()));
        };
        Err(ParseError::new(message, HELP))
    }

    /// Returns the path as it is written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for MemberPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// All paths that the rules of a route look at, as a tree of names.
#[derive(Debug, PartialEq, Eq)]
pub struct MemberPaths {
    nodes: Vec<Node>,
    paths: Vec<MemberPath>,
}

/// A name in the tree.
#[derive(Debug, Default, PartialEq, Eq)]
struct Node {
    name: Box<str>,
    children: Vec<usize>,
    /// The path that ends here.
    path: Option<usize>,
}

impl MemberPaths {
    /// Returns the tree of `paths`; `None` if there are none.
    ///
    /// # Errors
    ///
    /// There are more than 64 different ones.
    pub fn new<'p>(
        paths: impl IntoIterator<Item = &'p MemberPath>,
    ) -> Result<Option<Self>, ParseError> {
        let mut tree = Self { nodes: vec![Node::default()], paths: Vec::new() };
        for path in paths {
            if tree.paths.contains(path) {
                continue;
            }
            if tree.paths.len() == MAX_PATHS {
                return Err(ParseError::new(
                    format!("the rules of a route look at more than {MAX_PATHS} members"),
                    "remove some of them",
                ));
            }
            let node = path.0.split('.').fold(ROOT, |parent, name| tree.child_or_new(parent, name));
            tree.nodes[node].path = Some(tree.paths.len());
            tree.paths.push(path.clone());
        }
        Ok((!tree.paths.is_empty()).then_some(tree))
    }

    fn child_or_new(&mut self, parent: usize, name: &str) -> usize {
        let children = self.nodes.get(parent).map_or(&[][..], |node| &node.children);
        if let Some(known) = children.iter().find(|child| *self.nodes[**child].name == *name) {
            return *known;
        }
        let new = self.nodes.len();
        self.nodes.push(Node { name: name.into(), ..Node::default() });
        self.nodes[parent].children.push(new);
        new
    }

    /// Returns the child of this name: its number among the children, and its place in the tree. Upper
    /// and lower case of ASCII are one, as many servers read them: a client that writes both would
    /// otherwise be counted by a value that its server does not take. The same case goes first.
    fn child(&self, parent: usize, name: &[u8]) -> Option<(usize, usize)> {
        let children = &self.nodes.get(parent)?.children;
        let find = |is: &dyn Fn(&[u8]) -> bool| {
            let named = |child: &usize| is(self.nodes[*child].name.as_bytes());
            children.iter().position(named).map(|at| (at, children[at]))
        };
        find(&|known| known == name).or_else(|| find(&|known| known.eq_ignore_ascii_case(name)))
    }

    /// Returns the path that ends at `node`.
    fn path_at(&self, node: usize) -> Option<usize> {
        self.nodes.get(node).and_then(|node| node.path)
    }

    /// Returns whether a path goes on from `node`.
    fn leads_on(&self, node: usize) -> bool {
        self.nodes.get(node).is_some_and(|node| !node.children.is_empty())
    }

    /// Calls `each` with every path at `node` and below. The depth is at most that of a path.
    fn below(&self, node: usize, each: &mut impl FnMut(usize)) {
        let Some(node) = self.nodes.get(node) else { return };
        if let Some(path) = node.path {
            each(path);
        }
        for child in &node.children {
            self.below(*child, each);
        }
    }

    /// Returns the paths.
    pub fn paths(&self) -> &[MemberPath] {
        &self.paths
    }
}

/// The value of a member: a text, a number, `true` or `false`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberValue {
    /// A text as it is decoded, anything else as written.
    pub text: Box<str>,
    /// True if it is a number.
    pub is_number: bool,
}

/// The values at one path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Found {
    /// For servers that take the first of several members; `None` if that is no such value.
    first: Option<MemberValue>,
    /// For servers that take the last one.
    last: Option<MemberValue>,
    /// True if a name on the path is repeated in its object.
    is_repeated: bool,
}

/// The members of one body that the rules of its route look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyMembers {
    paths: Arc<MemberPaths>,
    /// Beside the paths.
    found: Vec<Found>,
}

impl BodyMembers {
    /// Returns the members of a whole body; `None` if it is no JSON object.
    pub fn of(paths: &Arc<MemberPaths>, body: &[u8]) -> Option<Self> {
        let mut scanner = Scanner::new(Arc::clone(paths));
        scanner.push(body);
        scanner.finish()
    }

    fn find(&self, path: &MemberPath) -> Option<&Found> {
        let at = self.paths.paths.iter().position(|known| known == path)?;
        self.found.get(at)
    }

    /// Returns the text of the member at `path`.
    ///
    /// # Errors
    ///
    /// It is missing, is empty or has no text; or it is repeated, and `on_duplicate` takes none.
    pub fn text(&self, path: &MemberPath, on_duplicate: OnDuplicate) -> Result<&str, NoKey> {
        let found = self.find(path).ok_or(NoKey::Missing)?;
        let value = match on_duplicate {
            OnDuplicate::Reject if found.is_repeated => return Err(NoKey::Duplicate),
            OnDuplicate::Last => &found.last,
            OnDuplicate::First | OnDuplicate::Reject => &found.first,
        };
        let text = value.as_ref().map(|value| &*value.text);
        text.filter(|text| !text.is_empty()).ok_or(NoKey::Missing)
    }

    /// Returns the numbers at `path` as written: none, one, or two if it is repeated, of which
    /// servers take either.
    pub fn numbers(&self, path: &MemberPath) -> impl Iterator<Item = &str> {
        let found = self.find(path).into_iter();
        let values = found.flat_map(|found| {
            let last = found.last.as_ref().filter(|_| found.is_repeated);
            found.first.iter().chain(last)
        });
        values.filter(|value| value.is_number).map(|value| &*value.text)
    }
}

#[cfg(test)]
mod tests;
