//! The encoder of a response's body, which makes the parts that a client gets of those that a server sends.
//!
//! Its memory is bounded: each part that comes is encoded at once, on the thread of the worker, and what that
//! makes is taken before the next part comes. [`WINDOW_LOG`] bounds what the encodings remember.

use crate::{config::Coding, proxy::worker::EncoderPlace};
use bytes::Bytes;
use core::fmt;
use http::HeaderMap;
use std::io::{self, Write};

/// The distance over which an encoding looks back, as a power of two: 256 KiB. Browsers take up to
/// 8 MiB, but that would be memory of each response.
const WINDOW_LOG: u32 = 18;

/// The levels: more would take more than twice the CPU for some 5 % fewer bytes (docs/benchmarks.md).
const GZIP_LEVEL: u32 = 3;
const BROTLI_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 3;

/// The buffer of brotli's encoder, in bytes.
const BROTLI_BUFFER: usize = 4096;

/// The encoder of a body.
pub(crate) struct Encoder {
    /// `None` once the body has ended.
    writer: Option<(Writer, EncoderPlace)>,
    /// The bytes that are ready for the client.
    output: Vec<u8>,
    /// The trailers that follow the last byte.
    trailers: Option<HeaderMap>,
    /// True if a client should not wait for bytes that are here.
    is_stream: bool,
    /// True if bytes have come since the last flush.
    is_dirty: bool,
}

enum Writer {
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
}

impl Encoder {
    /// Begins a body. The parts of a stream do not wait for more.
    /// `None`: the encoder cannot be made.
    pub(crate) fn new(coding: Coding, is_stream: bool, place: EncoderPlace) -> Option<Box<Self>> {
        let writer = Some((Writer::new(coding)?, place));
        let output = Vec::new();
        Some(Box::new(Self { writer, output, trailers: None, is_stream, is_dirty: false }))
    }

    /// Encodes a part of the body.
    ///
    /// # Errors
    ///
    /// The encoder cannot go on, and neither can the response.
    pub(crate) fn write(&mut self, part: &[u8]) -> io::Result<()> {
        let Some((writer, _)) = &mut self.writer else { return Ok(()) };
        writer.write_all(part)?;
        self.is_dirty = true;
        writer.take(&mut self.output);
        Ok(())
    }

    /// Has a client of a stream get all that has come.
    ///
    /// # Errors
    ///
    /// The encoder cannot go on, and neither can the response.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let writer = self.writer.as_mut().filter(|_| self.is_stream && self.is_dirty);
        let Some((writer, _)) = writer else { return Ok(()) };
        writer.flush()?;
        self.is_dirty = false;
        writer.take(&mut self.output);
        Ok(())
    }

    /// Ends the body, which `trailers` follow.
    ///
    /// # Errors
    ///
    /// The encoder cannot go on, and neither can the response.
    pub(crate) fn finish(&mut self, trailers: Option<HeaderMap>) -> io::Result<()> {
        let Some((writer, _place)) = self.writer.take() else { return Ok(()) };
        let mut rest = writer.finish()?;
        self.output.append(&mut rest);
        self.trailers = trailers;
        Ok(())
    }

    /// Returns whether bytes are ready for the client.
    pub(crate) fn has_output(&self) -> bool {
        !self.output.is_empty()
    }

    /// Takes the bytes that are ready for the client, if there are any.
    pub(crate) fn take_output(&mut self) -> Option<Bytes> {
        let output = core::mem::take(&mut self.output);
        (!output.is_empty()).then(|| output.into())
    }

    /// Takes the trailers that follow the last byte.
    pub(crate) fn take_trailers(&mut self) -> Option<HeaderMap> {
        self.trailers.take()
    }

    /// Returns whether the body has ended.
    pub(crate) const fn is_finished(&self) -> bool {
        self.writer.is_none()
    }

    /// Returns whether nothing is left for the client.
    pub(crate) fn is_over(&self) -> bool {
        self.is_finished() && self.output.is_empty() && self.trailers.is_none()
    }
}

