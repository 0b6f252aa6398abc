//! Queries: the paths of numbers in a response, and their weights.

use super::{
    number::{Amount, Weight, weighted_sum},
    preset::Preset,
};
use core::iter::zip;

/// The most different numbers that the queries of one route may read.
pub(super) const MAX_SLOTS: usize = 32;

/// The most queries of one route.
const MAX_QUERIES: usize = 32;

/// The most members in a path.
const MAX_LEVELS: usize = 8;

/// The longest member name of a path, in bytes. The reader keeps a name that comes in pieces.
pub(super) const MAX_NAME: usize = 128;

/// A set of numbers, or of queries, as bits.
pub(super) type Bits = u32;

/// The root of the tree, which every document begins with.
pub(super) const ROOT: u16 = 0;

/// The place of a value that no path leads to.
pub(super) const NOWHERE: u16 = u16::MAX;

/// A path that cannot be read, or too many of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A member between two dots has no name.
    #[error("the path `{0}` has a member without a name")]
    EmptyName(String),
    /// A member's name is longer than a reader keeps.
    #[error("a member of the path `{0}` is longer than {MAX_NAME} bytes")]
    LongName(String),
    /// The path has more members than a reader follows.
    #[error("the path `{0}` has more than {MAX_LEVELS} members")]
    TooDeep(String),
    /// The queries read more numbers than a reader keeps.
    #[error("more than {MAX_SLOTS} different numbers of one response")]
    TooManyNumbers,
    /// There are more queries than a reader keeps.
    #[error("more than {MAX_QUERIES} different settlements of one response")]
    TooManyQueries,
}

/// A number with its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Term {
    /// The paths of the number, of which the last value counts, wherever it is.
    pub paths: Vec<String>,
    /// The weight of the number.
    pub weight: Weight,
}

/// The numbers of a response whose weighted sum is a cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The numbers.
    pub terms: Vec<Term>,
    /// Paths whose value comes last: after it, nothing changes the sum any more.
    pub ends: Vec<String>,
}

impl Query {
    /// Returns the query that sums numbers at `paths`, each with its weight.
    pub fn sum<'a>(paths: impl IntoIterator<Item = (&'a str, Weight)>) -> Self {
        let term = |(path, weight): (&str, Weight)| Term { paths: vec![path.to_owned()], weight };
        Self { terms: paths.into_iter().map(term).collect(), ends: Vec::new() }
    }

    /// Checks each path.
    ///
    /// # Errors
    ///
    /// If a reader cannot follow one.
    pub fn check(&self) -> Result<(), QueryError> {
        let paths = self.terms.iter().flat_map(|term| &term.paths);
        paths.chain(&self.ends).try_for_each(|path| check_path(path))
    }
}

impl From<Preset> for Query {
    fn from(preset: Preset) -> Self {
        preset.query()
    }
}

/// Checks that a reader can follow `path`, member names with dots between them.
///
/// # Errors
///
/// If it cannot.
pub fn check_path(path: &str) -> Result<(), QueryError> {
    let names = || path.split('.');
    if names().any(str::is_empty) {
        return Err(QueryError::EmptyName(path.to_owned()));
    }
    if names().any(|name| name.len() > MAX_NAME) {
        return Err(QueryError::LongName(path.to_owned()));
    }
    if names().count() > MAX_LEVELS {
        return Err(QueryError::TooDeep(path.to_owned()));
    }
    Ok(())
}

/// All queries of a route, as a tree of member names, so that one pass over a body serves them all.
#[derive(Debug)]
pub struct Queries {
    nodes: Vec<Node>,
    /// For each query, the slots of its terms with their weights.
    sums: Vec<Vec<(usize, Weight)>>,
    /// The paths of each slot.
    slots: Vec<Vec<String>>,
}

#[derive(Debug, Default)]
struct Node {
    name: String,
    children: Vec<u16>,
    /// The slots that take a number here.
    slots: Bits,
    /// The queries that a value here ends.
    ends: Bits,
}

impl Queries {
    /// Makes the tree of `queries`. A number that several of them read is read once.
    ///
    /// # Errors
    ///
    /// If a path cannot be followed, or there are too many.
    pub fn new(queries: &[Query]) -> Result<Self, QueryError> {
        if queries.len() > MAX_QUERIES {
            return Err(QueryError::TooManyQueries);
        }
        let mut this = Self { nodes: vec![Node::default()], sums: Vec::new(), slots: Vec::new() };

        for (number, query) in queries.iter().enumerate() {
            query.check()?;
            let slots = query.terms.iter().map(|term| Ok((this.slot(&term.paths)?, term.weight)));
            let sum = slots.collect::<Result<Vec<_>, QueryError>>()?;
            this.sums.push(sum);
            for path in &query.ends {
                let node = this.node(path);
                this.nodes[node].ends |= 1 << number;
            }
        }
        Ok(this)
    }

