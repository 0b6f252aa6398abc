//! Text that clients choose, made harmless for a terminal.
//!
//! A terminal obeys control characters, also those from U+0080 to U+009F, and lets others change the order
//! of the text or hide it. A key such as `\u{1b}[2J` would then write on an operator's screen, and a line
//! break would look like another line of output.

use core::fmt::Write;
use std::borrow::Cow;

/// Returns whether a terminal takes a character for more than a sign: control characters, line and
/// paragraph separators, and those that have no width or change the direction of text.
pub(crate) fn is_unsafe(sign: char) -> bool {
    sign.is_control()
        || matches!(
            sign,
            '\u{ad}'
                | '\u{61c}'
                | '\u{180e}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Returns a text in one line, with each character that is not safe as `\n` or `\u{1b}`.
pub(crate) fn terminal_text(text: &str) -> Cow<'_, str> {
    escaped(text, |_| false)
}

/// Returns the first `most` characters of a text in one line, and `…` if there are more.
pub(crate) fn printable(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let mut shown = terminal_text(&text[..end]).into_owned();
    if end < text.len() {
        shown.push('…');
    }
    shown
}

/// The same of several lines, which stay lines.
pub(crate) fn terminal_lines(text: &str) -> Cow<'_, str> {
    escaped(text, |sign| sign == '\n')
}

fn escaped(text: &str, is_kept: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |sign: char| is_unsafe(sign) && !is_kept(sign);
    if !text.contains(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for sign in text.chars() {
        if is_escaped(sign) {
            safe.extend(sign.escape_default());
        } else {
            safe.push(sign);
        }
    }
    Cow::Owned(safe)
}

/// Returns JSON with each character that is not safe as `\u001b`: such characters are only in its
/// strings. Line breaks between values stay.
pub(crate) fn terminal_json(json: &str) -> Cow<'_, str> {
    // JSON itself escapes those below U+0020.
    let is_escaped = |sign: char| is_unsafe(sign) && sign >= '\u{7f}';
    if !json.contains(is_escaped) {
        return Cow::Borrowed(json);
    }
    let mut safe = String::with_capacity(json.len() + 16);
    for sign in json.chars() {
        if is_escaped(sign) {
            for unit in sign.encode_utf16(&mut [0; 2]) {
                // Writing to a String cannot fail.
                _ = write!(safe, "\\u{unit:04x}");
            }
        } else {
            safe.push(sign);
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_character_of_a_text_means_more_than_a_sign() {
        for (text, expected) in [
            ("plain \\ \"ä\" 日本 👍", "plain \\ \"ä\" 日本 👍"),
            ("\u{1b}[31mred", "\\u{1b}[31mred"),
            ("a\nb\r\tc", "a\\nb\\r\\tc"),
            ("\u{9b}31m\u{85}\u{7f}", "\\u{9b}31m\\u{85}\\u{7f}"),
            ("a\u{202e}b\u{2066}c\u{200f}", "a\\u{202e}b\\u{2066}c\\u{200f}"),
            ("a\u{2028}b\u{2029}", "a\\u{2028}b\\u{2029}"),
            ("\u{feff}\u{200b}\u{e0041}", "\\u{feff}\\u{200b}\\u{e0041}"),
        ] {
            assert_eq!(terminal_text(text), expected);
        }
        assert_eq!(terminal_lines("a\nb\u{1b}\n"), "a\nb\\u{1b}\n");
    }

    #[test]
    fn json_stays_the_same_json() {
        let text = "\u{1b}\n\u{7f}\u{9b}\u{202e}\u{e0041}ä\"\\";
        let json = serde_json::to_string_pretty(&[text]).unwrap();
        let safe = terminal_json(&json);
        assert_eq!(serde_json::from_str::<Vec<String>>(&safe).unwrap(), [text]);
        assert!(!safe.chars().any(|sign| is_unsafe(sign) && sign != '\n'), "{safe}");
        assert!(matches!(terminal_json("{\n  \"a\": \"ä\"\n}"), Cow::Borrowed(_)));
    }

    #[test]
    fn a_long_text_is_cut_and_its_control_characters_are_escaped() {
        assert_eq!(printable("port's \"a\" \\ é", 99), "port's \"a\" \\ é");
        assert_eq!(printable("a\u{1b}[31m\n\u{202e}", 99), "a\\u{1b}[31m\\n\\u{202e}");
        assert_eq!(printable("abc", 3), "abc");
        assert_eq!(printable("abcd", 3), "abc…");
    }
}
