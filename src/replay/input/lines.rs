//! The lines of an input, gzip or not, without the prefixes of other programs.

use super::prefix::{Unwrapped, Unwrapper};
use flate2::bufread::MultiGzDecoder;
use std::{
    cell::Cell,
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Read},
    mem,
    path::Path,
    rc::Rc,
};

/// The longest line in bytes; longer ones are skipped.
pub(super) const LONGEST: u64 = 1024 * 1024;

/// The bytes of the first line that are kept.
const FIRST: usize = 400;

/// The name of standard input.
pub(in crate::replay) const STDIN: &str = "-";

/// The byte order mark of UTF-8 (RFC 3629, 6).
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The magic bytes of gzip (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Counts the bytes read from disk of all inputs.
#[derive(Clone, Debug, Default)]
pub(super) struct Meter(Rc<Cell<u64>>);

pub(super) struct Lines {
    reader: Box<dyn BufRead>,
    unwrapper: Unwrapper,
    /// The number of lines read from the input.
    read: u64,
    /// The beginning of the first line that is not blank, with its prefixes.
    first: Vec<u8>,
    /// Lines read for the detection of the format.
    ahead: VecDeque<Ahead>,
    /// The number of the current line, from 1.
    pub(super) number: u64,
    current: Vec<u8>,
}

/// A line that is read before it is taken.
struct Ahead {
    number: u64,
    text: Vec<u8>,
    is_too_long: bool,
}

/// The result of reading a line.
pub(super) enum Line {
    Here,
    TooLong,
    End,
}

impl Meter {
    pub(super) fn bytes(&self) -> u64 {
        self.0.get()
    }
}

struct Metered<R> {
    inner: R,
    meter: Meter,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.meter.0.set(self.meter.0.get() + read as u64);
        Ok(read)
    }
}

impl Lines {
    /// Opens the file at `path`, or standard input for `-`.
    pub(super) fn open(path: &Path, meter: &Meter) -> io::Result<Self> {
        let input: Box<dyn Read> = if path.as_os_str() == STDIN {
            Box::new(io::stdin())
        } else {
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
            }
            Box::new(file)
        };
        Self::of(Metered { inner: input, meter: meter.clone() })
    }

    /// Reads `input`, decompressed if it is gzip.
    pub(super) fn of(input: impl Read + 'static) -> io::Result<Self> {
        const BUFFER: usize = 256 * 1024;
        let mut input = BufReader::with_capacity(BUFFER, input);
        // A pipe may deliver its first bytes one by one.
        let mut head = Vec::with_capacity(GZIP.len());
        input.by_ref().take(GZIP.len() as u64).read_to_end(&mut head)?;

        let is_gzip = head == GZIP;
        let whole = io::Cursor::new(head).chain(input);
        let reader: Box<dyn BufRead> = if is_gzip {
            Box::new(BufReader::with_capacity(BUFFER, MultiGzDecoder::new(whole)))
        } else {
            Box::new(whole)
        };
        Ok(Self {
            reader,
            unwrapper: Unwrapper::default(),
            read: 0,
            first: Vec::new(),
            ahead: VecDeque::new(),
            number: 0,
            current: Vec::new(),
        })
    }

    /// Returns the next line without taking it, on each call the following one; of a line that is too
    /// long, its beginning.
    pub(super) fn look(&mut self) -> io::Result<Option<&[u8]>> {
        let mut text = Vec::new();
        let read = self.read(&mut text)?;
        if matches!(read, Line::End) {
            return Ok(None);
        }
        let is_too_long = matches!(read, Line::TooLong);
        self.ahead.push_back(Ahead { number: self.read, text, is_too_long });
        Ok(self.ahead.back().map(|line| line.text.as_slice()))
    }

    /// Returns the beginning of the first line that is not blank, as the input has it.
    pub(super) fn first(&self) -> &[u8] {
        &self.first
    }

    /// Returns whether a line read ahead is too long.
    pub(super) fn is_long_ahead(&self) -> bool {
        self.ahead.iter().any(|line| line.is_too_long)
    }

    /// Takes the next line, for [`Self::text`].
    pub(super) fn advance(&mut self) -> io::Result<Line> {
        if let Some(Ahead { number, text, is_too_long }) = self.ahead.pop_front() {
            self.number = number;
            self.current = text;
            return Ok(if is_too_long { Line::TooLong } else { Line::Here });
        }
        let mut line = mem::take(&mut self.current);
        let read = self.read(&mut line);
        self.number = self.read;
        self.current = line;
        read
    }

    /// Reads a line without its prefixes, the first one without its byte order mark.
    fn read(&mut self, line: &mut Vec<u8>) -> io::Result<Line> {
        loop {
            line.clear();
            let read = read(&mut *self.reader, line);
            if !matches!(read, Ok(Line::End)) {
                self.read += 1;
            }

            match read? {
                Line::Here => {}
                Line::TooLong => return Ok(Line::TooLong),
                Line::End => {
                    let unfinished = self.unwrapper.unfinished();
                    return Ok(unfinished.map_or(Line::End, |text| {
                        *line = text;
                        Line::Here
                    }));
                }
            }

            if self.read == 1 && line.starts_with(MARK) {
                line.drain(..MARK.len());
            }
            let end = without_end(line).len();
            line.truncate(end);
            if self.first.is_empty() {
                self.first.extend_from_slice(&line[..line.trim_ascii_end().len().min(FIRST)]);
            }

            match self.unwrapper.unwrap(mem::take(line)) {
                Unwrapped::Part => {}
                Unwrapped::TooLong => return Ok(Line::TooLong),
                Unwrapped::Line(text) => {
                    *line = text;
                    return Ok(Line::Here);
                }
            }
        }
    }

    /// Returns the current line without its end.
    pub(super) fn text(&self) -> &[u8] {
        without_end(&self.current)
    }
}

