//! A tokenizer of JSON (RFC 8259) that takes a document in pieces, and notes the numbers at the places
//! of [`Queries`].
//!
//! It accepts what the RFC accepts, but for three differences: strings may have any bytes from 0x20
//! (their UTF-8 is not checked), containers are nested at most [`MAX_DEPTH`] deep, and of members with
//! equal names all count, in their order. Arrays are transparent: `a.b` leads to the numbers `b` of
//! all objects in the array `a`. Names are compared as written, with their escapes.

use super::{
    number::Number,
    queries::{Bits, MAX_NAME, NOWHERE, Numbers, Queries, ROOT},
};

/// The deepest nesting of containers: serde's bound too, and more than any API has.
pub(super) const MAX_DEPTH: usize = 128;

/// The part of a document that is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A value.
    Value,
    /// A value, or the end of an array that is empty.
    FirstElement,
    /// A member's name, or the end of an object that is empty.
    FirstName,
    /// The next member's name.
    NextName,
    /// The colon behind a name.
    Colon,
    /// A comma, or the end of a container.
    Comma,
    /// A string, after its quote.
    Text,
    /// The letter after a backslash.
    Escape,
    /// So many digits of a `\u`.
    Hex(u8),
    /// A number.
    Number(Part),
    /// The rest of `true`, `false` or `null`.
    Literal(&'static [u8]),
    /// The document is a number or a literal, which is complete if it does not go on.
    Bare,
    /// The document is complete.
    Done,
    /// It is no JSON.
    Malformed,
}

/// The last character of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Start,
    Minus,
    Zero,
    Integer,
    Point,
    Fraction,
    E,
    Sign,
    Exponent,
}

/// One document, as far as it has come.
#[derive(Debug)]
pub(super) struct Document {
    state: State,
    /// The place of each open container: that of its members or elements.
    places: [u16; MAX_DEPTH],
    depth: usize,
    /// One bit for each open container, the lowest for the outermost: 1 for an object.
    objects: u128,
    /// The place of the value that is read, or comes next.
    place: u16,
    /// True if the string that is read is a member's name.
    is_name: bool,
    /// The part of the name in former pieces, at a place whose names matter.
    name: [u8; MAX_NAME],
    /// The length of `name`. One that is larger than the array is too long for any path.
    name_length: usize,
    /// The number that is read, at a place that counts.
    number: Number,
    /// The slots that the number is for.
    slots: Bits,
    /// Objects that began in an array that is the whole document.
    elements: u64,
}

impl Document {
    pub(super) const fn new() -> Self {
        Self {
            state: State::Value,
            places: [NOWHERE; MAX_DEPTH],
            depth: 0,
            objects: 0,
            place: ROOT,
            is_name: false,
            name: [0; MAX_NAME],
            name_length: 0,
            number: EMPTY,
            slots: 0,
            elements: 0,
        }
    }

    /// Begins the next document.
    pub(super) const fn restart(&mut self) {
        self.state = State::Value;
        self.depth = 0;
        self.objects = 0;
        self.place = ROOT;
    }

    /// True if a character other than white space has come.
    pub(super) fn has_begun(&self) -> bool {
        self.depth > 0 || self.state != State::Value
    }

    pub(super) fn is_done(&self) -> bool {
        matches!(self.state, State::Bare | State::Done)
    }

    pub(super) fn is_malformed(&self) -> bool {
        self.state == State::Malformed
    }

    /// Takes the rest for no JSON.
    pub(super) const fn fail(&mut self) {
        self.state = State::Malformed;
    }

    /// Returns the number of objects that began in an array that is the whole document.
    pub(super) const fn elements(&self) -> u64 {
        self.elements
    }

