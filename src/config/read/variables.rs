//! `${NAME}` and `${NAME:-default}` in the values of a file: what the environment has in their place.
//!
//! They are replaced in values that are parsed already, so that a variable is never more than text.
//! To the parser a brace ends a plain value within `{ … }`, so it is given a mark of the same length
//! in place of each variable, and every value stays at its place.

use crate::config::diagnostics::{Environment, Problem, SourceSpan, quoted};
use std::{borrow::Cow, ffi::OsString, ops::Range};

/// The beginning of a variable.
pub(super) const BEGIN: &str = "${";

/// The form of a variable, for hints.
const FORMS: &str = "write `${NAME}` or `${NAME:-default}`; for a `${` that stays, write `$${`";

/// A text with marks in place of its variables.
#[derive(Debug)]
pub(in crate::config) struct Masked<'s> {
    pub(super) original: &'s str,
    pub(super) text: Cow<'s, str>,
    mark: char,
    /// The variables that are masked.
    variables: Vec<Range<usize>>,
}

impl<'s> Masked<'s> {
    pub(in crate::config) fn of(original: &'s str) -> Self {
        // Characters for private use, of three bytes as `${}`.
        let mut marks = '\u{e000}'..='\u{f8ff}';
        let variables = variables(original);
        let free = marks.find(|mark| variables.is_empty() || !original.contains(*mark));
        let Some(mark) = free.filter(|_| !variables.is_empty()) else {
            return Self {
                original,
                text: Cow::Borrowed(original),
                mark: '\0',
                variables: Vec::new(),
            };
        };
        let mut text = String::with_capacity(original.len());
        let mut end = 0;
        for variable in &variables {
            text.push_str(&original[end..variable.start]);
            text.push(mark);
            text.extend(std::iter::repeat_n('x', variable.len() - mark.len_utf8()));
            end = variable.end;
        }
        text.push_str(&original[end..]);
        Self { original, text: Cow::Owned(text), mark, variables }
    }

    /// Returns the text that was parsed at `span` with its variables.
    pub(super) fn restored<'m>(&'m self, parsed: Cow<'m, str>, span: SourceSpan) -> Cow<'m, str> {
        if self.variables.is_empty() || !parsed.contains(self.mark) {
            return parsed;
        }
        let first = self.variables.partition_point(|variable| variable.start < span.range().start);
        let mut text = String::new();
        let mut rest = &*parsed;
        for variable in &self.variables[first..] {
            let Some((before, after)) = rest.split_once(self.mark) else { break };
            text.push_str(before);
            text.push_str(&self.original[variable.clone()]);
            rest = after.get(variable.len() - self.mark.len_utf8()..).unwrap_or_default();
        }
        Cow::Owned(text + rest)
    }
}

/// Returns where variables stand, but for those that only a text in quotes can have.
fn variables(text: &str) -> Vec<Range<usize>> {
    let variables = text.match_indices(BEGIN).filter_map(|(start, _)| {
        let inside = start + BEGIN.len();
        let length = text[inside..].find(['}', '{', '\n', '"', '\'', '\\'])?;
        let end = inside + length;
        text[end..].starts_with('}').then_some(start..end + 1)
    });
    variables.collect()
}

/// Returns `text` with the values of its variables. Each problem is of the n-th `${`.
pub(super) fn expand(
    text: &str,
    environment: Environment,
) -> Result<String, Vec<(usize, Problem)>> {
    let mut value = String::new();
    let mut problems = Vec::new();
    let mut rest = text;
    let mut count = 0;
    while let Some((before, after)) = rest.split_once(BEGIN) {
        if let Some(before) = before.strip_suffix('$') {
            value.push_str(before);
            value.push_str(BEGIN);
            rest = after;
        } else {
            value.push_str(before);
            let (inside, behind) = after.split_once('}').unwrap_or((after, ""));
            let is_closed = inside.len() < after.len();
            match variable(inside, is_closed, environment) {
                Ok(found) => value.push_str(&found),
                Err(problem) => problems.push((count, problem)),
            }
            count += inside.matches(BEGIN).count();
            rest = behind;
        }
        count += 1;
    }
    value.push_str(rest);
    if problems.is_empty() { Ok(value) } else { Err(problems) }
}

