//! Clients' connections: how many there are, what they do, how they are asked to end, and what is kept of
//! their requests.

pub(crate) mod activity;
pub(crate) mod copies;
pub(crate) mod limits;
pub(crate) mod registry;
pub(crate) mod upload_buffer;
