//! The chunked transfer coding (RFC 9112, section 7.1).
//!
//! The decoder works in the buffer that was read into: it moves the data of small chunks
//! together, so that a sender of one-byte chunks costs its receiver one part of a body instead of
//! thousands. All bytes of a chunked body that are no data are bounded.

use super::{
    error::HeadError,
    field_set::FieldSet,
    fields::{FieldSpan, Fields, Lines, read_fields},
    head::HeadLimits,
};
use core::ops::Range;

/// The most digits of a chunk's size, zeros before it included. 16 hold any length.
pub const MAX_SIZE_DIGITS: u8 = 16;

/// The most bytes between a chunk's size and the end of its line: extensions and blanks.
pub const MAX_EXTENSION: u32 = 1024;

/// The most of these bytes in a whole body.
pub const MAX_EXTENSIONS: u32 = 16 * 1024;

/// The end of a chunked body without trailers.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// The reason why a chunked body is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// RFC 9112, 7.1: hexadecimal digits, and what may stand behind them.
    #[error("a chunk's size is malformed")]
    Size,
    /// See [`MAX_SIZE_DIGITS`].
    #[error("a chunk's size has too many digits")]
    TooManyDigits,
    /// RFC 9112, 7.1.1: it has control characters.
    #[error("a chunk's extension is malformed")]
    Extension,
    /// See [`MAX_EXTENSION`] and [`MAX_EXTENSIONS`].
    #[error("the chunks' extensions are too long")]
    ExtensionTooLong,
    /// RFC 9112, 7.1: CRLF ends the line of a size, and a chunk's data.
    #[error("a chunk does not end with CRLF")]
    LineEnd,
    /// RFC 9112, 7.1.2.
    #[error("the trailers are malformed: {0}")]
    Trailers(HeadError),
}

/// The result of a call of [`ChunkedDecoder::decode`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// Where the body's data is in the buffer.
    pub data: Range<usize>,
    /// The bytes of the buffer that were read. If the body has not ended, that is all.
    pub consumed: usize,
    /// True if the body has ended, trailers included.
    pub is_end: bool,
}

/// The meaning of the next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// To a chunk's size, of which there may be digits.
    Size,
    /// Behind the size, to blanks.
    Blanks,
    /// To an extension.
    Extension,
    /// The LF of the size's line.
    SizeLf,
    Data,
    DataCr,
    DataLf,
    /// To the trailers, or the line that ends them.
    Trailers,
    End,
}

/// Decodes one chunked body, in as many parts as it comes.
#[derive(Clone, Debug)]
pub struct ChunkedDecoder {
    state: State,
    /// The size of the chunk as far as it was read; of its data, what is left.
    left: u64,
    digits: u8,
    extension: u32,
    extensions: u32,
    limits: HeadLimits,
    /// There once one has come: they are rare, and the decoder is moved.
    trailers: Option<Box<Trailers>>,
}

/// The trailers of a body.
#[derive(Clone, Debug, Default)]
pub struct Trailers {
    /// Their lines, and the empty line that ends them.
    lines: Vec<u8>,
    /// Where the last line begins.
    line: usize,
    spans: Vec<FieldSpan>,
    set: FieldSet,
}

static NO_TRAILERS: Trailers =
    Trailers { lines: Vec::new(), line: 0, spans: Vec::new(), set: FieldSet::NONE };

impl Trailers {
    /// Returns the fields.
    pub fn fields(&self) -> Fields<'_> {
        let came = Lines { buffer: &self.lines, spans: &self.spans };
        Fields::Http1 { came, added: Lines::NONE, set: self.set }
    }
}

impl ChunkedDecoder {
    /// Returns a decoder that accepts trailers within `limits`.
    pub fn new(limits: HeadLimits) -> Self {
        Self {
            state: State::Size,
            left: 0,
            digits: 0,
            extension: 0,
            extensions: 0,
            limits,
            trailers: None,
        }
    }

    /// Returns whether the body has ended.
    pub fn is_end(&self) -> bool {
        self.state == State::End
    }

    /// Returns the trailers, once the body has ended.
    pub fn trailers(&self) -> &Trailers {
        self.trailers.as_deref().unwrap_or(&NO_TRAILERS)
    }