    /// Reads the next bytes, up to the first one behind the document that is no white space. Returns
    /// how many were read: all of them, if the document is malformed.
    pub(super) fn push(&mut self, bytes: &[u8], queries: &Queries, numbers: &mut Numbers) -> usize {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match self.state {
                State::Text => at = self.text(bytes, at, queries),
                State::Number(part) => at = self.number(bytes, at, part, numbers),
                State::Malformed => return bytes.len(),
                State::Bare => self.state = after_bare(*byte),
                State::Done if !byte.is_ascii_whitespace() => return at,
                State::Escape | State::Hex(_) | State::Literal(_) => {
                    self.inside(*byte);
                    at += 1;
                }
                State::Value
                | State::FirstElement
                | State::FirstName
                | State::NextName
                | State::Colon
                | State::Comma
                | State::Done => at += self.structure(*byte, queries, numbers),
            }
        }
        at
    }

    /// Reads a byte between tokens. Returns 1, or 0 if it is the first one of a number.
    fn structure(&mut self, byte: u8, queries: &Queries, numbers: &mut Numbers) -> usize {
        let starts_value = matches!(self.state, State::Value | State::FirstElement);
        let starts_name = matches!(self.state, State::FirstName | State::NextName);
        match byte {
            b' ' | b'\t' | b'\n' | b'\r' => {}
            b'"' if starts_name => self.begin_text(true),
            b':' if self.state == State::Colon => self.state = State::Value,
            b',' if self.state == State::Comma => self.next(),
            b'"' if starts_value => {
                self.end_queries(queries, numbers);
                self.begin_text(false);
            }
            b'{' if starts_value => self.open(true),
            b'[' if starts_value => self.open(false),
            b'}' if matches!(self.state, State::FirstName | State::Comma) => self.close(true),
            b']' if matches!(self.state, State::FirstElement | State::Comma) => self.close(false),
            b'-' | b'0'..=b'9' if starts_value => {
                self.slots = queries.slots(self.place);
                if self.slots != 0 {
                    self.number = EMPTY;
                }
                self.end_queries(queries, numbers);
                self.state = State::Number(Part::Start);
                return 0;
            }
            b't' if starts_value => {
                self.end_queries(queries, numbers);
                self.state = State::Literal(b"rue");
            }
            b'f' if starts_value => self.state = State::Literal(b"alse"),
            b'n' if starts_value => self.state = State::Literal(b"ull"),
            _ => self.fail(),
        }
        1
    }

    /// Notes the queries that a string, a number or `true` at this place ends.
    fn end_queries(&self, queries: &Queries, numbers: &mut Numbers) {
        let ends = queries.ends(self.place);
        if ends != 0 {
            numbers.end(ends);
        }
    }

    fn open(&mut self, is_object: bool) {
        let Some(place) = self.places.get_mut(self.depth) else {
            self.fail();
            return;
        };
        *place = self.place;

        let is_element = self.depth == 1 && self.objects & 1 == 0;
        self.elements += u64::from(is_element && is_object);
        let bit = 1_u128 << self.depth;
        self.objects = if is_object { self.objects | bit } else { self.objects & !bit };
        self.depth += 1;
        self.state = if is_object { State::FirstName } else { State::FirstElement };
    }

    fn close(&mut self, is_object: bool) {
        if self.depth == 0 || self.is_in_object() != is_object {
            self.fail();
            return;
        }
        self.depth -= 1;
        self.end_value();
    }

    const fn is_in_object(&self) -> bool {
        self.depth > 0 && self.objects >> (self.depth - 1) & 1 == 1
    }

    const fn end_value(&mut self) {
        self.state = if self.depth == 0 { State::Done } else { State::Comma };
    }

    /// Ends a number or a literal, which has no last character of its own.
    const fn end_bare(&mut self) {
        self.state = if self.depth == 0 { State::Bare } else { State::Comma };
    }

    /// Goes to the next member or element, after a comma.
    fn next(&mut self) {
        if self.is_in_object() {
            self.state = State::NextName;
        } else {
            self.state = State::Value;
            self.place = self.container();
        }
    }

    /// Returns the place of the innermost open container.
    fn container(&self) -> u16 {
        let innermost = self.depth.checked_sub(1).and_then(|level| self.places.get(level));
        innermost.copied().unwrap_or(ROOT)
    }

    const fn begin_text(&mut self, is_name: bool) {
        self.state = State::Text;
        self.is_name = is_name;
        self.name_length = 0;
    }

    /// Reads a string from `at`, as far as it goes without an escape. Returns the index behind it.
    fn text(&mut self, bytes: &[u8], at: usize, queries: &Queries) -> usize {
        let rest = &bytes[at..];
        let length = plain_length(rest);
        let plain = &rest[..length];
        let matters = self.is_name && self.container() != NOWHERE;
        let Some(end) = rest.get(length) else {
            if matters {
                self.keep_name(plain);
            }
            return bytes.len();
        };

        match end {
            b'"' if self.is_name => {
                self.place = if matters { self.named(plain, queries) } else { NOWHERE };
                self.state = State::Colon;
            }
            b'"' => self.end_value(),
            b'\\' => {
                if matters {
                    self.keep_name(&rest[..=length]);
                }
                self.state = State::Escape;
            }
            _ => self.fail(),
        }
        at + length + 1
    }

    /// Returns the place of the member whose name ends with `last`.
    fn named(&mut self, last: &[u8], queries: &Queries) -> u16 {
        if self.name_length == 0 {
            return queries.child(self.container(), last);
        }
        self.keep_name(last);
        let name = self.name.get(..self.name_length);
        name.map_or(NOWHERE, |name| queries.child(self.container(), name))
    }

    /// Keeps a part of a name, which goes on in the next piece.
    fn keep_name(&mut self, part: &[u8]) {
        let end = self.name_length.saturating_add(part.len());
        if let Some(free) = self.name.get_mut(self.name_length..end) {
            free.copy_from_slice(part);
        }
        self.name_length = end;
    }

    /// Reads a byte of an escape or of a literal.
    fn inside(&mut self, byte: u8) {
        if self.is_name && matches!(self.state, State::Escape | State::Hex(_)) {
            self.keep_name(&[byte]);
        }
        self.state = match self.state {
            State::Escape => match byte {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => State::Text,
                b'u' => State::Hex(4),
                _ => State::Malformed,
            },
            State::Hex(left) if byte.is_ascii_hexdigit() => {
                if left == 1 {
                    State::Text
                } else {
                    State::Hex(left - 1)
                }
            }
            State::Literal([expected, rest @ ..]) if byte == *expected => {
                if rest.is_empty() {
                    self.end_bare();
                    return;
                }
                State::Literal(rest)
            }
            State::Hex(_)
            | State::Literal(_)
            | State::Value
            | State::FirstElement
            | State::FirstName
            | State::NextName
            | State::Colon
            | State::Comma
            | State::Text
            | State::Number(_)
            | State::Bare
            | State::Done
            | State::Malformed => State::Malformed,
        };
    }

    /// Reads a number from `at`, as far as it goes. Returns the index of the byte behind it.
    fn number(&mut self, bytes: &[u8], at: usize, part: Part, numbers: &mut Numbers) -> usize {
        let mut at = at;
        let mut part = part;
        while let Some(byte) = bytes.get(at) {
            let Some(next) = part.next(*byte) else {
                if part.is_end() {
                    self.end_number(numbers);
                } else {
                    self.fail();
                }
                return at;
            };
            part = next;
            if self.slots != 0 {
                self.count(part, *byte);
                at += 1;
            } else if part.is_digits() {
                at += digits_length(&bytes[at..]);
            } else {
                at += 1;
            }
        }
        self.state = State::Number(part);
        at
    }

    fn end_number(&mut self, numbers: &mut Numbers) {
        if self.slots != 0
            && let Some(amount) = self.number.amount()
        {
            numbers.put(self.slots, amount);
        }
        self.end_bare();
    }

    /// Adds a character to the number that is read.
    fn count(&mut self, part: Part, byte: u8) {
        match part {
            Part::Minus => self.number.negate(),
            Part::Zero | Part::Integer => self.number.digit(byte, false),
            Part::Fraction => self.number.digit(byte, true),
            Part::Exponent => self.number.exponent_digit(byte),
            Part::Sign if byte == b'-' => self.number.negate_exponent(),
            Part::Start | Part::Point | Part::E | Part::Sign => {}
        }
    }
}

