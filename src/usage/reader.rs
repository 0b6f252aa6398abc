//! The reader of a response's body.

use super::{framing::Framing, gzip::Gzip, queries::Queries};
use std::sync::Arc;

pub use super::framing::Format;

/// Media types with a document in each line.
const LINE_TYPES: [&str; 8] = [
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonl",
    "application/jsonlines",
    "application/x-jsonlines",
    "application/json-lines",
    "application/stream+json",
];

impl Format {
    /// Returns the form of a body with this `Content-Type`. JSON is tried where it says nothing of
    /// one: a body that is no JSON has no number.
    pub fn of(content_type: Option<&str>) -> Self {
        let media_type = content_type.and_then(|value| value.split(';').next());
        let is = |name: &str| {
            media_type.is_some_and(|media_type| media_type.trim().eq_ignore_ascii_case(name))
        };
        if is("text/event-stream") {
            Self::Events
        } else if LINE_TYPES.iter().any(|name| is(name)) {
            Self::Lines
        } else {
            Self::Json
        }
    }
}

/// The encoding of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// None.
    Identity,
    /// gzip.
    Gzip,
    /// One that a reader cannot read.
    Unknown,
}

impl Encoding {
    /// Returns the encoding of a body with this `Content-Encoding`.
    pub fn of(content_encoding: Option<&str>) -> Self {
        let name = content_encoding.unwrap_or_default().trim();
        if name.is_empty() || name.eq_ignore_ascii_case("identity") {
            Self::Identity
        } else if name.eq_ignore_ascii_case("gzip") || name.eq_ignore_ascii_case("x-gzip") {
            Self::Gzip
        } else {
            Self::Unknown
        }
    }
}

/// The number that a query has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// The weighted sum of the numbers in the documents that are complete, if there is one.
    pub sum: Option<u64>,
    /// True if nothing that follows would change it, so that the end of the body does not matter.
    pub is_final: bool,
    /// True if the body is events or lines.
    pub is_streamed: bool,
}

/// Reads numbers in a response's body, whose bytes it gets as they pass.
#[derive(Debug)]
pub struct Reader {
    queries: Arc<Queries>,
    framing: Framing,
    decoder: Decoder,
}

#[derive(Debug)]
enum Decoder {
    Identity,
    Gzip(Gzip),
    Unknown,
}

/// The most memory of a reader, without the window and the tables of gzip.
const _: () = assert!(size_of::<Reader>() <= 4096, "a response takes at most 4 KiB");

impl Reader {
    /// Begins a body.
    pub fn new(queries: Arc<Queries>, format: Format, encoding: Encoding) -> Self {
        let decoder = match encoding {
            Encoding::Identity => Decoder::Identity,
            Encoding::Gzip => Decoder::Gzip(Gzip::new()),
            Encoding::Unknown => Decoder::Unknown,
        };
        Self { queries, framing: Framing::new(format), decoder }
    }

    /// Reads the next bytes of the body.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.decoder {
            Decoder::Identity => self.framing.push(bytes, &self.queries),
            Decoder::Gzip(gzip) => {
                let framing = &mut self.framing;
                gzip.push(bytes, |inflated| framing.push(inflated, &self.queries));
                // A bomb that is no JSON from its first byte ends with the first piece.
                if framing.is_useless() {
                    gzip.fail();
                }
            }
            Decoder::Unknown => {}
        }
    }

    /// Ends the body, at its end or where it broke off.
    pub fn finish(&mut self) {
        self.framing.finish();
    }

    /// Returns the number of events of `text/event-stream`, lines of NDJSON, or objects in an array
    /// that have begun.
    pub const fn events(&self) -> u64 {
        self.framing.events()
    }

    /// Returns the number that the query `number` has found.
    pub fn reading(&self, number: usize) -> Reading {
        let is_readable = match &self.decoder {
            Decoder::Identity => true,
            Decoder::Gzip(gzip) => !gzip.is_broken(),
            Decoder::Unknown => false,
        };
        let sum = self.framing.numbers().sum(&self.queries, number).filter(|_| is_readable);
        Reading {
            sum,
            is_final: sum.is_some() && self.framing.is_final(number),
            is_streamed: self.framing.format() != Format::Json,
        }
    }
}
