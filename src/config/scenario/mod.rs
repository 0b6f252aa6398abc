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

pub use sentence::{Arrivals, Bound, Count, Expect, Measure, Numbered, Spread, What, When, Word};

use super::{
    decode::{Decoder, Fields},
    error::{Diagnostics, Source},
    node::{Content, Node, Place},
    plan::Plan,
    problem::Problem,
    source,
    spec::FileSpec,
    values,
    vocabulary::{Default, Key, Kind, Section},
    yaml,
};
use std::path::{Path, PathBuf};

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
    /// What happens to it.
    pub steps: Vec<Step>,
}

/// One thing that happens, and what is expected of it.
#[derive(Debug)]
pub struct Step {
    /// From 1.
    pub line: usize,
    /// As it is written.
    pub text: String,
    /// When.
    pub when: When,
    /// What.
    pub what: What,
}

#[derive(Debug)]
enum Config {
    File(PathBuf),
    /// In the scenario itself.
    Inline,
}

static FILE: Section = Section {
    title: "a scenario",
    doc: "",
    keys: &[
        Key {
            name: "config",
            kind: Kind::File,
            default: Default::Absent,
            doc: "The configuration under test: a file, or the configuration itself; needed unless \
                  another is named on the command line.",
        },
        Key {
            name: "tests",
            kind: Kind::List(&Kind::Section(&TEST)),
            default: Default::Required,
            doc: "The tests; each begins with a gateway that has seen nothing.",
        },
    ],
};

static TEST: Section = Section {
    title: "a test",
    doc: "",
    keys: &[
        Key { name: "name", kind: Kind::Text, default: Default::Required, doc: "What it shows." },
        Key {
            name: "steps",
            kind: Kind::List(&Kind::Text),
            default: Default::Required,
            doc: "What happens, in the order of time.",
        },
    ],
};

/// Reads the scenario at `path`; the configuration that it tests is the file `instead`, if
/// one is named.
///
/// # Errors
/// Everything that is wrong with it, each at its place.
pub fn read_scenario(path: &Path, instead: Option<&Path>) -> Result<Scenario, Diagnostics> {
    let source = source::read(path)?;
    let root = yaml::read(&source.text).map_err(|problem| Diagnostics::new(&source, problem))?;
    let mut decoder = Decoder::new(&source.text);
    let read = scenario(&mut decoder, &root, &folder(&source), instead);
    let (config, tests) = match read {
        Some(read) if decoder.problems.is_empty() => read,
        _ => return Err(Diagnostics::new(&source, decoder.problems)),
    };
    let scenario = Scenario { config, tests, source: source.clone() };
    // What is wrong with the configuration is told before any test begins.
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
        super::read_rules(path)
    }

    fn inline(&self) -> Result<Plan, Diagnostics> {
        let source = &self.source;
        let root = yaml::read(&source.text).map_err(|problem| Diagnostics::new(source, problem))?;
        let mut decoder = Decoder::new(&source.text);
        let fields = decoder.fields(&root, &FILE);
        let node = fields.as_ref().and_then(|fields| fields.node("config"));
        let spec = node.and_then(|(_, node)| FileSpec::read(&mut decoder, node, &folder(source)));
        super::plan(source, spec.map(FileSpec::without_certificates), decoder.problems)
    }
}

fn folder(source: &Source) -> PathBuf {
    source.path.parent().unwrap_or_else(|| Path::new("")).to_owned()
}

fn scenario<'s>(
    d: &mut Decoder<'s>,
    root: &Node<'s>,
    folder: &Path,
    instead: Option<&Path>,
) -> Option<(Config, Vec<Test>)> {
    let fields = d.fields(root, &FILE)?;
    let config = match (instead, fields.node("config")) {
        (Some(path), _) => Config::File(path.to_owned()),
        (None, Some((_, Node { content: Content::Map(_), .. }))) => Config::Inline,
        (None, Some(_)) => Config::File(folder.join(fields.leaf(d, "config", values::text)?.value)),
        (None, None) => {
            let problem = Problem::error(fields.place, "a scenario needs `config`");
            d.problems.add(problem.help("write `config: gateway.yaml`, or name it with `-c`"));
            return None;
        }
    };
    let tests = fields.list(d, "tests", |d, node| {
        let fields = d.fields(node, &TEST)?;
        let name = fields.leaf(d, "name", values::text);
        let steps = steps(d, &fields, folder);
        Some(Test { name: name?.value, steps })
    });
    Some((config, tests))
}

fn steps<'s>(d: &mut Decoder<'s>, fields: &Fields<'_, 's>, folder: &Path) -> Vec<Step> {
    fields.list(d, "steps", |d, node| {
        let [(at, when), (place, what)] = parts(d, node)?;
        let line = d.text[..at.range().start].matches('\n').count() + 1;
        let whole = format!("{when}: {what}");
        let time = mark(d, at, when, sentence::when(when));
        let what = mark(d, place, what, sentence::what(what, folder));
        Some(Step { line, text: whole, when: time?, what: what? })
    })
}

/// Parts a step into time and sentence: a map of one entry, or a text in quotes.
fn parts<'n>(d: &mut Decoder<'_>, node: &'n Node<'_>) -> Option<[(Place, &'n str); 2]> {
    let problem = match &node.content {
        Content::Map(entries) => match &entries[..] {
            [(when, Node { content: Content::Scalar(what), place })] => {
                return Some([(when.place, &when.text), (*place, what)]);
            }
            [_] => no_step(node.place),
            _ => no_step(node.place).label("more than one"),
        },
        Content::Scalar(text) => {
            if let Some((when, what)) = text.split_once(": ") {
                let written = d.text.get(node.place.range()).unwrap_or_default();
                // Where there are escapes all of it is marked.
                let place = |part: &str| {
                    let at = node.place.range().start + written.find(part)?;
                    Some(Place::of(at..at + part.len()))
                };
                let [when, what] = [when, what].map(str::trim);
                return Some([when, what].map(|part| (place(part).unwrap_or(node.place), part)));
            }
            no_step(node.place)
        }
        Content::List(_) | Content::Empty => no_step(node.place),
    };
    d.problems.add(problem);
    None
}

/// Returns what was found, or reports what is wrong with the `text` at `place`.
fn mark<T>(
    d: &mut Decoder<'_>,
    place: Place,
    text: &str,
    found: Result<T, sentence::Wrong>,
) -> Option<T> {
    let as_written = d.text.get(place.range()) == Some(text);
    found.map_err(|wrong| d.problems.add(wrong.problem(place, as_written))).ok()
}

fn no_step(place: Place) -> Problem {
    Problem::error(place, "a step is a time and a sentence")
        .help("write `- at 0s: 120 x GET /a -> 100 passed, 20 rejected by per-client`")
}

#[cfg(test)]
mod tests;
