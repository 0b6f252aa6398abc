//! `flowgate check`: everything that is wrong with a configuration, or what it promises.

use crate::{
    access_log::Output,
    certs,
    cli::{CheckOptions, Format},
    clock,
    config::{self, Diagnostics, Entry, Plan, RoutePromises},
};
use serde::Serialize;
use std::{
    io::{self, Write},
    path::Path,
};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong.
    Fine,
    /// The file has errors, or warnings that are denied.
    Problems,
    /// The file cannot be read.
    Unreadable,
}

/// What a check found.
struct Found {
    /// Errors, or warnings and notes.
    problems: Option<Diagnostics>,
    plan: Option<Plan>,
    /// What to print in place of the promises.
    note: Option<String>,
}

/// What is printed for programs.
#[derive(Serialize)]
struct Page<'a> {
    file: &'a Path,
    ok: bool,
    problems: Vec<Entry>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    promises: Option<Vec<RoutePromises>>,
}

/// Checks the file at `path`, the standard input if that is `-`. Prints what the file promises to
/// `out` and problems to `complaints`; as JSON, both to `out`. Writes no file.
///
/// # Errors
/// `out` cannot be written to.
pub fn run(
    path: &Path,
    options: CheckOptions,
    out: &mut impl Write,
    complaints: &mut impl Write,
) -> io::Result<Verdict> {
    let found = find(path);
    let verdict = found.verdict(options.deny_warnings);
    match options.output {
        Format::Json => {
            let page = Page {
                file: path,
                ok: verdict == Verdict::Fine,
                problems: found.problems.iter().flat_map(Diagnostics::entries).collect(),
                note: found.note.as_deref(),
                promises: found.plan.as_ref().map(config::promises),
            };
            writeln!(out, "{}", serde_json::to_string_pretty(&page)?)?;
        }
        Format::Text => {
            if let Some(problems) = found.problems.as_ref().filter(|it| !it.is_empty()) {
                // Where problems cannot be printed, the exit code still shows that there are some.
                drop(writeln!(complaints, "{}", problems.to_string().trim_end()));
            }
            let described = found.plan.as_ref().map(config::describe);
            if let Some(text) = described.or(found.note) {
                writeln!(out, "{}", text.trim_end())?;
            }
        }
    }
    out.flush()?;
    Ok(verdict)
}

impl Found {
    fn verdict(&self, deny_warnings: bool) -> Verdict {
        let is_read = self.plan.is_some() || self.note.is_some();
        match &self.problems {
            Some(problems) if problems.is_unreadable() => Verdict::Unreadable,
            Some(problems) if !is_read || (deny_warnings && problems.has_warnings()) => {
                Verdict::Problems
            }
            _ => Verdict::Fine,
        }
    }
}

fn find(path: &Path) -> Found {
    let failed = |problems| Found { problems: Some(problems), plan: None, note: None };
    let text = match config::Text::read(path) {
        Ok(text) => text,
        Err(problems) => return failed(problems),
    };
    let checked = match text.plan() {
        Ok(plan) => can_log(&plan).map(|()| {
            let problems = Some(plan.remarks_at(clock::Clock::start().now()));
            Found { problems, plan: Some(plan), note: None }
        }),
        Err(problems) => match only_development_certificates(&problems) {
            Some(note) => text.rules().and_then(|plan| can_log(&plan)).map(|()| Found {
                problems: None,
                plan: None,
                note: Some(note),
            }),
            None => Err(problems),
        },
    };
    checked.unwrap_or_else(failed)
}

/// Looks whether the access log could be opened, without creating its file.
fn can_log(plan: &Plan) -> Result<(), Diagnostics> {
    Output::look(&plan.settings.access_log).map_err(|error| plan.cannot_log(&error))
}

/// Returns what to say if the only problem is that certificates are missing which `run` would
/// create.
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
