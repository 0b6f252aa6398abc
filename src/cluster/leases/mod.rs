//! Leases: what requests in flight hold of the concurrency limits that gateways share.

pub(super) mod held;
pub(super) mod lease_task;
pub(super) mod lease_update;
