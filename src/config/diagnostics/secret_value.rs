//! How far the value of a key goes in a text that may be broken YAML.

use super::literal::{is_in_braces, lines};
use core::ops::Range;

/// Where a value stands. What cannot be separated from it for sure counts as a part of it.
#[derive(Debug)]
pub(super) struct SecretValue<'a> {
    text: &'a str,
    range: Range<usize>,
}

impl<'a> SecretValue<'a> {
    /// Returns the value that begins behind the colon before `at`.
    pub(super) fn behind(text: &'a str, at: usize) -> Self {
        let line_end = end_of_line(text, at);
        let start = line_end - text[at..line_end].trim_start().len();
        let end = quoted(text, start)
            .or_else(|| in_braces(text, start))
            .unwrap_or_else(|| indented(text, start));
        Self { text, range: start..end.max(start) }
    }

    /// Returns where the value ends.
    pub(super) fn end(&self) -> usize {
        self.range.end
    }

    /// Returns the value's part of each line, without the space around it.
    pub(super) fn lines(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let value = &self.text[self.range.clone()];
        lines(value).map(|line| {
            let start = self.range.start + line.start;
            let shown = &value[line];
            let before = shown.len() - shown.trim_start().len();
            start + before..start + shown.trim_end().len()
        })
    }
}

/// Returns the end of a value in quotes, if nothing but the next part of a list or a map follows it.
fn quoted(text: &str, start: usize) -> Option<usize> {
    let quote = text[start..].chars().next().filter(|c| ['"', '\''].contains(c))?;
    let inside = start + 1;
    let mut rest = text[inside..].char_indices().peekable();
    let close = loop {
        match rest.next()? {
            (_, '\\') if quote == '"' => _ = rest.next(),
            (_, c) if c == quote && c == '\'' && rest.peek().is_some_and(|next| next.1 == c) => {
                rest.next();
            }
            (at, c) if c == quote => break inside + at + 1,
            _ => {}
        }
    };
    ends_value(text, close).then_some(close)
}

/// Returns the end of a value without quotes in braces that open in its line: the first `}` that ends
/// no variable. A comma may be a part of a secret.
fn in_braces(text: &str, start: usize) -> Option<usize> {
    let value = &text[start..end_of_line(text, start)];
    if !is_in_braces(&text[..start]) || value.starts_with(['{', '[', '"', '\'', '|', '>']) {
        return None;
    }
    let mut variables = 0;
    let mut last = ' ';
    for (at, c) in value.char_indices() {
        match c {
            '{' if last == '$' => variables += 1,
            '}' if variables > 0 => variables -= 1,
            '}' if ends_value(text, start + at + 1) => {
                return Some(start + value[..at].trim_end().len());
            }

            _ => {}
        }
        last = c;
    }
    None
}

/// Returns the end of the line, and of the lines below that are indented further than the key, so that
/// they may go on with the value.
fn indented(text: &str, start: usize) -> usize {
    let first = text[..start].rfind('\n').map_or(0, |at| at + 1);
    let key = text[first..start].find(|c| c != ' ' && c != '-').unwrap_or_default();
    let mut end = end_of_line(text, start);
    let below = end;
    for line in lines(&text[below..]).skip(1) {
        let shown = text[below..][line.clone()].trim_start();
        if !shown.is_empty() && line.len() - shown.len() <= key {
            break;
        }
        end = below + line.end;
    }
    end
}

/// Reports whether a value may end at `end`, by what follows it in the line.
fn ends_value(text: &str, end: usize) -> bool {
    let rest = text[end..end_of_line(text, end)].trim();
    rest.is_empty() || rest.starts_with([',', '}', ']', '#'])
}

fn end_of_line(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_ends_where_nothing_of_it_can_follow() {
        for (text, value) in [
            ("k: Basic abc", "Basic abc"),
            ("k: a, b } # c\nd: 1", "a, b } # c"),
            ("k: 'it''s', b: 1", "'it''s'"),
            (r#"{ k: "a\"b", c: 1 }"#, r#""a\"b""#),
            (r#"{ k: "a"b", c: 1 }"#, r#""a"b", c: 1 }"#),
            ("{ k: a, b, c: 1 }", "a, b, c: 1"),
            ("{ s: { k: ab }, c: 1 }", "ab"),
            ("{ s: { k: ${A:-b}c} }, d: 1 }", "${A:-b}c"),
            ("{ s: { k: a}b }, d: 1 }", "a}b"),
            ("{ k: a\n  b: 1 }", "a\n  b: 1 }"),
            ("k: |\n  a\n\n  b\nc: 1", "|\n  a\n\n  b"),
            ("  k:\n    - a\n  c: 1", "\n    - a"),
            ("- k: a\n  c: 1", "a"),
            ("k: \"a\n  b\" # c\nd: 1", "\"a\n  b\""),
            ("k: \"a\nb: c", "\"a"),
            ("? k\n: ab\nc: 1", "ab"),
            ("k:", ""),
        ] {
            let colon = if text.starts_with('?') { ": ab" } else { "k:" };
            let at = text.find(colon).unwrap() + colon.find(':').unwrap() + 1;
            let found = SecretValue::behind(text, at);
            assert_eq!(&text[found.range], value, "{text}");
        }
    }
}
