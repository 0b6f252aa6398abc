//! Editing the file in the dashboard: its text, checks of an edited text, and saving it.
//!
//! The file is read and compiled beside the control thread, which only puts the result in force.

use crate::{
    access_log::Output,
    config::{self, Diagnostic, Diagnostics, Live, Plan, Text},
    flow::Instant,
};
use serde::Serialize;
use serde_json::{Map, Value};
use std::path::Path;
use tokio::sync::oneshot;

/// The most problems that are named.
const MOST_PROBLEMS: usize = 50;

/// The result of a check.
#[derive(Debug, Serialize)]
pub(crate) struct Checked {
    /// True if it could be saved.
    pub ok: bool,
    /// The number of problems: errors, or warnings and notes.
    count: usize,
    /// The first ones, in the order of the file.
    problems: Vec<Diagnostic>,
    /// Its differences from the file in force, as `flowgate diff` prints them.
    #[serde(skip_serializing_if = "Option::is_none")]
    diff: Option<String>,
}

impl Checked {
    /// Checks `text` in the place of the file in force. The time of the wall clock is `now`.
    pub(crate) fn of(live: &Live, text: &[u8], now: Instant) -> Self {
        let snapshot = live.load_full();
        let (path, in_force) = snapshot.main_file();
        let checked = plan(path, text)
            .and_then(|plan| live.sealed(plan))
            .and_then(|plan| can_log(&plan).map(|()| plan));
        match checked {
            Err(problems) => Self::failed(&problems),
            Ok(new) => {
                let remarks = new.remarks_at(now);
                // What it includes may be broken by now.
                let diff = plan(path, in_force.as_bytes())
                    .ok()
                    .map(|old| config::diff(&old, &new).to_string());
                Self { ok: true, diff, ..Self::failed(&remarks) }
            }
        }
    }

    /// Returns the result of a check that found errors.
    pub(crate) fn failed(problems: &Diagnostics) -> Self {
        let count = problems.count();
        let problems = problems.list().take(MOST_PROBLEMS).collect();
        Self { ok: false, count, problems, diff: None }
    }
}

fn plan(path: &Path, text: &[u8]) -> Result<Plan, Diagnostics> {
    Text::given(path, text)?.plan()
}

/// Checks whether the access log could be opened, without creating its file.
fn can_log(plan: &Plan) -> Result<(), Diagnostics> {
    Output::check(&plan.settings.access_log).map_err(|error| plan.cannot_log(&error))
}

/// The file as it is on the disk.
#[derive(Debug, Serialize)]
pub(crate) struct Loaded {
    /// Its name.
    file: String,
    /// The hash that a save names, so that it replaces this text and no other.
    pub hash: String,
    text: String,
    /// The files that it includes, which are not edited here.
    included: Vec<String>,
}

/// Why the text is not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("cannot read the file: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("the file is not UTF-8")]
    NoText,
    /// The line of it.
    #[error(
        "line {0} of the file has a secret, so the file is not shown: write `${{NAME}}` in its place \
         and put the secret into the environment, or into a file if there is a key for one"
    )]
    Secret(usize),
}

impl Loaded {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, LoadError> {
        let bytes = config::read_bytes(path)?;
        let hash = shown(config::content_hash(&bytes));
        let text = String::from_utf8(bytes).map_err(|_| LoadError::NoText)?;
        if let Some(line) = config::line_of_secret(&text) {
            return Err(LoadError::Secret(line));
        }
        let read = Text::given(path, text.as_bytes());
        let names = |text: &Text| text.included().map(|path| path.display().to_string()).collect();
        let included = read.as_ref().map(names).unwrap_or_default();
        Ok(Self { file: path.display().to_string(), hash, text, included })
    }
}

/// Writes a hash as `If-Match` and `ETag` have it, without quotes.
fn shown(hash: u64) -> String {
    format!("{hash:016x}")
}

/// A new text for the file in force.
#[derive(Debug)]
pub struct Save {
    /// The new text.
    pub text: Vec<u8>,
    /// The [`crate::config::content_hash`] of the file that was edited.
    pub of: u64,
    /// For what that did, in words.
    pub reply: oneshot::Sender<Result<String, SaveError>>,
}

/// Why the file was not replaced. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The new text has errors.
    #[error("{0}")]
    Invalid(Diagnostics),
    /// The file is another than the one that was edited.
    #[error("the file has changed since it was loaded: load it again")]
    Changed,
    /// It is not the time for it.
    #[error("{0}")]
    Conflict(&'static str),
    /// The file cannot be written, or a listener not opened.
    #[error("{0}")]
    Failed(String),
}

