//! Test results.

use crate::config;
use core::time::Duration;

#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    pub(super) cases: Vec<Case>,
    /// Why the file could not be read.
    pub(super) error: Option<config::Diagnostics>,
}

#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) failures: Vec<String>,
    pub(super) took: Duration,
}

impl Suite {
    /// Returns the number of results; an unreadable file counts as one.
    pub(super) fn count(&self) -> usize {
        self.cases.len() + usize::from(self.error.is_some())
    }

    pub(super) fn took(&self) -> Duration {
        self.cases.iter().map(|case| case.took).sum()
    }

    pub(super) fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.failures.is_empty()).count()
    }
}
