//! The frames that a client of HTTP/2 sends, read before the h2 crate reads them: for what that crate
//! does not report.
//!
//! Trailers with pseudo-header fields are malformed (RFC 9113, 8.1). h2 drops such fields and lets the
//! trailers pass (`recv_trailers` of 0.4.20 keeps the other fields only). A field that is named by an
//! index of the client's own dynamic table is not seen.

use crate::proxy::message::http2_frame::{
    CONTINUATION, END_HEADERS, FrameHead, HEADERS, HeadReader, PADDED, PREFACE, PRIORITY,
};

/// The most bytes of trailers that are looked at.
const BLOCK_MAX: usize = 64 * 1024;

/// The last pseudo-header field of HPACK's static table (RFC 7541, appendix A).
const PSEUDO_LAST: usize = 14;

/// Follows what a client of HTTP/2 sends.
#[derive(Debug, Default)]
pub(crate) struct ClientFrames {
    /// How much of the preface has come.
    preface: usize,
    heads: HeadReader,
    /// The head that came last.
    head: FrameHead,
    /// How much of the payload is to come.
    left: usize,
    /// The last stream that was opened.
    newest: u32,
    /// The trailers that are read.
    block: Option<Vec<u8>>,
}

impl ClientFrames {
    /// Returns the last stream that was opened.
    pub(crate) fn newest(&self) -> u32 {
        self.newest
    }

    /// Reads what was received. Returns whether there are malformed trailers in it.
    pub(crate) fn is_malformed(&mut self, bytes: &[u8]) -> bool {
        let skipped = bytes.len().min(PREFACE.len() - self.preface);
        self.preface += skipped;
        let mut bytes = &bytes[skipped..];
        while !bytes.is_empty() {
            if self.left == 0 {
                let Some(head) = self.heads.read(&mut bytes) else { break };
                self.begin(head);
            } else {
                let (payload, rest) = bytes.split_at(bytes.len().min(self.left));
                if matches!(self.head.kind, HEADERS | CONTINUATION)
                    && let Some(block) = &mut self.block
                    && block.len() < BLOCK_MAX
                {
                    block.extend_from_slice(payload);
                }
                self.left -= payload.len();
                bytes = rest;
            }
            if self.left == 0 && self.end() {
                return true;
            }
        }
        false
    }

    fn begin(&mut self, head: FrameHead) {
        self.head = head;
        self.left = head.length;
        let FrameHead { kind, stream, .. } = head;
        if kind == HEADERS {
            // A header of a stream that is open already is trailers.
            self.block = (stream <= self.newest).then(Vec::new);
            self.newest = self.newest.max(stream);
        }
    }

    /// Ends a frame. Returns whether it ends malformed trailers.
    fn end(&mut self) -> bool {
        let FrameHead { kind, flags, .. } = self.head;
        if kind == HEADERS
            && let Some(block) = &mut self.block
        {
            let padding = if flags & PADDED != 0 { block.first().copied() } else { None };
            let fixed = usize::from(padding.is_some()) + if flags & PRIORITY != 0 { 5 } else { 0 };
            let end = block.len().saturating_sub(padding.unwrap_or_default().into());
            *block = block.get(fixed..end).unwrap_or_default().to_vec();
        }
        let is_last = matches!(kind, HEADERS | CONTINUATION) && flags & END_HEADERS != 0;
        is_last && self.block.take().is_some_and(|block| has_pseudo(&block) == Some(true))
    }
}

/// Returns whether a block of HPACK (RFC 7541, 6) has a pseudo-header field; `None` if it is malformed.
fn has_pseudo(mut block: &[u8]) -> Option<bool> {
    while let Some(first) = block.first().copied() {
        let (is_literal, prefix) = match first {
            0x80.. => (false, 7),
            0x40..0x80 => (true, 6),
            0x20..0x40 => {
                integer(&mut block, 5)?;
                continue;
            }
            0..0x20 => (true, 4),
        };
        let index = integer(&mut block, prefix)?;
        if (1..=PSEUDO_LAST).contains(&index) {
            return Some(true);
        }
        if is_literal && index == 0 && is_pseudo_name(&mut block)? {
            return Some(true);
        }
        if is_literal {
            string(&mut block)?;
        }
    }
    Some(false)
}

fn is_pseudo_name(block: &mut &[u8]) -> Option<bool> {
    /// The seven bits of `:` in HPACK's Huffman code.
    const COLON: u8 = 0b101_1100;
    let (is_huffman, name) = string(block)?;
    let first = name.first().copied().unwrap_or_default();
    Some(if is_huffman { first >> 1 == COLON } else { first == b':' })
}

/// Reads a string (RFC 7541, 5.2), and whether it is in Huffman's code.
fn string<'b>(block: &mut &'b [u8]) -> Option<(bool, &'b [u8])> {
    let is_huffman = block.first()? & 0x80 != 0;
    let length = integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    Some((is_huffman, text))
}

/// Reads an integer with a prefix of so many bits (RFC 7541, 5.1).
fn integer(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let most = (1_usize << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        let mut shift = 0;
        loop {
            let (byte, more) = rest.split_first()?;
            rest = more;
            value = value.checked_add(usize::from(byte & 0x7f).checked_shl(shift)?)?;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
            if shift > 28 {
                return None;
            }
        }
    }
    *block = rest;
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u8::try_from(payload.len()).expect("short");
        [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    #[test]
    fn a_pseudo_header_field_is_found_in_trailers_alone_however_they_are_cut() {
        const GET: &[u8] = &[0x82, 0x86, 0x84, 0x41, 1, b'a'];
        let opening = frame(HEADERS, END_HEADERS, 1, GET);
        let data = frame(0, 0, 1, &[0x82; 20]);
        let parts = [frame(HEADERS, 0, 1, &[0x40, 1]), frame(9, END_HEADERS, 1, b"x\0\x83")];
        for (trailers, expected) in [
            (frame(HEADERS, END_HEADERS, 1, &[0x40, 1, b'x', 1, b'y']), false),
            (frame(HEADERS, END_HEADERS, 1, &[0x82]), true),
            (frame(HEADERS, END_HEADERS, 1, &[0x40, 1, b'x', 1, b':', 0x04, 1, b'/']), true),
            (frame(HEADERS, END_HEADERS, 1, &[0x3f, 9, 0x00, 3, b':', b'p', b'x', 0]), true),
            (frame(HEADERS, END_HEADERS, 1, &[0x10, 0x82, 0xb9, 0x58, 0]), true),
            (frame(HEADERS, END_HEADERS | PADDED, 1, &[1, 0x40, 1, b'x', 0, 0x82]), false),
            (frame(HEADERS, END_HEADERS | PRIORITY, 1, &[0, 0, 0, 0, 9, 0x82]), true),
            (parts.concat(), true),
            (frame(HEADERS, END_HEADERS, 3, GET), false),
        ] {
            let all = [&PREFACE[..], &opening, &data, &trailers, &data].concat();
            for size in [1, 2, 7, all.len()] {
                let mut check = ClientFrames::default();
                let found = all.chunks(size).any(|part| check.is_malformed(part));
                assert_eq!(u8::try_from(check.newest()), Ok(trailers[8]), "{trailers:?}");
                assert_eq!(found, expected, "{trailers:?}, {size} at once");
            }
        }
    }

    #[test]
    fn no_block_causes_a_panic() {
        for first in 0..=255_u8 {
            for second in 0..=255_u8 {
                for rest in [&[][..], &[0xff; 12], &[1]] {
                    has_pseudo(&[&[first, second][..], rest].concat());
                }
            }
        }
    }
}
