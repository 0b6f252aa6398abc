//! Tests of users' rules: scenarios on a virtual clock.
//!
//! A scenario lists events and expectations (`config::read_scenario`); replay's engine decides. A
//! day takes milliseconds.

mod run;

use crate::{
    config::{self, Scenario, Test},
    counted::counted,
    flow::Instant,
    replay::{escaped, escaped_lines},
};
use core::{
    fmt::{self, Write as _},
    time::Duration,
};
use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

/// The options of `flowgate test`.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// The scenarios to run.
    #[arg(value_name = "SCENARIO", required = true)]
    pub scenarios: Vec<PathBuf>,
    /// Also write the result as XML in `JUnit`'s form.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

/// The result of all tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuiteResult {
    /// All tests pass.
    Passed,
    /// A test fails, or a file has errors.
    Failed,
    /// All tests that ran pass, but a file cannot be read.
    Unreadable,
}

/// Why the result cannot be reported.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// It cannot be printed.
    #[error("cannot write the result")]
    Write(#[from] io::Error),
    /// The XML cannot be written.
    #[error("cannot write {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// Runs all tests, with the configuration `config` if given. Prints results to `out`, and before
/// that problems of files to `errors`. `clock` measures how long tests take.
///
/// # Errors
///
/// A result that cannot be written.
pub fn run(
    options: &Options,
    config: Option<&Path>,
    clock: impl Fn() -> Instant,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> Result<SuiteResult, TestError> {
    let read = |path: &PathBuf| (path.display().to_string(), config::read_scenario(path, config));
    let files: Vec<_> = options.scenarios.iter().map(read).collect();
    for problems in files.iter().filter_map(|(_, file)| file.as_ref().err()) {
        writeln!(errors, "{}", problems.to_string().trim_end())?;
    }

    let tests = files.iter().filter_map(|(_, file)| file.as_ref().ok());
    let count: usize = tests.map(|file| file.tests.len()).sum();
    writeln!(out, "running {}", counted(count, "test"))?;

    let mut suites = Vec::with_capacity(files.len());
    for (name, file) in files {
        suites.push(match file {
            Ok(file) => Suite { cases: cases(&name, &file, &clock, out)?, name, error: None },
            Err(problems) => Suite { name, cases: Vec::new(), error: Some(problems) },
        });
    }

    summary(out, &suites)?;
    if let Some(path) = &options.junit {
        let failed = |source| TestError::File { path: path.clone(), source };
        fs::write(path, document(&suites)).map_err(failed)?;
    }
    Ok(result(&suites))
}

fn result(suites: &[Suite]) -> SuiteResult {
    let mut errors = suites.iter().filter_map(|suite| suite.error.as_ref());
    let has_errors = errors.any(|error| !error.is_unreadable());
    if has_errors || suites.iter().any(|suite| suite.failed() > 0) {
        SuiteResult::Failed
    } else if suites.iter().any(|suite| suite.error.is_some()) {
        SuiteResult::Unreadable
    } else {
        SuiteResult::Passed
    }
}

fn cases(
    name: &str,
    file: &Scenario,
    clock: impl Fn() -> Instant,
    out: &mut impl Write,
) -> io::Result<Vec<Case>> {
    let case = |test: &Test| {
        let start = clock();
        let failures = match file.plan() {
            Ok(plan) => run::run(test, plan),
            // The file has been edited since it was read.
            Err(problems) => vec![problems.to_string()],
        };
        let word = if failures.is_empty() { "ok" } else { "FAILED" };
        writeln!(out, "test {name}: {} ... {word}", test.name)?;
        Ok(Case { name: test.name.clone(), failures, took: clock().since(start) })
    };
    file.tests.iter().map(case).collect()
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

    let unread = suites.iter().filter(|suite| suite.error.is_some()).count();
    let word = if failed + unread == 0 { "ok" } else { "FAILED" };
    write!(out, "\ntest result: {word}. {} passed; {failed} failed", all - failed)?;
    match unread {
        0 => writeln!(out),
        _ => writeln!(out, "; {} could not be read", counted(unread, "file")),
    }
}

/// The results of a file.
#[derive(Debug)]
struct Suite {
    name: String,
    cases: Vec<Case>,
    /// The reason why the file could not be read.
    error: Option<config::Diagnostics>,
}

/// The result of a test.
#[derive(Debug)]
struct Case {
    name: String,
    failures: Vec<String>,
    took: Duration,
}

impl Suite {
    /// Returns the number of results; an unreadable file counts as one.
    fn count(&self) -> usize {
        self.cases.len() + usize::from(self.error.is_some())
    }

    fn took(&self) -> Duration {
        self.cases.iter().map(|case| case.took).sum()
    }

    fn failed(&self) -> usize {
        self.cases.iter().filter(|case| !case.failures.is_empty()).count()
    }
}

/// Returns the results as `JUnit` XML for CI servers.
fn document(suites: &[Suite]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    _ = write(&mut out, suites);
    out
}

fn write(out: &mut String, suites: &[Suite]) -> fmt::Result {
    let cases = suites.iter().map(Suite::count).sum();
    let failures = suites.iter().map(Suite::failed).sum();
    let errors = suites.iter().filter(|suite| suite.error.is_some()).count();
    let totals = totals([cases, failures, errors], suites.iter().map(Suite::took).sum());
    writeln!(out, "<testsuites {totals}>")?;
    suites.iter().try_for_each(|suite| write_suite(out, suite))?;
    writeln!(out, "</testsuites>")
}

fn write_suite(out: &mut String, suite: &Suite) -> fmt::Result {
    let name = escaped(&suite.name);
    let counts = [suite.count(), suite.failed(), usize::from(suite.error.is_some())];
    writeln!(out, "  <testsuite name=\"{name}\" {}>", totals(counts, suite.took()))?;

    if let Some(error) = &suite.error {
        writeln!(out, "    <testcase classname=\"{name}\" name=\"is read\" time=\"0.000\">")?;
        let text = escaped_lines(&error.to_string());
        writeln!(out, "<error message=\"cannot be read\">{text}</error></testcase>")?;
    }

    for case in &suite.cases {
        let case_name = escaped(&case.name);
        let time = seconds(case.took);
        write!(out, "    <testcase classname=\"{name}\" name=\"{case_name}\" time=\"{time}\"")?;
        if case.failures.is_empty() {
            writeln!(out, "/>")?;
        } else {
            let text: String = case.failures.iter().map(|failure| escaped_lines(failure)).collect();
            writeln!(out, "><failure message=\"not as expected\">{text}</failure></testcase>")?;
        }
    }
    writeln!(out, "  </testsuite>")
}

fn totals(counts: [usize; 3], time: Duration) -> String {
    let [tests, failures, errors] = counts;
    let time = seconds(time);
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{time}\"")
}

/// Writes the real time of tests in seconds.
fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}
