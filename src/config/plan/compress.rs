//! The responses of a route that are compressed.

use crate::config::spec::{Coding, MediaPattern, word};
use std::fmt;

/// The media types that most often shrink.
const USUAL_TYPES: [&str; 22] = [
    "application/atom+xml",
    "application/eot",
    "application/geo+json",
    "application/graphql-response+json",
    "application/javascript",
    "application/json",
    "application/jsonlines",
    "application/ld+json",
    "application/manifest+json",
    "application/problem+json",
    "application/rss+xml",
    "application/rtf",
    "application/vnd.api+json",
    "application/vnd.ms-fontobject",
    "application/wasm",
    "application/x-javascript",
    "application/x-ndjson",
    "application/xhtml+xml",
    "application/xml",
    "font/otf",
    "font/ttf",
    "image/svg+xml",
];

/// The responses of a route that are compressed, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compress {
    /// The best first, each once.
    pub codings: Vec<Coding>,
    /// The media types; `None`: the usual ones.
    pub types: Option<Vec<MediaPattern>>,
    /// The least length of a body, in bytes, if that is known.
    pub min_size: u64,
}

impl Compress {
    /// Returns whether bodies of the type that `content_type` names are compressed.
    pub fn takes(&self, content_type: &[u8]) -> bool {
        let media = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let media = media.trim_ascii();
        match &self.types {
            Some(types) => types.iter().any(|pattern| pattern.matches(media)),
            None => is_usual(media),
        }
    }
}

fn is_usual(media: &[u8]) -> bool {
    let has_begin = |begin: &[u8]| {
        media.get(..begin.len()).is_some_and(|part| part.eq_ignore_ascii_case(begin))
    };
    has_begin(b"text/")
        || USUAL_TYPES.iter().any(|usual| usual.as_bytes().eq_ignore_ascii_case(media))
}

/// The encodings and the least size.
impl fmt::Display for Compress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let codings: Vec<_> = self.codings.iter().map(word).collect();
        let least = bytesize::ByteSize(self.min_size);
        write!(f, "{} from {least}", codings.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_types_shrink() {
        let usual = Compress { codings: Vec::new(), types: None, min_size: 1 };
        for media in [
            "text/html",
            "Text/HTML; charset=utf-8",
            "application/json ;v=1",
            "image/svg+xml",
            "text/event-stream",
        ] {
            assert!(usual.takes(media.as_bytes()), "{media}");
        }
        for media in ["", "image/png", "application/octet-stream", "application/grpc", "texts/a"] {
            assert!(!usual.takes(media.as_bytes()), "{media}");
        }
    }
}
