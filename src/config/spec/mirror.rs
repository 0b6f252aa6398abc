//! Mirroring: copies of a route's requests for another upstream.

use super::{
    keys::keys,
    leaf::{Name, Share, Size, Timeout},
    other_words::route::MIRROR_MEANT,
};

keys! {
    /// Sends a copy of each admitted request to another upstream as well, and drops the response. A copy
    /// never delays or fails the client's request, and no rule counts it.
    #[example = "{ upstream: shadow, share: 10% }"]
    #[meant = MIRROR_MEANT]
    struct MirrorSpec: "mirroring" {
        /// The upstream that gets the copies.
        upstream: Name;
        /// The share of the requests that are copied, chosen at random.
        share: Share = "100%";
        /// The longest body that is copied. flowgate copies a request once its whole body has passed;
        /// requests with longer bodies are not copied.
        body_limit: Size<0, { 16 << 20 }> = "1MiB";
        /// The most time for a copy, to the end of its response.
        timeout: Timeout = "10s";
    }
}
