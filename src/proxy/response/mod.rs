//! Responses to clients: those of the gateway itself, and those of servers.

pub(crate) mod compress;
pub(crate) mod cors;
mod encoder;
mod jitter;
pub(crate) mod own_response;
pub(crate) mod response_body;
pub(crate) mod tunnel;
