//! A request on its way to its upstream: which server gets it, how long that may take, and what is sent
//! again after a failure.

mod failure;
mod prepare;
mod request;
mod wait;

pub(crate) use request::UpstreamRequest;
