//! Responses that scripts of other origins may read.

use super::{
    keys::keys,
    leaf::{CorsMethod, CorsOrigin, FieldName, HOUR, Period},
    other_words::route::CORS_MEANT,
};
use crate::config::decode::Several;

/// No browser keeps what a preflight says longer than a day.
const DAY: u64 = 24 * HOUR;

keys! {
    /// Which scripts of other origins may use the route (CORS). flowgate answers preflight requests
    /// before `auth` and the rules, and writes the fields on all responses of the route, in place of
    /// the upstream's.
    #[example = "{ origins: [https://app.example.com], credentials: true }"]
    #[meant = CORS_MEANT]
    struct CorsSpec: "CORS" {
        /// The origins: a scheme and a host, with a port if it is not the usual one.
        /// `https://*.example.com` stands for all hosts below it, and `*` for all origins. At most 100.
        origins: Several<CorsOrigin>;
        /// The methods that a script may use. `*` stands for all.
        methods: Several<CorsMethod>, else "GET, HEAD, POST, PUT, PATCH, DELETE";
        /// The header fields that a script may send beside those that browsers always allow. `*`
        /// stands for all.
        headers: Several<FieldName>, else "all";
        /// The header fields that a script may read beside those that browsers always show, such as
        /// `Retry-After` and `RateLimit`. `*` stands for all, without `credentials`.
        expose: Several<FieldName>, else "none";
        /// `true`: requests may have cookies and passwords. Not with `*` in `origins`.
        credentials: bool = false;
        /// How long a browser need not ask again: at most a day.
        max_age: Period<0, DAY>, else "as the browser does: 5 s";
    }
}
