//! Clients' connections of HTTP/2, around hyper.

pub(crate) mod client_frames;
pub(crate) mod frame_filter;
pub(crate) mod io;
pub(crate) mod serve;
