//! Spellings of a path: the form that routing sees, the form that the upstream receives, and forms
//! that servers read differently.

use core::fmt::Write as _;
use smallvec::SmallVec;
use std::borrow::Cow;

/// Returns the form of `path` for routes and keys, so that all spellings fall under the same rules:
/// escapes of printable ASCII are decoded (including `%2F`, except `%25`), other escapes are in
/// upper case, invalid bytes and a `%` without an escape are escaped, slashes in a row are one, and
/// segments `.` are removed.
///
/// A path that is already normal is not allocated.
pub fn normal_path(path: &str) -> Cow<'_, str> {
    spelled(path, Slash::Separates)
}

/// Returns [`normal_path`] with encoded slashes kept as `%2F`, as servers see it that split before
/// they decode.
pub fn literal_path(path: &str) -> Cow<'_, str> {
    spelled(path, Slash::IsText)
}

/// Returns whether [`normal_path`] and [`literal_path`] may differ.
pub fn has_encoded_slash(path: &str) -> bool {
    path.contains('%') && path.as_bytes().windows(3).any(|text| escaped(text) == Some(b'/'))
}

/// The reading of `%2F`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Slash {
    Separates,
    IsText,
}

fn spelled(path: &str, encoded_slash: Slash) -> Cow<'_, str> {
    let bytes = path.as_bytes();
    let odd = |word: Word| word.below(b'!') | word.above(b'~') | word.equal(b'%');
    let suspect = |word: Word, next: Word| word.equal(b'/') & (next.equal(b'/') | next.equal(b'.'));
    if !any_byte(bytes, odd) && !any_pair(bytes, suspect) {
        return Cow::Borrowed(path);
    }

    let mut normal = String::with_capacity(path.len() + 8);
    let mut rest = bytes;
    while let Some(first) = rest.first() {
        let (byte, length) = escaped(rest).map_or((*first, 1), |byte| (byte, 3));
        rest = &rest[length..];

        let is_text = length == 3 && byte == b'/' && encoded_slash == Slash::IsText;
        if is_text || !is_plain(byte) {
            // Writing to a String does not fail.
            let _ = write!(normal, "%{byte:02X}");
            continue;
        }

        if byte == b'/' {
            drop_dot_segment(&mut normal);
            if normal.ends_with('/') {
                continue;
            }
        }
        normal.push(char::from(byte));
    }

    drop_dot_segment(&mut normal);
    Cow::Owned(normal)
}

/// Removes a last segment `.`, but not the slash before it.
fn drop_dot_segment(path: &mut String) {
    if path.ends_with("/.") {
        path.pop();
    }
}

/// Returns whether `byte` needs no escape.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_graphic() && byte != b'%'
}

/// Returns `path` as the upstream receives it, or `None` if that is the same: without segments `.`,
/// encoded or not, so that it cannot resolve them differently, and with one slash at its beginning,
/// as parsers of URLs take what follows two for a host.
pub fn sent_path(path: &str) -> Option<String> {
    let is_dot = |segment: &str| decoded(segment.as_bytes()).eq([b'.']);
    let is_changed = path.starts_with("//") || path.split('/').any(is_dot);
    if !path.starts_with('/') || !is_changed {
        return None;
    }
    let mut kept = String::with_capacity(path.len());
    let mut segments = path.split('/').skip(1).peekable();
    while let Some(segment) = segments.next() {
        if is_dot(segment) && segments.peek().is_some() {
            continue;
        }
        if kept != "/" {
            kept.push('/');
        }
        if !is_dot(segment) {
            kept.push_str(segment);
        }
    }
    Some(kept)
}

/// Returns `path`, which is in the form of [`normal_path`] or [`literal_path`], without the
/// parameters of its segments: what a server looks for that cuts each off at its first `;`.
pub fn without_parameters(path: &str) -> String {
    let mut kept = String::with_capacity(path.len());
    for segment in path.split_inclusive('/') {
        let name = segment.trim_end_matches('/').split(';').next().unwrap_or_default();
        kept.push_str(name);
        if segment.ends_with('/') && !kept.ends_with('/') {
            kept.push('/');
        }
    }
    kept
}

