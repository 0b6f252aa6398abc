//! The breaker: when it opens, and how it closes.

use super::{
    keys::keys,
    leaf::{HOUR, Integer, MILLI, Part, Period},
};

keys! {
    /// Counts answers: a 5xx of the upstream is a failure, and so is our own 502 or 504 in its
    /// place; a 4xx is not. Needs one of `error_ratio`, `slow_ratio` and `errors`. While it is
    /// open, requests get 503 with the exact `Retry-After`; then `probes` of them go through, and
    /// all must be good for it to close.
    #[cfg_attr(test, schemars(extend("x-instead" = [["key", ANOTHER_ROUTE], ["overrides", ANOTHER_ROUTE], ["except", ANOTHER_ROUTE], ["cost", "remove it: an answer counts as one, whatever its request cost"], ["scope", "remove it: each gateway learns from the answers that it sees"]])))]
    struct BreakerSpec: "a breaker" {
        /// Opens when more than this part of the answers in `window` are failures; 1: when all are.
        error_ratio: Part, else "–";
        /// An answer is slow if its header comes later than this after the request was sent on; a
        /// wait in pacing before that does not count.
        slow_after: Period<1_000, { 24 * HOUR }>, else "–";
        /// Opens when more than this part of the answers in `window` are slow; 1: when all are.
        slow_ratio: Part, else "–";
        /// Opens at this many failures in `window`.
        errors: Integer<1, 1_000_000_000>, else "–";
        /// The fewest answers in `window` that it opens on.
        min_requests: Integer<1, 1_000_000_000>, else "20; 1 with `errors` alone";
        /// How long an answer counts, but for a bucket's length.
        window: Period<{ 10 * MILLI }, HOUR> = "10s";
        /// Into how many parts the window is cut; they follow the clock.
        buckets: Integer<1, 1000> = 10;
        /// How long it stays open before it lets probes through.
        open_for: Period<MILLI, { 24 * HOUR }> = "5s";
        /// How many requests it lets through to find out. All good: it closes. One bad: it opens
        /// again.
        probes: Integer<1, 1000> = 3;
        /// Decides and counts, and rejects nothing.
        dry_run: bool = false;
    }
}

#[cfg(test)]
const ANOTHER_ROUTE: &str = "write a route of its own for those requests, to the same upstream: a breaker is of all of its route's";
