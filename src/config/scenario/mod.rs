//! `scenario.yaml`: tests of a configuration, read and checked as the configuration is.
//!
//! ```yaml
//! config: gateway.yaml                # or the configuration itself, as a map
//! tests:
//!   - name: a client gets a hundred a minute
//!     steps:
//!       - at 0s: 120 x GET /a from 192.0.2.4 -> 100 passed, 20 rejected by per-client
//! ```

mod sentence;
mod words;

pub use sentence::{Arrivals, Bound, Count, Expect, Measure, Numbered, Spread, What, When, Word};

use crate::config::{
    decode::{self, At, Either, Entries, List},
    diagnostics::{Diagnostics, Problem, Problems, Source, SourceSpan},
    load,
    plan::Plan,
    read::{
        Content, Masked, Node, source,
        yaml::{self, Budget},
    },
    spec::{
        FileSpec,
        keys::keys,
        leaf::{FileName, Sentence, Text},
    },
    vocabulary::{Described, Form},
};
use serde::{Deserialize, Deserializer};
use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

/// A file of tests.
#[derive(Debug)]
pub struct Scenario {
    source: Source,
    config: Config,
    /// In the order of the file.
    pub tests: Vec<Test>,
}

/// One test: a gateway's life from its start.
#[derive(Debug)]
pub struct Test {
    /// Its name.
    pub name: String,
    /// The steps, in the order of the file.
    pub steps: Vec<Step>,
}

/// One thing that happens, and what is expected of it.
#[derive(Debug)]
pub struct Step {
    /// From 1.
    pub line: usize,
    /// As it is written.
    pub text: String,
    /// The time of the step.
    pub when: When,
    /// The requests, or the edit, of the step.
    pub what: What,
}

#[derive(Debug)]
enum Config {
    File(PathBuf),
    /// In the scenario itself.
    Inline,
}

keys! {
    /// A file of tests.
    struct ScenarioSpec: "a scenario" {
        /// The configuration under test: a file, or the configuration itself; needed unless another
        /// is named on the command line.
        config: Either<FileName, Unread>, else "–";
        /// The tests; each begins with a gateway that has seen nothing.
        tests: List<TestSpec>;
    }

    /// One test.
    struct TestSpec: "a test" {
        /// What it shows.
        name: Text;
        /// What happens, in the order of time.
        steps: List<StepSpec>;
    }
}

/// A time and a sentence, parted by a colon: to YAML a map of one entry, or a text in quotes.
type StepSpec = Either<Sentence, Entries<Sentence, Sentence>>;

/// The purpose of another reading.
#[derive(Debug)]
pub(in crate::config) struct Unread;

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Self, D::Error> {
        Ok(Self)
    }
}

impl Described for Unread {
    const FORM: &'static Form = &Form::Unread;
}

/// Returns where a file without tests lists what a gateway has.
fn configuration(root: &Node<'_>) -> Option<SourceSpan> {
    let Content::Map(entries) = &root.content else { return None };
    let find = |key: &str| entries.iter().find(|(name, _)| name.text == key);
    let listed = ["listeners", "upstreams", "routes"].into_iter().find_map(find);
    listed.filter(|_| find("tests").is_none()).map(|(name, _)| name.span)
}

/// Reads the scenario at `path`; the configuration that it tests is the file `instead`, if
/// one is named.
///
/// # Errors
/// Everything that is wrong with it, each with its span.
pub fn read_scenario(path: &Path, instead: Option<&Path>) -> Result<Scenario, Diagnostics> {
    let source = source::read(path)?;
    let masked = Masked::of(&source.text);
    let tree = yaml::read(&masked, None, &mut Budget::default())
        .map_err(|problem| Diagnostics::new(&source, problem))?;
    let root = tree.root;
    if let Some(span) = configuration(&root) {
        let problem = Problem::error(span, "the file is a configuration, not a scenario")
            .help("check it with `flowgate check FILE`; a scenario has `config` and `tests`");
        return Err(Diagnostics::new(&source, problem));
    }
    let decoded = decode::read::<ScenarioSpec>(&root, &source);
    let mut problems = decoded.problems;
    let read = decoded.value.and_then(|spec| {
        let tests = tests(&spec, &source, &mut problems);
        Some((config(&spec, root.span, &source, instead, &mut problems)?, tests))
    });
    let (config, tests) = match read {
        Some(read) if problems.is_empty() => read,
        _ => return Err(Diagnostics::new(&source, problems)),
    };
    let scenario = Scenario { config, tests, source: source.clone() };
    // What is wrong with the configuration is reported before any test begins.
    scenario.plan()?;
    Ok(scenario)
}

impl Scenario {
    /// Returns the file as it was named.
    pub fn path(&self) -> &Path {
        &self.source.path
    }