/// Returns why servers may read `path` differently, or `None`: a backslash, a control character, an
/// escape `%u0061`, a segment `..` (also encoded, or beside an encoded slash or `;`), or `.` beside
/// one of the latter two.
///
/// An encoded slash alone is not reported: see [`has_encoded_slash`].
pub fn dangerous_path(path: &str) -> Option<&'static str> {
    let bytes = path.as_bytes();
    let odd =
        |word: Word| word.below(b' ') | word.equal(0x7f) | word.equal(b'%') | word.equal(b'\\');
    let leads = |word: Word, next: Word| (word.equal(b'/') | word.equal(b';')) & next.equal(b'.');
    if !any_byte(bytes, odd) && !any_pair(bytes, leads) && !path.starts_with('.') {
        return None;
    }
    if bytes.windows(6).any(is_unicode_escape) {
        return Some("an escape `%u`");
    }
    for byte in decoded(bytes) {
        match byte {
            b'\\' => return Some("a backslash"),
            0 => return Some("a zero byte"),
            byte if byte.is_ascii_control() => return Some("a control character"),
            _ => {}
        }
    }
    path.split('/').find_map(dots)
}

/// Returns whether `text` is an escape such as `%u0061`, which Jetty 9 and IIS decode. It is none by
/// RFC 3986.
fn is_unicode_escape(text: &[u8]) -> bool {
    matches!(text, [b'%', b'u' | b'U', digits @ ..] if digits.iter().all(u8::is_ascii_hexdigit))
}

/// Says that `segment`, or a part of it between encoded slashes or semicolons (which some servers
/// cut off as parameters), is `..`, or that such a part is `.`.
fn dots(segment: &str) -> Option<&'static str> {
    let mut dots = 0;
    let mut length = 0;
    let mut parts = 0;
    let mut single = false;
    for byte in decoded(segment.as_bytes()).chain([b';']) {
        if byte != b';' && byte != b'/' {
            dots += usize::from(byte == b'.');
            length += 1;
            continue;
        }
        if dots == length && length == 2 {
            return Some("a `..` segment");
        }
        single |= dots == length && length == 1;
        parts += 1;
        dots = 0;
        length = 0;
    }
    (single && parts > 1).then_some("a `.` beside an encoded slash or `;`")
}

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

// A search looks at eight bytes of a text together. The arithmetic is that of "Determine if a word
// has a byte ..." in Sean Anderson's Bit Twiddling Hacks, in the form without carries between bytes.

/// One in each byte.
const ONES: u64 = u64::from_le_bytes([1; 8]);
const HIGH_BITS: u64 = 0x80 * ONES;
const LOW_BITS: u64 = 0x7f * ONES;
/// The filler for bytes behind the end of a text.
const LETTERS: u64 = u64::from_le_bytes([b'a'; 8]);

/// Eight bytes of a text. Each question returns the high bit of each byte that it is true of.
#[derive(Clone, Copy, Debug)]
pub struct Word(u64);

impl Word {
    /// Returns the bytes from `place` on, with letters behind the end of the text.
    #[inline]
    fn at(text: &[u8], place: usize) -> Self {
        let text = text.get(place..).unwrap_or_default();
        Self(text.first_chunk().map_or_else(
            || text.iter().rev().fold(LETTERS, |word, byte| word << 8 | u64::from(*byte)),
            |whole| u64::from_le_bytes(*whole),
        ))
    }

    /// The bytes that are `byte`.
    #[inline]
    pub fn equal(self, byte: u8) -> u64 {
        let differences = self.0 ^ (u64::from(byte) * ONES);
        !(((differences & LOW_BITS) + LOW_BITS) | differences) & HIGH_BITS
    }

    /// The bytes that are less than `byte`, which is at most 128.
    #[inline]
    pub(super) fn below(self, byte: u8) -> u64 {
        !(((self.0 & LOW_BITS) + u64::from(0x80 - byte) * ONES) | self.0) & HIGH_BITS
    }

    /// The bytes that are greater than `byte`, which is less than 128.
    #[inline]
    pub(super) fn above(self, byte: u8) -> u64 {
        (((self.0 & LOW_BITS) + u64::from(0x7f - byte) * ONES) | self.0) & HIGH_BITS
    }
}

/// Returns whether any byte is `sought`. Letters are not.
#[inline]
pub fn any_byte(text: &[u8], sought: impl Fn(Word) -> u64) -> bool {
    any_word(text.len(), |place| sought(Word::at(text, place)) != 0)
}