    /// Reads `buffer`, which is what comes next, up to the end of the body. Data of later chunks
    /// in it is moved to the first one's, so that there is one range of it.
    ///
    /// # Errors
    ///
    /// The bytes are no chunked body, or exceed a bound.
    pub fn decode(&mut self, buffer: &mut [u8]) -> Result<Decoded, ChunkError> {
        let mut data = 0..0;
        let mut at = 0;

        while at < buffer.len() {
            let rest = &buffer[at..];
            at += match self.state {
                State::Size if self.digits == 0 => match small_chunks(buffer, &mut data, at) {
                    0 => self.read_size(&buffer[at..])?,
                    length => length,
                },
                State::Size | State::Blanks | State::Extension | State::SizeLf => {
                    self.step(rest[0])?
                }
                State::Data => {
                    let length = self.take(rest.len());
                    append(buffer, &mut data, at..at + length);
                    length
                }
                State::DataCr if rest.starts_with(b"\r\n") => {
                    self.state = State::Size;
                    2
                }
                State::DataCr | State::DataLf => self.step(rest[0])?,
                State::Trailers => self.read_trailers(rest)?,
                State::End => break,
            };
        }

        Ok(Decoded { data, consumed: at, is_end: self.is_end() })
    }

    /// Reads the line of a size at once if it is short, whole and without extensions, else its
    /// first byte. Returns how many bytes were read.
    fn read_size(&mut self, bytes: &[u8]) -> Result<usize, ChunkError> {
        let mut size = 0;
        for (at, byte) in bytes.iter().take(8).enumerate() {
            if let Some(digit) = hex_digit(*byte) {
                size = size << 4 | u64::from(digit);
            } else if at > 0 && bytes[at..].starts_with(b"\r\n") {
                self.left = size;
                self.state = self.begin();
                return Ok(at + 2);
            } else {
                break;
            }
        }
        self.step(bytes[0])
    }

    /// Takes up to `available` bytes of the chunk's data.
    fn take(&mut self, available: usize) -> usize {
        let length = usize::try_from(self.left).map_or(available, |left| left.min(available));
        self.left -= length as u64;
        if self.left == 0 {
            self.state = State::DataCr;
        }
        length
    }

