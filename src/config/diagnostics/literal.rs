//! Secrets that stand in the text of a file.
//!
//! A browser is shown the text of the file only if it has none. The text is searched as it is,
//! because it may be broken YAML. What could be a secret counts as one.

/// The ends of keys whose values are secrets, in lower case.
const SECRET_KEYS: [&str; 8] =
    ["token", "password", "secret", "authorization", "cookie", "api-key", "api_key", "apikey"];

/// Returns the first line, from 1, that may hold a secret as text: a password in a URL, or the value
/// of a key such as `token`. Values from variables (`${NAME}`) are not in the text.
pub fn line_of_secret(text: &str) -> Option<usize> {
    let logins = text.match_indices("://").filter(|(at, _)| has_login(&text[at + 3..]));
    let colons = text.match_indices(':').filter(|(at, _)| is_secret(&text[..*at], &text[at + 1..]));
    let first = logins.chain(colons).map(|(at, _)| at).min()?;
    Some(text[..first].matches('\n').count() + 1)
}

/// Reports whether a URL, which goes on with `rest`, has a password that is not a variable. Its login
/// ends with the last `@` of the line, which a password may hold unescaped.
fn has_login(rest: &str) -> bool {
    let line = rest.lines().next().unwrap_or_default();
    let Some(end) = line.rfind('@') else { return false };
    let login = &line[..end];
    let password = login.split_once(':').map_or(login, |(_, password)| password);
    !behind_variable(password).is_some_and(str::is_empty)
}

/// Reports whether a secret follows the colon between `before` and `after`.
fn is_secret(before: &str, after: &str) -> bool {
    let key = before.trim_end();
    let bare = key.trim_end_matches(['"', '\'']);
    let is_end = |name: &str| {
        let start = bare.len().checked_sub(name.len());
        start.is_some_and(|at| bare.as_bytes()[at..].eq_ignore_ascii_case(name.as_bytes()))
    };
    // Within a word, as in `cookie:session`, a colon ends no key.
    let is_key =
        bare.len() < key.len() || after.is_empty() || after.starts_with(char::is_whitespace);
    if !is_key || !SECRET_KEYS.iter().any(|name| is_end(name)) {
        return false;
    }
    let value = after.lines().next().unwrap_or_default().trim();
    let bare = value.trim_start_matches(['"', '\'']);
    let Some(rest) = behind_variable(bare) else { return true };
    let rest = rest.trim_start_matches(['"', '\'']).trim();
    let is_in_braces = before.lines().next_back().is_some_and(|line| line.contains('{'));
    let is_over = matches!(rest, "" | "," | "}" | "},") || rest.starts_with('#');
    let is_next = is_in_braces && rest.starts_with([',', '}']);
    !(is_over || is_next)
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
