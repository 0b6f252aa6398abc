//! What the head of a message means, whichever version of HTTP carried it.

pub(crate) mod date;
pub(crate) mod grpc;
pub(crate) mod hop_by_hop;
pub(crate) mod http2_frame;
pub(crate) mod interim;
pub(crate) mod request;
pub(crate) mod request_id;
pub(crate) mod response;
pub(crate) mod spare_heads;
pub(crate) mod validate;
