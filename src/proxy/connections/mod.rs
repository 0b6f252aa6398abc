//! Clients' connections: how many there are, what they do, and how they are asked to end.

pub(crate) mod activity;
pub(crate) mod limits;
pub(crate) mod registry;
pub(crate) mod upload_buffer;
