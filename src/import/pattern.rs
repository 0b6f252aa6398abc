//! Regular expressions of PCRE as those of flowgate.

use super::{
    literal::{Literal, Overlap, has_choice},
    lookahead,
};
use crate::route::literal_path;
use regex::bytes::RegexBuilder;

/// Returns the expression over a whole path that matches where `text` is found in it.
///
/// # Errors
/// Why it may match other paths here.
pub(super) fn path_regex(text: &str, ignores_case: bool) -> Result<String, String> {
    let equal = lookahead::without(text);
    let text = equal.as_deref().unwrap_or(text);
    check(text)?;

    let whole = if has_choice(text) {
        format!(".*(?:{text}).*")
    } else {
        let (begin, rest) = text.strip_prefix('^').map_or((".*", text), |rest| ("", rest));
        format!("{begin}{}", to_the_end(rest))
    };
    built(if ignores_case { format!("(?i){whole}") } else { whole })
}

/// Returns the expression over a whole path that begins with `prefix` and in which `text` is
/// found, or `None` if there is none. nginx compares the prefix with the case, whatever
/// `ignores_case` is.
///
/// # Errors
/// Why it may match other paths here.
pub(super) fn path_regex_within(
    prefix: &str,
    text: &str,
    ignores_case: bool,
) -> Result<Option<String>, String> {
    if prefix == "/" {
        return path_regex(text, ignores_case).map(Some);
    }
    let equal = lookahead::without(text);
    let text = equal.as_deref().unwrap_or(text);
    check(text)?;

    let literal = Literal::of(text, ignores_case);
    let unclear = || "whether it matches within the prefix around it is not clear".to_owned();
    let rest = if literal.is_anchored {
        match literal.meets(prefix) {
            Overlap::Never => return Ok(None),
            Overlap::Behind(rest) => to_the_end(rest),
            Overlap::Unknown => return Err(unclear()),
        }
    } else {
        let mut choices = vec![format!(".*{text}")];
        for (at, _) in prefix.char_indices() {
            match literal.meets(&prefix[at..]) {
                Overlap::Never => {}
                Overlap::Behind(rest) => choices.push(rest.to_owned()),
                Overlap::Unknown => return Err(unclear()),
            }
        }
        match &choices[..] {
            [_] => format!(".*{}", to_the_end(text)),
            all => format!("(?:{}).*", all.join("|")),
        }
    };
    let prefix = regex::escape(&encoded(prefix));
    built(if ignores_case { format!("{prefix}(?i:{rest})") } else { format!("{prefix}{rest}") })
        .map(Some)
}

/// Returns an expression over whole paths that has all those in which `text` may be found, and
/// perhaps others. It is the same without what it looks at around, or it is made of what every match
/// begins with.
pub(super) fn at_least(text: &str, ignores_case: bool) -> String {
    if let Ok(found) = path_regex(&lookahead::stripped(text), ignores_case) {
        return found;
    }

    let literal = Literal::of(text, ignores_case);
    let begin = if literal.is_anchored { "" } else { ".*" };
    let case = if ignores_case { "(?i)" } else { "" };
    format!("{case}{begin}{}.*", regex::escape(&literal.text()))
}

/// Returns an expression over the rest of a path in which a match begins with it.
fn to_the_end(text: &str) -> String {
    let is_end = text.ends_with('$') && !text.ends_with("\\$");
    if is_end && !has_choice(text) {
        text[..text.len() - 1].to_owned()
    } else if has_choice(text) {
        format!("(?:{text}).*")
    } else {
        format!("{text}.*")
    }
}

fn built(whole: String) -> Result<String, String> {
    let built = RegexBuilder::new(&whole).unicode(false).size_limit(256 << 10).build();
    built.map_err(|_| "the regular expression has what flowgate's have not".to_owned())?;
    Ok(whole)
}

