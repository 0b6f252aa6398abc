//! What came of tests.

use crate::config;
use core::time::Duration;

/// What came of the tests of one file.
#[derive(Debug)]
pub(super) struct Suite {
    pub(super) name: String,
    pub(super) cases: Vec<Case>,
    /// Why the file could not be read.
    pub(super) error: Option<config::Diagnostics>,
}

/// What came of one test.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    /// What was not as expected.
    pub(super) failures: Vec<String>,
    pub(super) took: Duration,
}

impl Suite {
    /// Returns how many results it has; a file that cannot be read is one.
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
