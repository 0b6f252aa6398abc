//! The documents of a body: one, one for each line, or one for each event of `text/event-stream`.
//!
//! Events are read as the HTML standard says (9.2.6): lines end with LF, CR or CRLF, the `data:` lines
//! of an event are joined by LF, and everything else is skipped. One difference: the last event counts
//! without the empty line behind it, if its document is complete.

use super::{
    document::Document,
    queries::{Numbers, Queries},
};
use memchr::{memchr, memchr2};

/// The name of the field that has an event's data.
const DATA: &[u8] = b"data";

/// The data of the event that ends the streams of `OpenAI` and others.
const DONE: &[u8] = b"[DONE]";

/// A mark that may stand before everything else.
const BYTE_ORDER_MARK: &[u8] = &[0xEF, 0xBB, 0xBF];

/// The form of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One document, or several with white space between them.
    Json,
    /// A document in each line.
    Lines,
    /// Events of `text/event-stream`, whose data is a document.
    Events,
}

/// The documents of a body, as far as it has come.
#[derive(Debug)]
pub(super) struct Framing {
    format: Format,
    document: Document,
    /// The numbers of this document, and those of the ones that are complete.
    numbers: [Numbers; 2],
    /// Events or lines that have begun.
    events: u64,
    /// Documents that another one followed in the body.
    followed: u64,
    line: Line,
    /// True if a line feed would belong to the carriage return before it.
    is_after_return: bool,
    /// True if this line or event has data.
    has_data: bool,
    /// Bytes of this event's data that are those of [`DONE`]; `None` if one is not.
    done: Option<usize>,
    /// True once the event that ends the stream has come, or the end of JSON whose last document is
    /// complete.
    is_done: bool,
    /// Bytes of the [`BYTE_ORDER_MARK`] that have come, or its length if none can come.
    marked: usize,
}

/// The part of a line of `text/event-stream` that is read next.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// Its field's name, of which so many bytes are those of [`DATA`].
    Name(usize),
    /// The space that may stand before the data.
    Space,
    Data,
    /// A line that has no data.
    Skipped,
}

