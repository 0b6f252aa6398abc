//! Inflates a body in gzip (RFC 1952), piece by piece, within bounds.
//!
//! The checksums are not checked: what a client makes of a body with a wrong one is the client's.

use flate2::{Decompress, FlushDecompress, Status};

/// A body may inflate to this, and beyond it to [`MAX_RATIO`] times its length: a bomb ends there.
const FREE_BYTES: u64 = 128 * 1024 * 1024;

/// The most bytes for each byte of a body that inflates to more than [`FREE_BYTES`].
const MAX_RATIO: u64 = 128;

/// Bytes that are inflated at once, on the stack.
const CHUNK: usize = 8 * 1024;

/// The fixed part of a member's head.
const HEAD: usize = 10;

/// The checksum and the length behind a member's data.
const TAIL: usize = 8;

const HAS_CHECKSUM: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;

/// A body in gzip, as far as it has come.
#[derive(Debug)]
pub(super) struct Gzip {
    part: Part,
    /// The optional parts of this member's head that are still to come.
    flags: u8,
    inflater: Decompress,
    /// Bytes of the body, and what they inflated to.
    read: u64,
    inflated: u64,
    has_member: bool,
}

/// The part of a member that is read next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// So many bytes of the fixed head have come.
    Head(usize),
    /// The length of the extra field: its first byte, if that has come.
    ExtraLength(Option<u8>),
    /// So many bytes to skip.
    Extra(u16),
    /// A name or a comment, which ends with a zero.
    Text,
    /// So many bytes of the head's checksum to skip.
    Checksum(u8),
    Data,
    /// So many bytes behind the data to skip.
    Tail(usize),
    /// Bytes behind the last member, which count nothing.
    Ended,
    /// It is no gzip, or inflates to too much.
    Broken,
}

impl Gzip {
    pub(super) fn new() -> Self {
        Self {
            part: Part::Head(0),
            flags: 0,
            inflater: Decompress::new(false),
            read: 0,
            inflated: 0,
            has_member: false,
        }
    }

    pub(super) fn is_broken(&self) -> bool {
        self.part == Part::Broken
    }

    /// Stops, and takes the rest for no gzip.
    pub(super) const fn fail(&mut self) {
        self.part = Part::Broken;
    }

    /// Inflates the next bytes, and calls `sink` with each chunk.
    pub(super) fn push(&mut self, bytes: &[u8], mut sink: impl FnMut(&[u8])) {
        let mut rest = bytes;
        while let Some((first, after)) = rest.split_first() {
            match self.part {
                Part::Ended | Part::Broken => return,
                Part::Data => rest = self.inflate(rest, &mut sink),
                Part::Head(_)
                | Part::ExtraLength(_)
                | Part::Extra(_)
                | Part::Text
                | Part::Checksum(_)
                | Part::Tail(_) => {
                    self.read += 1;
                    self.outside(*first);
                    rest = after;
                }
            }
        }
    }

    /// Reads a byte of a head or a tail.
    fn outside(&mut self, byte: u8) {
        self.part = match self.part {
            Part::Head(at) => {
                let is_wrong = match at {
                    0 => byte != 0x1F,
                    1 => byte != 0x8B,
                    // The only method is deflate.
                    2 => byte != 8,
                    _ => false,
                };
                if at == 3 {
                    self.flags = byte;
                }
                match at + 1 {
                    _ if is_wrong && self.has_member => Part::Ended,
                    _ if is_wrong => Part::Broken,
                    HEAD => self.optional(),
                    next => Part::Head(next),
                }
            }
            Part::ExtraLength(None) => Part::ExtraLength(Some(byte)),
            Part::ExtraLength(Some(low)) => match u16::from_le_bytes([low, byte]) {
                0 => self.optional(),
                length => Part::Extra(length),
            },
            Part::Extra(1) | Part::Checksum(1) => self.optional(),
            Part::Extra(left) => Part::Extra(left - 1),
            Part::Checksum(left) => Part::Checksum(left - 1),
            Part::Text if byte == 0 => self.optional(),
            Part::Tail(1) => Part::Head(0),
            Part::Tail(left) => Part::Tail(left - 1),
            part @ (Part::Text | Part::Data | Part::Ended | Part::Broken) => part,
        };
    }

    /// Returns the next optional part of the head, in their order, or the data.
    fn optional(&mut self) -> Part {
        let parts = [
            (HAS_EXTRA, Part::ExtraLength(None)),
            (HAS_NAME, Part::Text),
            (HAS_COMMENT, Part::Text),
            (HAS_CHECKSUM, Part::Checksum(2)),
        ];
        let next = parts.into_iter().find(|(flag, _)| self.flags & flag != 0);
        next.map_or(Part::Data, |(flag, part)| {
            self.flags &= !flag;
            part
        })
    }

    /// Inflates data, and returns the bytes behind it.
    fn inflate<'a>(&mut self, bytes: &'a [u8], sink: &mut impl FnMut(&[u8])) -> &'a [u8] {
        let mut rest = bytes;
        let mut chunk = [0; CHUNK];
        loop {
            let before = (self.inflater.total_in(), self.inflater.total_out());
            let status = self.inflater.decompress(rest, &mut chunk, FlushDecompress::None);
            let read = self.inflater.total_in() - before.0;
            let inflated = self.inflater.total_out() - before.1;
            self.read += read;
            self.inflated += inflated;
            rest = usize::try_from(read).ok().and_then(|read| rest.get(read..)).unwrap_or(&[]);

            let is_bomb = self.inflated > FREE_BYTES + self.read.saturating_mul(MAX_RATIO);
            if status.is_err() || is_bomb {
                self.fail();
                return &[];
            }
            let chunk = usize::try_from(inflated).ok().and_then(|length| chunk.get(..length));
            chunk.into_iter().for_each(&mut *sink);

            match status {
                Ok(Status::StreamEnd) => {
                    self.inflater.reset(false);
                    self.has_member = true;
                    self.part = Part::Tail(TAIL);
                    return rest;
                }
                // All of the input is inflated once the output is not full.
                _ if rest.is_empty() && inflated < CHUNK as u64 => return rest,
                _ if read == 0 && inflated == 0 => return &[],
                _ => {}
            }
        }
    }
}