/// The parts of the schema that completion needs. Under `properties` and `$defs` the keys are names.
const KEPT: [&str; 12] = [
    "$defs",
    "$ref",
    "additionalProperties",
    "anyOf",
    "const",
    "description",
    "enum",
    "items",
    "oneOf",
    "properties",
    "type",
    "x-example",
];

/// The longest description, in characters.
const LONGEST: usize = 100;

/// Returns the schema, shortened, as JSON.
pub(crate) fn completion() -> String {
    shortened(&config::schema_value()).to_string()
}

fn shortened(schema: &Value) -> Value {
    match schema {
        Value::Object(fields) => {
            Value::Object(fields.iter().filter_map(|(name, value)| field(name, value)).collect())
        }
        Value::Array(list) => list.iter().map(shortened).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => schema.clone(),
    }
}

fn field(name: &str, value: &Value) -> Option<(String, Value)> {
    let value = match (name, value) {
        ("$defs", Value::Object(named)) => {
            let named = named.iter().map(|(name, map)| (name.clone(), without_description(map)));
            Value::Object(named.collect::<Map<_, _>>())
        }
        ("properties", Value::Object(named)) => {
            let named = named.iter().map(|(name, value)| (name.clone(), shortened(value)));
            Value::Object(named.collect::<Map<_, _>>())
        }
        ("description", Value::String(text)) => Value::from(beginning(text)),
        // What says nothing that a suggestion could say.
        ("additionalProperties", Value::Bool(_)) => return None,
        ("type", kind) => {
            // One that may have a variable is a text, too.
            let first = kind.get(0).unwrap_or(kind);
            (first == "boolean").then(|| first.clone())?
        }
        (word, value) if KEPT.contains(&word) => shortened(value),
        _ => return None,
    };
    Some((name.to_owned(), value))
}

/// Returns the parts of a map, whose keys have descriptions that completion shows: its own is not shown.
fn without_description(map: &Value) -> Value {
    let mut map = shortened(map);
    if let Value::Object(fields) = &mut map {
        fields.remove("description");
    }
    map
}

/// Returns the first sentence, or as much of it as has room.
fn beginning(text: &str) -> String {
    let sentence = text.split(". ").next().unwrap_or_default();
    if sentence.chars().count() <= LONGEST {
        return sentence.trim_end_matches('.').to_owned();
    }
    let cut: String = sentence.chars().take(LONGEST).collect();
    let end = cut.rfind(' ').unwrap_or(cut.len());
    format!("{}…", cut[..end].trim_end_matches([',', ':', ';']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_with_a_secret_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        fs::write(&path, "# one\nstore: { redis: 'redis://:pass@host' }\n").unwrap();
        let error = Loaded::read(&path).unwrap_err().to_string();
        assert!(error.starts_with("line 2 of the file has a secret"), "{error}");
        assert!(!error.contains("pass@"));
        fs::write(&path, b"a: \xff").unwrap();
        assert!(matches!(Loaded::read(&path), Err(LoadError::NoText)));
    }

    #[test]
    fn the_text_is_the_files_and_what_it_includes_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        let text = "\u{feff}include: more.yaml # stays\r\n";
        fs::write(&path, text).unwrap();
        fs::write(folder.path().join("more.yaml"), "routes: []\n").unwrap();
        let loaded = Loaded::read(&path).unwrap();
        assert_eq!(loaded.text, text);
        assert_eq!(loaded.included, [folder.path().join("more.yaml").display().to_string()]);
        let parsed = u64::from_str_radix(&loaded.hash, 16).unwrap();
        assert_eq!(parsed, config::content_hash(text.as_bytes()));
    }

    #[test]
    fn keys_words_and_descriptions_are_kept_and_all_else_is_left_out() {
        let text = completion();
        assert!(text.len() <= 64 * 1024, "{} bytes", text.len());
        let schema: Value = serde_json::from_str(&text).unwrap();
        let file = &schema["$defs"]["FileSpec"]["properties"];
        assert_eq!(file["routes"]["items"]["$ref"], "#/$defs/RouteSpec");
        let full = config::schema_value();
        let names = |schema: &Value, of: &str| -> Vec<String> {
            let keys = schema["$defs"][of]["properties"].as_object().unwrap();
            keys.keys().cloned().collect()
        };
        for of in full["$defs"].as_object().unwrap().keys() {
            assert_eq!(names(&schema, of), names(&full, of), "{of}");
        }
        let dry_run = &schema["$defs"]["RuleSpec"]["properties"]["dry_run"];
        assert_eq!(dry_run["type"], "boolean");
        assert!(dry_run["description"].as_str().is_some_and(|text| !text.is_empty()));
    }
}
