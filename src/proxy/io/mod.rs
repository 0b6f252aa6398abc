//! What has come over a connection, and what is to be written to it.

pub(crate) mod client_io;
pub(crate) mod first_read;
pub(crate) mod input;
pub(crate) mod outgoing;
pub(crate) mod prefixed;
pub(crate) mod vectored_write;
