//! From a request to an upstream: what is decided about it, and each attempt to have it answered.

pub(crate) mod admitted;
pub(crate) mod attempt;
pub(crate) mod auth;
pub(crate) mod decide;
pub(crate) mod discard;
pub(crate) mod examine;
pub(crate) mod forward;
pub(crate) mod preview;
pub(crate) mod shared;
pub(crate) mod trace;
