//! What connecting needs.

use crate::{clock::Clock, cluster::store::Store};
use core::time::Duration;
use std::sync::Arc;

/// What connecting to a server and the first call need.
#[derive(Clone)]
pub(super) struct Caller {
    pub(super) store: Arc<Store>,
    pub(super) clock: Clock,
    /// The longest that a request's call may take.
    pub(super) limit: Duration,
}
