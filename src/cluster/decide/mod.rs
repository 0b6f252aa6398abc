//! Decisions that the store makes about requests, one by one.

pub(super) mod call;
pub(super) mod in_flight;
pub(super) mod offset;
pub(super) mod rejection_cache;
