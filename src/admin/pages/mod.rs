//! The pages of the admin listener, a file each: its endpoints are a line of [`ALL`].

mod dashboard;
mod edit;
mod explain;
mod health;
mod keys;
mod live;
mod metrics;
mod preview;
mod rejections;
mod reload;
mod requests;
mod routes;

use super::endpoint::Endpoint;

/// Every page but the index, in the index's order. A page with an empty `about` is not listed.
pub(super) const ALL: &[&[Endpoint]] = &[
    dashboard::ENDPOINTS,
    &live::ENDPOINTS,
    &health::ENDPOINTS,
    &metrics::ENDPOINTS,
    &routes::ENDPOINTS,
    &explain::ENDPOINTS,
    &rejections::ENDPOINTS,
    &requests::ENDPOINTS,
    &keys::ENDPOINTS,
    &preview::ENDPOINTS,
    &edit::ENDPOINTS,
    &reload::ENDPOINTS,
];
