//! Reads Rust sources as far as needed to find what they name.

use regex::Regex;
use std::{collections::BTreeSet, sync::LazyLock};

/// A line, counted from 1, and a word, a sign or `::`.
pub(crate) type Token<'a> = (usize, &'a str);

/// Cuts a source into tokens; comments, strings, characters and lifetimes are left out.
pub(crate) fn tokens(source: &str) -> Vec<Token<'_>> {
    static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r#"(?xs)
          //[^\n]* | /\*.*?\*/ | \s+
        | [bc]?r\x23\x23".*?"\x23\x23 | [bc]?r\x23".*?"\x23 | [bc]?r"[^"]*" | [bc]?"(?:[^"\\]|\\.)*"
        | b?'(?:[^'\\]|\\u\{[^}]*\}|\\x..|\\.)' | '[A-Za-z_]\w*
        | :: | (?:r\x23)?[A-Za-z_]\w* | \d\w* | ."#,
        )
        .expect("the pattern is written above")
    });
    let mut line = 1;
    let mut read = 0;
    let mut found = Vec::new();
    // Without captures, which cost ten times as much.
    let is_left_out = |text: &str| {
        text.contains(['"', '\''])
            || text.starts_with("/*")
            || text.starts_with("//")
            || text.starts_with(char::is_whitespace)
    };
    for token in TOKEN.find_iter(source).filter(|token| !is_left_out(token.as_str())) {
        line += source[read..token.start()].matches('\n').count();
        read = token.start();
        found.push((line, token.as_str()));
    }
    found
}

/// Returns the strings of a source, each with its line; those of its tests are left out.
pub(crate) fn strings(source: &str) -> impl Iterator<Item = (usize, &str)> {
    static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(
            r#"(?xs)
          //[^\n]* | /\*.*?\*/ | b?'(?:[^'\\]|\\u\{[^}]*\}|\\x..|\\.)'
        | [bc]?r\x23\x23(?<a>".*?")\x23\x23 | [bc]?r\x23(?<b>".*?")\x23
        | [bc]?r(?<c>"[^"]*") | [bc]?(?<d>"(?:[^"\\]|\\.)*")"#,
        )
        .expect("the pattern is written above")
    });
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let strings: Vec<_> = TOKEN
        .captures_iter(source)
        .filter_map(|all| ["a", "b", "c", "d"].into_iter().find_map(|name| all.name(name)))
        .map(|text| (source[..text.start()].matches('\n').count() + 1, text.as_str()))
        .collect();
    strings.into_iter()
}

/// Leaves out every item under `#[cfg(test)]`.
pub(crate) fn without_tests<'a>(tokens: &[Token<'a>]) -> Vec<Token<'a>> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut rest = tokens;
    while let Some((first, after)) = rest.split_first() {
        if rest.iter().map(|(_, word)| *word).take(MARK.len()).eq(MARK) {
            rest = &rest[MARK.len() + item_length(&rest[MARK.len()..])..];
        } else {
            kept.push(*first);
            rest = after;
        }
    }
    kept
}

