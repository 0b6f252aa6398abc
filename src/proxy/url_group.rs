//! Groups of a path as they are written into a URL. A client chooses their text: it must neither
//! change the host, nor end the part of the URL that it stands in.

use crate::config::UrlPart;
use std::fmt::Write;

/// Writes the text of a group into the part `place` of a URL.
pub(super) fn write(text: &[u8], place: UrlPart, out: &mut String) {
    if place == UrlPart::AfterHost && !text.starts_with(b"/") {
        out.push('/');
    }
    for byte in text {
        if is_kept(*byte, place) {
            out.push(char::from(*byte));
        } else {
            // Writing to a String does not fail.
            _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Returns whether a byte has no other meaning in this part of a URL. A `%` begins an escape of the
/// client's.
fn is_kept(byte: u8, place: UrlPart) -> bool {
    let is_separator = match byte {
        b'?' | b'#' => true,
        b'&' | b'+' | b';' => place == UrlPart::Query,
        _ => false,
    };
    is_url_byte(byte) && !is_separator
}

/// Returns whether a byte may stand in a URL as it is.
pub(super) const fn is_url_byte(byte: u8) -> bool {
    let is_odd = matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}');
    byte.is_ascii_graphic() && !is_odd
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn written(text: &[u8], place: UrlPart) -> String {
        let mut out = String::new();
        write(text, place, &mut out);
        out
    }

    #[test]
    fn what_would_end_a_part_of_the_url_is_escaped() {
        use UrlPart::{AfterHost, Path, Query};
        for (text, place, expected) in [
            ("a/b", Path, "a/b"),
            ("a?b#c&d", Path, "a%3Fb%23c&d"),
            ("a%0d%0Ab", Path, "a%0d%0Ab"),
            ("a\r\nb \"\\", Path, "a%0D%0Ab%20%22%5C"),
            ("a&b=c+d;e%26", Query, "a%26b=c%2Bd%3Be%26"),
            ("", AfterHost, "/"),
            (".evil.example", AfterHost, "/.evil.example"),
            ("@evil.example", AfterHost, "/@evil.example"),
            ("/a", AfterHost, "/a"),
        ] {
            assert_eq!(written(text.as_bytes(), place), expected, "{text:?} {place:?}");
        }
    }

    proptest! {
        #[test]
        fn no_text_changes_the_host_or_begins_another_part(text: Vec<u8>) {
            for place in [UrlPart::AfterHost, UrlPart::Path, UrlPart::Query] {
                let written = written(&text, place);
                prop_assert!(written.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(!written.contains(['?', '#', '\\']));
            }
            prop_assert!(written(&text, UrlPart::AfterHost).starts_with('/'));
            prop_assert!(!written(&text, UrlPart::Query).contains(['&', '+', ';']));
        }
    }
}
