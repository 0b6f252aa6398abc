//! From the name of a file to a plan: all steps, one after the other.

use super::{
    compile,
    decode::{self, Decoded},
    diagnostics::{Diagnostics, Problem, Problems, Source},
    lint,
    plan::Plan,
    read::{Content, Node, comments, foreign, include, source, syntax, yaml::Tree},
    spec::FileSpec,
    vocabulary::{self, DescribedMap},
    watched::Watched,
};
use std::{num::NonZeroUsize, path::Path, sync::Arc, thread::available_parallelism};

/// The text of a configuration, read once.
#[derive(Debug)]
pub struct Text(Source);

impl Text {
    /// Reads the file at `path`, or the standard input if that is [`STDIN`](super::STDIN).
    ///
    /// # Errors
    /// It cannot be read, or is not text.
    pub fn read(path: &Path) -> Result<Self, Diagnostics> {
        source::read_input(path).map(|source| Self(include::gather(source)))
    }

    /// Takes a text that no file has, under a name for its problems.
    pub fn new(name: &Path, text: &str) -> Self {
        Self(Source::new(name, text))
    }

    /// Takes `bytes` for the file at `path`, which need not exist. Relative names of other files
    /// are meant from its folder.
    ///
    /// # Errors
    /// They are no text, or too many.
    pub fn given(path: &Path, bytes: &[u8]) -> Result<Self, Diagnostics> {
        source::given(path, bytes).map(|source| Self(include::gather(source)))
    }

    /// Returns the files that it includes.
    pub fn included(&self) -> impl Iterator<Item = &Path> {
        self.0.files.iter().skip(1).map(|file| &*file.path)
    }

    /// Compiles it with the certificates that it names.
    ///
    /// # Errors
    /// Everything that is wrong with them, in the order of the file.
    pub fn plan(&self) -> Result<Plan, Diagnostics> {
        parse(&self.0)
    }

    /// Compiles it for its rules only: what it says of TLS and of users is left out, so that no other file
    /// need be there.
    ///
    /// # Errors
    /// Everything else that is wrong with it, in the order of the file.
    pub fn rules(&self) -> Result<Plan, Diagnostics> {
        let (source, spec, problems) = spec(&self.0)?;
        plan(&source, spec.map(FileSpec::without_files), problems)
    }
}

/// Reads the file at `path` and the certificates that it names.
///
/// # Errors
/// Everything that is wrong with them, in the order of the file.
pub fn read(path: &Path) -> Result<Plan, Diagnostics> {
    parse(&include::gather(source::read(path)?))
}

/// Reads the file at `path` for its rules only; see [`Text::rules`].
///
/// # Errors
/// Everything that is wrong with it but for certificates, in the order of the file.
pub fn read_rules(path: &Path) -> Result<Plan, Diagnostics> {
    Text(include::gather(source::read(path)?)).rules()
}

/// Returns the reference of all keys, as Markdown: `docs/configuration.md`.
pub fn reference() -> String {
    vocabulary::reference(FileSpec::SECTION)
}

/// Returns the JSON Schema of the file, as text: `gateway.schema.json`.
pub fn schema() -> String {
    format!("{:#}\n", schema_value())
}

/// Returns the JSON Schema of the file.
pub fn schema_value() -> serde_json::Value {
    vocabulary::publish::<FileSpec>("gateway.yaml of flowgate")
}

/// Takes a text through all steps to the plan.
pub(super) fn parse(source: &Source) -> Result<Plan, Diagnostics> {
    let (source, spec, problems) = spec(source)?;
    plan(&source, spec, problems)
}

/// Compiles what was read, with the problems found so far.
pub(super) fn plan(
    source: &Source,
    spec: Option<FileSpec>,
    mut problems: Problems,
) -> Result<Plan, Diagnostics> {
    let Some(spec) = spec else { return Err(Diagnostics::new(source, problems)) };
    let certificates: Vec<_> = spec.certificates().collect();
    let named = certificates.iter().flat_map(|files| [&files.cert.value, &files.key.value]);
    let ca = spec.store.value().and_then(|store| store.ca.path()).map(|at| at.value);
    let others: Vec<_> = [
        spec.upstream_files(),
        spec.auth_files(),
        spec.admin_files(),
        spec.acme_files(),
        spec.client_ca_files(),
    ]
    .concat();
    let mut files = source::read_all(named.chain(&ca).chain(&others));
    let networks: Vec<_> = spec.network_files().into_iter().map(|at| at.value).collect();
    let plans: Vec<_> = spec.plan_files().into_iter().map(|at| at.value).collect();
    files.extend(source::read_issued(&spec.acme_certificates()));
    files.extend(source::read_networks(&networks));
    let geo = spec.geo_files();
    files.extend(source::read_geo(&geo));
    files.extend(source::read_plans(&plans));
    let cores = available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let (mut plan, more) = compile::compile(spec, &files, source, cores);
    problems.extend(more);
    if problems.is_empty() {
        let findings = lint::findings(&plan);
        plan.warnings = plan.warnings.and(findings.warnings.into_iter());
        plan.notes = findings.notes;
        return Ok(plan);
    }
    let pairs = certificates.into_iter().map(|files| (files.cert.value, files.key.value));
    let others = Watched::files([others, networks, plans].concat());
    let others = others.into_iter().chain(Watched::large_files(geo)).collect();
    Err(Diagnostics::new(source, problems).naming(pairs.collect(), others))
}

/// Reads a text as far as it can be read, with the problems found and its substitutions. The
/// configuration of another gateway has one problem: what it is.
pub(super) fn spec(source: &Source) -> Result<(Source, Option<FileSpec>, Problems), Diagnostics> {
    let read = own_spec(source);
    let is_right = read.as_ref().is_ok_and(|(_, spec, found)| spec.is_some() && found.is_empty());
    let foreign = if is_right { None } else { foreign::recognize(source) };
    foreign.map_or(read, |problem| Err(Diagnostics::new(source, problem)))
}

fn own_spec(source: &Source) -> Result<(Source, Option<FileSpec>, Problems), Diagnostics> {
    let masked = include::masked(source);
    let read = include::read(source, &masked);
    let (tree, source) = read.map_err(|problems| Diagnostics::new(source, problems))?;
    let Tree { root, mut problems, substitutions } = tree;
    let allowed = Arc::new(comments::allowed(&source, &root));
    let source = &Source { substitutions: Arc::new(substitutions), allowed, ..source };
    if root.content == Content::Empty {
        let empty = Problem::about_file("the file is empty")
            .help("write `listeners`, `upstreams` and `routes`; `flowgate demo` runs an example");
        return Err(Diagnostics::new(source, empty));
    }
    let Decoded { value, problems: more, missing } = decode::read(&root, source);
    problems.extend(more);
    if let Some(problem) = syntax::open_quote(&source.text, &root, &missing) {
        return Err(Diagnostics::new(source, problem));
    }
    let spec = value.map(|spec: FileSpec| spec.resolved(source));
    if let Some(problem) = spec.as_ref().and_then(|spec| misplaced_end(spec, &root)) {
        problems.add(problem);
    }
    Ok((source.clone(), spec, problems))
}

/// Returns what is wrong with the mark `end`, which means nothing unless it is the last key.
fn misplaced_end(spec: &FileSpec, root: &Node<'_>) -> Option<Problem> {
    let Content::Map(entries) = &root.content else { return None };
    let last = entries.last()?.0.span;
    let span = spec.end.span.filter(|span| *span != last)?;
    Some(include::misplaced_end(span, Some(last)))
}
