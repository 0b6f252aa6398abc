//! Heads that come in pieces: when there is enough to read.
//!
//! A client may send its head byte by byte. To read it from the start after each byte would cost
//! the square of its length.

/// How many empty lines may come before a head: a client that ends a body with one more than it
/// declared is common (RFC 9112, 2.2).
pub const MAX_EMPTY_LINES: usize = 2;

/// How much of a head has been looked at.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pieces {
    seen: usize,
    has_first_line: bool,
}

impl Pieces {
    /// Notes that `window` is what there is of the head, whose first line begins at `start`.
    /// Returns whether to read it: it has the beginning of the first line, its end, or the end of
    /// the head since the last piece.
    pub(super) fn advance(&mut self, window: &[u8], start: usize) -> bool {
        // A CR alone may be the beginning of an empty line.
        let is_beginning = self.seen <= start + 1;
        // The end of the head may have begun in the piece before.
        let from = self.seen.saturating_sub(2).max(start);
        self.seen = window.len();
        if is_beginning {
            return true;
        }
        let new = window.get(from..).unwrap_or_default();
        let ends_first_line = !self.has_first_line && new.contains(&b'\n');
        self.has_first_line |= ends_first_line;
        ends_first_line || has_empty_line(new)
    }
}

/// Returns whether an empty line follows a line that ends in `bytes`.
pub(super) fn has_empty_line(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|byte| *byte == b'\n').skip(1).peekable();
    while let Some(line) = lines.next() {
        // The last part is no whole line.
        if matches!(line, b"" | b"\r") && lines.peek().is_some() {
            return true;
        }
    }
    false
}

/// Returns where the first line begins that is not empty, or `None` if there are more than
/// [`MAX_EMPTY_LINES`] before it.
pub(super) fn skip_empty_lines(window: &[u8]) -> Option<usize> {
    let mut rest = window;
    for _ in 0..=MAX_EMPTY_LINES {
        match rest {
            [b'\n', more @ ..] | [b'\r', b'\n', more @ ..] => rest = more,
            _ => return Some(window.len() - rest.len()),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_line_is_found_however_lines_end() {
        for (bytes, expected) in [
            ("a\r\n\r\n", true),
            ("a\n\n", true),
            ("a\r\n\n", true),
            ("a\n\r\nb", true),
            ("\n\n", true),
            ("a\r\n", false),
            ("a\r\n\r", false),
            ("a\n\rb\n", false),
            ("\r\n", false),
            ("", false),
        ] {
            assert_eq!(has_empty_line(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_head_is_read_a_few_times_at_most() {
        let head = b"\r\nGET / HTTP/1.1\r\na: b\r\nc: d\r\n\r\n";
        let mut pieces = Pieces::default();
        let reads: Vec<usize> =
            (1..=head.len()).filter(|end| pieces.advance(&head[..*end], 2)).collect();
        assert_eq!(reads, [1, 2, 3, 4, 18, head.len()]);
    }

    #[test]
    fn two_empty_lines_may_come_first() {
        for (bytes, expected) in [
            ("", Some(0)),
            ("G", Some(0)),
            ("\r\nG", Some(2)),
            ("\n\r\n", Some(3)),
            ("\n\n\r", Some(2)),
            ("\n\n\n", None),
            ("\r\n\r\n\r\n", None),
            ("\rG", Some(0)),
        ] {
            assert_eq!(skip_empty_lines(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }
}
