//! What of a file must not be shown: secrets, which a drawing of the line beside them would carry to a
//! log or to the admin listener.

use super::{Problem, literal, secret_value::SecretValue};
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
}
