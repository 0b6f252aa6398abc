//! The pages of the admin listener, a file each: its endpoints are a line of [`ALL`].

mod health;
mod metrics;
mod preview;
mod reload;
mod routes;

use super::endpoint::Endpoint;

/// Every page but the index, in the index's order. A page with an empty `about` is not listed.
pub(super) const ALL: &[&[Endpoint]] = &[
    &health::ENDPOINTS,
    &metrics::ENDPOINTS,
    &routes::ENDPOINTS,
    &preview::ENDPOINTS,
    &reload::ENDPOINTS,
];
