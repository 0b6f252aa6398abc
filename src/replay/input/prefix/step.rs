//! One step of removing prefixes, and what all of them need.

/// A line after one step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step<'a> {
    /// It has no prefix that is known.
    Bare,
    /// The line without its first prefix.
    Rest(&'a [u8]),
    /// The text of a JSON object around a line.
    Text(Vec<u8>),
    /// A part of a long line.
    Part(Part),
}

/// A part of a long line, which a container has written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) text: Vec<u8>,
    pub(super) stream: Stream,
    pub(super) is_last: bool,
}

/// A container's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    Stdout,
    Stderr,
}

/// Splits at the first space.
pub(super) fn word(text: &[u8]) -> Option<(&str, &[u8])> {
    let end = text.iter().position(|byte| *byte == b' ')?;
    Some((str::from_utf8(&text[..end]).ok()?, text[end..].trim_ascii_start()))
}

/// Returns whether a word is a time as RFC 3339 or ISO 8601 writes it, as `2026-11-21T05:00:07.5Z`
/// and `2026-11-21T06:00:07+0100`.
pub(super) fn is_iso_time(word: &str) -> bool {
    let bytes = word.as_bytes();
    let is_shape = |shape: &str| {
        let mut pairs = shape.bytes().zip(bytes);
        bytes.len() > shape.len()
            && pairs.all(|(shape, byte)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => *byte == other,
            })
    };
    let is_end = |byte: &u8| byte.is_ascii_digit() || b".,:+-Zz".contains(byte);
    is_shape("0000-00-00T00:00:00") && bytes[19..].iter().all(is_end)
}
