//! Query parameters as HTML forms encode them: escapes are decoded and `+` is a space, in names and
//! values.

use super::spelling::{Decoded, decoded};

/// Returns the decoded values of the parameters called `name`, in order; empty without `=`.
pub(super) fn values<'a>(query: &'a str, name: &'a str) -> impl Iterator<Item = Decoded> + 'a {
    raw_values(query.split('&'), name).map(|value| form_decoded(value).collect())
}

/// Returns whether servers may read the parameter `name` differently, because some take `;` for a
/// separator.
pub(super) fn is_ambiguous(query: &str, name: &str) -> bool {
    // Most queries have none and are read once.
    if !query.as_bytes().contains(&b';') {
        return false;
    }
    let mut apart = raw_values(query.split(['&', ';']), name);
    let together = raw_values(query.split('&'), name).next();
    apart.next() != together || apart.next().is_some()
}

fn raw_values<'a>(
    parameters: impl Iterator<Item = &'a str>,
    name: &'a str,
) -> impl Iterator<Item = &'a str> {
    parameters.filter_map(move |parameter| {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        form_decoded(key).eq(name.bytes()).then_some(value)
    })
}

fn form_decoded(text: &str) -> impl Iterator<Item = u8> {
    // Plus signs are found before decoding, because an escaped one (`%2B`) stays a plus.
    text.split_inclusive('+').flat_map(|piece| {
        let (plain, space) = match piece.strip_suffix('+') {
            Some(plain) => (plain, Some(b' ')),
            None => (piece, None),
        };
        decoded(plain.as_bytes()).chain(space)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_occurrence_counts_and_is_decoded() {
        for (query, name, expected) in [
            ("a=1", "a", &["1"][..]),
            ("b=2&a=1", "a", &["1"]),
            ("a=1&a=2", "a", &["1", "2"]),
            ("a=1&%61=2&a", "a", &["1", "2", ""]),
            ("%61=1", "a", &["1"]),
            ("a=x%20y", "a", &["x y"]),
            ("a=x+y", "a", &["x y"]),
            ("a=x%2By", "a", &["x+y"]),
            ("a+b=1&a%20b=2", "a b", &["1", "2"]),
            ("a=1=2", "a", &["1=2"]),
            ("a=1;a=2", "a", &["1;a=2"]),
            ("a", "a", &[""]),
            ("a=", "a", &[""]),
            ("A=1", "a", &[]),
            ("", "a", &[]),
            ("&&", "a", &[]),
            ("aa=1", "a", &[]),
        ] {
            let found: Vec<_> = super::values(query, name).collect();
            let expected: Vec<_> = expected.iter().map(|value| value.as_bytes()).collect();
            assert!(found.iter().map(|value| &value[..]).eq(expected), "{name} in {query}");
        }
    }

    #[test]
    fn a_value_is_ambiguous_if_a_semicolon_may_end_it_or_begin_another() {
        for (query, expected) in [
            ("a=1", false),
            ("a=1&b=2;c", false),
            ("b=;&a=1", false),
            ("a=1%3Bb", false),
            ("a=1;b", true),
            ("a=1;a=2", true),
            ("b=2;a=1", true),
            ("b=2;a=1&a=1", true),
            ("b=2;%61=1&a=2", true),
            ("a;b=1", true),
            (";", false),
        ] {
            assert_eq!(super::is_ambiguous(query, "a"), expected, "{query}");
        }
    }
}
