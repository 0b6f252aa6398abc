//! `JUnit` XML for CI servers.

use super::suite::Suite;
use crate::replay::{escaped, escaped_lines};
use core::{fmt::Write, time::Duration};

pub(super) fn document(suites: &[Suite]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    // Writing to a String cannot fail.
    _ = write(&mut out, suites);
    out
}

fn write(out: &mut String, suites: &[Suite]) -> std::fmt::Result {
    let cases = suites.iter().map(Suite::count).sum();
    let failures = suites.iter().map(Suite::failed).sum();
    let errors = suites.iter().filter(|suite| suite.error.is_some()).count();
    let totals = totals([cases, failures, errors], suites.iter().map(Suite::took).sum());
    writeln!(out, "<testsuites {totals}>")?;
    suites.iter().try_for_each(|suite| write_suite(out, suite))?;
    writeln!(out, "</testsuites>")
}

fn write_suite(out: &mut String, suite: &Suite) -> std::fmt::Result {
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

fn totals([tests, failures, errors]: [usize; 3], time: Duration) -> String {
    let time = seconds(time);
    format!("tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" time=\"{time}\"")
}

/// Writes the real time of tests in seconds.
fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}
