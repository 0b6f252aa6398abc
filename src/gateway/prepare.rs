//! Steps before a configuration is applied, at the start and at reloads.

use super::error::StartError;
use crate::{access_log, config::Plan, flow::Instant, proxy::Descriptors};

pub(super) fn open_log(plan: &Plan) -> Result<access_log::Output, StartError> {
    let opened = access_log::Output::open(&plan.settings.access_log);
    opened.map_err(|error| StartError::Open(plan.cannot_log(&error)))
}

/// Logs a configuration's warnings at `now`. [`super::expiry_watch`] warns of certificates that end.
pub(super) fn warn(plan: &Plan, now: Instant) {
    let warnings = plan.warnings_for_log(now);
    if !warnings.is_empty() {
        tracing::warn!("{}\n{warnings}", warnings.summary());
    }
}

/// Logs what is odd about a file, and about the process that runs it.
pub(super) fn warn_at_start(plan: &Plan, descriptors: Descriptors, now: Instant) {
    warn(plan, now);
    warn_of_descriptors(descriptors, plan.settings.limits.connections);
}

/// Logs that the process may have too few file descriptors for `connections`.
pub(super) fn warn_of_descriptors(descriptors: Descriptors, connections: usize) {
    if let Some(enough) = descriptors.missing_for(connections) {
        let most = descriptors.most();
        let for_clients = descriptors.for_clients();
        tracing::warn!(
            "limits.connections is {connections}, but the limit of open files is {most}: while \
             {for_clients} are in use, new connections are closed; {enough} would be enough \
             (`LimitNOFILE={enough}` in a systemd unit, `ulimit -Hn {enough}`), or lower \
             limits.connections"
        );
    }
}