/// Returns the value of the variable that `inside` of its braces names.
fn variable(inside: &str, is_closed: bool, environment: Environment) -> Result<String, Problem> {
    let error = |message: String| Err(Problem::error(SourceSpan::default(), message));
    if !is_closed {
        return error("a `${` without its `}`".to_owned()).map_err(|problem| problem.help(FORMS));
    }
    let (name, default) = match inside.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (inside, None),
    };
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|first: char| first.is_ascii_digit())
        && !name.is_empty();
    if !is_name || default.is_some_and(|default| default.contains(BEGIN)) {
        let message = format!("{} is not a variable", quoted(&format!("${{{inside}}}")));
        return error(message).map_err(|problem| problem.help(FORMS));
    }
    // As in a shell, a default stands for an empty value too.
    let set = environment(name).filter(|value| default.is_none() || !value.is_empty());
    match (set.map(OsString::into_string), default) {
        (Some(Ok(value)), _) => Ok(value),
        (Some(Err(_)), _) => error(format!("the value of `${{{name}}}` is not UTF-8")),
        (None, Some(default)) => Ok(default.to_owned()),
        (None, None) => error(format!("the variable `{name}` is not set")).map_err(|problem| {
            problem.help(format!(
                "set it in the environment that flowgate starts in, or write a default: \
                 `${{{name}:-DEFAULT}}`"
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_text_has_its_length_and_is_restored() {
        let text = "a: { b: ${X}, c: 'é${Y:-d, [e]}' } # ${Z}\n${K}: $${V}\n";
        let masked = Masked::of(text);
        assert_eq!(masked.text.len(), text.len());
        assert!(!masked.text.contains(BEGIN), "{masked:?}");
        for line in masked.text.lines() {
            let start = line.as_ptr() as usize - masked.text.as_ptr() as usize;
            let span = SourceSpan::of(start..start + line.len());
            assert_eq!(masked.restored(line.into(), span), text[start..start + line.len()]);
        }
    }

    #[test]
    fn what_only_a_quoted_text_can_hold_is_left_to_the_parser() {
        for text in ["no variable", "${a\nb}", "\"${X:-\\\"}\"", "${X:-'a'}", "${A:-${B", "${"] {
            assert!(matches!(Masked::of(text).text, Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn variables_are_replaced_as_in_a_shell() {
        for (text, value) in [
            ("${A}/1m", "7/1m"),
            ("${A}${B}${A}", "7b: }7"),
            ("x${EMPTY}y", "xy"),
            ("${EMPTY:-d}${NONE:-}${NONE:-a:-b}", "da:-b"),
            ("$${A} $$${A} $A {A} $", "${A} $${A} $A {A} $"),
        ] {
            assert_eq!(expand(text, environment).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn what_cannot_be_replaced_is_said_of_its_own_variable() {
        for (text, index, words) in [
            ("${A}$${A}${NONE}", 2, "`NONE` is not set"),
            ("${}", 0, "`${}` is not a variable"),
            ("${1A}", 0, "`${1A}` is not a variable"),
            ("${A-b}", 0, "`${A-b}` is not a variable"),
            ("${A:-${B}}", 0, "`${A:-${B}` is not a variable"),
            ("${A", 0, "a `${` without its `}`"),
        ] {
            let problems = expand(text, environment).unwrap_err();
            assert_eq!(problems[0].0, index, "{text}");
            assert!(problems[0].1.message().contains(words), "{problems:?}");
        }
    }

    fn environment(name: &str) -> Option<OsString> {
        [("A", "7"), ("B", "b: }"), ("EMPTY", "")]
            .into_iter()
            .find_map(|(known, value)| (known == name).then(|| value.into()))
    }
}
