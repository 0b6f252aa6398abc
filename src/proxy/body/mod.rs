//! Bodies of requests, on their way from the client to the upstream.

pub(crate) mod client_body;
pub(crate) mod drain_body;
pub(crate) mod early_end;
pub(crate) mod extended_connect;
pub(crate) mod request_body;
pub(crate) mod trailers;
pub(crate) mod upload;
pub(crate) mod upload_buffer;
