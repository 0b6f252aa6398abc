//! Connections of clients.

pub(super) mod http1;
