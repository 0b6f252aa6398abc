//! Clients' connections: how many there are, what they do, and how they are asked to end.

pub(crate) mod activity;
pub(crate) mod interim_frames;
pub(crate) mod limits;
pub(crate) mod registry;

pub(crate) use activity as upgrade_task;
pub(crate) use limits as descriptors;
pub(crate) use limits as per_client;
pub(crate) use registry as handle;
pub(crate) use registry as options;