/// A number without digits.
const EMPTY: Number = Number::new();

impl Part {
    /// Returns the part that `byte` is, if it continues the number.
    const fn next(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::Start, b'-') => Some(Self::Minus),
            (Self::Start | Self::Minus, b'0') => Some(Self::Zero),
            (Self::Start | Self::Minus, b'1'..=b'9') | (Self::Integer, b'0'..=b'9') => {
                Some(Self::Integer)
            }
            (Self::Zero | Self::Integer, b'.') => Some(Self::Point),
            (Self::Point | Self::Fraction, b'0'..=b'9') => Some(Self::Fraction),
            (Self::Zero | Self::Integer | Self::Fraction, b'e' | b'E') => Some(Self::E),
            (Self::E, b'+' | b'-') => Some(Self::Sign),
            (Self::E | Self::Sign | Self::Exponent, b'0'..=b'9') => Some(Self::Exponent),
            _ => None,
        }
    }

    /// True if any number of digits may follow.
    const fn is_digits(self) -> bool {
        matches!(self, Self::Integer | Self::Fraction | Self::Exponent)
    }

    /// True if a number may end after it.
    const fn is_end(self) -> bool {
        matches!(self, Self::Zero | Self::Integer | Self::Fraction | Self::Exponent)
    }
}

/// Returns the state of a document that is a number or a literal, from the byte behind it.
const fn after_bare(byte: u8) -> State {
    match byte {
        b' ' | b'\t' | b'\n' | b'\r' | b'"' | b'[' | b']' | b'{' | b'}' | b',' | b':' => {
            State::Done
        }
        _ => State::Malformed,
    }
}

