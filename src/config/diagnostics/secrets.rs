//! What of a file must not be shown: passwords, which a drawing of the line beside them would carry
//! to a log or to the admin listener.

use core::ops::Range;
use std::borrow::Cow;

/// Returns the text with a `*` for each byte of a password, and of what follows in its line and
/// cannot be separated from it without parsing the file, which may be broken.
pub(in crate::config) fn hidden(text: &str) -> Cow<'_, str> {
    let mut shown = String::new();
    let mut from = 0;
    for range in secrets(text) {
        let start = range.start.max(from);
        if start < range.end {
            shown.push_str(&text[from..start]);
            shown.extend(std::iter::repeat_n('*', range.end - start));
            from = range.end;
        }
    }
    if from == 0 {
        return Cow::Borrowed(text);
    }
    shown.push_str(&text[from..]);
    Cow::Owned(shown)
}

/// Returns where secrets may stand, in the order of their beginnings.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let rest = |at: usize| text[at..].split('\n').next().unwrap_or_default();
    // The login of a URL: to the last `@`, which a password may hold unescaped.
    let logins = ["redis://", "rediss://"].into_iter().flat_map(|scheme| {
        let begins = text.match_indices(scheme).map(move |(at, _)| at + scheme.len());
        begins.filter_map(|at| Some(at..at + rest(at).rfind('@')?))
    });
    let ends = |key: &'static str| text.match_indices(key).map(move |(at, _)| at + key.len());
    let values = ends("sentinel_password").chain(ends("token").filter(|end| is_token(text, *end)));
    let values = values.map(|at| at..at + rest(at).trim_end().len());
    // After the colon.
    let values =
        values.filter_map(|line| Some(line.start + text[line.clone()].find(':')? + 1..line.end));
    let mut ranges: Vec<_> = logins.chain(values).collect();
    ranges.sort_by_key(|range| range.start);
    ranges
}

/// Reports whether the word `token` that ends at `end` is a whole key, as that of `admin` is, and no
/// part of another word.
fn is_token(text: &str, end: usize) -> bool {
    let before = text[..end - "token".len()].chars().next_back();
    let after = text[end..].trim_start_matches(['"', '\'']).trim_start_matches([' ', '\t']);
    before.is_none_or(|c| c.is_whitespace() || "{,\"'".contains(c)) && after.starts_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden_where_they_stand_and_nothing_moves() {
        for (text, expected) in [
            ("a: 1\nb: redis://host\n", "a: 1\nb: redis://host\n"),
            ("a: redis://me:p@ä@h\nb: x@y", "a: redis://*******@h\nb: x@y"),
            ("r: [redis://a@h, rediss://b@i]", "r: [redis://***************@i]"),
            ("a: redis://:my pass@host # no URL", "a: redis://********@host # no URL"),
            ("sentinel_password: p w\r\nb: c", "sentinel_password:****\r\nb: c"),
            ("{ \"sentinel_password\":\"p\", b: 1 }", "{ \"sentinel_password\":***********"),
            ("sentinel_password\n", "sentinel_password\n"),
            ("sentinel_password: redis://a@b", "sentinel_password:************"),
            ("admin: { token: abc }\nb: c", "admin: { token:******\nb: c"),
            ("\"token\" : abc\n  token: d", "\"token\" :****\n  token:**"),
            (
                "algorithm: token_bucket, x-token: a, tokens: b",
                "algorithm: token_bucket, x-token: a, tokens: b",
            ),
        ] {
            assert_eq!(hidden(text), expected);
            assert_eq!(hidden(text).len(), text.len());
        }
    }
}
