//! Measures the texture of the sources outside tests: parameters, docs, paragraphs and words.

use super::{
    is_test, read, rust_files,
    source::{Token, tokens},
};
use regex::Regex;
use std::{path::Path, sync::LazyLock};

/// The most tuple patterns in parameters of functions. This bound only gets lower.
const MOST_TUPLES: usize = 13;

/// The most doc lines among a thousand that begin with a word of [`QUESTIONS`]. This bound only gets
/// lower.
const MOST_QUESTIONS: usize = 40;

/// The most functions without a blank line among a hundred long ones. This bound only gets lower.
const MOST_DENSE: usize = 33;

/// The most times that `src/proxy` has the word "answer". This bound only gets lower.
const MOST_ANSWERS: usize = 130;

/// A function of so many lines is long: it has paragraphs.
const LONG: usize = 25;

/// Words with which a doc asks instead of naming the thing.
const QUESTIONS: [&str; 5] = ["What", "How", "Whether", "Which", "When"];

/// A finding: its line, and what to write instead.
type Found = (usize, String);

#[test]
fn parameters_are_no_tuples() {
    let found: Vec<String> =
        sources("src").iter().flat_map(|(file, source)| shown(file, tuples(source))).collect();
    assert!(
        found.len() <= MOST_TUPLES,
        "{} parameters are tuples, at most {MOST_TUPLES} may be:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn docs_name_the_thing() {
    let sources = sources("src");
    let count: usize = sources.iter().map(|(_, source)| docs(source).count()).sum();
    assert!(count > 5000, "the walk found {count} doc lines, so it proves nothing");

    let found: Vec<String> =
        sources.iter().flat_map(|(file, source)| shown(file, questions(source))).collect();
    assert!(
        found.len() * 1000 <= count * MOST_QUESTIONS,
        "{} of {count} doc lines ask, at most {MOST_QUESTIONS} in a thousand may:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn long_functions_have_paragraphs() {
    let sources = sources("src");
    let count: usize = sources.iter().map(|(_, source)| long_functions(source).len()).sum();
    assert!(count > 200, "the walk found {count} long functions, so it proves nothing");

    let found: Vec<String> =
        sources.iter().flat_map(|(file, source)| shown(file, dense(source))).collect();
    assert!(
        found.len() * 100 <= count * MOST_DENSE,
        "{} of {count} long functions have no blank line, at most {MOST_DENSE} in a hundred may:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn the_proxy_calls_a_response_a_response() {
    let found: Vec<String> = sources("src/proxy")
        .iter()
        .flat_map(|(file, source)| shown(file, answers(source)))
        .collect();
    assert!(
        found.len() <= MOST_ANSWERS,
        "src/proxy has \"answer\" {} times, at most {MOST_ANSWERS} are allowed:\n{}",
        found.len(),
        found.join("\n")
    );
}

#[test]
fn a_tuple_in_a_parameter_is_found() {
    let lines =
        |source: &str| -> Vec<usize> { tuples(source).into_iter().map(|(line, _)| line).collect() };
    assert_eq!(lines("fn f((a, b): (A, B)) {}"), [1]);
    assert_eq!(lines("fn f(\n    &self,\n    (mut a, b): (A, B),\n    c: C,\n) {}"), [3]);
    assert_eq!(lines("fn f<T: Fn(A) -> B>(a: T, &(b, c): &(B, C)) {}"), [1]);
    assert_eq!(lines("trait A {\n    fn f((a, b): (A, B), (c, d): (C, D));\n}"), [2, 2]);
    assert_eq!(lines("async fn f(#[expect(dead_code)] (a, b): (A, B)) {}"), [1]);

    // Types, closures, and patterns that have a name are others.
    assert_eq!(lines("fn f(a: (A, B), c: fn((A, B))) -> (A, B) { (a, c) }"), []);
    assert_eq!(lines("fn f(Pair(a, b): Pair, [c, d]: [C; 2], Point { x, y }: Point) {}"), []);
    assert_eq!(lines("let f = |(a, b): (A, B)| a; g.map(|(a, _)| a);"), []);
    assert_eq!(lines("fn f(a: impl Fn(A, (B, C)) -> Result<A, (B, C)>, b: B) {}"), []);
    assert_eq!(lines("// fn f((a, b): (A, B)) {}\nconst A: &str = \"fn f((a, b): (A, B))\";"), []);
}

#[test]
fn a_doc_that_asks_is_found() {
    let source = "//! How a thing is.\n\n/// What it is,\n/// when it is, and\n/// Which is it?\nfn f() {\n    // What follows.\n}\n";
    let lines: Vec<usize> = questions(source).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 3, 5]);
    assert_eq!(docs(source).count(), 4);

    let named =
        "/// Whatever it is.\n/// Returns whether it is.\n/// True if it is.\n/// However.\n";
    assert_eq!(questions(named), []);
    assert_eq!(docs(named).count(), 4);
}

#[test]
fn a_long_function_without_a_blank_line_is_found() {
    let function = |lines: usize, blank: &str| {
        let body = "        step();\n".repeat(lines - 3);
        format!(
            "impl A {{\n    pub(crate) fn f(\n        a: A,\n    ) {{\n{blank}{body}    }}\n}}\n"
        )
    };
    // A signature of three lines, the body, and the brace.
    let dense_lines =
        |source: &str| -> Vec<usize> { dense(source).into_iter().map(|(line, _)| line).collect() };
    assert_eq!(dense_lines(&function(LONG - 1, "")), [2]);
    assert_eq!(dense_lines(&function(LONG - 2, "")), []);
    assert_eq!(dense_lines(&function(LONG, "\n")), []);
    assert_eq!(long_functions(&function(LONG, "\n")).len(), 1);

    // A declaration without a body is no function, and the next one is seen.
    let declared = format!("trait A {{\n    fn g(&self);\n}}\n{}", function(LONG, ""));
    assert_eq!(dense_lines(&declared), [5]);
}

#[test]
fn every_answer_is_found_in_code_and_comments() {
    let source = "/// The answer, or answers.\nfn answered() { AnswerBody }\nlet response = 1;\n";
    let lines: Vec<usize> = answers(source).into_iter().map(|(line, _)| line).collect();
    assert_eq!(lines, [1, 1, 2, 2]);
}

#[test]
fn tests_are_no_part_of_the_texture() {
    let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n    /// What.\n    fn b() {}\n}\n#[cfg(test)]\nfn c() {}\n";
    assert_eq!(outside_tests(source), "fn a() {}\n\n\n\n\n\n#[cfg(test)]\nfn c() {}\n");
}

/// Returns the files below `folder` with their sources outside tests.
fn sources(folder: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = rust_files(&root.join(folder)).into_iter().filter(|file| !is_test(file));
    let sources = files.map(|file| {
        let name = file.strip_prefix(root).unwrap_or(&file).display().to_string();
        (name, outside_tests(&read(&file)))
    });
    sources.collect()
}

/// Empties the lines of test modules, so that the others keep their numbers.
fn outside_tests(source: &str) -> String {
    let mut kept = String::with_capacity(source.len());
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let module = lines.peek().copied().unwrap_or_default();
        if line.trim() == "#[cfg(test)]" && module.contains("mod ") && module.ends_with('{') {
            let end = format!("{}}}", indent(line));
            kept.push('\n');
            for inner in lines.by_ref() {
                kept.push('\n');
                if inner == end {
                    break;
                }
            }
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

fn indent(line: &str) -> &str {
    &line[..line.len() - line.trim_start().len()]
}

fn shown(file: &str, found: Vec<Found>) -> Vec<String> {
    found.into_iter().map(|(line, fix)| format!("{file}:{line}: {fix}")).collect()
}

/// Finds each parameter of a function that is a tuple pattern.
fn tuples(source: &str) -> Vec<Found> {
    let tokens = tokens(source);
    let mut found = Vec::new();
    for (at, (_, word)) in tokens.iter().enumerate() {
        if *word == "fn"
            && let Some(start) = parameters(&tokens, at + 1)
        {
            found.extend(tuples_among(&tokens[start..]).into_iter().map(|line| {
                (line, "name the parameters: one for each value, or a struct".to_owned())
            }));
        }
    }
    found
}

/// Returns what follows the parenthesis that opens the parameters of the function whose name is at
/// `name`; `None` for the type of a function, which has no name.
fn parameters(tokens: &[Token<'_>], name: usize) -> Option<usize> {
    let word = |at: usize| tokens.get(at).map_or("", |(_, word)| *word);
    let is_name = word(name).starts_with(|first: char| first.is_alphabetic() || first == '_');
    if !is_name {
        return None;
    }

    let mut at = name + 1;
    let mut depth = 0_usize;
    loop {
        match word(at) {
            "" => return None,
            "(" if depth == 0 => return Some(at + 1),
            "<" => depth += 1,
            // That of `->` closes nothing.
            ">" if word(at - 1) != "-" => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
}

/// Returns the lines of the tuple patterns among parameters, with which `tokens` begins.
fn tuples_among(tokens: &[Token<'_>]) -> Vec<usize> {
    let mut found = Vec::new();
    let mut depth = 0_usize;
    let mut is_start = true;
    let mut before = "";
    for (line, word) in tokens {
        let is_outside = depth == 0;
        match *word {
            ")" if is_outside => break,
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            // That of `->` closes nothing.
            ">" if before != "-" => depth = depth.saturating_sub(1),
            _ => {}
        }

        if is_outside {
            if *word == "(" && is_start {
                found.push(*line);
            }
            // An attribute, a reference or `mut` may stand before a pattern.
            let is_attribute = *word == "[" && before == "#";
            let stays = is_attribute || matches!(*word, "&" | "mut" | "#");
            is_start = *word == "," || is_start && stays;
        }
        before = word;
    }
    found
}

/// Returns the doc lines, each with its number and its text.
fn docs(source: &str) -> impl Iterator<Item = (usize, &str)> {
    (1..).zip(source.lines()).filter_map(|(line, text)| {
        let text = text.trim_start();
        let doc = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"))?;
        Some((line, doc.trim_start()))
    })
}

/// Finds each doc line that begins with a word of a question.
fn questions(source: &str) -> Vec<Found> {
    let asks = |doc: &str| {
        let end = doc.find(|sign: char| !sign.is_alphanumeric()).unwrap_or(doc.len());
        QUESTIONS.contains(&&doc[..end])
    };
    docs(source)
        .filter(|(_, doc)| asks(doc))
        .map(|(line, doc)| (line, format!("name the thing, or begin the line otherwise: {doc}")))
        .collect()
}

/// A function of at least [`LONG`] lines.
struct LongFunction<'a> {
    line: usize,
    name: &'a str,
    length: usize,
    has_blank: bool,
}

/// Returns the long functions of a source as rustfmt writes it.
fn long_functions(source: &str) -> Vec<LongFunction<'_>> {
    static HEAD: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^ *(?:pub(?:\([^)]*\))? )?(?:(?:const|async) )*fn (\w+)")
            .expect("the pattern is written above")
    });
    let lines: Vec<&str> = source.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = HEAD.captures(line).and_then(|all| all.get(1)) else { continue };
        let mut signature = lines[at..].iter().map(|line| line.trim_end());
        let last = signature.find(|line| line.ends_with(['{', ';', '}']));
        if !last.is_some_and(|line| line.ends_with('{')) {
            continue;
        }

        let end = format!("{}}}", indent(line));
        let Some(length) = lines[at..].iter().position(|line| *line == end) else { continue };
        let body = &lines[at..=at + length];
        if body.len() >= LONG {
            let has_blank = body.iter().any(|line| line.trim().is_empty());
            let length = body.len();
            found.push(LongFunction { line: at + 1, name: name.as_str(), length, has_blank });
        }
    }
    found
}

/// Finds each long function without a blank line.
fn dense(source: &str) -> Vec<Found> {
    let dense = long_functions(source).into_iter().filter(|function| !function.has_blank);
    dense
        .map(|LongFunction { line, name, length, .. }| {
            (line, format!("put blank lines between the steps of `{name}`, {length} lines"))
        })
        .collect()
}

/// Finds each "answer".
fn answers(source: &str) -> Vec<Found> {
    (1..)
        .zip(source.lines())
        .flat_map(|(line, text)| {
            let count = text.to_ascii_lowercase().matches("answer").count();
            let fix = format!("write \"response\" where HTTP is meant: {}", text.trim());
            core::iter::repeat_n((line, fix), count)
        })
        .collect()
}
