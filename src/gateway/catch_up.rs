//! Converts states after an edit.

use crate::config::Snapshot;
use std::sync::Arc;

/// Converts the states that edited rules left, a few at a time, so that requests and signals are
/// handled in between.
pub(super) async fn catch_up(snapshot: Arc<Snapshot>) {
    for (_, gate) in snapshot.gates() {
        while gate.catch_up() {
            tokio::task::yield_now().await;
        }
    }
}
