//! A tokenizer of a JSON object (RFC 8259) that takes a body in pieces, and keeps the values of members.
//!
//! It accepts what the RFC accepts in UTF-8, with a byte order mark or without, but for two differences:
//! the whole is an object, and containers are nested at most [`MAX_DEPTH`] deep. Half of a surrogate pair
//! stands for U+FFFD. The elements of arrays are no members.

use super::{BodyMembers, Found, MAX_LEVELS, MAX_NAME, MemberPaths, MemberValue, ROOT};
use core::mem;
use std::sync::Arc;

/// The deepest nesting of containers: serde's bound too.
const MAX_DEPTH: usize = 128;

/// The byte order mark of UTF-8.
const MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// The part of a body that is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The object's brace, after so many bytes of a byte order mark.
    Start(usize),
    Value,
    /// A value, or the end of an array that is empty.
    FirstElement,
    /// A member's name, or the end of an object that is empty.
    FirstName,
    NextName,
    Colon,
    /// A comma, or the end of a container.
    Comma,
    /// A string, after its quote.
    Text,
    /// The letter after a backslash.
    Escape,
    /// The digits of a `\u` that are left, and the number so far.
    Hex(u8, u16),
    /// A number or a literal.
    Bare,
    /// The object is complete.
    Done,
    /// It is no JSON object.
    Invalid,
}

/// An open object that a path leads through.
#[derive(Clone, Copy, Debug, Default)]
struct Tracked {
    node: usize,
    /// A bit for each name of the tree that it has had.
    seen: u64,
    /// True if neither it nor an object around it stands behind another member of the same name.
    is_first: bool,
}

/// A member that a path leads to.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: usize,
    is_first: bool,
}

/// Reads the body of one request, whose bytes it gets in their order.
#[derive(Debug)]
pub struct Scanner {
    members: BodyMembers,
    state: State,
    utf8: Utf8,
    depth: usize,
    /// One bit for each open container, the lowest for the outermost: 1 for an object.
    objects: u128,
    /// The outermost open containers, as far as they are objects that paths lead through.
    tracked: [Tracked; MAX_LEVELS],
    tracked_depth: usize,
    /// The member whose value is read, or comes next, if a path leads to it.
    place: Option<Place>,
    /// True if the string that is read is a member's name.
    is_name: bool,
    /// True if the string is decoded into `text`.
    is_kept: bool,
    /// The name or value that is read.
    text: Vec<u8>,
    /// The first half of a surrogate pair.
    half: Option<u16>,
}

impl Scanner {
    /// Begins a body.
    pub fn new(paths: Arc<MemberPaths>) -> Self {
        let found = vec![Found::default(); paths.paths.len()];
        Self {
            members: BodyMembers { paths, found },
            state: State::Start(0),
            utf8: Utf8::default(),
            depth: 0,
            objects: 0,
            tracked: [Tracked::default(); MAX_LEVELS],
            tracked_depth: 0,
            place: Some(Place { node: ROOT, is_first: true }),
            is_name: false,
            is_kept: false,
            text: Vec::new(),
            half: None,
        }
    }

