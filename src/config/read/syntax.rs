//! The errors of a text that is not YAML, that passes a bound, or whose quote is closed too late, in words.

use super::{
    Content, Node,
    cause::{Cause, cause},
    spacing,
};
use crate::config::diagnostics::{Problem, SourceSpan, quoted};
use serde_yaml::{
    Error, ExternalMessageSource, Location,
    budget::BudgetBreach,
    granit_parser::{ErrorKind, Marker, ScanError},
};

/// Returns the parser's error as a problem: its span as bytes, its reason in the words of a
/// person who edits the file, and what to do about it.
#[expect(clippy::wildcard_enum_match_arm, reason = "most are of typed reads, and more may come")]
pub(in crate::config) fn problem(text: &str, error: &Error) -> Problem {
    let at = |location: &Location| mark(text, byte_at(text, location));
    match error {
        Error::ExternalMessage { source, .. } => match &**source {
            ExternalMessageSource::Parser(error) => scan_problem(text, error),
            _ => unknown(mark(text, 0), error),
        },
        Error::AliasError { error, .. } => problem(text, error),
        Error::MultipleDocuments { location, .. } => several_documents(text, at(location)),
        Error::RecursiveReferencesRequireWeakTypes { location } => recursive(at(location)),
        Error::UnknownAnchor { location } => no_anchor(text, at(location)),
        Error::Eof { .. } => ended(text),
        Error::Budget { breach: BudgetBreach::Depth { .. }, location } => {
            bound(at(location), "it is nested too deeply")
        }
        Error::Budget {
            breach: BudgetBreach::Aliases { .. } | BudgetBreach::RecordedAnchorEvents { .. },
            location,
        }
        | Error::AliasReplayLimitExceeded { location, .. }
        | Error::AliasReplayStackDepthExceeded { location, .. } => {
            bound(at(location), "too much comes through aliases")
        }
        Error::Budget { location, .. } => bound(at(location), "it holds too many values"),
        other => unknown(other.location().map_or_else(|| mark(text, 0), |span| at(&span)), other),
    }
}

/// Returns the byte at `location`, which has at least the number of the character.
fn byte_at(text: &str, location: &Location) -> usize {
    let small = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let span = location.span();
    let by_character = || text.char_indices().nth(small(span.offset())).map(|(at, _)| at);
    span.byte_offset().map(small).or_else(by_character).unwrap_or(text.len())
}

/// Returns the span of the character at the byte `at`, so that a caret has one to stand under.
fn mark(text: &str, at: usize) -> SourceSpan {
    let rest = text.get(at..).unwrap_or_default();
    let width = rest.chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
    SourceSpan::of(at..at + width)
}

fn unknown(span: SourceSpan, why: &Error) -> Problem {
    Problem::error(span, format!("the file is not YAML: {why}"))
        .help("check the indentation and the brackets on this line and the lines above")
}

fn no_anchor(text: &str, span: SourceSpan) -> Problem {
    // As in a host: a name that an anchor has begins with no point.
    if text[span.range().start..].starts_with("*.") {
        return Problem::error(span, "a value that begins with `*` needs quotes")
            .help("put it in quotes, as in `\"*.example.com\"`");
    }
    let port = text[span.range().start..].strip_prefix("*:").unwrap_or_default();
    let port: String = port.chars().take_while(char::is_ascii_digit).collect();
    if !port.is_empty() {
        return Problem::error(span, "an address to listen on does not begin with `*`")
            .help(format!("write `:{port}` for every address of this machine"));
    }
    Problem::error(span, "the alias names no anchor")
        .help("write `&name` before the value that `*name` stands for")
}

