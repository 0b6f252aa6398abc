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

/// Where a text stands, which decides about its placeholders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// In what every request gets.
    Request,
    /// In what a rejected request gets.
    Rejection,
}

/// Variables of nginx and Envoy, with what to do in place of them.
const VARIABLES: &[(&str, &str)] = &[
    ("$args", "write `{query}`, which begins with the `?`"),
    ("$document_uri", "write `{path}`"),
    ("$host", "write `{host}`"),
    ("$http_host", "write `{host}`"),
    ("$is_args", "write `{query}`, which begins with the `?`"),
    ("$proxy_add_x_forwarded_for", "remove the field: flowgate writes `X-Forwarded-For` itself"),
    ("$query_string", "write `{query}`, which begins with the `?`"),
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

impl Compiler {
    /// Compiles a text; what is wrong with its placeholders has been reported then.
    pub(super) fn template(&mut self, text: &str, span: SourceSpan, used: Use) -> Template {
        self.literal_variables(text, span);
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

    /// Warns of variables of other gateways.
    fn literal_variables(&mut self, text: &str, span: SourceSpan) {
        if !text.contains(['$', '%']) {
            return;
        }
        let is_in_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        for (variable, help) in VARIABLES {
            let ends = |(at, _): (usize, &str)| {
                variable.starts_with('%') || !text[at + variable.len()..].starts_with(is_in_word)
            };
            if text.match_indices(variable).any(ends) {
                let message =
                    format!("`{variable}` is not a placeholder: flowgate sends it as it is");
                let span = self.span_of(variable, span);
                self.warn(Problem::warning(Lint::LiteralVariable, span, message).help(*help));
            }
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
    fn span_of(&self, part: &str, span: SourceSpan) -> SourceSpan {
        if self.substitutions.at(span).is_some() {
            return span;
        }
        let range = span.range();
        let found = self.text.get(range.clone()).and_then(|text| text.find(part));
        found.map_or(span, |at| SourceSpan::of(range.start + at..range.start + at + part.len()))
    }

    pub(super) fn header_text(
        &mut self,
        value: &FieldValue,
        span: SourceSpan,
        used: Use,
    ) -> HeaderText {
        let Ok(text) = value.0.to_str() else { return Text::Plain(value.0.clone()) };
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
        (content_type, used): (Option<HeaderText>, Use),
    ) -> Body {
        let template = self.template(text, span, used);
        let is_json =
            matches!(template.0.first(), Some(Piece::Text(text)) if text.starts_with(['{', '[']));
        let guessed = || {
            let guess = if is_json { "application/json" } else { "text/plain; charset=utf-8" };
            Text::Plain(HeaderValue::from_static(guess))
        };
        let content_type = content_type.unwrap_or_else(guessed);
        let syntax = match &content_type {
            Text::Plain(value) => Syntax::of(value.to_str().unwrap_or_default()),
            Text::Template(template) => Syntax::of(&template.to_string()),
        };
        Body { text: plain(template, Bytes::from), content_type, syntax }
    }
}

/// Returns a text that is ready if it has no placeholders.
fn plain<T>(template: Template, ready: impl FnOnce(String) -> T) -> Text<T> {
    match &*template.0 {
        [] => Text::Plain(ready(String::new())),
        [Piece::Text(text)] => Text::Plain(ready(text.to_string())),
        _ => Text::Template(template),
    }
}
