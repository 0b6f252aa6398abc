//! Texts with placeholders, and what a route answers with them.

use super::compiler::Compiler;
use crate::config::{
    decode::{At, Entries, Key},
    diagnostics::{Lint, Problem, SourceSpan, quoted},
    plan::{
        Body, HeaderEdits, HeaderText, Piece, Placeholder, Syntax, Template, Text, Token, tokens,
    },
    spec::{
        HeaderEditsSpec,
        leaf::{EditableName, FieldValue},
    },
    vocabulary::nearest,
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use std::ops::Range;

/// Where a text stands, which decides about its placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// In what every request gets.
    Request,
    /// In what a rejected request gets.
    Rejection,
}

/// Variables of nginx and Envoy, with what to do in place of them. Of two that begin alike, the
/// longer one comes first.
const VARIABLES: &[(&str, &str)] = &[
    ("$args", QUERY),
    ("$document_uri", "write `{path}`"),
    ("$host", "write `{host}`"),
    ("$http_host", "write `{host}`"),
    ("$is_args$args", QUERY),
    ("$is_args", QUERY),
    ("$proxy_add_x_forwarded_for", "remove the field: flowgate writes `X-Forwarded-For` itself"),
    ("$query_string", QUERY),
    ("$remote_addr", "write `{client_ip}`"),
    ("$request_id", "write `{request_id}`"),
    ("$request_method", "write `{method}`"),
    ("$request_uri", "write `{path}{query}`"),
    ("$scheme", "write `{scheme}`"),
    ("$server_name", "write `{host}`"),
    ("$uri", "write `{path}`"),
    ("%DOWNSTREAM_REMOTE_ADDRESS", "write `{client_ip}`"),
    ("%REQ(", "write `{host}`, `{method}` or `{path}`: other fields have no placeholder"),
];

const QUERY: &str = "write `{query}`, which begins with the `?`";

/// Those that hardly any program in a body has as its own.
const VARIABLES_IN_BODIES: [&str; 4] =
    ["$http_host", "$proxy_add_x_forwarded_for", "$remote_addr", "$request_uri"];

impl Compiler {
    /// Compiles a text; what is wrong with its placeholders has been reported then.
    pub(super) fn template(&mut self, text: &str, span: SourceSpan, used: Use) -> Template {
        let mut pieces: Vec<Piece> = Vec::new();
        for token in tokens(text) {
            match token {
                Token::Text(range) if range.is_empty() => {}
                Token::Text(range) => match pieces.last_mut() {
                    Some(Piece::Text(before)) => {
                        *before = (before.to_string() + &text[range]).into();
                    }
                    _ => pieces.push(Piece::Text(text[range].into())),
                },
                Token::Word(range) => {
                    let value = self.placeholder(&text[range], span, used);
                    pieces.extend(value.map(Piece::Value));
                }
            }
        }
        Template(pieces.into())
    }

    /// Warns of variables of other gateways in a text that is no body.
    pub(super) fn literal_variables(&mut self, text: &str, span: SourceSpan) {
        self.literal_variables_of(text, span, |_| true);
    }

    /// Warns of those that `is_meant` takes.
    pub(super) fn literal_variables_of(
        &mut self,
        text: &str,
        span: SourceSpan,
        is_meant: impl Fn(&str) -> bool,
    ) {
        let mut found: Vec<&str> = Vec::new();
        for (_, variable, help) in variables(text) {
            if found.contains(&variable) || !is_meant(variable) {
                continue;
            }
            found.push(variable);
            let message = format!("`{variable}` is not a placeholder: flowgate sends it as it is");
            let span = self.span_found(span, |text| {
                let (at, ..) = variables(text).find(|(_, other, _)| *other == variable)?;
                Some(at..at + variable.len())
            });
            self.warn(Problem::warning(Lint::LiteralVariable, span, message).help(help));
        }
    }

    fn placeholder(&mut self, word: &str, span: SourceSpan, used: Use) -> Option<Placeholder> {
        let span = self.span_of(&format!("{{{word}}}"), span);
        let literally = format!("write `{{{{{word}}}}}` for the text itself");
        let all = || {
            Placeholder::ALL
                .iter()
                .filter(|(_, placeholder)| used == Use::Rejection || !placeholder.is_of_rejection())
        };
        match Placeholder::ALL.iter().find(|(known, _)| *known == word) {
            Some((_, value)) if used == Use::Request && value.is_of_rejection() => {
                let message = format!("`{{{word}}}` is known only in the `body` of `reject`");
                self.error(
                    Problem::error(span, message).help(format!("remove it, or {literally}")),
                );
                None
            }
            Some((_, value)) => Some(*value),
            None => {
                let help = if let Some(meant) = nearest(word, all().map(|(known, _)| *known)) {
                    format!("did you mean `{{{meant}}}`? {literally}")
                } else {
                    let known: Vec<_> = all().map(|(known, _)| format!("`{{{known}}}`")).collect();
                    format!("write one of {}; {literally}", known.join(", "))
                };
                let message = format!("there is no placeholder {}", quoted(&format!("{{{word}}}")));
                self.error(Problem::error(span, message).help(help));
                None
            }
        }
    }