fn scan_problem(text: &str, error: &ScanError) -> Problem {
    let at = byte_of(text, error.marker());
    let span = mark(text, at);

    if let Some(blank) = odd_blank(text, at) {
        let is_no_break = text[blank.range()] == *"\u{a0}";
        return Problem::error(blank, "a character only looks like a space")
            .label(if is_no_break { "a no-break space" } else { "this character" })
            .help("write a space; text that is copied from a web page may have other characters");
    }
    if is_brace_in_text(text, at) {
        let message = "a bracket in the middle of a text ends it here";
        return Problem::error(span, message).help(QUOTE);
    }

    if *error.kind() == ErrorKind::RecursionLimitExceeded {
        return bound(span, "it is nested too deeply");
    }

    if let Some(cause) = cause(text, at) {
        return slip(text, cause);
    }
    let is_key =
        matches!(error.kind(), ErrorKind::MappingValueNotAllowed | ErrorKind::SimpleKeyExpected);
    if let Some(problem) = is_key.then(|| spacing::problem(text, at)).flatten() {
        return problem;
    }

    // Within braces, the parser expects a `,` here.
    if !is_key && text[at..].starts_with(':') {
        return spacing::split_key(text, at).unwrap_or_else(|| {
            Problem::error(span, "a second `:` where no key is allowed")
                .help("write a `,` between two keys, and put a value that contains `:` in quotes")
        });
    }

    let (message, help) = words(error.kind());
    Problem::error(span, message).help(help)
}

/// Returns the first character that looks like a space: of an indentation, no further than `until`,
/// or behind a `:` or a `-` in the line there or the line above.
fn odd_blank(text: &str, until: usize) -> Option<SourceSpan> {
    let mut start = 0;
    for line in text[..until].split_inclusive('\n') {
        let indent = line.chars().take_while(|c| c.is_whitespace()).map(char::len_utf8).sum();
        let odd = line[..indent].char_indices().find(|(_, c)| !c.is_ascii());
        if let Some((at, _)) = odd {
            return Some(mark(text, start + at));
        }
        start += line.len();
    }
    let ends = text[..until].rmatch_indices('\n').map(|(at, _)| at + 1);
    let from = ends.take(2).last().unwrap_or_default();
    let end = text[until..].find('\n').map_or(text.len(), |length| until + length);
    let is_odd = |(at, c): &(usize, char)| {
        c.is_whitespace() && !c.is_ascii() && text[..from + at].ends_with([':', '-'])
    };
    text[from..end].char_indices().find(is_odd).map(|(at, _)| mark(text, from + at))
}

fn slip(text: &str, cause: Cause) -> Problem {
    let (Cause::Tab(at) | Cause::Quote(at) | Cause::Bracket(at)) = cause;
    let span = SourceSpan::of(at..at + 1);
    match cause {
        Cause::Tab(_) => Problem::error(span, "a tab is used where YAML requires spaces")
            .label("this is a tab")
            .help("indent with spaces"),
        Cause::Quote(_) => Problem::error(span, "the quote that opens here is never closed")
            .help("close it on the same line"),
        Cause::Bracket(_) => {
            let open = &text[span.range()];
            let close = if open == "[" { "]" } else { "}" };
            Problem::error(span, format!("the `{open}` that opens here is never closed"))
                .help(format!("write `{close}` at its end"))
        }
    }
}

/// Reports whether a bracket stands at `at` right behind a character of a text, as in `/users/{id}`,
/// which within `{ … }` ends the text.
fn is_brace_in_text(text: &str, at: usize) -> bool {
    let is_text = |c: char| !c.is_whitespace() && !matches!(c, '{' | '[' | ',' | ':');
    text[at..].starts_with(['{', '[']) && text[..at].ends_with(is_text)
}

/// Returns the byte that `marker` names.
fn byte_of(text: &str, marker: &Marker) -> usize {
    let by_character = || text.char_indices().nth(marker.index()).map_or(text.len(), |(at, _)| at);
    marker.byte_offset().filter(|at| text.is_char_boundary(*at)).unwrap_or_else(by_character)
}

