//! Where secrets stand in the text of a file.
//!
//! The text is searched as it is, because it may be broken YAML. What could be a secret counts as one.
//! A browser is shown the text of the file only if it has none, and no drawing of a problem shows one.

use core::ops::Range;

/// The ends of keys whose values are secrets, in lower case.
const SECRET_KEYS: [&str; 10] = [
    "token",
    "password",
    "passwd",
    "secret",
    "authorization",
    "cookie",
    "api-key",
    "api_key",
    "apikey",
    "honeycomb-team",
];

/// Returns the first line, from 1, that may hold a secret as text: a password in a URL, or the value
/// of a key such as `token`. Values from variables (`${NAME}`) are not in the text.
pub fn line_of_secret(text: &str) -> Option<usize> {
    let first = logins(text).map(|login| login.start).chain(values(text)).min()?;
    Some(text[..first].matches('\n').count() + 1)
}

/// Returns where URLs have a login with a password that is not a variable. It ends with the last `@`
/// of the line, which a password may hold unescaped.
pub(super) fn logins(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    lines(text).flat_map(move |line| {
        let end = text[line.clone()].rfind('@').map_or(line.start, |at| line.start + at);
        let schemes = text[line.start..end].match_indices("://");
        let starts = schemes.map(move |(at, scheme)| line.start + at + scheme.len());
        starts.filter(move |start| has_password(&text[*start..end])).map(move |start| start..end)
    })
}

/// Returns the span behind the colon of each key whose value is a secret.
pub(super) fn values(text: &str) -> impl Iterator<Item = usize> + '_ {
    lines(text).flat_map(move |line| {
        let colons = text[line.clone()].match_indices(':').map(move |(at, _)| line.start + at);
        let is_here = move |at: &usize| is_secret(&text[..*at], &text[*at + 1..line.end]);
        colons.filter(is_here).map(|at| at + 1)
    })
}

/// Returns where the lines are, without their ends.
pub(super) fn lines(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    text.split_inclusive('\n').scan(0, |start, line| {
        let range = *start..*start + line.trim_end_matches(['\n', '\r']).len();
        *start += line.len();
        Some(range)
    })
}

/// Reports whether the login of a URL has a password that is not a variable.
fn has_password(login: &str) -> bool {
    let password = login.split_once(':').map_or(login, |(_, password)| password);
    !behind_variable(password).is_some_and(str::is_empty)
}

/// Reports whether the value of a key is a secret, by the end of its name.
pub(in crate::config) fn has_secret(key: &str) -> bool {
    let is_end = |name: &&str| {
        let start = key.len().checked_sub(name.len());
        start.is_some_and(|at| key.as_bytes()[at..].eq_ignore_ascii_case(name.as_bytes()))
    };
    SECRET_KEYS.iter().any(is_end)
}

/// Reports whether a secret follows the colon between `before` and `after`, the rest of its line.
fn is_secret(before: &str, after: &str) -> bool {
    let key = before.trim_end();
    let bare = key.trim_end_matches(['"', '\'']);
    // A colon without a blank ends a key that was meant, but for the part of a key `cookie:session`.
    let is_cookie = key.rsplit([' ', '[', '{', ',', '\n']).next() == Some("cookie");
    let is_part = is_cookie && after.starts_with(|c: char| !c.is_whitespace());
    if is_part || !has_secret(bare) {
        return false;
    }
    let bare = after.trim().trim_start_matches(['"', '\'']);
    let Some(rest) = behind_variable(bare) else { return true };
    let rest = rest.trim_start_matches(['"', '\'']).trim();
    let is_over = matches!(rest, "" | "," | "}" | "},") || rest.starts_with('#');
    let is_next = is_in_braces(before) && rest.starts_with([',', '}']);
    !(is_over || is_next)
}

/// Reports whether the last line of `before` opens a map in braces.
pub(super) fn is_in_braces(before: &str) -> bool {
    before.lines().next_back().is_some_and(|line| line.contains('{'))
}

/// Returns what follows the variable, without a default, that `text` begins with.
fn behind_variable(text: &str) -> Option<&str> {
    let (name, rest) = text.strip_prefix("${")?.split_once('}')?;
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_name.then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_found_wherever_they_may_stand() {
        for (line, text) in [
            (1, "store: { redis: redis://:pass@host }"),
            (2, "a: 1\nredis: rediss://me:${P}x@host"),
            (1, "to: http://user:pass@host/ # why"),
            (1, "admin: { token: abcdefghijklmnop }"),
            (1, "admin:  {token: \"abc\", edit: true}"),
            (2, "admin:\n  token: |\n    abc"),
            (2, "admin:\n  token:\n    abc"),
            (1, "token: *anchor"),
            (1, "token: ${TOKEN:-abc}"),
            (1, "token: Bearer ${TOKEN}"),
            (3, "\n\nsentinel_password: abc"),
            (1, "{\"token\":\"abc\"}"),
            (1, "set: { Authorization: Basic abc }"),
            (1, "- X-Api-Key: abc"),
            (1, "r: [redis://:p@a, redis://:${X}@b]"),
            (1, "token: ${A},b"),
            (1, "token : abc"),
            (1, "token:abc"),
            (1, "x-set-cookie:abc"),
            (1, "{ cookie: abc }"),
        ] {
            assert_eq!(line_of_secret(text), Some(line), "{text}");
        }
    }

    #[test]
    fn what_is_no_secret_does_not_keep_the_file_from_being_shown() {
        for text in [
            "",
            "a: redis://host:6379/2",
            "redis: redis://${USER}:${PASSWORD}@host",
            "redis: redis://default:${PASSWORD}@host",
            "redis: redis://:${PASSWORD}@host",
            "admin: { token: ${ADMIN_TOKEN} }",
            "admin: { token: \"${ADMIN_TOKEN}\", edit: true }",
            "token: ${TOKEN} # from the unit",
            "token_file: /etc/flowgate/token",
            "algorithm: token_bucket",
            "key: header:authorization",
            "key: [header:x-token, cookie:session]",
            "admin: { token_file: f, edit: true } # ask me@example.com",
            "ä: ö",
        ] {
            assert_eq!(line_of_secret(text), None, "{text}");
        }
    }
}
