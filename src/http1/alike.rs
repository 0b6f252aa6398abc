//! Names of fields that servers may take for one another.
//!
//! CGI, and what is modelled on it, hands `X-Real-IP`, `X_Real_IP` and `x.real.ip` to a program as one variable,
//! `HTTP_X_REAL_IP`. So a field of the gateway's own protects only if no other spelling passes beside it.

/// Returns a field's name as the most lenient servers see it: many read `_`, and some every other
/// sign, as `-`, and none distinguishes case.
pub fn folded_name(name: &str) -> String {
    let fold = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    name.chars().map(fold).collect()
}

/// Returns whether lenient servers may take a field called `name` for the one whose [`folded_name`] is
/// `folded`.
pub fn folds_to(name: &[u8], folded: &str) -> bool {
    name.len() == folded.len() && name.iter().copied().map(fold).eq(folded.bytes())
}

/// Returns whether lenient servers may take fields with these names for one another: their
/// [`folded_name`] is the same.
pub fn are_alike(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().copied().map(fold).eq(other.iter().copied().map(fold))
}

fn fold(byte: u8) -> u8 {
    if byte.is_ascii_alphanumeric() { byte.to_ascii_lowercase() } else { b'-' }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_differ_in_case_and_signs_are_alike() {
        for (one, other, expected) in [
            ("x-real-ip", "X_Real_IP", true),
            ("x-real-ip", "x.real!ip", true),
            ("x_real_ip", "x-real-ip", true),
            ("-x", "_X", true),
            ("x-real-ip", "x-real-ip", true),
            ("x-real-ip", "xxreal-ip", false),
            ("x-real-ip", "x-realip", false),
            ("x-real-ip", "x--real-ip", false),
            ("x-real-1", "x-real-2", false),
        ] {
            assert_eq!(are_alike(one.as_bytes(), other.as_bytes()), expected, "{one} {other}");
            assert_eq!(folds_to(other.as_bytes(), &folded_name(one)), expected, "{one} {other}");
        }
    }

    proptest! {
        #[test]
        fn names_are_alike_if_they_fold_to_the_same(
            one in "[a-bA-B0_.!-]{0,4}",
            other in "[a-bA-B0_.!-]{0,4}",
        ) {
            let expected = folded_name(&one) == folded_name(&other);
            prop_assert_eq!(are_alike(one.as_bytes(), other.as_bytes()), expected);
            prop_assert_eq!(folds_to(other.as_bytes(), &folded_name(&one)), expected);
        }
    }
}
