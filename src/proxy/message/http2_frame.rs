//! The heads of HTTP/2 frames (RFC 9113, 4.1).

/// What a client of HTTP/2 begins with (RFC 9113, 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The size of a frame's head.
pub(crate) const HEAD: usize = 9;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const PRIORITY: u8 = 32;

/// The head of a frame.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FrameHead {
    /// The size of the payload.
    pub(crate) length: usize,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
}

impl FrameHead {
    /// Reads the head at the start of `bytes`; `None` if it is not there whole.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().map(Self::of)
    }

    fn of(bytes: &[u8; HEAD]) -> Self {
        let [one, two, three, kind, flags, stream @ ..] = *bytes;
        Self {
            length: u32::from_be_bytes([0, one, two, three]) as usize,
            kind,
            flags,
            stream: u32::from_be_bytes(stream) & !(1 << 31),
        }
    }
}

/// Reads heads that come in pieces.
#[derive(Debug, Default)]
pub(crate) struct HeadReader {
    head: [u8; HEAD],
    /// How much of the head is there.
    have: usize,
}

impl HeadReader {
    /// Takes the rest of a head from the start of `bytes`; `None` if they end before it.
    pub(crate) fn read(&mut self, bytes: &mut &[u8]) -> Option<FrameHead> {
        let (part, rest) = bytes.split_at(bytes.len().min(HEAD - self.have));
        self.head[self.have..self.have + part.len()].copy_from_slice(part);
        self.have += part.len();
        *bytes = rest;
        if self.have < HEAD {
            return None;
        }
        self.have = 0;
        Some(FrameHead::of(&self.head))
    }
}
