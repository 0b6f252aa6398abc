//! Which checks a file silences, and where.

use super::{Lint, Problem, SourceSpan};
use std::ops::Range;

/// The warnings that the comments `# flowgate: allow(NAME)` of a file silence.
#[derive(Clone, Debug, Default)]
pub(in crate::config) struct Allowed {
    pub allows: Vec<Allow>,
    /// Names that no check has.
    pub unknown: Vec<Problem>,
}

/// One name in such a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) struct Allow {
    pub lint: Lint,
    /// The bytes of the comment's line and, if nothing else is in it, of the next line.
    pub lines: Range<usize>,
    /// The bytes of its file.
    pub file: Range<usize>,
}

impl Allowed {
    /// Reports whether a comment silences this problem.
    pub(in crate::config) fn covers(&self, problem: &Problem) -> bool {
        let Some(lint) = problem.lint else { return false };
        let start = problem.span.map_or(0, |span| span.range().start);
        let alias = problem.span.and_then(SourceSpan::alias).map(|range| range.start);
        self.allows.iter().filter(|allow| allow.lint == lint).any(|allow| {
            if lint.is_of_whole_file() {
                return holds(&allow.file, start);
            }
            holds(&allow.lines, start) || alias.is_some_and(|at| holds(&allow.lines, at))
        })
    }
}

/// True if `at` is in `range`, or at its end, where a file without a last line end has its mark.
fn holds(range: &Range<usize>, at: usize) -> bool {
    range.start <= at && at <= range.end
}