/// Returns whether any byte is `sought` beside the one behind it. Letters are not.
#[inline]
pub(super) fn any_pair(text: &[u8], sought: impl Fn(Word, Word) -> u64) -> bool {
    let pairs = text.len().saturating_sub(1);
    any_word(pairs, |place| sought(Word::at(text, place), Word::at(text, place + 1)) != 0)
}

/// Returns whether any word of those from 0 to `length` is `found` by its place. The last one may have
/// bytes of the one before.
#[inline]
fn any_word(length: usize, found: impl Fn(usize) -> bool) -> bool {
    let rest = length % 8;
    (0..length - rest).step_by(8).any(&found) || (rest > 0 && found(length.saturating_sub(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_path_has_one_form() {
        for (path, expected) in [
            ("/a/b-c_d.e~f", "/a/b-c_d.e~f"),
            ("/%61dmin", "/admin"),
            ("/a%2fb", "/a/b"),
            ("/a%2F/%2fb", "/a/b"),
            ("/a%2541", "/a%2541"),
            ("/a%252Fb", "/a%252Fb"),
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
            ("/./Packages", "/Packages"),
            ("/a/./b/.", "/a/b/"),
            ("/a/%2e/b", "/a/b"),
            ("/.", "/"),
            ("//./a", "/a"),
            ("/./../.a/..b", "/../.a/..b"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(normal_path(path), expected, "{path}");
            assert_eq!(normal_path(expected), expected, "the form of {path} is its own form");
        }
    }

    #[test]
    fn an_encoded_slash_is_read_as_a_slash_or_as_text() {
        for (path, text, slash) in [
            ("/@scope%2fname", "/@scope%2Fname", "/@scope/name"),
            ("/a%2F%2fb", "/a%2F%2Fb", "/a/b"),
            ("/%2Fadmin", "/%2Fadmin", "/admin"),
        ] {
            assert!(has_encoded_slash(path));
            assert_eq!((&*literal_path(path), &*normal_path(path)), (text, slash));
        }
        for path in ["/a/b", "/a%252Fb", "/a%2", "/%25%32f"] {
            assert!(!has_encoded_slash(path), "{path}");
            assert_eq!(literal_path(path), normal_path(path), "{path}");
        }
    }

    #[test]
    fn the_upstream_receives_a_path_without_single_dots_that_begins_with_one_slash() {
        for (path, expected) in [
            ("/./Packages", Some("/Packages")),
            ("/a/./b%20c/%2E/d", Some("/a/b%20c/d")),
            ("/a/.", Some("/a/")),
            ("/.", Some("/")),
            ("/./", Some("/")),
            ("/./.", Some("/")),
            ("//./a//b", Some("/a//b")),
            ("//x/a", Some("/x/a")),
            ("///x//a/", Some("/x//a/")),
            ("/.//x", Some("/x")),
            ("//", Some("/")),
            ("//.", Some("/")),
            ("/x//", None),
            ("/.a/b./...", None),
            ("/a/b", None),
            ("*", None),
        ] {
            let sent = sent_path(path);
            assert_eq!(sent.as_deref(), expected, "{path}");
            let sent = sent.unwrap_or_else(|| path.to_owned());
            assert_eq!(normal_path(&sent), normal_path(path), "it is decided about what is sent");
        }
    }

    #[test]
    fn parameters_end_with_their_segment() {
        for (path, expected) in [
            ("/admin;x", "/admin"),
            ("/admin;x=1;y/a;/b", "/admin/a/b"),
            ("/;x/admin", "/admin"),
            ("/a/;x/;y/b;", "/a/b"),
            ("/a;x/", "/a/"),
            ("/;", "/"),
            ("/a;x%2Fy", "/a"),
            ("/a%3Bb", "/a%3Bb"),
            ("/a/b", "/a/b"),
            ("*", "*"),
            ("", ""),
        ] {
            assert_eq!(without_parameters(path), expected, "{path}");
        }
    }

    #[test]
    fn a_usual_path_is_not_copied() {
        assert!(matches!(normal_path("/a/b;c=1,2/x@y:z"), Cow::Borrowed(_)));
    }

    #[test]
    fn paths_that_servers_read_differently_are_dangerous() {
        const BESIDE: &str = "a `.` beside an encoded slash or `;`";
        for (path, expected) in [
            ("/", None),
            ("/a/b.c/..d/e../...", None),
            ("/a;b=1.2/c", None),
            ("/.well-known/x", None),
            ("/a%20b%3Bc", None),
            ("/100%", None),
            ("/a%252fb", None),
            ("/caf%C3%A9", None),
            ("/a%2fb", None),
            ("/@scope%2Fname", None),
            ("/./a", None),
            ("/a/%2e/b/.", None),
            ("/a%5cb", Some("a backslash")),
            ("/a\\b", Some("a backslash")),
            ("/a%00", Some("a zero byte")),
            ("/a%0d%0a", Some("a control character")),
            ("/a%7f", Some("a control character")),
            ("/%u006cimited", Some("an escape `%u`")),
            ("/a/%U00e9", Some("an escape `%u`")),
            ("/%u00zz", None),
            ("/%u006", None),
            ("/a\tb", Some("a control character")),
            ("/a/..", Some("a `..` segment")),
            ("/a/../b", Some("a `..` segment")),
            ("/public%2f..%2fadmin", Some("a `..` segment")),
            ("/public/..%2fadmin", Some("a `..` segment")),
            ("/public%2F../admin", Some("a `..` segment")),
            ("/a%2f.%2fb", Some(BESIDE)),
            ("/a/.%2fb", Some(BESIDE)),
            ("/a/.;x/b", Some(BESIDE)),
            ("/a/;./b", Some(BESIDE)),
            ("/a/%2e%2E/b", Some("a `..` segment")),
            ("/a/.%2e", Some("a `..` segment")),
            ("/a/..;/b", Some("a `..` segment")),
            ("/a/..;x=1/b", Some("a `..` segment")),
            ("/a/..%3bx/b", Some("a `..` segment")),
            ("/a/;../b", Some("a `..` segment")),
            ("..", Some("a `..` segment")),
        ] {
            assert_eq!(dangerous_path(path), expected, "{path}");
        }
    }
}

#[cfg(test)]
mod escape_tests {
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

#[cfg(test)]
mod scan_tests {
    use super::*;

    #[test]
    fn a_word_compares_each_byte_by_itself() {
        for byte in 0..=u8::MAX {
            for other in [b'a', 0, 0x80, 0xff] {
                for place in 0..8 {
                    let mut bytes = [other; 8];
                    bytes[place] = byte;
                    let word = Word::at(&bytes, 0);
                    for limit in [1, 0x20, 0x21, b'/', 0x7e, 0x7f] {
                        let expected = |is: fn(&u8, &u8) -> bool| {
                            bytes.map(|byte| if is(&byte, &limit) { 0x80 } else { 0 })
                        };
                        assert_eq!(word.equal(limit).to_le_bytes(), expected(u8::eq));
                        assert_eq!(word.below(limit).to_le_bytes(), expected(u8::lt));
                        assert_eq!(word.above(limit).to_le_bytes(), expected(u8::gt));
                    }
                }
            }
        }
    }

    #[test]
    fn a_byte_is_found_wherever_it_is() {
        for length in 0..40 {
            let mut text = vec![b'a'; length];
            assert!(!any_byte(&text, |word| word.equal(b'/')));
            for place in 0..length {
                text[place] = b'/';
                assert!(any_byte(&text, |word| word.equal(b'/')), "{place} of {length}");
                text[place] = b'a';
            }
        }
    }

    #[test]
    fn a_pair_is_found_wherever_it_is_and_only_in_its_order() {
        let is_pair = |one: Word, next: Word| one.equal(b'/') & next.equal(b'.');
        for length in 2..40 {
            let mut text = vec![b'a'; length];
            assert!(!any_pair(&text, is_pair) && !any_pair(&text[..1], is_pair));
            for place in 1..length {
                text[place - 1..=place].copy_from_slice(b"/.");
                assert!(any_pair(&text, is_pair), "{place} of {length}");
                text[place - 1..=place].copy_from_slice(b"./");
                assert!(!any_pair(&text, is_pair), "{place} of {length}");
                text[place - 1..=place].copy_from_slice(b"aa");
            }
        }
        assert!(!any_pair(b"", is_pair));
    }
}
