//! Regular expressions of PCRE as those of flowgate.
//! A [`Literal`] is the beginning that every match of an expression has.

use super::lookahead;
use crate::route::literal_path;
use regex::bytes::RegexBuilder;

/// Returns the expression over a whole path that matches where `text` is found in it.
///
/// # Errors
/// It may match other paths here; the text says why.
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
/// It may match other paths here; the text says why.
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

/// The plain signs at the beginning of an expression.
#[derive(Debug, Default)]
pub(super) struct Literal<'a> {
    /// It matches at the beginning of a path only.
    pub is_anchored: bool,
    /// Each sign, with the expression behind it.
    signs: Vec<(char, &'a str)>,
    ignores_case: bool,
}

impl<'a> Literal<'a> {
    /// Reads the beginning of `text`. Signs that a path may have in an escaped form end it.
    pub(super) fn of(text: &'a str, ignores_case: bool) -> Self {
        let mut literal = Self { ignores_case, ..Self::default() };
        if has_choice(text) {
            return literal;
        }

        let mut rest = text;
        if let Some(behind) = rest.strip_prefix('^') {
            literal.is_anchored = true;
            rest = behind;
        }

        while let Some((sign, behind)) = first_sign(rest) {
            // What may be there several times, or not at all, is no part of it.
            if behind.starts_with(['*', '+', '?', '{']) {
                break;
            }
            literal.signs.push((sign, behind));
            rest = behind;
        }
        literal
    }

    /// Returns the signs as a text.
    pub(super) fn text(&self) -> String {
        self.signs.iter().map(|(sign, _)| sign).collect()
    }

    /// Returns how a match goes on behind `beginning`, if it begins with that.
    pub(super) fn meets(&self, beginning: &str) -> Overlap<'a> {
        let pairs = beginning.chars().zip(&self.signs);
        let is_same = |(sign, (own, _)): (char, &(char, &str))| {
            if self.ignores_case { sign.eq_ignore_ascii_case(own) } else { sign == *own }
        };
        if !pairs.into_iter().all(is_same) {
            return Overlap::Never;
        }

        let last = beginning.chars().count().checked_sub(1).and_then(|at| self.signs.get(at));
        last.map_or(Overlap::Unknown, |(_, behind)| Overlap::Behind(behind))
    }
}

/// The way in which a match begins with a given text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overlap<'a> {
    /// None does.
    Never,
    /// The ones that do go on with this expression.
    Behind(&'a str),
    /// Some may.
    Unknown,
}

/// Takes a sign that means itself, in a path too.
fn first_sign(text: &str) -> Option<(char, &str)> {
    let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "/-_".contains(sign);
    if let Some(escaped) = text.strip_prefix('\\') {
        let sign = escaped.chars().next().filter(|sign| "/-_.".contains(*sign))?;
        return Some((sign, &escaped[1..]));
    }
    let sign = text.chars().next().filter(|sign| is_plain(*sign))?;
    Some((sign, &text[1..]))
}

/// Reports whether there is a `|` outside of all brackets.
pub(super) fn has_choice(text: &str) -> bool {
    let mut depth = 0_usize;
    let mut is_in_class = false;
    let mut signs = text.chars();

    while let Some(sign) = signs.next() {
        match sign {
            '\\' => drop(signs.next()),
            '[' => is_in_class = true,
            ']' => is_in_class = false,
            _ if is_in_class => {}
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '|' if depth == 0 => return true,
            _ => {}
        }
    }
    false
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

    #[test]
    fn a_beginning_is_what_every_match_has() {
        for (text, expected) in [
            (r"/\.(?!well)", "/."),
            ("^/a/b?c", "/a/"),
            ("/a+", "/"),
            ("a|b", ""),
            ("(a|b)c", ""),
            ("a(b|c)", "a"),
            ("[|]a", ""),
            (r"\d", ""),
            ("a.b", "a"),
            ("", ""),
        ] {
            assert_eq!(Literal::of(text, false).text(), expected, "{text}");
        }
        assert!(Literal::of("^/a", false).is_anchored);
        assert!(!Literal::of("^a|b", false).is_anchored);
    }

    #[test]
    fn a_beginning_meets_another() {
        let literal = Literal::of("/a/b(c)", false);
        assert_eq!(literal.meets("/a/"), Overlap::Behind("b(c)"));
        assert_eq!(literal.meets("/x"), Overlap::Never);
        assert_eq!(literal.meets("/A"), Overlap::Never);
        assert_eq!(literal.meets("/a/bc"), Overlap::Unknown);
        assert_eq!(Literal::of("/A/", true).meets("/a"), Overlap::Behind("/"));
    }
}
