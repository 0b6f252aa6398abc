//! The heads of messages, whichever version of HTTP carries them.

pub(crate) mod date;
pub(crate) mod grpc;
pub(crate) mod heads;
pub(crate) mod hop_by_hop;
pub(crate) mod http2_frame;
pub(crate) mod request_id;
pub(crate) mod validate;

pub(crate) use heads::{
    ExtendedConnect, Interim, Request, RequestHead, Response, ResponseHead, SpareHeads,
};
