//! The breaker: when it opens, and how it closes.

use super::{
    keys::keys,
    leaf::{HOUR, Integer, MILLI, Part, Period},
};

keys! {
    /// Counts responses. A 5xx of the upstream is a failure, and so is a 502 or 504 of flowgate in
    /// its place; a 4xx is not. One of `error_ratio`, `slow_ratio` and `errors` is required. While
    /// the breaker is open, requests get 503 with the exact `Retry-After`. Then `probes` requests
    /// pass, and the breaker closes if all of them succeed.
    #[instead = &[["key", ANOTHER_ROUTE], ["overrides", ANOTHER_ROUTE], ["except", ANOTHER_ROUTE], ["cost", "remove it: a response counts as one, whatever its request's cost"], ["scope", "remove it: each gateway learns from the answers that it sees"]]]
    struct BreakerSpec: "a breaker" {
        /// Opens when more than this share of the responses in `window` are failures; with 1, when
        /// all are.
        error_ratio: Part, else "–";
        /// A response is slow if flowgate waits longer than this for its header. The request's
        /// wait in pacing does not count, and neither does the time that its body takes.
        slow_after: Period<1_000, { 24 * HOUR }>, else "–";
        /// Opens when more than this share of the responses in `window` are slow; with 1, when all
        /// are.
        slow_ratio: Part, else "–";
        /// Opens at this many failures in `window`.
        errors: Integer<1, 1_000_000_000>, else "–";
        /// The fewest responses in `window` with which it opens.
        min_requests: Integer<1, 1_000_000_000>, else "20; 1 with `errors` alone";
        /// How long a response counts, within the length of a bucket.
        window: Period<{ 10 * MILLI }, HOUR> = "10s";
        /// Into how many parts the window is divided. They follow the clock.
        buckets: Integer<1, 1000> = 10;
        /// How long it stays open before it lets probes through.
        open_for: Period<MILLI, { 24 * HOUR }> = "5s";
        /// How many requests pass as probes. If all succeed, it closes. If one fails, it opens
        /// again.
        probes: Integer<1, 1000> = 3;
        /// Decides and counts, but rejects nothing.
        dry_run: bool = false;
    }
}

const ANOTHER_ROUTE: &str = "write a separate route for those requests, to the same upstream: a breaker applies to its whole route";
