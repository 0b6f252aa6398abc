//! Decodes bodies as they come: by length, in chunks, or until the connection ends.

use super::{
    chunked::{ChunkError, ChunkedDecoder, Decoded, Trailers},
    framing::BodyLength,
    head::HeadLimits,
};

/// The reason why a body is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It is chunked, and a chunk is malformed.
    #[error(transparent)]
    Chunk(#[from] ChunkError),
    /// RFC 9112, 8: the connection ended first.
    #[error("the connection ended before the body did")]
    Incomplete,
}

/// Decodes one body, in as many parts as it comes.
#[derive(Clone, Debug)]
pub struct BodyDecoder(Kind);

#[derive(Clone, Debug)]
enum Kind {
    /// That many bytes are left.
    Exactly(u64),
    Chunked(ChunkedDecoder),
    UntilClose {
        is_end: bool,
    },
}

impl BodyDecoder {
    /// Returns a decoder of a body that ends by `length`, and has trailers within `limits`.
    pub fn new(length: BodyLength, limits: HeadLimits) -> Self {
        Self(match length {
            BodyLength::None => Kind::Exactly(0),
            BodyLength::Exactly(length) => Kind::Exactly(length),
            BodyLength::Chunked => Kind::Chunked(ChunkedDecoder::new(limits)),
            BodyLength::UntilClose => Kind::UntilClose { is_end: false },
        })
    }

    /// Reads `buffer`, which is what comes next, up to the end of the body; see
    /// [`ChunkedDecoder::decode`].
    ///
    /// # Errors
    ///
    /// The bytes are no chunked body, or exceed a bound.
    pub fn decode(&mut self, buffer: &mut [u8]) -> Result<Decoded, BodyError> {
        let length = match &mut self.0 {
            Kind::Chunked(decoder) => return Ok(decoder.decode(buffer)?),
            Kind::UntilClose { is_end: true } => 0,
            Kind::UntilClose { is_end: false } => buffer.len(),
            Kind::Exactly(left) => {
                let length =
                    usize::try_from(*left).map_or(buffer.len(), |left| left.min(buffer.len()));
                *left -= length as u64;
                length
            }
        };
        Ok(Decoded { data: 0..length, consumed: length, is_end: self.is_end() })
    }

    /// Notes that the connection has ended.
    ///
    /// # Errors
    ///
    /// The body lacks its end. It must not look complete to its recipient.
    pub fn end(&mut self) -> Result<(), BodyError> {
        if let Kind::UntilClose { is_end } = &mut self.0 {
            *is_end = true;
        }
        if self.is_end() { Ok(()) } else { Err(BodyError::Incomplete) }
    }

    /// Returns the number of bytes of data that are left, if that is known before they come.
    pub fn left(&self) -> Option<u64> {
        match &self.0 {
            Kind::Exactly(left) => Some(*left),
            Kind::Chunked(_) | Kind::UntilClose { .. } => None,
        }
    }

    /// Returns whether the body has ended, trailers included.
    pub fn is_end(&self) -> bool {
        match &self.0 {
            Kind::Exactly(left) => *left == 0,
            Kind::Chunked(decoder) => decoder.is_end(),
            Kind::UntilClose { is_end } => *is_end,
        }
    }

    /// Returns the trailers of a chunked body that has ended, if it has some.
    pub fn trailers(&self) -> Option<&Trailers> {
        match &self.0 {
            Kind::Chunked(decoder) if decoder.is_end() => {
                Some(decoder.trailers()).filter(|trailers| !trailers.fields().is_empty())
            }
            Kind::Chunked(_) | Kind::Exactly(_) | Kind::UntilClose { .. } => None,
        }
    }
}
