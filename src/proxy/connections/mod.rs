//! Clients' connections: how many there are, what they do, and how they are asked to end.

pub(crate) mod activity;
pub(crate) mod descriptors;
pub(crate) mod handle;
pub(crate) mod interim_frames;
pub(crate) mod options;
pub(crate) mod per_client;
pub(crate) mod registry;
pub(crate) mod upgrade_task;
