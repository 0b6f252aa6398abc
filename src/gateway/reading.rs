//! Reading a changed configuration.

use super::{
    error::{StartError, chain},
    files::{FileStates, make_certificates},
};
use crate::config::{Diagnostic, Diagnostics, Plan, watch};

/// Why a configuration was not applied.
pub(super) struct RejectedEdit {
    pub(super) line: String,
    pub(super) drawing: String,
    /// For the dashboard.
    pub(super) problems: Vec<Diagnostic>,
    /// Whether the cause may disappear without an edit.
    pub(super) is_outside: bool,
}

impl RejectedEdit {
    /// Rejects a configuration for a cause outside its files.
    pub(super) fn outside(error: StartError) -> Self {
        let rejected = match error {
            StartError::Config(problem) | StartError::Open(problem) => Self::from(problem),
            StartError::System { .. } | StartError::Upgrade(_) => Self {
                line: error.to_string(),
                drawing: format!("error: {}", chain(&error)),
                problems: vec![Diagnostic::about(error.to_string())],
                is_outside: true,
            },
        };
        Self { is_outside: true, ..rejected }
    }
}

impl From<Diagnostics> for RejectedEdit {
    fn from(problems: Diagnostics) -> Self {
        let line = problems.summary();
        let drawing = problems.to_string();
        let problems = problems.list().collect();
        Self { line, drawing, problems, is_outside: false }
    }
}

/// Why the files are checked, in ascending priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A timer.
    Poll,
    /// A file event.
    Event,
    /// A signal, or a client of the admin listener.
    Requested,
}

/// The result of a check of the files.
pub(super) struct FileCheck {
    pub(super) cause: Cause,
    /// Whether they differ from what was last read or is being read.
    pub(super) changed: bool,
    pub(super) seen: FileStates,
}

/// A reading in progress.
pub(super) struct Contents {
    pub(super) seen: FileStates,
    /// Whether it was requested.
    pub(super) requested: bool,
}

pub(super) struct Reading {
    pub(super) changed: bool,
    pub(super) seen: FileStates,
    pub(super) plan: Result<Plan, RejectedEdit>,
}

/// Reads the configuration with `parse`, creates missing development certificates, and records in
/// `seen` which files belong to it.
pub(super) fn read(
    seen: &mut FileStates,
    parse: impl Fn() -> Result<Plan, Diagnostics>,
) -> Result<Plan, Diagnostics> {
    let read = parse();
    let (files, has_made) = match &read {
        Ok(plan) => (plan.files.clone(), false),
        Err(problems) => {
            let certificates = problems.certificate_files();
            (problems.files(), make_certificates(certificates))
        }
    };
    // Files named for the first time were not checked before the reading.
    let again = has_made || !seen.has_all(&files);
    *seen = if has_made { FileStates::look(&files) } else { seen.extend(&files) };
    if again { parse() } else { read }
}

impl Contents {
    /// Returns whether a file may be half written. A requested reading takes it as it is.
    pub(super) fn may_be_half(&self, guard: Option<&watch::Watcher>) -> bool {
        !self.requested && guard.is_some_and(watch::Watcher::is_being_written)
    }
}
