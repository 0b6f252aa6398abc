//! Regular expressions of PCRE as those of flowgate.

use regex::bytes::RegexBuilder;

/// Returns the expression over a whole path that matches where `text` is found in it.
///
/// # Errors
/// Why it may match other paths here.
pub(super) fn path_regex(text: &str, ignores_case: bool) -> Result<String, String> {
    check(text)?;
    let whole = if text.contains('|') {
        format!(".*(?:{text}).*")
    } else {
        let (begin, rest) = text.strip_prefix('^').map_or((".*", text), |rest| ("", rest));
        let is_end = rest.ends_with('$') && !rest.ends_with("\\$");
        let (rest, end) = if is_end { (&rest[..rest.len() - 1], "") } else { (rest, ".*") };
        format!("{begin}{rest}{end}")
    };
    let whole = if ignores_case { format!("(?i){whole}") } else { whole };
    let built = RegexBuilder::new(&whole).unicode(false).size_limit(256 << 10).build();
    built.map_err(|_| "the regular expression has what flowgate's have not".to_owned())?;
    Ok(whole)
}

/// Returns the expression for all paths that begin with `text`.
pub(super) fn begins_with(text: &str) -> String {
    format!("{}.*", regex::escape(text))
}

/// Rejects what both read, but differently.
fn check(text: &str) -> Result<(), String> {
    let differs = |what: &str| Err(format!("flowgate reads {what} differently"));
    for possessive in ["*+", "++", "?+", "}+"] {
        if text.contains(possessive) {
            return differs("possessive repetitions");
        }
    }
    if text.contains("(?") && !text.contains("(?:") && !text.contains("(?<") {
        return differs("options in `(?…)`");
    }
    if !text.is_ascii() || text.contains(['%', ' ']) {
        return differs("escapes of a path: it sees `%20`, and nginx a blank");
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
}
