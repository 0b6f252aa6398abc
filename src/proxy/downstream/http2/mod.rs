//! Clients' connections of HTTP/2, around hyper.

pub(crate) mod io;
pub(crate) mod stream;
pub(crate) mod trailers;
