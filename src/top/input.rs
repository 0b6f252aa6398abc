//! From the bytes of a terminal to keys.

/// A key that means something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Char(char),
    Up,
    Down,
    PageUp,
    PageDown,
    First,
    Last,
    Enter,
    Tab,
    Backspace,
    Escape,
    /// Ctrl-C, or the end of the input.
    End,
    /// Ctrl-Z.
    Suspend,
}

/// Returns the keys of some bytes that arrived together. What means nothing is left out.
pub(super) fn read(bytes: &[u8]) -> Vec<Key> {
    let text = String::from_utf8_lossy(bytes);
    let mut rest = &*text;
    let mut keys = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (key, length) = match first {
            '\x1b' => escaped(&rest[1..]),
            '\r' | '\n' => (Some(Key::Enter), 1),
            '\t' => (Some(Key::Tab), 1),
            '\x7f' | '\x08' => (Some(Key::Backspace), 1),
            '\x03' | '\x04' => (Some(Key::End), 1),
            '\x1a' => (Some(Key::Suspend), 1),
            sign if sign.is_control() => (None, sign.len_utf8()),
            sign => (Some(Key::Char(sign)), sign.len_utf8()),
        };
        keys.extend(key);
        rest = &rest[length..];
    }
    keys
}

/// Reads what follows an escape character. Returns the key and the length of all.
fn escaped(rest: &str) -> (Option<Key>, usize) {
    let Some(inside) = rest.strip_prefix('[').or_else(|| rest.strip_prefix('O')) else {
        return (Some(Key::Escape), 1);
    };
    let Some(last) = inside.find(|sign: char| !matches!(sign, '0'..='9' | ';')) else {
        return (None, 1 + rest.len());
    };
    let end = inside[last..].chars().next().map_or(0, char::len_utf8);
    let key = match (&inside[..last], &inside[last..last + end]) {
        (_, "A") => Some(Key::Up),
        (_, "B") => Some(Key::Down),
        (_, "H") | ("1" | "7", "~") => Some(Key::First),
        (_, "F") | ("4" | "8", "~") => Some(Key::Last),
        ("5", "~") => Some(Key::PageUp),
        ("6", "~") => Some(Key::PageDown),
        _ => None,
    };
    (key, 2 + last + end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_in_the_ways_that_terminals_send_them() {
        for (bytes, keys) in [
            ("q", vec![Key::Char('q')]),
            ("\x1b[A\x1bOB", vec![Key::Up, Key::Down]),
            ("\x1b[1;5A", vec![Key::Up]),
            (
                "\x1b[5~\x1b[6~\x1b[H\x1b[4~",
                vec![Key::PageUp, Key::PageDown, Key::First, Key::Last],
            ),
            ("\x1b", vec![Key::Escape]),
            ("\x1b\x1b", vec![Key::Escape, Key::Escape]),
            ("/ä\r", vec![Key::Char('/'), Key::Char('ä'), Key::Enter]),
            ("\x7f\t\x03\x1a", vec![Key::Backspace, Key::Tab, Key::End, Key::Suspend]),
            ("\x1b[99Zx\0", vec![Key::Char('x')]),
            ("\x1b[1;", vec![]),
            ("\x1b[ä", vec![]),
        ] {
            assert_eq!(read(bytes.as_bytes()), keys, "{bytes:?}");
        }
        assert_eq!(read(b"\xff"), [Key::Char('\u{fffd}')]);
        assert_eq!(read(b""), []);
    }
}
