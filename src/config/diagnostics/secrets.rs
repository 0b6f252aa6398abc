//! What of a file must not be shown: secrets, which a drawing of the line beside them would carry to a
//! log or to the admin listener.

use super::{
    Problem,
    literal::{self, is_in_braces, lines},
};
use core::ops::Range;
use std::borrow::Cow;

/// The text in place of a secret in a message.
const CONCEALED: &str = "***";

/// Where secrets stand in a text, in the order of the text.
#[derive(Debug)]
pub(super) struct Secrets<'a> {
    text: &'a str,
    ranges: Vec<Range<usize>>,
}

impl<'a> Secrets<'a> {
    /// Finds the secrets of a text, which may be broken YAML.
    pub(super) fn of(text: &'a str) -> Self {
        let mut ranges: Vec<_> = literal::logins(text).collect();
        let mut end = 0;
        for start in literal::values(text) {
            // What looks like a key within a secret is a part of it.
            if start >= end {
                let value = SecretValue::behind(text, start);
                end = value.end();
                ranges.extend(value.lines());
            }
        }
        ranges.sort_by_key(|range| range.start);
        Self { text, ranges }
    }

    /// Returns the text with a `*` for each byte of a secret, so that nothing moves.
    pub(super) fn hidden(&self) -> Cow<'a, str> {
        let mut shown = String::new();
        let mut from = 0;
        for range in &self.ranges {
            let start = range.start.max(from);
            if start < range.end {
                shown.push_str(&self.text[from..start]);
                shown.extend(std::iter::repeat_n('*', range.end - start));
                from = range.end;
            }
        }
        if from == 0 {
            return Cow::Borrowed(self.text);
        }
        shown.push_str(&self.text[from..]);
        Cow::Owned(shown)
    }

    /// Conceals what a problem quotes of the secrets that it marks.
    pub(super) fn conceal(&self, problem: &mut Problem) {
        let spans = problem.span.into_iter().chain(problem.also.iter().map(|(span, _)| *span));
        let marked: Vec<_> = spans.flat_map(|span| self.overlapping(span.range())).collect();
        for secret in marked {
            let is_of_secret = |quote: &str| is_of_secret(secret, quote);
            conceal_quotes(&mut problem.message, is_of_secret);
            conceal_quotes(&mut problem.label, is_of_secret);
            for (_, label) in &mut problem.also {
                conceal_quotes(label, is_of_secret);
            }
            // It has examples, which may be like the secret but for the case of letters.
            conceal_quotes(&mut problem.help, |quote| has_word_of(secret, quote));
        }
    }

    fn overlapping(&self, span: Range<usize>) -> impl Iterator<Item = &'a str> {
        // A mark may be the blank before a secret.
        let is_marked =
            move |range: &&Range<usize>| range.start <= span.end && span.start <= range.end;
        self.ranges.iter().filter(is_marked).map(|range| &self.text[range.clone()])
    }
}

/// A shorter word is a part of too many others.
const SHORT: usize = 3;

/// Reports whether a message's quote has a word of the secret, in either case of letters, or is a part
/// of it. A value with escapes has other words than its text, so every quote counts then.
fn is_of_secret(secret: &str, quote: &str) -> bool {
    let quote = quote.trim_end_matches('…');
    secret.contains('\\')
        || quote.len() >= SHORT && secret.contains(quote)
        || has_word_of(&secret.to_ascii_lowercase(), &quote.to_ascii_lowercase())
}

fn has_word_of(secret: &str, quote: &str) -> bool {
    let quoted: Vec<_> = words(quote).collect();
    words(secret).any(|word| quoted.contains(&word))
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() >= SHORT)
}

/// Conceals each quote, between backticks, that is of a secret.
fn conceal_quotes(message: &mut String, is_concealed: impl Fn(&str) -> bool) {
    let parts = message.split('`').enumerate();
    let shown = parts.map(|(index, part)| match index % 2 {
        1 if !part.is_empty() && is_concealed(part) => CONCEALED,
        _ => part,
    });
    *message = shown.collect::<Vec<_>>().join("`");
}

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
    use crate::config::diagnostics::SourceSpan;

    #[test]
    fn secrets_are_hidden_where_they_stand_and_nothing_moves() {
        for (text, expected) in [
            ("a: 1\nb: redis://host\n", "a: 1\nb: redis://host\n"),
            ("a: redis://me:p@ä@h\nb: x@y", "a: redis://*******@h\nb: x@y"),
            ("to: http://me:p@h/x", "to: http://****@h/x"),
            ("r: [redis://a@h, rediss://b@i]", "r: [redis://***************@i]"),
            ("a: redis://:my pass@host # no URL", "a: redis://********@host # no URL"),
            ("a: redis://${USER}:${PASSWORD}@host", "a: redis://${USER}:${PASSWORD}@host"),
            ("sentinel_password: p w\r\nb: c", "sentinel_password: ***\r\nb: c"),
            ("{ \"sentinel_password\":\"p\", b: 1 }", "{ \"sentinel_password\":***, b: 1 }"),
            ("sentinel_password\n", "sentinel_password\n"),
            ("sentinel_password: redis://a@b", "sentinel_password: ***********"),
            ("admin: { token: abc }\nb: c", "admin: { token: *** }\nb: c"),
            ("\"token\" : abc\n  token: d", "\"token\" : ***\n  ********"),
            ("x-token: a\nb: 2", "x-token: *\nb: 2"),
            ("algorithm: token_bucket, tokens: b", "algorithm: token_bucket, tokens: b"),
            ("key: header:authorization", "key: header:authorization"),
            ("token: ${TOKEN} # why", "token: ${TOKEN} # why"),
        ] {
            let shown = Secrets::of(text).hidden();
            assert_eq!(shown, expected);
            assert_eq!(shown.len(), text.len());
        }
    }

    #[test]
    fn no_message_quotes_a_secret_that_it_marks() {
        for (text, marked, message, expected) in [
            (r#"set: { cookie: "s\x33cret", x: y }"#, r#""s"#, "`s3cret` is odd", "`***` is odd"),
            (r#"set: { cookie: "s3cret", x: y }"#, "x: y", "`s3cret` is odd", "`s3cret` is odd"),
            ("cookie: a s3cret", "a s3", "`A s3CRET\\u{7}…`", "`***`"),
            ("cookie: s3cretsecret", "s3", "`s3cretse…`", "`***`"),
            ("{ cookie: a=s3,cret9, x: y }", "cret9", "no `cret9`; `set`?", "no `***`; `set`?"),
            ("to: http://me:hidden@a", "http://", "`http://me:hidden@…`", "`***`"),
            ("sentinel_password: pass", "pass", "`sentinel_password`", "`sentinel_password`"),
        ] {
            let start = text.rfind(marked).unwrap();
            let mut problem =
                Problem::error(SourceSpan::of(start..start + 8), message).label(message);
            Secrets::of(text).conceal(&mut problem);
            assert_eq!((&*problem.message, &*problem.label), (expected, expected), "{text}");
        }
    }

    #[test]
    fn a_hint_keeps_its_examples_and_shows_no_secret() {
        let mut problem = Problem::error(SourceSpan::of(0..20), "a `user`")
            .help("write `redis://USER:PASSWORD@HOST`, not `redis://user`");
        Secrets::of("redis: redis://user@a").conceal(&mut problem);
        assert_eq!(problem.message, "a `***`");
        assert_eq!(problem.help, "write `redis://USER:PASSWORD@HOST`, not `***`");
    }

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