/// Returns a path as requests have it: nginx compares it without its escapes.
pub(super) fn encoded(path: &str) -> String {
    literal_path(&path.replace('%', "%25")).into_owned()
}

/// Returns the expression for all paths that begin with `text`.
pub(super) fn begins_with(text: &str) -> String {
    format!("{}.*", regex::escape(text))
}

/// Rejects what both read, but differently, in an expression over paths.
fn check(text: &str) -> Result<(), String> {
    if !text.is_ascii() || text.contains(['%', ' ']) {
        return Err(
            "flowgate reads escapes of a path differently: it sees `%20`, and nginx a blank".into(),
        );
    }
    check_syntax(text)
}

/// Rejects what both read, but differently.
pub(super) fn check_syntax(text: &str) -> Result<(), String> {
    let differs = |what: &str| Err(format!("flowgate reads {what} differently"));
    for possessive in ["*+", "++", "?+", "}+"] {
        if text.contains(possessive) {
            return differs("possessive repetitions");
        }
    }
    if text.contains("(?") && !text.contains("(?:") && !text.contains("(?<") {
        return differs("options in `(?…)`");
    }
    let mut signs = text.chars().peekable();
    let mut is_in_class = false;
    while let Some(sign) = signs.next() {
        let next = signs.peek().copied();
        match sign {
            '\\' => {
                if matches!(next, Some('<' | '>')) {
                    return differs("`\\<`");
                }
                signs.next();
            }
            '[' if is_in_class && next != Some(':') => return differs("`[` within `[…]`"),
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            '&' | '~' | '-' if is_in_class && next == Some(sign) => {
                return differs("doubled signs within `[…]`");
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_match_where_nginx_finds_them() {
        for (text, expected) in [
            ("^/a/", "/a/.*"),
            (r"\.php$", r".*\.php"),
            ("^/x$", "/x"),
            ("a|^b", ".*(?:a|^b).*"),
            (r"\$", r".*\$.*"),
        ] {
            assert_eq!(path_regex(text, false).as_deref(), Ok(expected), "{text}");
        }
        assert_eq!(path_regex("^/A", true).as_deref(), Ok("(?i)/A.*"));
        for text in ["a(?=b)", r"(a)\1", "a++", "[a&&b]", "[[a]", r"\<a", "(?i)a", "a b", "a{", "é"]
        {
            assert!(path_regex(text, false).is_err(), "{text}");
        }
        assert_eq!(begins_with("/a.b"), r"/a\.b.*");
    }

    #[test]
    fn expressions_within_a_prefix_match_what_both_match() {
        for (prefix, text, expected) in [
            ("/", r"\.php$", r".*\.php"),
            ("/a/", r"\.php$", r"/a/.*\.php"),
            ("/a/", "^/a/b$", "/a/b"),
            ("/a/", "^/a/(b|c)$", "/a/(b|c)"),
            ("/a/", r"/\.ht", r"/a/(?:.*/\.ht|\.ht).*"),
            ("/aa", "ab", "/aa(?:.*ab|b).*"),
            ("/a b", "x", "/a%20b.*x.*"),
        ] {
            let found = path_regex_within(prefix, text, false);
            assert_eq!(found, Ok(Some(expected.to_owned())), "{text}");
        }
        let found = path_regex_within("/a/", "^/A/B$", true);
        assert_eq!(found, Ok(Some("/a/(?i:B)".to_owned())));
        assert_eq!(path_regex_within("/a/", "^/b", false), Ok(None));
        for text in ["^/[a]/", "[^x]y", "x|y", "^/a", "/"] {
            assert!(path_regex_within("/a/", text, false).is_err(), "{text}");
        }
        assert_eq!(path_regex("^/(?!a|b)", false).as_deref(), Ok("/(?:[^ab].*)?"));
        assert_eq!(at_least("^/a/(?!b)c+", false), "/a/c+.*");
        assert_eq!(at_least("/b(?!c)", true), "(?i).*/b.*");
    }
}
