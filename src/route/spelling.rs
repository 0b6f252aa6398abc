//! The spellings of a path: the one form that routing sees, and what different
//! servers read differently.

use super::escape::{decoded, escaped};
use core::fmt::Write as _;
use std::borrow::Cow;

/// Returns the form of `path` that routes and keys are chosen by, so that no two
/// spellings of one path fall under different rules: escapes of printable ASCII are
/// decoded, but for `%2F` and `%25`; all other escapes are in upper case; bytes that
/// a path cannot hold are escaped, as is a `%` that begins no escape, lest it begin one with
/// what is decoded behind it; slashes in a row are one.
///
/// A path without escapes and double slashes is its own form and is not allocated.
pub fn normal_path(path: &str) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    // Counted rather than looked for: without an early exit these become vector
    // instructions.
    let odd = bytes.iter().filter(|byte| !is_plain(**byte)).count();
    let doubled = bytes.windows(2).filter(|pair| pair == b"//").count();
    if odd + doubled == 0 {
        return Cow::Borrowed(path);
    }
    let mut normal = String::with_capacity(path.len() + 8);
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let (byte, length) = escaped(rest).map_or((*first, 1), |byte| (byte, 3));
        let kept = is_plain(byte) && (length == 1 || byte != b'/');
        if !kept {
            // Writing to a String does not fail.
            let _ = write!(normal, "%{byte:02X}");
        } else if !(byte == b'/' && normal.ends_with('/')) {
            normal.push(char::from(byte));
        }
        rest = &rest[length..];
    }
    Cow::Owned(normal)
}

/// Returns whether `byte` stands for itself wherever it is met.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}

/// Returns why different servers may understand different things by `path`, or
/// `None` if its meaning is plain: an encoded slash, a backslash, a control
/// character, and the dot segments `.` and `..`, encoded or beside a `;` too.
pub fn dangerous_path(path: &str) -> Option<&'static str> {
    let bytes = path.as_bytes();
    let is_odd = |byte: &&u8| matches!(**byte, b'%' | b'\\') || byte.is_ascii_control();
    let leads = |pair: &&[u8]| matches!(pair, [b'/' | b';', b'.']);
    if bytes.iter().filter(is_odd).count() + bytes.windows(2).filter(leads).count() == 0
        && !path.starts_with('.')
    {
        return None;
    }
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let escape = escaped(rest);
        match escape.unwrap_or(*first) {
            b'/' if escape.is_some() => return Some("an encoded slash"),
            b'\\' => return Some("a backslash"),
            0 => return Some("a zero byte"),
            byte if byte.is_ascii_control() => return Some("a control character"),
            _ => {}
        }
        rest = &rest[if escape.is_some() { 3 } else { 1 }..];
    }
    path.split('/').any(has_dot_segment).then_some("a dot segment")
}

/// Returns whether `segment`, or a part of it between semicolons (which some servers
/// cut off as parameters), is `.` or `..`.
fn has_dot_segment(segment: &str) -> bool {
    let (mut dots, mut length) = (0, 0);
    for byte in decoded(segment.as_bytes()).chain([b';']) {
        if byte != b';' {
            dots += usize::from(byte == b'.');
            length += 1;
            continue;
        }
        if dots == length && (1..=2).contains(&length) {
            return true;
        }
        (dots, length) = (0, 0);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_form() {
        for (path, expected) in [
            ("/a/b-c_d.e~f", "/a/b-c_d.e~f"),
            ("/%61dmin", "/admin"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%2541", "/a%2541"),
            ("/caf%c3%a9", "/caf%C3%A9"),
            ("/café", "/caf%C3%A9"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/a%00", "/a%00"),
            ("//a///b//", "/a/b/"),
            ("/100%", "/100%25"),
            ("/%zz", "/%25zz"),
            ("/%a%30", "/%25a0"),
            ("/%2%66", "/%252f"),
            ("/%7Bid%7D", "/{id}"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(normal_path(path), expected, "{path}");
            assert_eq!(normal_path(expected), expected, "the form of {path} is its own form");
        }
    }

    #[test]
    fn a_usual_path_is_not_copied() {
        assert!(matches!(normal_path("/a/b;c=1,2/x@y:z"), Cow::Borrowed(_)));
    }

    #[test]
    fn paths_that_servers_read_differently_are_dangerous() {
        for (path, expected) in [
            ("/", None),
            ("/a/b.c/..d/e../...", None),
            ("/a;b=1.2/c", None),
            ("/.well-known/x", None),
            ("/a%20b%3Bc", None),
            ("/100%", None),
            ("/a%252fb", None),
            ("/caf%C3%A9", None),
            ("/a%2fb", Some("an encoded slash")),
            ("/a%2Fb", Some("an encoded slash")),
            ("/a%5cb", Some("a backslash")),
            ("/a\\b", Some("a backslash")),
            ("/a%00", Some("a zero byte")),
            ("/a%0d%0a", Some("a control character")),
            ("/a%7f", Some("a control character")),
            ("/a\tb", Some("a control character")),
            ("/a/..", Some("a dot segment")),
            ("/a/../b", Some("a dot segment")),
            ("/./a", Some("a dot segment")),
            ("/a/%2e%2E/b", Some("a dot segment")),
            ("/a/.%2e", Some("a dot segment")),
            ("/a/..;/b", Some("a dot segment")),
            ("/a/..;x=1/b", Some("a dot segment")),
            ("/a/..%3bx/b", Some("a dot segment")),
            ("/a/;../b", Some("a dot segment")),
            ("..", Some("a dot segment")),
        ] {
            assert_eq!(dangerous_path(path), expected, "{path}");
        }
    }
}
