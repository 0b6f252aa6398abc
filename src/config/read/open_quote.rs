//! A quote that is closed too late, by another one. To YAML this is one text; to the user the keys
//! within it are missing.

use super::{Content, Node};
use crate::config::diagnostics::{Problem, SourceSpan};

/// Finds a quoted text that contains one of the `missing` keys.
pub(in crate::config) fn find(text: &str, root: &Node<'_>, missing: &[String]) -> Option<Problem> {
    if missing.is_empty() {
        return None;
    }
    match &root.content {
        Content::Empty | Content::Unset => None,
        Content::Scalar(_) => within(text, root.span, missing),
        Content::List(items) => items.iter().find_map(|item| find(text, item, missing)),
        Content::Map(entries) => entries.iter().find_map(|(name, value)| {
            within(text, name.span, missing).or_else(|| find(text, value, missing))
        }),
    }
}

fn within(text: &str, span: SourceSpan, missing: &[String]) -> Option<Problem> {
    if !span.is_quoted(text) {
        return None;
    }
    let range = span.range();
    let scalar = text.get(range.clone())?;
    let found = |key: &String| Some((position(scalar, key)?, key.len()));
    let (at, length) = missing.iter().filter_map(found).min()?;
    let key = SourceSpan::of(range.start + at..range.start + at + length);
    let message = format!("the missing key `{}` is within a quoted text", &text[key.range()]);
    Some(
        Problem::error(SourceSpan::of(range.start..range.start + 1), message)
            .label("the text begins here")
            .also(key, "and has this in it")
            .help("close the quote before the key"),
    )
}

/// Returns where `text` has `key`, a colon and a blank behind it, as if it were a key.
fn position(text: &str, key: &str) -> Option<usize> {
    let is_key = |at: &usize| {
        let before = &text[..*at];
        let after = &text[at + key.len()..];
        before.ends_with([' ', '\t', '\n', ',', '{', '"', '\''])
            && after.strip_prefix(':').is_some_and(|rest| rest.starts_with(char::is_whitespace))
    };
    text.match_indices(key).map(|(at, _)| at).find(is_key)
}
