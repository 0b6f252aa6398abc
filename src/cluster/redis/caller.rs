//! What it takes to make calls of the store without a connection that requests use.

use crate::{clock::Clock, cluster::store::Store};
use core::time::Duration;
use std::sync::Arc;

/// What it takes to connect and to try a connection.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    /// The most that a request's call may take.
    pub(super) limit: Duration,
}
