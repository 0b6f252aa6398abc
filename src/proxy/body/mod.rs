//! Bodies of requests, on their way from the client to the upstream.

pub(crate) mod body_copy;
pub(crate) mod client_body;
pub(crate) mod peeked;
pub(crate) mod request_body;
pub(crate) mod upload;

pub(crate) use body_copy::{BodyCopy, CopiedBody, NotCopied};
pub(crate) use client_body::{
    BodySender, ClientBody, DISCARD_BYTES, DRAIN_BYTES, DRAIN_SILENCE, DRAIN_TIMEOUT, drain,
};
pub(crate) use peeked::Peek;
pub(crate) use request_body::{BodyBuffer, Cut, RequestBody};
pub(crate) use upload::{EarlyEnd, Upload, UploadState};
