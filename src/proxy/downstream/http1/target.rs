//! Characters in a request's target that the parser of URIs does not take. Browsers and Prometheus
//! send them. They are percent-encoded before that one parser sees them, so that all read the same
//! request.

use crate::route::{Word, any_byte};

/// Returns the target as the parser of URIs takes it; `None` if that is what it is.
pub(super) fn encoded(target: &[u8]) -> Option<Vec<u8>> {
    let odd =
        |word: Word| word.equal(b'"') | word.equal(b'<') | word.equal(b'>') | word.equal(b'`');
    any_byte(target, odd).then(|| encode(target))
}

#[cold]
fn encode(target: &[u8]) -> Vec<u8> {
    let mut written = Vec::with_capacity(2 * target.len());
    let mut is_query = false;
    let mut is_fragment = false;
    for byte in target {
        is_fragment |= *byte == b'#';
        let is_odd = match byte {
            // A fragment, which is dropped, does not matter.
            _ if is_fragment => false,
            b'<' | b'>' => true,
            b'`' => !is_query,
            b'"' => is_query,
            _ => false,
        };
        is_query |= *byte == b'?';
        if is_odd {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let [high, low] = [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
            written.extend_from_slice(&[b'%', high, low]);
        } else {
            written.push(*byte);
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_uri_cannot_have_is_encoded_and_nothing_else() {
        for (target, expected) in [
            ("/a?b=c", None),
            ("/a\"<`?b=\"<`>#\"<", Some("/a\"%3C%60?b=%22%3C`%3E#\"<")),
            ("/?a?\"", Some("/?a?%22")),
            ("http://a/<", Some("http://a/%3C")),
        ] {
            let found = encoded(target.as_bytes());
            let found = found.map(|found| String::from_utf8(found).expect("text"));
            assert_eq!(found.as_deref(), expected, "{target}");
        }
    }
}