    /// Returns where `part` stands in the value at `span`, or that span if it is written
    /// in another way there.
    pub(super) fn span_of(&self, part: &str, span: SourceSpan) -> SourceSpan {
        self.span_found(span, |text| text.find(part).map(|at| at..at + part.len()))
    }

    /// Returns the part that `find` finds in the text of the value at `span`, or that span.
    fn span_found(
        &self,
        span: SourceSpan,
        find: impl FnOnce(&str) -> Option<Range<usize>>,
    ) -> SourceSpan {
        if self.substitutions.at(span).is_some() {
            return span;
        }
        let range = span.range();
        let found = self.text.get(range.clone()).and_then(find);
        found.map_or(span, |found| {
            SourceSpan::of(range.start + found.start..range.start + found.end)
        })
    }

    pub(super) fn header_text(
        &mut self,
        value: &FieldValue,
        span: SourceSpan,
        used: Use,
    ) -> HeaderText {
        let Ok(text) = value.0.to_str() else { return Text::Plain(value.0.clone()) };
        self.literal_variables(text, span);
        let template = self.template(text, span, used);
        plain(template, |text| HeaderValue::try_from(text).unwrap_or_else(|_| value.0.clone()))
    }

    /// Compiles fields to set, of which none may be named twice.
    pub(super) fn header_fields(
        &mut self,
        key: &Key<Entries<EditableName, FieldValue>>,
    ) -> Vec<(HeaderName, HeaderText)> {
        let entries = key.value().map_or(&[][..], |Entries(entries)| entries);
        let mut set: Vec<(HeaderName, HeaderText)> = Vec::with_capacity(entries.len());
        for (name, value) in entries {
            let Some(At { value, span, .. }) = &value.at else { continue };
            if set.iter().any(|(known, _)| *known == name.value.0) {
                let message = format!("`{}` is set twice", name.value.0);
                self.error(
                    Problem::error(name.span, message)
                        .help("header names are the same in either case; remove one"),
                );
            }
            set.push((name.value.0.clone(), self.header_text(value, *span, Use::Request)));
        }
        set
    }

    pub(super) fn header_edits(&mut self, key: &Key<Box<HeaderEditsSpec>>) -> HeaderEdits {
        let Some(spec) = key.value() else { return HeaderEdits::default() };
        let set = self.header_fields(&spec.set);
        HeaderEdits { set, remove: spec.remove.plain(|name| name.0.clone()) }
    }

    /// Compiles a body, whose type is guessed unless it is given.
    pub(super) fn body(
        &mut self,
        text: &str,
        span: SourceSpan,
        content_type: Option<HeaderText>,
        used: Use,
    ) -> Body {
        self.literal_variables_of(text, span, |name| VARIABLES_IN_BODIES.contains(&name));
        let template = self.template(text, span, used);
        let begin = match template.0.first() {
            Some(Piece::Text(text)) => text.chars().next(),
            Some(Piece::Value(_) | Piece::Group(_)) | None => None,
        };
        let guessed = || {
            Text::Plain(HeaderValue::from_static(match begin {
                Some('{' | '[') => "application/json",
                Some('<') => "text/html; charset=utf-8",
                _ => "text/plain; charset=utf-8",
            }))
        };
        let content_type = content_type.unwrap_or_else(guessed);
        let syntax = match &content_type {
            Text::Plain(value) => Syntax::of(value.to_str().unwrap_or_default()),
            Text::Template(template) => Syntax::of(&template.to_string()),
        };
        Body { text: plain(template, Bytes::from), content_type, syntax }
    }
}

/// Returns the variables of other gateways in `text`: where each stands, its name, and what to
/// write in its place.
fn variables(text: &str) -> impl Iterator<Item = (usize, &'static str, &'static str)> {
    let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut next = 0;
    text.match_indices(['$', '%']).filter_map(move |(at, sign)| {
        let rest = &text[at..];
        let is_here = |(name, _): &&(&str, &str)| {
            let after = rest.strip_prefix(*name);
            after.is_some_and(|after| sign == "%" || !after.starts_with(is_in_word))
        };
        let (name, help) = VARIABLES.iter().find(is_here).filter(|_| at >= next)?;
        next = at + name.len();
        Some((at, *name, *help))
    })
}

/// Returns a text that is ready if it has no placeholders.
fn plain<T>(template: Template, ready: impl FnOnce(String) -> T) -> Text<T> {
    match &*template.0 {
        [] => Text::Plain(ready(String::new())),
        [Piece::Text(text)] => Text::Plain(ready(text.to_string())),
        _ => Text::Template(template),
    }
}