/// Returns how many tokens the item has with which `tokens` begins.
fn item_length(tokens: &[Token<'_>]) -> usize {
    let mut depth = 0_usize;
    for (at, (_, word)) in tokens.iter().enumerate() {
        match *word {
            "{" | "(" | "[" => depth += 1,
            "}" if depth == 1 => return at + 1,
            "}" | ")" | "]" => depth = depth.saturating_sub(1),
            ";" if depth == 0 => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

/// Returns every path that is written out or imported, trees of `use` unfolded.
pub(crate) fn paths<'a>(tokens: &[Token<'a>]) -> Vec<(usize, Vec<&'a str>)> {
    let word = |at: usize| tokens.get(at).map_or("", |(_, word)| *word);
    let mut at = 0;
    let mut found = Vec::new();
    while at < tokens.len() {
        if word(at) == "use" && word(at + 1) != "<" {
            at = use_tree(tokens, at + 1, &[], &mut found);
        } else if is_name(word(at)) && word(at + 1) == "::" {
            let start = at;
            while word(at + 1) == "::" && is_name(word(at + 2)) {
                at += 2;
            }
            let segments = (start..=at).step_by(2).map(word).collect();
            found.push((tokens[start].0, segments));
        }
        at += 1;
    }
    found
}

/// Reads one branch of a `use` that begins at `at`; returns where it ends.
fn use_tree<'a>(
    tokens: &[Token<'a>],
    mut at: usize,
    prefix: &[&'a str],
    found: &mut Vec<(usize, Vec<&'a str>)>,
) -> usize {
    let mut path = prefix.to_vec();
    while let Some(&(line, word)) = tokens.get(at) {
        match word {
            "{" => {
                at += 1;
                while tokens.get(at).is_some_and(|(_, word)| *word != "}") {
                    at = use_tree(tokens, at, &path, found);
                    at += usize::from(tokens.get(at).is_some_and(|(_, word)| *word == ","));
                }
                return at + 1;
            }
            "," | "}" | ";" => {
                found.push((line, path));
                return at;
            }
            "as" => at += 1,
            "::" => {}
            name => path.push(name),
        }
        at += 1;
    }
    at
}

fn is_name(word: &str) -> bool {
    word.starts_with(|first: char| first.is_alphabetic() || first == '_')
}

/// Writes `self::` and `super::` from the crate's root.
pub(crate) fn absolute<'a>(module: &[&'a str], path: Vec<&'a str>) -> Vec<&'a str> {
    let up = path.iter().take_while(|segment| **segment == "super").count();
    if up == 0 && path.first() != Some(&"self") {
        return path;
    }
    let kept = &module[..module.len().saturating_sub(up)];
    let rest = path.into_iter().skip_while(|segment| matches!(*segment, "self" | "super"));
    ["crate"].into_iter().chain(kept.iter().copied()).chain(rest).collect()
}

/// Returns `["flow", "limiter"]` for `src/flow/limiter/mod.rs`.
pub(crate) fn module_of(file: &str) -> Vec<&str> {
    let path = file.trim_start_matches("src/").trim_end_matches(".rs");
    path.split('/').filter(|name| !matches!(*name, "mod" | "lib" | "main")).collect()
}

/// Returns the names under which the manifest's dependencies are imported.
pub(crate) fn dependencies(manifest: &str) -> BTreeSet<String> {
    named_in(manifest, "dependencies")
        .map(|name| name.replace("rustls-webpki", "webpki").replace('-', "_"))
        .collect()
}

/// Returns the keys of one section of a manifest.
pub(crate) fn named_in<'a>(
    manifest: &'a str,
    section: &str,
) -> impl Iterator<Item = &'a str> + use<'a> {
    let title = format!("[{section}]");
    manifest
        .lines()
        .skip_while(move |line| *line != title)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.trim())
}

/// Finds each `let` and each assignment that takes a tuple or an array apart which is written out,
/// and each argument of a closure that is called `it`: the line, and what to write instead.
pub(crate) fn bindings(tokens: &[Token<'_>]) -> Vec<(usize, &'static str)> {
    let mut found = Vec::new();
    for (at, (line, word)) in tokens.iter().enumerate() {
        let rest = &tokens[at + 1..];
        if *word == "let" && binds_several(rest) {
            found.push((*line, "write a `let` for each value"));
        }
        if begins_statement(&tokens[..=at]) && assigns_several(rest) {
            found.push((rest[0].0, "write an assignment for each value"));
        }
        let mut argument = rest.iter().map(|(_, word)| *word).skip_while(|word| is_pattern(word));
        let is_it = argument.next() == Some("it");
        if *word == "|" && is_it && argument.next().is_some_and(ends_pattern) {
            found.push((*line, "give the argument `it` a name"));
        }
    }
    found
}

fn is_pattern(word: &str) -> bool {
    matches!(word, "&" | "(" | "mut")
}

fn ends_pattern(word: &str) -> bool {
    matches!(word, "|" | "," | ":")
}

/// Whether what follows a `let` is `(a, b) = (c, d);` or `[a, b] = [c, d];`, with or without a
/// type.
fn binds_several(tokens: &[Token<'_>]) -> bool {
    let Some(end) = closing(tokens, 0) else { return false };
    let equals = if is(tokens, end, ":") { closing(tokens, end + 1) } else { Some(end) };
    let end = equals.and_then(|at| end_of_value(tokens, at));
    end.is_some_and(|end| is(tokens, end, ";"))
}

/// Whether a statement, or the body of an arm or a closure, is `(a, b) = (c, d)` or
/// `[a, b] = [c, d]`.
fn assigns_several(tokens: &[Token<'_>]) -> bool {
    let end = closing(tokens, 0).and_then(|at| end_of_value(tokens, at));
    end.is_some_and(|end| [";", ",", "}", ")"].iter().any(|sign| is(tokens, end, sign)))
}

/// Whether a statement, or the body of an arm or a closure, may begin after `tokens`.
fn begins_statement(tokens: &[Token<'_>]) -> bool {
    matches!(tokens, [.., (_, ";" | "{" | "}" | "|")] | [.., (_, "="), (_, ">")])
}

/// Returns where the tuple or the array ends which is assigned by the `=` at `equals`, if one is.
fn end_of_value(tokens: &[Token<'_>], equals: usize) -> Option<usize> {
    if is(tokens, equals, "=") { closing(tokens, equals + 1) } else { None }
}

fn is(tokens: &[Token<'_>], at: usize, expected: &str) -> bool {
    tokens.get(at).is_some_and(|(_, word)| *word == expected)
}

/// Returns what comes behind the parentheses or brackets that open at `start`.
fn closing(tokens: &[Token<'_>], start: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, (_, word)) in tokens.iter().enumerate().skip(start) {
        match *word {
            "(" | "[" => depth += 1,
            ")" | "]" => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return matches!(*word, ")" | "]").then_some(at + 1);
        }
    }
    None
}
