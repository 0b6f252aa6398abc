//! The pages of the admin listener: [`ALL`] lists their endpoints.

mod actions;
mod dashboard;
mod edit;
mod health;
mod keys;
pub(super) mod live;
mod records;
mod requests;

use super::endpoint::Endpoint;

/// Every page but the index, in the index's order. A page with an empty `about` is not listed.
pub(super) const ALL: &[&[Endpoint]] = &[
    dashboard::ENDPOINTS,
    &live::ENDPOINTS,
    &health::ENDPOINTS,
    &records::STATE,
    &actions::EXPLAIN,
    &records::REJECTIONS,
    &requests::ENDPOINTS,
    &keys::ENDPOINTS,
    &actions::PREVIEW,
    &edit::ENDPOINTS,
    &actions::RELOAD,
];
