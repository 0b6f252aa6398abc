//! Texts that clients choose, for a line of a terminal or of a comment.

use crate::terminal_text::terminal_text;

/// Returns the first `most` characters of a text, harmless for a terminal, and `…` if there are more.
pub(crate) fn printable(text: &str, most: usize) -> String {
    let end = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
    let mut shown = terminal_text(&text[..end]).into_owned();
    if end < text.len() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_stay_and_control_characters_are_escaped() {
        assert_eq!(printable("port's \"a\" \\ é", 99), "port's \"a\" \\ é");
        assert_eq!(printable("a\u{1b}[31m\n\u{202e}", 99), "a\\u{1b}[31m\\n\\u{202e}");
        assert_eq!(printable("abc", 3), "abc");
        assert_eq!(printable("abcd", 3), "abc…");
    }
}