    /// Reads the next bytes. Returns false once the body cannot have members, whatever follows.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        if !self.utf8.push(bytes) {
            self.state = State::Invalid;
        }
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match self.state {
                State::Invalid => return false,
                State::Text => at = self.read_text(bytes, at),
                State::Escape | State::Hex(..) => {
                    self.escape(*byte);
                    at += 1;
                }
                State::Bare if is_bare(*byte) => {
                    self.text.push(*byte);
                    at += 1;
                }
                // The byte is the first one behind it.
                State::Bare => self.end_bare(),
                State::Start(_)
                | State::Value
                | State::FirstElement
                | State::FirstName
                | State::NextName
                | State::Colon
                | State::Comma
                | State::Done => {
                    self.structure(*byte);
                    at += 1;
                }
            }
        }
        self.state != State::Invalid
    }

    /// Has the body count as none.
    pub const fn give_up(&mut self) {
        self.state = State::Invalid;
    }

    /// Ends the body. Returns its members, if it is a whole JSON object.
    pub fn finish(self) -> Option<BodyMembers> {
        let is_whole = self.state == State::Done && self.utf8.is_whole();
        is_whole.then_some(self.members)
    }

    /// Reads a byte between tokens, or the first one of a token.
    fn structure(&mut self, byte: u8) {
        let starts_value = matches!(self.state, State::Value | State::FirstElement);
        let starts_name = matches!(self.state, State::FirstName | State::NextName);
        match (self.state, byte) {
            (State::Start(read), _) => self.start(read, byte),
            (_, b' ' | b'\t' | b'\n' | b'\r') => {}
            (State::Done, _) => self.state = State::Invalid,
            (State::Colon, b':') => self.state = State::Value,
            (State::Comma, b',') => self.next(),
            (State::FirstName | State::Comma, b'}') => self.close(true),
            (State::FirstElement | State::Comma, b']') => self.close(false),
            (_, b'"') if starts_name => {
                self.begin_text(true, self.depth == self.tracked_depth);
            }
            (_, b'"') if starts_value => {
                let is_kept = self.path().is_some();
                self.begin_text(false, is_kept);
            }
            (_, b'{') if starts_value => self.open(true),
            (_, b'[') if starts_value => self.open(false),
            (_, b'-' | b'0'..=b'9' | b't' | b'f' | b'n') if starts_value => {
                self.text.clear();
                self.text.push(byte);
                self.state = State::Bare;
            }
            _ => self.state = State::Invalid,
        }
    }

    /// Reads a byte before the object, of which `read` bytes of a byte order mark have come.
    fn start(&mut self, read: usize, byte: u8) {
        let is_between = read == 0 || read == MARK.len();
        self.state = match byte {
            b'{' if is_between => {
                self.open(true);
                return;
            }
            b' ' | b'\t' | b'\n' | b'\r' if is_between => State::Start(MARK.len()),
            _ if MARK.get(read) == Some(&byte) => State::Start(read + 1),
            _ => State::Invalid,
        };
    }

    fn open(&mut self, is_object: bool) {
        if self.depth == MAX_DEPTH {
            self.state = State::Invalid;
            return;
        }

        let place = self.place.take().filter(|_| is_object && self.depth == self.tracked_depth);
        if let Some(Place { node, is_first }) = place
            && self.members.paths.leads_on(node)
            && let Some(free) = self.tracked.get_mut(self.tracked_depth)
        {
            *free = Tracked { node, seen: 0, is_first };
            self.tracked_depth += 1;
        }

        let bit = 1_u128 << self.depth;
        self.objects = if is_object { self.objects | bit } else { self.objects & !bit };
        self.depth += 1;
        self.state = if is_object { State::FirstName } else { State::FirstElement };
    }

    fn close(&mut self, is_object: bool) {
        if self.is_in_object() != is_object {
            self.state = State::Invalid;
            return;
        }
        if self.depth == self.tracked_depth {
            self.tracked_depth -= 1;
        }
        self.depth -= 1;
        self.end_value();
    }

    const fn is_in_object(&self) -> bool {
        self.depth > 0 && self.objects >> (self.depth - 1) & 1 == 1
    }

    const fn end_value(&mut self) {
        self.place = None;
        self.state = if self.depth == 0 { State::Done } else { State::Comma };
    }

    /// Goes to the next member or element, after a comma.
    const fn next(&mut self) {
        self.state = if self.is_in_object() { State::NextName } else { State::Value };
    }

    /// Returns the path that ends at the value that comes next.
    fn path(&self) -> Option<usize> {
        self.members.paths.path_at(self.place?.node)
    }

    fn begin_text(&mut self, is_name: bool, is_kept: bool) {
        self.state = State::Text;
        self.is_name = is_name;
        self.is_kept = is_kept;
        self.text.clear();
    }

    /// Reads a string from `at`, as far as it goes without an escape. Returns the index behind it.
    fn read_text(&mut self, bytes: &[u8], at: usize) -> usize {
        let rest = &bytes[at..];
        let ends = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1F);
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        if length > 0 {
            self.keep(&rest[..length]);
        }

        match rest.get(length) {
            None => return bytes.len(),
            Some(b'"') => self.end_text(),
            Some(b'\\') => self.state = State::Escape,
            Some(_) => self.state = State::Invalid,
        }
        at + length + 1
    }

    /// Keeps a part of the string.
    fn keep(&mut self, part: &[u8]) {
        const REPLACEMENT: &[u8] = "\u{FFFD}".as_bytes();
        let is_half = self.half.take().is_some();
        if !self.is_kept {
            return;
        }
        if is_half {
            self.text.extend_from_slice(REPLACEMENT);
        }
        self.text.extend_from_slice(part);
        // No path has so long a name.
        self.is_kept = !self.is_name || self.text.len() <= MAX_NAME;
    }

    /// Reads a byte of an escape.
    fn escape(&mut self, byte: u8) {
        self.state = match (self.state, byte) {
            (State::Escape, b'u') => State::Hex(4, 0),
            (State::Escape, _) => match simple_escape(byte) {
                Some(meant) => {
                    self.keep(&[meant]);
                    State::Text
                }
                None => State::Invalid,
            },
            (State::Hex(left, number), _) => match char::from(byte).to_digit(16) {
                Some(digit) => {
                    let number = number << 4 | u16::try_from(digit).unwrap_or_default();
                    if left == 1 {
                        self.keep_unit(number);
                        State::Text
                    } else {
                        State::Hex(left - 1, number)
                    }
                }
                None => State::Invalid,
            },
            (other, _) => other,
        };
    }

    /// Keeps a code unit of UTF-16, which may be half of a surrogate pair.
    fn keep_unit(&mut self, unit: u16) {
        let pair = self.half.map(|half| char::decode_utf16([half, unit]).next());
        let whole = match pair {
            Some(Some(Ok(character))) => {
                self.half = None;
                Some(character)
            }
            Some(_) | None => char::from_u32(u32::from(unit)),
        };
        if let Some(character) = whole {
            self.keep(character.encode_utf8(&mut [0; 4]).as_bytes());
        } else {
            // One that came before was alone.
            self.keep(&[]);
            self.half = Some(unit);
        }
    }

    fn end_text(&mut self) {
        if self.half.is_some() {
            self.keep(&[]);
        }
        if self.is_name {
            self.end_name();
        } else {
            self.end_scalar(false);
        }
    }

    /// Finds the place of the member that has been named.
    fn end_name(&mut self) {
        self.state = State::Colon;
        self.place = None;
        let is_tracked = self.is_kept && self.depth == self.tracked_depth;
        let level = self.tracked_depth.checked_sub(1).filter(|_| is_tracked);
        let Some(object) = level.and_then(|level| self.tracked.get_mut(level)) else { return };
        let BodyMembers { paths, found } = &mut self.members;
        let Some((index, node)) = paths.child(object.node, &self.text) else { return };

        let bit = 1_u64 << (index % 64);
        let is_repeated = object.seen & bit != 0;
        object.seen |= bit;
        if is_repeated {
            paths.below(node, &mut |path| {
                let found = &mut found[path];
                *found = Found { last: None, is_repeated: true, ..mem::take(found) };
            });
        }
        self.place = Some(Place { node, is_first: object.is_first && !is_repeated });
    }

    /// Ends a number or a literal.
    fn end_bare(&mut self) {
        match &self.text[..] {
            b"true" | b"false" => self.end_scalar(false),
            b"null" => self.end_value(),
            number if is_number(number) => self.end_scalar(true),
            _ => self.state = State::Invalid,
        }
    }

    /// Keeps a value, if a path leads to it.
    fn end_scalar(&mut self, is_number: bool) {
        if let Some(Place { is_first, .. }) = self.place
            && let Some(path) = self.path()
        {
            // Every piece was checked.
            let text = str::from_utf8(&self.text).unwrap_or_default();
            let value = MemberValue { text: text.into(), is_number };
            let found = &mut self.members.found[path];
            if is_first {
                found.first = Some(value.clone());
            }
            found.last = Some(value);
        }
        self.end_value();
    }
}