/// Returns the length of the part of a string before its quote, a backslash or a control character.
fn plain_length(bytes: &[u8]) -> usize {
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..0x20);
    length_before(bytes, special_bytes, is_special)
}

/// Returns the number of digits that `bytes` begins with.
fn digits_length(bytes: &[u8]) -> usize {
    length_before(bytes, other_bytes, |byte| !byte.is_ascii_digit())
}

/// Returns the length of `bytes` before the first one that `ends` finds; `find` marks the first of
/// eight at once.
fn length_before(bytes: &[u8], find: impl Fn(u64) -> u64, ends: impl Fn(&u8) -> bool) -> usize {
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        let found = find(u64::from_le_bytes(*word));
        if found != 0 {
            return index * 8 + found.trailing_zeros() as usize / 8;
        }
    }
    words.len() * 8 + rest.iter().position(ends).unwrap_or(rest.len())
}

/// Each byte is 1.
const ONES: u64 = u64::from_ne_bytes([1; 8]);

/// The highest bit of each byte.
const HIGH: u64 = ONES << 7;

/// Returns the highest bit of each byte that ends plain text. Bits above the lowest one may be wrong.
const fn special_bytes(word: u64) -> u64 {
    let quotes = word ^ (ONES * b'"' as u64);
    let slashes = word ^ (ONES * b'\\' as u64);
    let is_quote = quotes.wrapping_sub(ONES) & !quotes;
    let is_slash = slashes.wrapping_sub(ONES) & !slashes;
    let is_control = word.wrapping_sub(ONES * 0x20) & !word;
    (is_quote | is_slash | is_control) & HIGH
}

/// Returns the highest bit of each byte that is no digit. Bits above the lowest one may be wrong.
const fn other_bytes(word: u64) -> u64 {
    let is_above = word.wrapping_add(ONES * (0x7F - b'9') as u64);
    let is_below = word.wrapping_sub(ONES * b'0' as u64);
    (is_above | is_below | word) & HIGH
}
