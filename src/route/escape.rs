//! Percent escapes.

use smallvec::SmallVec;

/// A decoded value, usually without an allocation.
pub(super) type Decoded = SmallVec<[u8; 128]>;

/// Returns the byte of the escape at the start of `bytes`, if there is a whole one.
pub(super) fn escaped(bytes: &[u8]) -> Option<u8> {
    let [b'%', high, low, ..] = bytes else { return None };
    Some(hex(*high)? << 4 | hex(*low)?)
}

/// Returns `text` with whole escapes decoded.
pub(super) fn decoded(text: &[u8]) -> impl Iterator<Item = u8> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let (byte, length) = match escaped(rest) {
            Some(byte) => (byte, 3),
            None => (*rest.first()?, 1),
        };
        rest = &rest[length..];
        Some(byte)
    })
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn whole_escapes_are_decoded_once_and_the_rest_is_kept() {
        for (text, expected) in [
            ("", ""),
            ("plain", "plain"),
            ("%41%62c", "Abc"),
            ("%2f%2F", "//"),
            ("%2541", "%41"),
            ("100%", "100%"),
            ("%4", "%4"),
            ("%zz%4g", "%zz%4g"),
        ] {
            let found: Vec<u8> = super::decoded(text.as_bytes()).collect();
            assert_eq!(found, expected.as_bytes(), "{text}");
        }
    }
}
