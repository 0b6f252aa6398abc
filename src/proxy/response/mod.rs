//! Responses: those of the gateway itself, and those that it relays.

pub(crate) mod body_memory;
pub(crate) mod failure;
pub(crate) mod gateway_error;
pub(crate) mod own_answer;
pub(crate) mod rate_limit_headers;
pub(crate) mod reply;
pub(crate) mod response_body;
pub(crate) mod tunnel;
pub(crate) mod tunnel_io;
