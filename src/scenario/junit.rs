//! The XML of `JUnit`, as CI servers read it.

use super::Suite;
use core::fmt::Write;

/// Returns the document.
pub(super) fn document(suites: &[Suite]) -> String {
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n");
    // Writing to a String cannot fail.
    _ = suites.iter().try_for_each(|suite| write_suite(&mut out, suite));
    out.push_str("</testsuites>\n");
    out
}

fn write_suite(out: &mut String, suite: &Suite) -> std::fmt::Result {
    let name = crate::replay::escaped(&suite.name);
    let (tests, failures) = (suite.cases.len(), suite.failed());
    writeln!(out, "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\">")?;
    for case in &suite.cases {
        let case_name = crate::replay::escaped(&case.name);
        write!(out, "    <testcase classname=\"{name}\" name=\"{case_name}\"")?;
        if case.failures.is_empty() {
            writeln!(out, "/>")?;
        } else {
            let text: String =
                case.failures.iter().map(|it| crate::replay::escaped_lines(it)).collect();
            writeln!(out, "><failure message=\"not as expected\">{text}</failure></testcase>")?;
        }
    }
    writeln!(out, "  </testsuite>")
}
