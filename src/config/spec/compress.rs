//! Compression of responses.

use super::{
    Coding,
    keys::keys,
    leaf::{MediaType, Size},
    other_words::route::COMPRESS_MEANT,
};
use crate::config::decode::Several;

keys! {
    /// Which responses flowgate compresses. `compress: true` compresses with the defaults.
    #[example = "{ encodings: [br, gzip], min_size: 4KiB }"]
    #[meant = COMPRESS_MEANT]
    struct CompressSpec: "compression" {
        /// The encodings, the best first: of those that a client likes best, it gets the first.
        encodings: Several<Coding>, else "zstd, br, gzip";
        /// The media types: `text/html`, `text/*`, `*/*+json`, or `*` for all.
        types: Several<MediaType>, else "text, JSON, XML, JavaScript, WebAssembly, SVG, and fonts without compression of their own";
        /// The least `Content-Length`. Responses without one are compressed too.
        min_size: Size<1, { u64::MAX }> = "1KiB";
    }
}
