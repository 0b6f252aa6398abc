//! Reading a configuration again: why, what of, and what it came to.

use super::{
    error::{StartError, chain},
    files::{Seen, make_certificates, named_files},
};
use crate::config::{Diagnostics, Plan, watch};
use std::path::Path;

/// Why a configuration was not put in force.
pub(super) struct Refusal {
    pub(super) line: String,
    pub(super) drawing: String,
    /// Whether the cause may go away without an edit.
    pub(super) is_outside: bool,
}

impl Refusal {
    /// Refuses a configuration for what is not in its files.
    pub(super) fn outside(error: StartError) -> Self {
        let said = match error {
            StartError::Config(problem) | StartError::Open(problem) => Self::from(problem),
            StartError::System { .. } => Self {
                line: error.to_string(),
                drawing: format!("error: {}", chain(&error)),
                is_outside: true,
            },
        };
        Self { is_outside: true, ..said }
    }
}

impl From<Diagnostics> for Refusal {
    fn from(problems: Diagnostics) -> Self {
        let (line, drawing) = (problems.summary(), problems.to_string());
        Self { line, drawing, is_outside: false }
    }
}

/// Why the files are looked at, by rising weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Why {
    /// It is time to look.
    Poll,
    /// The system says that something has changed.
    Event,
    /// A signal or a client of the admin listener asks for it.
    Asked,
}

/// What a look at the files came to.
pub(super) struct Look {
    pub(super) why: Why,
    /// Whether they are other than what was read last, or is being read.
    pub(super) changed: bool,
    pub(super) seen: Seen,
}

/// What is being read.
pub(super) struct Contents {
    pub(super) seen: Seen,
    /// Whether it was asked for.
    pub(super) asked: bool,
}

/// What was read.
pub(super) struct Reading {
    pub(super) changed: bool,
    pub(super) seen: Seen,
    pub(super) plan: Result<Plan, Refusal>,
}

/// Reads the file at `path` by `parse`, makes the development certificates that it asks for, and
/// notes in `seen` which files belong to it.
pub(super) fn read(
    path: &Path,
    seen: &mut Seen,
    parse: impl Fn() -> Result<Plan, Diagnostics>,
) -> Result<Plan, Diagnostics> {
    let read = parse();
    let (files, has_made) = match &read {
        Ok(plan) => (plan.files.clone(), false),
        Err(problems) => {
            let certificates = problems.certificate_files();
            (named_files(path, certificates), make_certificates(certificates))
        }
    };
    // What is named for the first time was not looked at before it was read.
    let again = has_made || !seen.has_all(&files);
    *seen = if has_made { Seen::look(&files) } else { seen.extend(&files) };
    if again { parse() } else { read }
}

impl Contents {
    /// Reports whether they may be half of a file that is being written. Who asks for them wants
    /// them as they are.
    pub(super) fn may_be_half(&self, guard: Option<&watch::Watcher>) -> bool {
        !self.asked && guard.is_some_and(watch::Watcher::is_being_written)
    }
}
