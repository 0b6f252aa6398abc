//! The slip behind a `:` that no key precedes: blanks that are missing, or too many.

use crate::config::diagnostics::{Problem, SourceSpan};
use std::ops::Range;

/// Returns the slip behind a `:` at the byte `error` of `text`, or behind a key there that has
/// none, if one is found.
pub(super) fn problem(text: &str, error: usize) -> Option<Problem> {
    let line = line_at(text, error);
    let above = line_above(text, line.start);
    split_key(text, error)
        .or_else(|| missing_blank(text, &line))
        .or_else(|| missing_blank(text, above.as_ref()?))
        .or_else(|| too_deep(text, &line, above.as_ref()?))
}

/// Returns the problem of a blank within the name of what a rule counts by, as in `header: x-id`,
/// at the byte `error` of `text`.
pub(super) fn split_key(text: &str, error: usize) -> Option<Problem> {
    let line = line_at(text, error);
    let word = text[line.start..error].rsplit(' ').next()?;
    let name = text[error..line.end].strip_prefix(':')?.trim_start();
    let name = name.split([' ', ',', '}', ']', '\r']).next()?;
    if !matches!(word, "header" | "cookie" | "query" | "jwt") {
        return None;
    }
    let span = SourceSpan::of(error + 1..error + 2);
    let name = if name.is_empty() { "NAME" } else { name };
    Some(
        Problem::error(span, format!("no space is allowed within `{word}:{name}`"))
            .help(format!("write `{word}:{name}`")),
    )
}

/// A `-` or a `:` that YAML takes for a part of the word beside it.
fn missing_blank(text: &str, line: &Range<usize>) -> Option<Problem> {
    let body = text[line.clone()].trim_start_matches([' ', '-']);
    let start = line.end - body.len();
    let word = body.bytes().take_while(|b| b.is_ascii_alphanumeric() || *b == b'_').count();
    let dash = text[line.start..start].ends_with('-').then(|| ("-", start - 1));
    let is_address = body[word..].starts_with("://");
    let is_glued = body[word..].starts_with(':')
        && !body[word + 1..].starts_with(|c: char| c.is_whitespace())
        && body.len() > word + 1;
    let colon = (word > 0 && is_glued && !is_address).then_some((":", start + word));
    let (mark, at) = dash.filter(|_| word > 0).or(colon)?;
    Some(
        Problem::error(
            SourceSpan::of(at..at + 1),
            format!("a space is missing after this `{mark}`"),
        )
        .help(format!("write a blank between `{mark}` and what follows")),
    )
}

/// A key that is indented further than the one above, which has a value.
fn too_deep(text: &str, line: &Range<usize>, above: &Range<usize>) -> Option<Problem> {
    let indent = |line: &Range<usize>, marks: &[char]| {
        line.end - text[line.clone()].trim_start_matches(marks).len() - line.start
    };
    let key = above.start + indent(above, &[' ', '-']);
    let (name, value) = text[key..above.end].split_once(": ")?;
    let is_deeper = indent(line, &[' ']) > key - above.start;
    if !is_deeper || value.trim_start().starts_with('#') || value.trim().is_empty() {
        return None;
    }
    let start = line.start + indent(line, &[' ']);
    let message = format!("the line begins deeper than `{name}` above, which has a value already");
    // Items of lists have a name, or are servers.
    let may_be_item = matches!(name, "name" | "url") && !text[above.start..key].contains('-');
    let dash = if may_be_item {
        format!("write `- {name}` where an item begins, or ")
    } else {
        String::new()
    };
    Some(
        Problem::error(SourceSpan::of(start..start + 1), message)
            .help(format!("{dash}begin it in the column of `{name}`")),
    )
}

fn line_at(text: &str, at: usize) -> Range<usize> {
    let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
    start..text[at..].find('\n').map_or(text.len(), |length| at + length)
}

/// Returns the last line above that has more than a comment.
fn line_above(text: &str, start: usize) -> Option<Range<usize>> {
    let mut start = start;
    while start > 0 {
        let line = line_at(text, start - 1);
        start = line.start;
        let body = text[line.clone()].trim();
        if !body.is_empty() && !body.starts_with('#') {
            return Some(line);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::problem;

    #[test]
    fn a_slip_with_blanks_is_marked_at_its_place() {
        for (text, error, span, words) in [
            ("- name:web\n  listen: 1\n", ": 1", 6, "a space is missing after this `:`"),
            ("a: 1\nlisten:8080\n", "listen", 11, "a space is missing after this `:`"),
            ("-name: a\n # b\n\n  b: 1\n", ": 1", 0, "a space is missing after this `-`"),
            ("- name: a\n   b: 1\n", ": 1", 13, "the line begins deeper than `name` above"),
            ("- key: header: x-id\n", ": x-id", 14, "no space is allowed within `header:x-id`"),
            ("- { key: header: }\n", ": }", 16, "no space is allowed within `header:NAME`"),
        ] {
            let problem = problem(text, text.find(error).unwrap()).expect(text);
            assert!(problem.message().starts_with(words), "{text:?}: {problem:?}");
            assert_eq!(problem.span().unwrap().range().start, span, "{text:?}");
        }
    }

    #[test]
    fn other_lines_are_no_slip() {
        for text in ["- url: http://a\n  b: c: d\n", "a:\n  b: c: d\n", "- http://a\n- b: c: d\n"] {
            assert!(problem(text, text.find(": d").unwrap()).is_none(), "{text:?}");
        }
    }
}