impl Framing {
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            document: Document::new(),
            numbers: [Numbers::default(), Numbers::default()],
            events: 0,
            followed: 0,
            line: Line::Name(0),
            is_after_return: false,
            has_data: false,
            done: None,
            is_done: false,
            marked: 0,
        }
    }

    pub(super) const fn format(&self) -> Format {
        self.format
    }

    /// Returns the number of events, lines, documents, or objects in an array that have begun. A single
    /// document is none.
    pub(super) const fn events(&self) -> u64 {
        match self.format {
            Format::Json if self.followed > 0 => self.followed + 1,
            Format::Json => self.document.elements(),
            Format::Lines | Format::Events => self.events,
        }
    }

    /// True if nothing that may follow can have a number.
    pub(super) fn is_useless(&self) -> bool {
        self.format == Format::Json && self.document.is_malformed()
    }

    /// Reads the next bytes.
    pub(super) fn push(&mut self, bytes: &[u8], queries: &Queries) {
        let bytes = self.after_mark(bytes);
        match self.format {
            Format::Json => self.push_json(bytes, queries),
            Format::Lines => self.push_lines(bytes, queries),
            Format::Events => self.push_events(bytes, queries),
        }
    }

    /// Ends the body.
    pub(super) fn finish(&mut self) {
        match self.format {
            Format::Json if self.document.is_malformed() => self.numbers[1].clear(),
            Format::Json => {
                self.is_done |= self.document.is_done();
                self.end_document();
            }
            Format::Lines => self.end_document(),
            Format::Events => self.end_event(),
        }
    }

    /// Returns the numbers of the documents that are complete.
    pub(super) const fn numbers(&self) -> &Numbers {
        &self.numbers[1]
    }

    /// True if nothing that follows changes the sum of the query `number`.
    pub(super) fn is_final(&self, number: usize) -> bool {
        self.is_done || self.numbers().has_ended(number)
    }

    /// Returns `bytes` without a mark at the beginning of the body.
    fn after_mark<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let mut rest = bytes;
        while let Some(expected) = BYTE_ORDER_MARK.get(self.marked) {
            let Some((first, after)) = rest.split_first() else { break };
            if first != expected {
                self.marked = BYTE_ORDER_MARK.len();
                break;
            }
            self.marked += 1;
            rest = after;
        }
        rest
    }

    fn push_json(&mut self, bytes: &[u8], queries: &Queries) {
        let mut rest = bytes;
        loop {
            let read = self.document.push(rest, queries, &mut self.numbers[0]);
            rest = &rest[read..];
            if rest.is_empty() {
                return;
            }
            self.end_document();
            self.followed += 1;
        }
    }

    fn push_lines(&mut self, bytes: &[u8], queries: &Queries) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let end = memchr(b'\n', rest);
            self.push_data(&rest[..end.unwrap_or(rest.len())], queries);
            if !self.has_data && self.document.has_begun() {
                self.has_data = true;
                self.events += 1;
            }

            let Some(end) = end else { return };
            self.end_document();
            self.has_data = false;
            rest = &rest[end + 1..];
        }
    }

    fn push_events(&mut self, bytes: &[u8], queries: &Queries) {
        let mut at = 0;
        while let Some(byte) = bytes.get(at) {
            match self.line {
                Line::Name(known) => {
                    self.name(*byte, known, queries);
                    at += 1;
                }
                Line::Space => {
                    at += usize::from(*byte == b' ');
                    self.line = Line::Data;
                }
                Line::Data | Line::Skipped => {
                    let rest = &bytes[at..];
                    let end = memchr2(b'\n', b'\r', rest);
                    let length = end.unwrap_or(rest.len());
                    if matches!(self.line, Line::Data) {
                        self.push_event_data(&rest[..length], queries);
                    }
                    if let Some(ending) = rest.get(length) {
                        self.end_line(*ending);
                    }
                    at += length + usize::from(end.is_some());
                }
            }
        }
    }

    /// Reads a byte of a field's name, of which `known` bytes are those of [`DATA`].
    fn name(&mut self, byte: u8, known: usize, queries: &Queries) {
        let is_rest_of_ending = byte == b'\n' && self.is_after_return;
        self.is_after_return = false;
        match byte {
            b'\n' if is_rest_of_ending => {}
            b'\n' | b'\r' => {
                if known == 0 {
                    self.end_event();
                } else if known == DATA.len() {
                    self.begin_data(queries);
                }
                self.end_line(byte);
            }
            b':' if known == DATA.len() => {
                self.begin_data(queries);
                self.line = Line::Space;
            }
            _ if DATA.get(known) == Some(&byte) => self.line = Line::Name(known + 1),
            _ => self.line = Line::Skipped,
        }
    }

    const fn end_line(&mut self, ending: u8) {
        self.line = Line::Name(0);
        self.is_after_return = ending == b'\r';
    }

    /// Begins an event's data, or its next line.
    fn begin_data(&mut self, queries: &Queries) {
        if self.has_data {
            self.push_event_data(b"\n", queries);
        } else {
            self.has_data = true;
            self.events += 1;
            self.done = Some(0);
        }
    }

    fn push_event_data(&mut self, data: &[u8], queries: &Queries) {
        self.done = self.done.and_then(|known| {
            let is_next = DONE.get(known..).is_some_and(|rest| rest.starts_with(data));
            is_next.then_some(known + data.len())
        });
        self.push_data(data, queries);
    }

    fn push_data(&mut self, data: &[u8], queries: &Queries) {
        let read = self.document.push(data, queries, &mut self.numbers[0]);
        if read < data.len() {
            self.document.fail();
        }
    }

    fn end_event(&mut self) {
        if !self.has_data {
            return;
        }
        self.is_done |= self.done == Some(DONE.len());
        self.end_document();
        self.has_data = false;
    }

    /// Counts the numbers of this document, if it is complete, and begins the next one.
    fn end_document(&mut self) {
        let [new, complete] = &mut self.numbers;
        if self.document.is_done() && !new.is_empty() {
            complete.take(new);
        } else {
            new.clear();
        }
        self.document.restart();
    }
}