/// Returns what is wrong and what to do about it.
#[expect(clippy::wildcard_enum_match_arm, reason = "most need no more than the table")]
fn words(kind: &ErrorKind) -> (String, &'static str) {
    let character = |character: &char| quoted(&character.to_string());
    match kind {
        ErrorKind::UnexpectedCharacter { character: first } => {
            let message = format!("a value cannot begin with {}", character(first));
            return (message, "put it in quotes, or remove the character");
        }
        ErrorKind::UnclosedFlowCollection { open } => {
            let message = format!("the {} that opens here is never closed", character(open));
            return (message, "write the bracket that closes it");
        }
        ErrorKind::MismatchedFlowCollectionEnd { open, close } => {
            let close = character(close);
            let message = format!("the {} that opens here is closed by a {close}", character(open));
            return (message, "write the bracket that closes it");
        }
        _ => {}
    }
    match KNOWN.iter().find(|(kinds, _, _)| kinds.contains(kind)) {
        Some((_, message, help)) => ((*message).to_owned(), help),
        None => (
            format!("the file is not YAML: {kind}"),
            "check the indentation and the brackets on this line and the lines above",
        ),
    }
}

const QUOTE: &str = "put the text in quotes, as in `path: \"/users/{id}\"`";

/// The parser's message, its meaning, and a hint.
const KNOWN: &[(&[ErrorKind], &str, &str)] = &[
    (
        &[ErrorKind::TabNotAllowed, ErrorKind::TabInBlockIndentation, ErrorKind::TabInIndentation],
        "a tab is used where YAML requires spaces",
        "indent with spaces",
    ),
    (
        &[ErrorKind::MappingValueNotAllowed],
        "a second `:` where no key is allowed",
        "check the indentation, and put a text that contains `: ` in quotes",
    ),
    (
        &[ErrorKind::SimpleKeyExpected],
        "a `:` is missing after a key",
        "write `key: value`, with a blank after the `:`",
    ),
    (
        &[
            ErrorKind::ExpectedBlockMappingKey,
            ErrorKind::ExpectedBlockSequenceEntry,
            ErrorKind::ExpectedFlowMappingSeparator,
            ErrorKind::ExpectedNodeContent,
            ErrorKind::ExpectedDocumentStart,
        ],
        "the indentation does not fit the lines above",
        "align the keys of a map in one column, and the `-` of a list in another",
    ),
    (
        &[
            ErrorKind::InvalidTrailingSingleQuotedScalar,
            ErrorKind::InvalidTrailingDoubleQuotedScalar,
        ],
        "the text continues after its closing quote",
        "put all of it in quotes; within single quotes write `''` for one, as in `'it''s'`",
    ),
    (
        &[ErrorKind::MisplacedFlowCollectionEnd],
        "the bracket closes nothing",
        "remove it, or write the bracket that opens before it",
    ),
    (
        &[ErrorKind::BlockSequenceEntryNotAllowed],
        "a list begins on the line of its key",
        "begin the list on the next line, as in `  - name: …`",
    ),
    (
        &[ErrorKind::MissingAnchorOrAliasName],
        "a value that begins with `*` or `&` needs quotes",
        "put it in quotes, as in `\"*.example.com\"`",
    ),
    (
        &[ErrorKind::UnknownQuotedScalarEscape],
        "in double quotes, `\\` begins an escape, and YAML does not know this one",
        "write the text in single quotes, as in `'/v\\d+'`, or each `\\` twice",
    ),
    (
        &[ErrorKind::UnclosedQuotedScalar],
        "the quote that opens here is never closed",
        "close it on the same line",
    ),
];

/// Returns that the file passes a bound at `span`.
pub(in crate::config) fn bound(span: SourceSpan, how: &str) -> Problem {
    Problem::error(span, format!("the file exceeds a bound that protects the gateway: {how}"))
        .help("aliases may add 500,000 values and nesting may be 24 deep; write the values out")
}

/// Returns that an alias stands within its own value.
pub(in crate::config) fn recursive(span: SourceSpan) -> Problem {
    Problem::error(span, "the alias is within the value that it names")
        .help("write the value out where the alias is")
}

/// Returns that there is a second document, which has something at `span`.
fn several_documents(text: &str, span: SourceSpan) -> Problem {
    let before = text.get(..span.range().start).unwrap_or(text);
    let span = before.rfind("---").map_or(span, |at| SourceSpan::of(at..at + 3));
    Problem::error(span, "the file holds more than one YAML document")
        .help("remove the line `---` and what follows it")
}