    /// Compiles the configuration.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn plan(&self) -> Result<Plan, Diagnostics> {
        let Config::File(path) = &self.config else { return self.inline() };
        load::read_rules(path)
    }

    fn inline(&self) -> Result<Plan, Diagnostics> {
        let source = &self.source;
        let masked = Masked::of(&source.text);
        let tree = yaml::read(&masked, Some(source.environment), &mut Budget::default())
            .map_err(|problem| Diagnostics::new(source, problem))?;
        let source = &Source { substitutions: Arc::new(tree.substitutions), ..source.clone() };
        let mut problems = tree.problems;
        let spec = tree.root.entry("config").and_then(|node| {
            let decoded = decode::read::<FileSpec>(node, source);
            problems.extend(decoded.problems);
            decoded.value
        });
        if let Some(span) = spec.as_ref().and_then(|spec| spec.include.span) {
            let problem = Problem::error(span, "`include` works only in a separate file");
            problems.add(problem.help("write `config: FILE`, and `include` in that file"));
        }
        let spec = spec.map(|spec| spec.resolved(source).without_files());
        load::plan(source, spec, problems)
    }
}

fn config(
    spec: &ScenarioSpec,
    start: SourceSpan,
    source: &Source,
    instead: Option<&Path>,
    problems: &mut Problems,
) -> Option<Config> {
    match (instead, &spec.config.at) {
        (Some(path), _) => Some(Config::File(path.to_owned())),
        (None, Some(At { value: Either::Map(_), .. })) => Some(Config::Inline),
        (None, Some(At { value: Either::Plain(file), .. })) => {
            Some(Config::File(source.folder().join(&file.0)))
        }
        (None, None) => {
            if !spec.config.is_written() {
                let problem = Problem::error(start, "a scenario needs `config`");
                problems.add(problem.help("write `config: gateway.yaml`, or name it with `-c`"));
            }
            None
        }
    }
}

fn tests(spec: &ScenarioSpec, source: &Source, problems: &mut Problems) -> Vec<Test> {
    let mut tests = Vec::new();
    for at in spec.tests.items() {
        let steps = at.value.steps.items().iter();
        let steps = steps.filter_map(|at| step(at, source, problems)).collect();
        let name = at.value.name.value();
        tests.extend(name.map(|name| Test { name: name.0.clone(), steps }));
    }
    tests
}

fn step(at: &At<StepSpec>, source: &Source, problems: &mut Problems) -> Option<Step> {
    let text = &source.text;
    let parts = match parts(at, text) {
        Ok(parts) => parts?,
        Err(problem) => {
            problems.add(problem);
            return None;
        }
    };
    let [(at, when), (span, what)] = parts;
    let line = text[..at.range().start].matches('\n').count() + 1;
    let whole = format!("{when}: {what}");
    let time = mark(problems, text, at, when, sentence::when(when));
    let what = mark(problems, text, span, what, sentence::what(what, source.folder()));
    Some(Step { line, text: whole, when: time?, what: what? })
}

/// Parts a step into time and sentence; there are none if one could not be read.
fn parts<'n>(
    at: &'n At<StepSpec>,
    text: &str,
) -> Result<Option<[(SourceSpan, &'n str); 2]>, Problem> {
    match &at.value {
        Either::Map(Entries(entries)) => match &entries[..] {
            [(when, what)] => Ok(what
                .as_ref()
                .map(|what| [(when.span, &*when.value.0), (what.span, &*what.value.0)])),
            [] => Err(no_step(at.span)),
            _ => Err(no_step(at.span).label("more than one")),
        },
        Either::Plain(Sentence(sentence)) => {
            let Some((when, what)) = sentence.split_once(": ") else {
                return Err(no_step(at.span));
            };
            let written = text.get(at.span.range()).unwrap_or_default();
            // Where there are escapes all of it is marked.
            let span = |part: &str| {
                let start = at.span.range().start + written.find(part)?;
                Some(SourceSpan::of(start..start + part.len()))
            };
            let parts = [when, what].map(str::trim);
            Ok(Some(parts.map(|part| (span(part).unwrap_or(at.span), part))))
        }
    }
}

/// Returns what was found, or reports what is wrong with the `text` at `span`.
fn mark<T>(
    problems: &mut Problems,
    file: &str,
    span: SourceSpan,
    text: &str,
    found: Result<T, words::Wrong>,
) -> Option<T> {
    let as_written = file.get(span.range()) == Some(text);
    found.map_err(|wrong| problems.add(wrong.problem(span, as_written))).ok()
}

fn no_step(span: SourceSpan) -> Problem {
    Problem::error(span, "a step is a time and a sentence")
        .help("write `- at 0s: 120 x GET /a -> 100 passed, 20 rejected by per-client`")
}

#[cfg(test)]
mod tests;