    /// Reads one byte that is neither data nor a trailer. Returns how many were read.
    fn step(&mut self, byte: u8) -> Result<usize, ChunkError> {
        self.state = match (self.state, byte) {
            (State::Size, b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => self.add_digit(byte)?,
            (State::Size, _) if self.digits == 0 => return Err(ChunkError::Size),
            (State::Size | State::Blanks, b' ' | b'\t') => self.extend(State::Blanks)?,
            (State::Size | State::Blanks, b';')
            | (State::Extension, b'\t' | b' '..=b'~' | 0x80..) => self.extend(State::Extension)?,
            (State::Size | State::Blanks | State::Extension, b'\r') => State::SizeLf,
            (State::Size | State::Blanks | State::Extension, b'\n') => {
                return Err(ChunkError::LineEnd);
            }
            (State::Size | State::Blanks, _) => return Err(ChunkError::Size),
            (State::Extension, _) => return Err(ChunkError::Extension),
            (State::SizeLf, b'\n') => self.begin(),
            (State::DataCr, b'\r') => State::DataLf,
            (State::DataLf, b'\n') => State::Size,
            (State::SizeLf | State::DataCr | State::DataLf, _) => return Err(ChunkError::LineEnd),
            (state @ (State::Data | State::Trailers | State::End), _) => state,
        };
        Ok(1)
    }

    fn add_digit(&mut self, byte: u8) -> Result<State, ChunkError> {
        if self.digits == MAX_SIZE_DIGITS {
            return Err(ChunkError::TooManyDigits);
        }
        self.digits += 1;
        self.left = self.left << 4 | u64::from(hex_digit(byte).unwrap_or_default());
        Ok(State::Size)
    }

    /// Counts a byte between the size and the end of its line.
    fn extend(&mut self, state: State) -> Result<State, ChunkError> {
        self.extension += 1;
        self.extensions += 1;
        if self.extension > MAX_EXTENSION || self.extensions > MAX_EXTENSIONS {
            return Err(ChunkError::ExtensionTooLong);
        }
        Ok(state)
    }

    /// Ends the line of a size.
    fn begin(&mut self) -> State {
        self.digits = 0;
        self.extension = 0;
        if self.left == 0 { State::Trailers } else { State::Data }
    }

    /// Reads trailers up to their end. Returns how many of `bytes` belong to them.
    fn read_trailers(&mut self, bytes: &[u8]) -> Result<usize, ChunkError> {
        if self.trailers.is_none() && bytes.starts_with(b"\r\n") {
            self.state = State::End;
            return Ok(2);
        }

        let Trailers { lines, line, spans, set } = &mut **self.trailers.get_or_insert_default();
        for (at, byte) in bytes.iter().enumerate() {
            let is_after_cr = lines.last() == Some(&b'\r');
            if is_after_cr != (*byte == b'\n') {
                return Err(ChunkError::Trailers(HeadError::LineEnd));
            }
            lines.push(*byte);

            if *byte == b'\n' && lines.len() - *line == 2 {
                // Without trailers there is nothing to read.
                if *line > 0 {
                    let read = read_fields(lines, self.limits.fields, spans);
                    *set = read.map_err(ChunkError::Trailers)?;
                }
                self.state = State::End;
                return Ok(at + 1);
            }

            if lines.len() >= self.limits.bytes {
                return Err(ChunkError::Trailers(HeadError::TooLarge));
            }
            if *byte == b'\n' {
                *line = lines.len();
            }
        }
        Ok(bytes.len())
    }
}

/// Four chunks of one byte each, and which of these bytes are not data.
const FOUR_CHUNKS: &[u8; 24] = b"1\r\n\0\r\n1\r\n\0\r\n1\r\n\0\r\n1\r\n\0\r\n";
const LINES: &[u8; 24] =
    b"\xff\xff\xff\0\xff\xff\xff\xff\xff\0\xff\xff\xff\xff\xff\0\xff\xff\xff\xff\xff\0\xff\xff";

/// Appends to `data` what whole chunks from `start` on have, as long as they have no more than 15
/// bytes and no extension. Returns how many bytes were read.
fn small_chunks(buffer: &mut [u8], data: &mut Range<usize>, start: usize) -> usize {
    let mut at = start;
    // The worst that a sender can do, byte for byte.
    while let Some(bytes) = buffer.get(at..).and_then(<[u8]>::first_chunk).and_then(four_chunks) {
        if data.start == data.end {
            *data = at + 3..at + 3;
        }
        // All of them are before what is read next.
        buffer[data.end..data.end + 4].copy_from_slice(&bytes);
        data.end += 4;
        at += FOUR_CHUNKS.len();
    }

    while let Some([digit, b'\r', b'\n', rest @ ..]) = buffer.get(at..) {
        let size = hex_digit(*digit).map_or(0, usize::from);
        if size == 0 || rest.get(size..size + 2) != Some(b"\r\n") {
            break;
        }
        append(buffer, data, at + 3..at + 3 + size);
        at += size + 5;
    }
    at - start
}

/// Returns the bytes of four chunks of one byte each, if that is what stands here. Compares eight
/// bytes at a time.
fn four_chunks(next: &[u8; 24]) -> Option<[u8; 4]> {
    let [came, expected, lines] = [next, FOUR_CHUNKS, LINES].map(|bytes| bytes.as_chunks().0);
    let word = |bytes: &[u8; 8]| u64::from_ne_bytes(*bytes);
    let is_different = |((came, expected), lines)| (word(came) ^ word(expected)) & word(lines) != 0;
    if came.iter().zip(expected).zip(lines).any(is_different) {
        return None;
    }
    Some([next[3], next[9], next[15], next[21]])
}

/// Moves what is at `part` of `buffer` to the end of `data`, which is before it.
fn append(buffer: &mut [u8], data: &mut Range<usize>, part: Range<usize>) {
    if data.start == data.end {
        *data = part;
        return;
    }
    let end = data.end + part.len();
    buffer.copy_within(part, data.end);
    data.end = end;
}

fn hex_digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// The line before a chunk's data. CRLF follows the data.
#[derive(Clone, Copy, Debug)]
pub struct ChunkSize {
    line: [u8; 18],
    start: u8,
}

impl ChunkSize {
    /// Returns the line for `length` bytes, which are not 0: that would end the body.
    pub fn new(length: usize) -> Self {
        let mut line = *b"................\r\n";
        let mut start = line.len() - 2;
        let mut rest = length;
        while rest > 0 || start == line.len() - 2 {
            start -= 1;
            line[start] = b"0123456789abcdef"[rest & 15];
            rest >>= 4;
        }
        Self { line, start: u8::try_from(start).unwrap_or_default() }
    }

    /// Returns the bytes to write.
    pub fn as_bytes(&self) -> &[u8] {
        self.line.get(usize::from(self.start)..).unwrap_or_default()
    }
}

/// Appends `data` to `out` as one chunk; nothing if it is empty, as that would end the body.
pub fn encode(data: &[u8], out: &mut Vec<u8>) {
    if data.is_empty() {
        return;
    }
    out.extend_from_slice(ChunkSize::new(data.len()).as_bytes());
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}