/// Returns that the key at `span` is not a text.
pub(in crate::config) fn no_word(text: &str, span: SourceSpan) -> Problem {
    if text[..span.range().start].ends_with('{') && text[span.range().start..].starts_with('{') {
        return Problem::error(span, "flowgate does not fill in `{{ … }}`")
            .help("write a variable of the environment as `${NAME}`");
    }
    Problem::error(span, "a key must be a word")
        .help("write a word before the `:`, in quotes if it is `null` or `~`")
}

/// Returns that the text ends too early.
pub(in crate::config) fn ended(text: &str) -> Problem {
    Problem::error(SourceSpan::of(text.len()..text.len()), "the file ends in the middle of a value")
        .help("write the rest of it")
}

/// Finds a quoted text that contains one of the `missing` keys.
pub(in crate::config) fn open_quote(
    text: &str,
    root: &Node<'_>,
    missing: &[String],
) -> Option<Problem> {
    if missing.is_empty() {
        return None;
    }
    match &root.content {
        Content::Empty | Content::Unset => None,
        Content::Scalar(_) => within(text, root.span, missing),
        Content::List(items) => items.iter().find_map(|item| open_quote(text, item, missing)),
        Content::Map(entries) => entries.iter().find_map(|(name, value)| {
            within(text, name.span, missing).or_else(|| open_quote(text, value, missing))
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

#[cfg(test)]
mod tests {
    use super::super::{
        Masked,
        yaml::{Budget, read},
    };

    #[test]
    fn the_rejection_is_said_in_plain_words_and_marks_its_place() {
        check("a: b\n---\nc: d\n", 5, "more than one YAML document");
        check("ä: ü\nb:\n\tc: 1\n", 10, "a tab is used where YAML requires spaces");
        check("a: 1\n  b: 2\n", 7, "deeper than `a`");
        check("a: b: c\n", 4, "a second `:` where no key is allowed");
        check("- { a: 1, key: header: x-id }\n", 22, "no space is allowed within `header:x-id`");
        check("- { listen: [::]:80 }\n", 16, "a second `:` where no key is allowed");
        check("- { a: 1 b: 2 }\n", 10, "a second `:` where no key is allowed");
        check("- { host: *.a.com }\n", 10, "a value that begins with `*` needs quotes");
        check("host: *\n", 6, "a value that begins with `*` or `&` needs quotes");
        check("a: [1 }\n", 3, "the `[` that opens here is closed by a `}`");
        check("- { a: 1 }}\n", 10, "the bracket closes nothing");
        check("a: - b: 1\n", 3, "a list begins on the line of its key");
        check("a:\n\u{a0}\u{a0}b: 1\n  c: d: 2\n", 3, "only looks like a space");
        check("a:\n  b:\u{a0}c\n  d: 1\n", 7, "only looks like a space");
        check("a: @b\n", 3, "a value cannot begin with `@`");
        check("a: 1\nb = c\n", 5, "a `:` is missing after a key");
        check("a:\n  - name:web\n    listen: 1\n", 11, "a space is missing after this `:`");
        check("ä: *q\n", 4, "the alias names no anchor");
        check("ä: *:8080\n", 4, "an address to listen on does not begin with `*`");
        check("a: { b: /x/{id} }\n", 11, "a bracket in the middle of a text");
        check("ä: 'x", 4, "the quote that opens here is never closed");
        check("a: [1\nb: 2\n", 3, "the `[` that opens here is never closed");
        check("a: 'it's'\n", 7, "the text continues after its closing quote");
        check("a:\n  b: 1\n\tc: 2\n", 10, "a tab is used where YAML requires spaces");
        check("a: \"x\nb: \"y\"\n", 3, "the quote that opens here is never closed");
        check("a: &b [*b]\n", 7, "within the value that it names");
    }

    #[track_caller]
    fn check(text: &str, at: usize, words: &str) {
        let problem = read(&Masked::of(text), None, &mut Budget::default()).unwrap_err();
        assert!(problem.message().contains(words), "{problem:?}");
        assert_eq!(problem.span().unwrap().range().start, at, "{problem:?}");
    }
}