    /// Returns the number of queries.
    pub const fn len(&self) -> usize {
        self.sums.len()
    }

    /// True if there is no query.
    pub const fn is_empty(&self) -> bool {
        self.sums.is_empty()
    }

    /// Returns the slot of the number at `paths`.
    fn slot(&mut self, paths: &[String]) -> Result<usize, QueryError> {
        if let Some(slot) = self.slots.iter().position(|known| known == paths) {
            return Ok(slot);
        }
        let slot = self.slots.len();
        if slot == MAX_SLOTS {
            return Err(QueryError::TooManyNumbers);
        }

        self.slots.push(paths.to_vec());
        for path in paths {
            let node = self.node(path);
            self.nodes[node].slots |= 1 << slot;
        }
        Ok(slot)
    }

    /// Returns the node at the end of `path`, and makes it if it is new.
    fn node(&mut self, path: &str) -> usize {
        path.split('.').fold(usize::from(ROOT), |parent, name| {
            let place = u16::try_from(parent).unwrap_or(NOWHERE);
            match self.child(place, name.as_bytes()) {
                NOWHERE => {
                    // Slots, queries and levels bound the nodes to some thousand.
                    let new = u16::try_from(self.nodes.len()).unwrap_or(NOWHERE);
                    self.nodes.push(Node { name: name.to_owned(), ..Node::default() });
                    self.nodes[parent].children.push(new);
                    usize::from(new)
                }
                known => usize::from(known),
            }
        })
    }

    /// Returns the place of the member `name`, as written, of the object at `place`.
    pub(super) fn child(&self, place: u16, name: &[u8]) -> u16 {
        let Some(node) = self.nodes.get(usize::from(place)) else { return NOWHERE };
        let is_named = |child: &u16| self.nodes[usize::from(*child)].name.as_bytes() == name;
        node.children.iter().copied().find(is_named).unwrap_or(NOWHERE)
    }

    /// Returns the slots that take a number at `place`.
    pub(super) fn slots(&self, place: u16) -> Bits {
        self.nodes.get(usize::from(place)).map_or(0, |node| node.slots)
    }

    /// Returns the queries that a value at `place` ends.
    pub(super) fn ends(&self, place: u16) -> Bits {
        self.nodes.get(usize::from(place)).map_or(0, |node| node.ends)
    }
}

/// The last number of each slot, and the queries whose last value has come.
#[derive(Debug, Default)]
pub(super) struct Numbers {
    amounts: [Amount; MAX_SLOTS],
    /// The slots that have a number.
    known: Bits,
    ended: Bits,
}

impl Numbers {
    pub(super) const fn is_empty(&self) -> bool {
        self.known == 0 && self.ended == 0
    }

    /// Notes a number for each of `slots`.
    pub(super) fn put(&mut self, slots: Bits, amount: Amount) {
        for (slot, kept) in self.amounts.iter_mut().enumerate() {
            if slots & (1 << slot) != 0 {
                *kept = amount;
            }
        }
        self.known |= slots;
    }

    /// Notes that the last value of each of `queries` has come.
    pub(super) const fn end(&mut self, queries: Bits) {
        self.ended |= queries;
    }

    /// Takes all numbers of `newer`, which becomes empty.
    pub(super) fn take(&mut self, newer: &mut Self) {
        for (slot, (kept, new)) in zip(&mut self.amounts, &newer.amounts).enumerate() {
            if newer.known & (1 << slot) != 0 {
                *kept = *new;
            }
        }
        self.known |= newer.known;
        self.ended |= newer.ended;
        newer.clear();
    }

    pub(super) const fn clear(&mut self) {
        self.known = 0;
        self.ended = 0;
    }

    /// Returns the sum of the query `number`, if at least one of its numbers has come.
    pub(super) fn sum(&self, queries: &Queries, number: usize) -> Option<u64> {
        let terms = queries.sums.get(number)?;
        let is_known = |slot: usize| self.known & (1 << slot) != 0;
        let known = || terms.iter().filter(|(slot, _)| is_known(*slot));
        known().next()?;
        Some(weighted_sum(known().map(|(slot, weight)| (self.amounts[*slot], *weight))))
    }

    /// True if the last value of the query `number` has come.
    pub(super) const fn has_ended(&self, number: usize) -> bool {
        self.ended & (1 << number) != 0
    }
}