impl fmt::Debug for Encoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encoder")
            .field("is_finished", &self.is_finished())
            .field("output", &self.output.len())
            .finish_non_exhaustive()
    }
}

impl Writer {
    fn new(coding: Coding) -> Option<Self> {
        Some(match coding {
            Coding::Gzip => {
                let level = flate2::Compression::new(GZIP_LEVEL);
                Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), level))
            }
            Coding::Br => Self::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                BROTLI_BUFFER,
                BROTLI_LEVEL,
                WINDOW_LOG,
            ))),
            Coding::Zstd => {
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), ZSTD_LEVEL).ok()?;
                encoder.window_log(WINDOW_LOG).ok()?;
                Self::Zstd(encoder)
            }
        })
    }

    fn write_all(&mut self, part: &[u8]) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.write_all(part),
            Self::Brotli(encoder) => encoder.write_all(part),
            Self::Zstd(encoder) => encoder.write_all(part),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(encoder) => encoder.flush(),
            Self::Brotli(encoder) => encoder.flush(),
            Self::Zstd(encoder) => encoder.flush(),
        }
    }

    /// Moves what is ready to the end of `output`.
    fn take(&mut self, output: &mut Vec<u8>) {
        let ready = match self {
            Self::Gzip(encoder) => encoder.get_mut(),
            Self::Brotli(encoder) => encoder.get_mut(),
            Self::Zstd(encoder) => encoder.get_mut(),
        };
        if output.is_empty() {
            core::mem::swap(output, ready);
        } else {
            output.append(ready);
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(encoder) => encoder.finish(),
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            Self::Zstd(encoder) => encoder.finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proxy::worker::EncoderPlaces;
    use proptest::prelude::*;
    use std::io::Read;

    fn place() -> EncoderPlace {
        EncoderPlaces::default().take().expect("a place")
    }

    fn decoded(coding: Coding, encoded: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        // What was flushed can be read, though the end is missing.
        drop(match coding {
            Coding::Gzip => flate2::read::GzDecoder::new(encoded).read_to_end(&mut text),
            Coding::Br => brotli::Decompressor::new(encoded, 4096).read_to_end(&mut text),
            Coding::Zstd => {
                zstd::stream::read::Decoder::new(encoded).expect("a decoder").read_to_end(&mut text)
            }
        });
        text
    }

    fn taken(encoder: &mut Encoder, output: &mut Vec<u8>) {
        output.extend(encoder.take_output().unwrap_or_default());
    }

    const ALL: [Coding; 3] = [Coding::Zstd, Coding::Br, Coding::Gzip];

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_decoded_is_what_came(
            parts in proptest::collection::vec(proptest::collection::vec(0_u8..4, 0..3000), 0..12),
            is_stream: bool,
        ) {
            for coding in ALL {
                let mut encoder = Encoder::new(coding, is_stream, place()).expect("an encoder");
                let mut output = Vec::new();
                let mut came = Vec::new();
                for part in &parts {
                    encoder.write(part).unwrap();
                    came.extend_from_slice(part);
                    encoder.flush().unwrap();
                    taken(&mut encoder, &mut output);
                    if is_stream {
                        prop_assert_eq!(&decoded(coding, &output), &came);
                    }
                }
                encoder.finish(Some(HeaderMap::new())).unwrap();
                prop_assert!(!encoder.is_over());
                taken(&mut encoder, &mut output);
                prop_assert!(encoder.take_trailers().is_some() && encoder.is_over());
                prop_assert_eq!(&decoded(coding, &output), &came);
            }
        }
    }

    #[test]
    fn a_flush_without_new_bytes_writes_nothing() {
        for coding in ALL {
            let mut encoder = Encoder::new(coding, true, place()).expect("an encoder");
            encoder.write(b"hello").unwrap();
            encoder.flush().unwrap();
            assert!(encoder.take_output().is_some());
            encoder.flush().unwrap();
            assert_eq!(encoder.take_output(), None, "{coding:?}");
        }
    }
}
