//! Characters in a request's target that the parser of URIs does not take. Browsers and Prometheus
//! send them. They are percent-encoded before that one parser sees them, so that all read the same
//! request.

/// Returns the target as the parser of URIs takes it; `None` if that is what it is.
pub(super) fn encoded(target: &[u8]) -> Option<Vec<u8>> {
    let odd = target.iter().filter(|byte| matches!(byte, b'"' | b'<' | b'>' | b'`')).count();
    (odd > 0).then(|| encode(target, odd))
}

/// Percent-encodes `odd` characters of `target` at most.
#[cold]
fn encode(target: &[u8], odd: usize) -> Vec<u8> {
    let mut written = Vec::with_capacity(target.len() + 2 * odd);
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
