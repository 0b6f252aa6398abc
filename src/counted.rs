//! Numbers with their nouns, as in `1 request` and `2 requests`.

use core::fmt::Display;

/// Returns a number of things. The noun is singular; of several words the last one is inflected.
pub(crate) fn counted<N: Display + PartialEq + From<u8> + Copy>(number: N, noun: &str) -> String {
    if is_one(&number) {
        return format!("{number} {noun}");
    }
    let ends_with = |ends: &[&str]| ends.iter().any(|end| noun.ends_with(end));
    let is_vowel_before_y = ends_with(&["ay", "ey", "oy", "uy"]);
    match noun.strip_suffix('y').filter(|_| !is_vowel_before_y) {
        Some(stem) => format!("{number} {stem}ies"),
        None if ends_with(&["s", "x", "ch", "sh"]) => format!("{number} {noun}es"),
        None => format!("{number} {noun}s"),
    }
}

/// Returns the form of a verb or noun for a number of things.
pub(crate) fn inflected<'w, N: PartialEq + From<u8> + Copy>(
    number: N,
    singular: &'w str,
    plural: &'w str,
) -> &'w str {
    if is_one(&number) { singular } else { plural }
}

fn is_one<N: PartialEq + From<u8>>(number: &N) -> bool {
    *number == N::from(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_is_singular_and_all_other_numbers_are_plural() {
        for (number, expected) in [(0_u64, "0 requests"), (1, "1 request"), (21, "21 requests")] {
            assert_eq!(counted(number, "request"), expected);
        }
        for (noun, expected) in [
            ("key", "2 keys"),
            ("entry", "2 entries"),
            ("address", "2 addresses"),
            ("header field", "2 header fields"),
            ("branch", "2 branches"),
        ] {
            assert_eq!(counted(2_usize, noun), expected);
        }
        assert_eq!(inflected(1_u32, "is", "are"), "is");
        assert_eq!(inflected(0_u32, "is", "are"), "are");
    }
}
