//! Query parameters, read as HTML forms write them: escapes are decoded and `+` is
//! a space, in names and in values. Of a name given twice, the first counts.

use super::escape::{Decoded, decoded};

/// Returns the value of the first parameter called `name`, decoded. A parameter
/// without `=` has an empty value.
pub(super) fn first(query: &str, name: &str) -> Option<Decoded> {
    query.split('&').find_map(|parameter| {
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        form_decoded(key).eq(name.bytes()).then(|| form_decoded(value).collect())
    })
}

fn form_decoded(text: &str) -> impl Iterator<Item = u8> {
    // An escaped plus (`%2B`) stays one, so plus signs are looked for undecoded.
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
    fn the_first_occurrence_counts_and_is_decoded() {
        for (query, name, expected) in [
            ("a=1", "a", Some("1")),
            ("b=2&a=1", "a", Some("1")),
            ("a=1&a=2", "a", Some("1")),
            ("%61=1", "a", Some("1")),
            ("a=x%20y", "a", Some("x y")),
            ("a=x+y", "a", Some("x y")),
            ("a=x%2By", "a", Some("x+y")),
            ("a+b=1", "a b", Some("1")),
            ("a=1=2", "a", Some("1=2")),
            ("a", "a", Some("")),
            ("a=", "a", Some("")),
            ("A=1", "a", None),
            ("", "a", None),
            ("&&", "a", None),
            ("aa=1", "a", None),
        ] {
            let found = super::first(query, name);
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{name} in {query}");
        }
    }
}