/// Returns the character that a letter stands for behind a backslash.
const fn simple_escape(letter: u8) -> Option<u8> {
    Some(match letter {
        b'"' | b'\\' | b'/' => letter,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        _ => return None,
    })
}

/// True for the characters of numbers and literals.
const fn is_bare(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.')
}

/// Returns whether `text` is a number (RFC 8259, 6).
pub(super) fn is_number(text: &[u8]) -> bool {
    let digits = |text: &[u8]| text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let whole = digits(text);
    if whole == 0 || (whole > 1 && text.starts_with(b"0")) {
        return false;
    }

    let mut rest = &text[whole..];
    if let Some(fraction) = rest.strip_prefix(b".") {
        let length = digits(fraction);
        if length == 0 {
            return false;
        }
        rest = &fraction[length..];
    }
    if let [b'e' | b'E', exponent @ ..] = rest {
        let exponent = match exponent {
            [b'+' | b'-', digits @ ..] | digits => digits,
        };
        return !exponent.is_empty() && digits(exponent) == exponent.len();
    }
    rest.is_empty()
}

/// Checks that pieces are UTF-8 together.
#[derive(Debug, Default)]
struct Utf8 {
    /// The beginning of a character whose end is in the next piece.
    begun: [u8; 4],
    length: usize,
}

impl Utf8 {
    /// Returns whether the text is UTF-8 so far.
    fn push(&mut self, mut bytes: &[u8]) -> bool {
        while self.length > 0
            && let [next, rest @ ..] = bytes
        {
            // Four bytes are a character, or none.
            let Some(free) = self.begun.get_mut(self.length) else { return false };
            *free = *next;
            self.length += 1;
            bytes = rest;
            match str::from_utf8(&self.begun[..self.length]) {
                Ok(_) => self.length = 0,
                Err(error) if error.error_len().is_some() => return false,
                Err(_) => {}
            }
        }

        let Err(error) = str::from_utf8(bytes) else { return true };
        let begun = &bytes[error.valid_up_to()..];
        let Some(room) = self.begun.get_mut(..begun.len()) else { return false };
        if error.error_len().is_some() {
            return false;
        }
        room.copy_from_slice(begun);
        self.length = begun.len();
        true
    }

    /// Returns whether the text does not end within a character.
    const fn is_whole(&self) -> bool {
        self.length == 0
    }
}
