//! Rules with `sync_interval`: gateways report what they let pass, and take over the counts of all.

pub(super) mod call;
mod pace;
mod push;
pub(super) mod rule;
pub(super) mod task;
