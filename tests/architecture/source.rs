//! Reads Rust sources as far as telling what they name takes.

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
    let (mut line, mut read, mut found) = (1, 0, Vec::new());
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
    let (mut at, mut found) = (0, Vec::new());
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
