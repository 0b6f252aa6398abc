//! Texts with placeholders, parsed once: `{host}` stands for the request's host.
//!
//! Only a word in braces is a placeholder, so that JSON is written as it is. `{{host}}` is the text
//! `{host}`, and `${host}`, which a file writes as `$${host}`, stays as well.

use crate::route::PathGroup;
use core::ops::Range;
use std::fmt;

/// The meaning of a word in braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placeholder {
    /// The number of the autonomous system of the client's address; empty if that is unknown.
    Asn,
    /// The SHA-256 of the client's certificate; empty without one.
    ClientCertFingerprint,
    /// The subject of the client's certificate; empty without one.
    ClientCertSubject,
    /// The client's address, by the trusted proxies.
    ClientIp,
    /// The country of the client's address; empty if that is unknown.
    Country,
    /// The host asked for, in lower case and without a port.
    Host,
    /// The method.
    Method,
    /// The path as the client wrote it.
    Path,
    /// The port asked for.
    Port,
    /// The query with its `?`, or nothing.
    Query,
    /// The value of `x-request-id`.
    RequestId,
    /// The value of `Retry-After`.
    RetryAfter,
    /// The rule that rejected.
    Rule,
    /// `http` or `https`.
    Scheme,
    /// The path with the query. In a URL, it is written as the value of a query's parameter.
    Uri,
    /// The whole URL. In a URL, it is written as the value of a query's parameter.
    Url,
}

impl Placeholder {
    /// All, by their words.
    pub const ALL: [(&'static str, Self); 16] = [
        ("asn", Self::Asn),
        ("client_cert_fingerprint", Self::ClientCertFingerprint),
        ("client_cert_subject", Self::ClientCertSubject),
        ("client_ip", Self::ClientIp),
        ("country", Self::Country),
        ("host", Self::Host),
        ("method", Self::Method),
        ("path", Self::Path),
        ("port", Self::Port),
        ("query", Self::Query),
        ("request_id", Self::RequestId),
        ("retry_after", Self::RetryAfter),
        ("rule", Self::Rule),
        ("scheme", Self::Scheme),
        ("uri", Self::Uri),
        ("url", Self::Url),
    ];

    /// Returns whether it is where the client is.
    pub const fn is_place(self) -> bool {
        matches!(self, Self::Asn | Self::Country)
    }

    /// Returns whether only a rejection has it.
    pub const fn is_of_rejection(self) -> bool {
        matches!(self, Self::RetryAfter | Self::Rule)
    }
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Text as it is.
    Text(Box<str>),
    /// The values that are known when the text is used.
    Value(Placeholder),
    /// A part of the path, in a redirect.
    Group(GroupPiece),
}

/// A group of the route's `path_regex` in a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupPiece {
    /// The group itself.
    pub group: PathGroup,
    /// Where it stands.
    pub place: UrlPart,
}

/// A part of a URL, which decides what is escaped in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UrlPart {
    /// The begin of the path, right behind the host.
    AfterHost,
    /// The rest of the path.
    Path,
    /// The query or the fragment.
    Query,
}

/// A text that depends on the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(pub Box<[Piece]>);

/// A text that is ready, or depends on the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text<T> {
    /// The same for all requests.
    Plain(T),
    /// To be filled in.
    Template(Template),
}

impl<T> Text<T> {
    /// Returns whether it depends on the request.
    pub const fn is_template(&self) -> bool {
        matches!(self, Self::Template(_))
    }
}

/// Writes the text as the file has it.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => f.write_str(text),
            Piece::Value(value) => {
                let word = Placeholder::ALL.iter().find(|(_, known)| known == value);
                write!(f, "{{{}}}", word.map_or("", |(word, _)| word))
            }
            Piece::Group(piece) => write!(f, "${}", piece.group.name),
        })
    }
}

/// A part of a text as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::config) enum Token {
    /// The bytes of a text.
    Text(Range<usize>),
    /// The bytes of a word, without its braces.
    Word(Range<usize>),
}

/// Splits a text at words in braces.
pub(in crate::config) fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut literal = 0;
    let mut next = 0;
    while let Some(open) = text[next..].find('{').map(|at| next + at) {
        next = open + 1;
        if text[..open].ends_with('$') {
            continue;
        }
        if let Some(end) = end_of_word(text, open) {
            tokens.extend([Token::Text(literal..open), Token::Word(open + 1..end - 1)]);
            literal = end;
            next = end;
        } else if let Some(end) =
            end_of_word(text, next).filter(|end| text[*end..].starts_with('}'))
        {
            tokens.extend([Token::Text(literal..open), Token::Text(next..end)]);
            literal = end + 1;
            next = literal;
        }
    }
    tokens.push(Token::Text(literal..text.len()));
    tokens
}

/// Returns where `{word}` ends that begins at `open`.
fn end_of_word(text: &str, open: usize) -> Option<usize> {
    let (word, _) = text[open..].strip_prefix('{')?.split_once('}')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let is_word = word.starts_with(|c: char| c.is_ascii_alphabetic()) && word.chars().all(fits);
    is_word.then_some(open + word.len() + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_words_in_braces_are_placeholders() {
        let split = |text: &str| {
            let tokens = tokens(text).into_iter().map(|token| match token {
                Token::Text(range) => text[range].to_owned(),
                Token::Word(range) => format!("<{}>", &text[range]),
            });
            tokens.collect::<String>()
        };
        for (text, expected) in [
            ("", ""),
            ("a{host}b", "a<host>b"),
            ("{host}{path}", "<host><path>"),
            ("{{host}}", "{host}"),
            ("{{host}} {host}}", "{host} <host>}"),
            ("{{host}", "{<host>"),
            ("${host} $ {host}", "${host} $ <host>"),
            (r#"{"a":{"b":1},"c":{}}"#, r#"{"a":{"b":1},"c":{}}"#),
            (r#"{"a":{"b":"{rule}"}}"#, r#"{"a":{"b":"<rule>"}}"#),
            ("{ host } {0} {a b} {é} {", "{ host } {0} {a b} {é} {"),
            ("{Host} {x.y-z}", "<Host> <x.y-z>"),
        ] {
            assert_eq!(split(text), expected, "{text}");
        }
    }
}
