//! The comments by which a file silences checks: `# flowgate: allow(NAME, …)`.

use super::{Content, Node};
use crate::config::{
    diagnostics::{Allow, Allowed, Lint, Problem, Source, SourceSpan, quoted},
    vocabulary::nearest,
};
use std::ops::Range;

const MARK: &str = "flowgate:";

/// Returns what the comments of a file silence. `root` is its tree, which distinguishes a comment
/// from a `#` within a text.
pub(in crate::config) fn allowed(source: &Source, root: &Node<'_>) -> Allowed {
    let mut allowed = Allowed::default();
    if !source.text.contains(MARK) {
        return allowed;
    }
    let mut comments = comments(&source.text);
    leave_out_texts(root, &mut comments);
    for comment in comments {
        let covered = covered(&source.text, comment.start);
        let file = source.file_at(SourceSpan::of(comment.clone())).range.clone();
        for name in names(&source.text, comment) {
            let word = &source.text[name.clone()];
            match Lint::named(word) {
                Some(lint) => {
                    allowed.allows.push(Allow { lint, lines: covered.clone(), file: file.clone() });
                }
                None => allowed.unknown.push(unknown(word, SourceSpan::of(name))),
            }
        }
    }
    allowed
}

fn unknown(word: &str, span: SourceSpan) -> Problem {
    let known = Lint::ALL.iter().map(|lint| lint.name());
    let help = nearest(word, known).map_or_else(
        || "write a name that `check` prints in brackets; docs/checks.md lists them".to_owned(),
        |name| format!("did you mean `{name}`?"),
    );
    let message = format!("there is no check {}", quoted(word));
    Problem::warning(Lint::UnknownCheck, span, message).help(help)
}

/// Returns where `# flowgate: allow(…` may stand, from the `#` to the line's end.
fn comments(text: &str) -> Vec<Range<usize>> {
    let marks = text.match_indices(MARK).filter_map(|(at, _)| {
        let start = text[..at].trim_end_matches([' ', '\t']).len().checked_sub(1)?;
        let is_comment = text[start..].starts_with('#')
            && text[..start].chars().next_back().is_none_or(char::is_whitespace);
        let end = text[at..].find('\n').map_or(text.len(), |length| at + length);
        is_comment.then_some(start..end)
    });
    marks.collect()
}

/// Removes what is no comment: a part of a key or of a value.
fn leave_out_texts(node: &Node<'_>, comments: &mut Vec<Range<usize>>) {
    let mut leave_out = |span: SourceSpan| {
        let range = span.range();
        let first = comments.partition_point(|comment| comment.start < range.start);
        while comments.get(first).is_some_and(|comment| comment.start < range.end) {
            comments.remove(first);
        }
    };
    match &node.content {
        Content::Empty | Content::Unset => {}
        Content::Scalar(_) => leave_out(node.span),
        Content::List(items) => {
            for item in items {
                leave_out_texts(item, comments);
            }
        }
        Content::Map(entries) => {
            for (name, _) in entries {
                leave_out(name.span);
            }
            for (_, value) in entries {
                leave_out_texts(value, comments);
            }
        }
    }
}

/// Returns the bytes that the comment at `at` speaks of: its line, and if nothing else is in it,
/// all lines to the next that is no comment.
fn covered(text: &str, at: usize) -> Range<usize> {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    let mut end = start;
    for line in text[start..].split_inclusive('\n') {
        end += line.len();
        if !line.trim_start().starts_with('#') {
            break;
        }
    }
    start..end.saturating_sub(usize::from(text[..end].ends_with('\n')))
}

/// Returns where the names stand between the parentheses of `allow(…)`.
fn names(text: &str, comment: Range<usize>) -> Vec<Range<usize>> {
    let line = &text[comment.clone()];
    let inside = || {
        let after = line.split_once(MARK)?.1.trim_start().strip_prefix("allow")?;
        let (inside, _) = after.trim_start().strip_prefix('(')?.split_once(')')?;
        Some(inside)
    };
    let Some(inside) = inside() else { return Vec::new() };
    // The first `(` of the line: only blanks and two words come before it.
    let mut at = comment.start + line.find('(').unwrap_or_default() + 1;
    let mut names = Vec::new();
    for item in inside.split(',') {
        let start = at + (item.len() - item.trim_start().len());
        let name = item.trim();
        if !name.is_empty() {
            names.push(start..start + name.len());
        }
        at += item.len() + 1;
    }
    names
}
