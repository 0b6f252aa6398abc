//! Files of plans: CSV with a row for each plan.

use super::{compiler::Compiler, named_file::read};
use crate::{
    config::{read::source::Files, spec::FileSpec},
    counted::counted,
};
use std::{path::PathBuf, sync::Arc};

/// The hint for a file that is not one of plans.
const HELP: &str = "begin the file with the line `key,limit` or `key,limit,burst`, and write a plan a line, as in \
     `gold,1000/1m`";

/// The rows of a file of plans.
#[derive(Debug)]
pub(super) struct PlanFile {
    pub(super) path: PathBuf,
    pub(super) rows: Vec<PlanRow>,
    /// A hash of the contents.
    pub(super) print: u64,
}

/// A row of a file of plans, as it is written.
#[derive(Debug)]
pub(super) struct PlanRow {
    pub(super) key: String,
    pub(super) limit: String,
    /// Empty: the rule's.
    pub(super) burst: String,
    pub(super) line: u64,
}

impl Compiler {
    /// Reads the files of plans that `spec` names, each once.
    pub(super) fn plan_files(&mut self, spec: &FileSpec, files: &Files) {
        for named in spec.plan_files() {
            if self.plan_files.contains_key(&named.value) {
                continue;
            }
            let file = match read(&named, files, "file of plans", parse) {
                Ok((rows, print)) => {
                    Some(Arc::new(PlanFile { path: named.value.clone(), rows, print }))
                }
                Err(problem) => {
                    self.error(problem);
                    None
                }
            };
            self.plan_files.insert(named.value, file);
        }
    }
}

/// Reads a file: a row for each plan.
fn parse(text: &str) -> Result<Vec<PlanRow>, (String, &'static str)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    // A program that writes a file anew empties it first.
    if text.is_empty() {
        return Err(("is empty".to_owned(), HELP));
    }

    let mut reader =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(text.as_bytes());
    let faulty = |line: u64, what: &str| (format!("cannot be used: line {line}: {what}"), HELP);
    let header = reader.headers().map_err(|_| faulty(1, "it is not CSV"))?;
    let columns: Vec<_> = header.iter().collect();
    let has_burst = match columns[..] {
        ["key", "limit"] => false,
        ["key", "limit", "burst"] => true,
        _ => return Err(faulty(1, "it does not name the columns")),
    };

    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| {
            let line = error.position().map_or(0, |at| line_of(text, at));
            faulty(line, "it is not CSV")
        })?;
        let line = record.position().map_or(0, |at| line_of(text, at));
        let fields: Vec<_> = record.iter().collect();
        let [key, limit, burst] = match fields[..] {
            [key, limit] if !has_burst => [key, limit, ""],
            [key, limit, burst] if has_burst => [key, limit, burst],
            _ => {
                let found = counted(fields.len(), "column");
                let wanted = 2 + usize::from(has_burst);
                return Err(faulty(line, &format!("{found} in place of {wanted}")));
            }
        };
        if key.is_empty() {
            return Err(faulty(line, "no key"));
        }
        let [key, limit, burst] = [key, limit, burst].map(ToOwned::to_owned);
        rows.push(PlanRow { key, limit, burst, line });
    }
    Ok(rows)
}

/// Returns the line of a record. Empty lines before it belong to its position.
fn line_of(text: &str, position: &csv::Position) -> u64 {
    let start = usize::try_from(position.byte()).unwrap_or(usize::MAX);
    let rest = text.as_bytes().get(start..).unwrap_or_default();
    let empty = rest.iter().take_while(|byte| matches!(byte, b'\n' | b'\r'));
    let lines = empty.filter(|byte| **byte == b'\n').count();
    position.line() + u64::try_from(lines).unwrap_or_default()
}
