//! `flowgate check`: all problems of a configuration, or what its rules promise.

use super::{CheckOptions, Format};
use crate::{
    access_log::Output,
    certs, clock,
    config::{self, Diagnostic, Diagnostics, Plan, RoutePromises, ShownCertificate},
};
use serde::Serialize;
use std::{
    io::{self, Write},
    path::Path,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
/// The result of a check.
pub enum CheckResult {
    /// Nothing is wrong.
    Fine,
    /// The file has errors, or warnings that are denied.
    Problems,
    /// The file cannot be read.
    Unreadable,
}

struct Findings {
    /// Errors, or warnings and notes.
    problems: Option<Diagnostics>,
    plan: Option<Plan>,
    /// Text instead of the promises.
    note: Option<String>,
}

/// The JSON output.
#[derive(Serialize)]
struct JsonReport<'a> {
    file: &'a Path,
    ok: bool,
    problems: Vec<Diagnostic>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promises: Option<Vec<RoutePromises>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    certificates: Option<Vec<ShownCertificate>>,
}

/// Checks the file at `path`, or standard input if it is `-`. Prints promises to `out` and problems
/// to `errors`; as JSON, both to `out`. Writes no file.
///
/// # Errors
/// `out` cannot be written to.
pub fn run(
    path: &Path,
    options: CheckOptions,
    out: &mut impl Write,
    errors: &mut impl Write,
) -> io::Result<CheckResult> {
    let findings = find(path, options.without_certificates);
    let result = findings.result(options.deny_warnings);

    match options.output {
        Format::Json => {
            let report = JsonReport {
                file: path,
                ok: result == CheckResult::Fine,
                problems: findings.problems.iter().flat_map(Diagnostics::list).collect(),
                note: findings.note.as_deref(),
                promises: findings.plan.as_ref().map(config::promises),
                certificates: findings.plan.as_ref().map(Plan::certificates),
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&report)?)?;
        }
        Format::Text => {
            if let Some(problems) =
                findings.problems.as_ref().filter(|problems| !problems.is_empty())
            {
                // If printing fails, the exit code still reports problems.
                drop(writeln!(errors, "{}", problems.to_string().trim_end()));
            }
            let described = findings.plan.as_ref().map(config::describe);
            if let Some(text) = described.or(findings.note) {
                writeln!(out, "{}", text.trim_end())?;
            }
        }
    }
    out.flush()?;
    Ok(result)
}

impl Findings {
    fn result(&self, deny_warnings: bool) -> CheckResult {
        let is_read = self.plan.is_some() || self.note.is_some();
        match &self.problems {
            Some(problems) if problems.is_unreadable() => CheckResult::Unreadable,
            Some(problems) if !is_read || (deny_warnings && problems.has_warnings()) => {
                CheckResult::Problems
            }
            _ => CheckResult::Fine,
        }
    }
}

fn find(path: &Path, is_without_certificates: bool) -> Findings {
    let failed = |problems| Findings { problems: Some(problems), plan: None, note: None };
    let text = match config::Text::read(path) {
        Ok(text) => text,
        Err(problems) => return failed(problems),
    };
    let read = if is_without_certificates { text.rules() } else { text.plan() };
    let checked = match read {
        Ok(plan) => can_log(&plan).map(|()| {
            let problems = Some(plan.remarks_at(clock::Clock::start().now()));
            Findings { problems, plan: Some(plan), note: None }
        }),
        Err(problems) => match only_development_certificates(&problems) {
            Some(note) => text.rules().and_then(|plan| can_log(&plan)).map(|()| Findings {
                problems: None,
                plan: None,
                note: Some(note),
            }),
            None => Err(problems),
        },
    };
    checked.unwrap_or_else(failed)
}

/// Checks whether the access log could be opened, without creating its file.
fn can_log(plan: &Plan) -> Result<(), Diagnostics> {
    Output::check(&plan.settings.access_log).map_err(|error| plan.cannot_log(&error))
}

/// Returns a note if the only problem is missing certificates that `run` would create.
fn only_development_certificates(problems: &Diagnostics) -> Option<String> {
    let missing: Vec<_> = problems
        .certificate_files()
        .iter()
        .filter(|(certificate, key)| !certificate.exists() || !key.exists())
        .collect();
    let are_made = missing.iter().all(|(certificate, key)| certs::would_make(certificate, key));
    (problems.are_missing_files() && are_made).then(|| {
        let names = missing.iter().map(|(certificate, _)| certificate.display().to_string());
        format!(
            "No errors. `check` describes the rules once these certificates exist, which \
             `flowgate run` creates for development:\n  {}",
            names.collect::<Vec<_>>().join("\n  ")
        )
    })
}
