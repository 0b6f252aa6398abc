//! Tests of users' rules: scenarios through the gates, on a virtual clock.
//!
//! A scenario says what happens and what is expected (`config::read_scenario`); the
//! replay's engine decides. A day takes milliseconds.

mod junit;
mod run;

use crate::config::{self, Diagnostics};
use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
};

/// What to test, and where to write what came of it.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Scenarios.
    #[arg(value_name = "SCENARIO", required = true)]
    pub scenarios: Vec<PathBuf>,
    /// Also write the result as XML in `JUnit`'s form.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// What came of the tests of one file.
#[derive(Debug)]
struct Suite {
    name: String,
    cases: Vec<Case>,
}

/// What came of one test.
#[derive(Debug)]
struct Case {
    name: String,
    /// What was not as expected.
    failures: Vec<String>,
}

/// Why tests could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// A scenario or its configuration has errors.
    #[error("{0}")]
    Scenario(Box<Diagnostics>),
    /// The result cannot be printed.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
    /// The XML cannot be written.
    #[error("cannot write {}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Runs all tests, prints what came of each to `out`, and returns whether all passed.
///
/// # Errors
///
/// A file with errors, before any test has run; a result that cannot be written.
pub fn run(options: &Options, out: &mut impl Write) -> Result<bool, TestError> {
    let refuse = |diagnostics| TestError::Scenario(Box::new(diagnostics));
    let files = options.scenarios.iter().map(|path| config::read_scenario(path).map_err(refuse));
    let files: Vec<_> = files.collect::<Result<_, _>>()?;
    let count: usize = files.iter().map(|file| file.tests.len()).sum();
    writeln!(out, "running {count} {}", if count == 1 { "test" } else { "tests" })?;
    let mut suites = Vec::with_capacity(files.len());
    for file in &files {
        let name = file.path().display().to_string();
        let mut cases = Vec::with_capacity(file.tests.len());
        for test in &file.tests {
            let failures = run::run(test, file.plan().map_err(refuse)?);
            let word = if failures.is_empty() { "ok" } else { "FAILED" };
            writeln!(out, "test {name}: {} ... {word}", test.name)?;
            cases.push(Case { name: test.name.clone(), failures });
        }
        suites.push(Suite { name, cases });
    }
    summary(out, &suites)?;
    if let Some(path) = &options.junit {
        let failed = |source| TestError::File { path: path.clone(), source };
        fs::write(path, junit::document(&suites)).map_err(failed)?;
    }
    Ok(suites.iter().all(|suite| suite.failed() == 0))
}

fn summary(out: &mut impl Write, suites: &[Suite]) -> io::Result<()> {
    let failed: usize = suites.iter().map(Suite::failed).sum();
    let all: usize = suites.iter().map(|suite| suite.cases.len()).sum();
    if failed > 0 {
        writeln!(out, "\nfailures:")?;
    }
    for suite in suites {
        for case in suite.cases.iter().filter(|case| !case.failures.is_empty()) {
            writeln!(out, "\n---- {}: {} ----", suite.name, case.name)?;
            case.failures.iter().try_for_each(|failure| write!(out, "{failure}"))?;
        }
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    writeln!(out, "\ntest result: {word}. {} passed; {failed} failed", all - failed)
}

impl Suite {
    fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.failures.is_empty()).count()
    }
}
