//! Files that values of the configuration name; those of plans are CSV with a row for each plan.

use super::compiler::Compiler;
use crate::{
    config::{
        decode::At,
        diagnostics::{Problem, quoted},
        read::source::Files,
        spec::FileSpec,
    },
    counted::counted,
};
use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::PathBuf,
    sync::Arc,
};

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

/// Returns what `parse` makes of a file, and what its bytes hash to. `parse` says what is wrong and
/// what to do.
pub(super) fn read<T>(
    file: &At<PathBuf>,
    files: &Files,
    what: &str,
    parse: impl FnOnce(&str) -> Result<T, (String, &'static str)>,
) -> Result<(T, u64), Problem> {
    let shown = quoted(&file.value.to_string_lossy());
    let problem = |message: String, help: &str| Problem::error(file.span, message).help(help);
    let bytes = match files.get(&file.value) {
        Some(Ok(bytes)) => bytes,
        Some(Err(why)) => {
            let help = "write the name of a file that the gateway's user may read; relative names \
                        are meant from this file's folder";
            return Err(problem(format!("cannot read the {what} {shown}: {why}"), help));
        }
        None => return Err(problem(format!("the {what} {shown} was not read"), "")),
    };
    let text = str::from_utf8(bytes)
        .map_err(|_| problem(format!("the {what} {shown} is not UTF-8"), "write it as text"))?;
    let parsed = parse(text)
        .map_err(|(wrong, help)| problem(format!("the {what} {shown} {wrong}"), help))?;
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    Ok((parsed, hasher.finish()))
}
