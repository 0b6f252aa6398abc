//! Words for what the YAML parser refuses.

use super::{node::Place, problem::Problem};
use serde_yaml::{Error, Location};

/// Returns the parser's refusal as a problem: its place as bytes of `text`, its reason in the words
/// of a person who edits the file, and what to do about it.
pub(super) fn problem(text: &str, error: &Error) -> Problem {
    let at = error.location().map_or(text.len(), |location| byte_of(text, location));
    // The parser marks a point; a caret needs a character to stand under.
    let width = text[at..].chars().next().filter(|c| *c != '\n').map_or(0, char::len_utf8);
    let (message, help) = if is_brace_in_text(text, at) {
        ("a bracket in the middle of a text ends it here".to_owned(), QUOTE)
    } else {
        words(error)
    };
    Problem::error(Place::of(at..at + width), message).help(help)
}

/// Reports whether a bracket stands at `at` right behind a character of a text, as in `/users/{id}`,
/// which within `{ … }` ends the text.
fn is_brace_in_text(text: &str, at: usize) -> bool {
    let is_text = |c: char| !c.is_whitespace() && !matches!(c, '{' | '[' | ',' | ':');
    text[at..].starts_with(['{', '[']) && text[..at].ends_with(is_text)
}

/// Returns the byte that `location` names. Scanner errors know only line and column.
fn byte_of(text: &str, location: Location) -> usize {
    let known = location.span().byte_offset().and_then(|at| usize::try_from(at).ok());
    if let Some(at) = known.filter(|at| text.is_char_boundary(*at)) {
        return at;
    }
    let before = |n: u64| usize::try_from(n.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut lines = text.split_inclusive('\n');
    let start: usize = lines.by_ref().take(before(location.line())).map(str::len).sum();
    let line = lines.next().unwrap_or_default().trim_end_matches('\n');
    let column =
        line.char_indices().nth(before(location.column())).map_or(line.len(), |(at, _)| at);
    start + column
}

fn words(error: &Error) -> (String, &'static str) {
    let said = error.render_with_options(serde_yaml::render_options! {
        formatter: &serde_yaml::UserMessageFormatter,
        snippets: serde_yaml::SnippetMode::Off,
    });
    // The place is drawn beside the message.
    let said = said.split(" at line ").next().unwrap_or(&said);
    let cause = if let Error::AliasError { error, .. } = error { error } else { error };
    let is_bound = matches!(
        cause,
        Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. }
    );
    if is_bound || said.contains("recursion limit") {
        // Some bounds have no words of their own, only the names of the parser's fields.
        let said = if said.contains('{') { "too much comes through aliases" } else { said };
        return (
            format!("the file passes a bound that protects the gateway: {said}"),
            "aliases may add 500,000 values and nesting may be 64 deep; write the values out",
        );
    }
    let known = KNOWN.iter().find(|(words, _, _)| said.contains(words));
    match known {
        Some((_, message, help)) => ((*message).to_owned(), help),
        None => (
            format!("the file is not YAML: {said}"),
            "check the indentation and the brackets on this line and the lines above",
        ),
    }
}

const QUOTE: &str = "put the text in quotes, as in `path: \"/users/{id}\"`";

/// What the parser says, what it means, and what to do.
const KNOWN: &[(&str, &str, &str)] = &[
    (
        "multiple",
        "the file holds more than one YAML document",
        "remove the line `---` and what follows it",
    ),
    ("tabs", "a tab stands where YAML wants spaces", "indent with spaces"),
    (
        "mapping values are not allowed",
        "a second `:` where no key can stand",
        "check the indentation, and put a text that contains `: ` in quotes",
    ),
    (
        "did not find expected",
        "the indentation does not fit the lines above",
        "align the keys of a map in one column, and the `-` of a list in another",
    ),
    (
        "unknown value",
        "the alias names no anchor",
        "write `&name` before the value that `*name` stands for",
    ),
    // Nothing else of the file is asked to be a text.
    ("expected string scalar", NO_WORD, WRITE_WORD),
    ("null", NO_WORD, WRITE_WORD),
    ("unclosed quote", "the quote that opens here is never closed", "close it on the same line"),
];

const NO_WORD: &str = "a key must be a word";
const WRITE_WORD: &str = "write a word before the `:`, in quotes if it is `null` or `~`";

#[cfg(test)]
mod tests {
    use super::super::node::Node;

    #[test]
    fn the_refusal_is_said_in_plain_words_and_marks_its_place() {
        check("a: b\n---\nc: d\n", 9, "more than one YAML document");
        check("ä: ü\nb:\n\tc: 1\n", 11, "a tab stands where YAML wants spaces");
        check("a: 1\n  b: 2\n", 8, "a second `:` where no key can stand");
        check("ä: *q\n", 4, "the alias names no anchor");
        check("a: { b: /x/{id} }\n", 11, "a bracket in the middle of a text");
        check("ä: 'x", 4, "the quote that opens here is never closed");
        check("a: [1\nb: 2\n", 7, "the file is not YAML: illegal placement of ':'");
        check("a: &b [*b]\n", 7, "ecursive reference");
    }

    #[track_caller]
    fn check(text: &str, at: usize, words: &str) {
        let problem = Node::parse(text).unwrap_err();
        assert!(problem.message().contains(words), "{problem:?}");
        assert_eq!(problem.place().unwrap().range().start, at, "{problem:?}");
    }
}
