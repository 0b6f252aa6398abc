//! From a request to an upstream: what is decided about it, and each attempt to have it answered.

mod admitted;
mod attempt;
pub(crate) mod decide;
mod examine;
mod failure;
mod forward;
mod shared;
