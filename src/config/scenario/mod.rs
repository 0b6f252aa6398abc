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

pub use sentence::{Arrivals, Bound, Count, Expect, Measure, Spread, What, When, Word};

use super::{
    decode::{Decoder, Fields},
    error::{Diagnostics, Source},
    node::{Content, Node, Place},
    plan::Plan,
    problem::{Problem, Problems},
    source,
    spec::FileSpec,
    values,
    vocabulary::{Default, Key, Kind, Section},
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
            default: Default::Required,
            doc: "The configuration under test: a file, or the configuration itself.",
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

/// Reads the scenario at `path`.
///
/// # Errors
/// Everything that is wrong with it, each at its place.
pub fn read_scenario(path: &Path) -> Result<Scenario, Diagnostics> {
    let source = source::read(path)?;
    let root = Node::parse(&source.text).map_err(|problem| Problems::from(problem).of(&source))?;
    let mut decoder = Decoder { text: &source.text, problems: Problems::default() };
    let read = scenario(&mut decoder, &root, &folder(&source));
    let (config, tests) = match read {
        Some(read) if decoder.problems.is_empty() => read,
        _ => return Err(decoder.problems.of(&source)),
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
        let root =
            Node::parse(&source.text).map_err(|problem| Problems::from(problem).of(source))?;
        let mut decoder = Decoder { text: &source.text, problems: Problems::default() };
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
) -> Option<(Config, Vec<Test>)> {
    let fields = d.fields(root, &FILE)?;
    let config = match fields.node("config")?.1 {
        Node { content: Content::Map(_), .. } => Config::Inline,
        _ => Config::File(folder.join(fields.leaf(d, "config", values::text)?.value)),
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
        let Content::Map(entries) = &node.content else {
            d.problems.add(no_step(node.place));
            return None;
        };
        let [(when, what)] = &entries[..] else {
            d.problems.add(no_step(node.place).label("more than one"));
            return None;
        };
        let Content::Scalar(text) = &what.content else {
            d.problems.add(no_step(node.place));
            return None;
        };
        let line = d.text[..when.place.range().start].matches('\n').count() + 1;
        let whole = format!("{}: {text}", when.text);
        let time = mark(d, when.place, &when.text, sentence::when(&when.text));
        let what = mark(d, what.place, text, sentence::what(text, folder));
        Some(Step { line, text: whole, when: time?, what: what? })
    })
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