fn without_end(line: &[u8]) -> &[u8] {
    let text = line.strip_suffix(b"\n").unwrap_or(line);
    text.strip_suffix(b"\r").unwrap_or(text)
}

fn read(reader: &mut dyn BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
    if reader.take(LONGEST + 1).read_until(b'\n', line)? == 0 {
        return Ok(Line::End);
    }
    if line.len() as u64 <= LONGEST {
        return Ok(Line::Here);
    }
    let mut ended = line.ends_with(b"\n");
    while !ended {
        let some = reader.fill_buf()?;
        if some.is_empty() {
            break;
        }
        let end = some.iter().position(|byte| *byte == b'\n');
        ended = end.is_some();
        let length = end.map_or(some.len(), |at| at + 1);
        reader.consume(length);
    }
    Ok(Line::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    fn gzip(text: &[u8]) -> Vec<u8> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text).unwrap();
        packed.finish().unwrap()
    }

    fn all(bytes: Vec<u8>) -> Vec<String> {
        let mut lines = Lines::of(io::Cursor::new(bytes)).unwrap();
        let mut seen = Vec::new();
        loop {
            match lines.advance().unwrap() {
                Line::End => return seen,
                Line::TooLong => seen.push("too long".to_owned()),
                Line::Here => seen.push(String::from_utf8_lossy(lines.text()).into_owned()),
            }
        }
    }

    #[test]
    fn lines_are_the_same_in_gzip_and_out_of_it() {
        let text = b"a\nb\r\n\nc".to_vec();
        assert_eq!(all(text.clone()), ["a", "b", "", "c"]);
        assert_eq!(all(gzip(&text)), ["a", "b", "", "c"]);
        // As `cat a.gz b.gz` makes them.
        assert_eq!(all([gzip(b"a\n"), gzip(b"b\n")].concat()), ["a", "b"]);
        assert_eq!(all(Vec::new()), [""; 0]);
        assert_eq!(all(b"x".to_vec()), ["x"]);
    }

    #[test]
    fn a_mark_of_utf_8_is_no_part_of_the_first_line() {
        let text = b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n".to_vec();
        assert_eq!(all(text.clone()), ["a", "\u{feff}b"]);
        assert_eq!(all(gzip(&text)), ["a", "\u{feff}b"]);
        let mut lines = Lines::of(io::Cursor::new(text)).unwrap();
        assert_eq!(lines.look().unwrap(), Some(&b"a"[..]));
    }

    #[test]
    fn a_line_without_end_costs_no_memory() {
        let mut text = vec![b'x'; 3 * 1024 * 1024];
        text.extend_from_slice(b"\nnext\n");
        assert_eq!(all(text), ["too long", "next"]);
    }

    #[test]
    fn what_was_looked_at_is_still_there() {
        let mut lines = Lines::of(io::Cursor::new(b"a\nb\nc\n")).unwrap();
        assert_eq!(lines.look().unwrap(), Some(&b"a"[..]));
        assert_eq!(lines.look().unwrap(), Some(&b"b"[..]));
        for expected in ["a", "b", "c"] {
            assert!(matches!(lines.advance().unwrap(), Line::Here));
            assert_eq!(lines.text(), expected.as_bytes());
        }
        assert_eq!(lines.number, 3);
        assert!(matches!(lines.advance().unwrap(), Line::End));
    }
}
