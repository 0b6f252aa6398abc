//! Directives as they are nested.
//! In the [`Scope`] of a block, its own directives hold, or those that it inherits.

use super::report::ImportReport;

/// A directive, such as `listen 80;` or `location / { … }`.
#[derive(Clone, Debug)]
pub(super) struct Directive {
    /// Its index among all directives, which identifies it.
    pub id: usize,
    /// The index of its file's name in [`Tree::files`].
    pub file: usize,
    pub line: usize,
    pub name: String,
    pub args: Vec<String>,
    pub block: Option<Vec<Self>>,
}

/// A configuration with all that it includes.
#[derive(Debug, Default)]
pub(super) struct Tree {
    pub files: Vec<String>,
    pub directives: Vec<Directive>,
}

impl Directive {
    /// Returns an argument, or an empty text.
    pub(super) fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }

    /// Returns what its block holds.
    pub(super) fn inner(&self) -> &[Self] {
        self.block.as_deref().unwrap_or_default()
    }

    /// Returns the directives of this name in its block.
    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Self> {
        self.inner().iter().filter(move |directive| directive.name == name)
    }

    /// Returns the value of an argument `NAME=VALUE`.
    pub(super) fn named(&self, name: &str) -> Option<&str> {
        self.args.iter().find_map(|arg| arg.strip_prefix(name)?.strip_prefix('='))
    }

    /// Returns it without the directives of its block.
    pub(super) fn without_block(&self) -> Self {
        Self {
            id: self.id,
            file: self.file,
            line: self.line,
            name: self.name.clone(),
            args: self.args.clone(),
            block: None,
        }
    }

    /// Returns its name with its first arguments, as in `location /api/`.
    pub(super) fn words(&self) -> String {
        let words: Vec<_> =
            [self.name.as_str()].into_iter().chain(self.args.iter().map(String::as_str)).collect();
        words.join(" ")
    }
}

/// The blocks around a directive, the outermost first: `http`, `server`, `location`.
#[derive(Clone, Debug)]
pub(super) struct Scope<'a>(pub Vec<&'a Directive>);

impl<'a> Scope<'a> {
    /// Returns the scope of a block within this one.
    pub(super) fn within(&self, block: &'a Directive) -> Self {
        Self(self.0.iter().copied().chain([block]).collect())
    }

    /// Returns all directives of this name at the innermost level that has one: nginx inherits
    /// lists as a whole.
    pub(super) fn all(&self, names: &[&str]) -> Vec<&'a Directive> {
        let inherited = |block: &&'a Directive| {
            let found =
                block.inner().iter().filter(|directive| names.contains(&directive.name.as_str()));
            found.collect::<Vec<_>>()
        };
        let mut levels = self.0.iter().rev().map(inherited);
        levels.find(|level| !level.is_empty()).unwrap_or_default()
    }

    /// Returns the directive of this name that holds, without taking it.
    pub(super) fn find(&self, name: &str) -> Option<&'a Directive> {
        self.all(&[name]).last().copied()
    }

    /// Returns the directive of this name that holds, taken.
    pub(super) fn take(&self, name: &str, report: &mut ImportReport) -> Option<&'a Directive> {
        let found = self.find(name)?;
        report.take(found);
        Some(found)
    }

    /// Returns the first argument of the directive of this name that holds, taken.
    pub(super) fn word(&self, name: &str, report: &mut ImportReport) -> Option<&'a str> {
        self.take(name, report).map(|found| found.arg(0))
    }

    /// Reports whether a switch is `on`. One that is `off` is the default, and taken too.
    pub(super) fn is_on(&self, name: &str, report: &mut ImportReport) -> bool {
        let Some(switch) = self.take(name, report) else { return false };
        if !matches!(switch.arg(0), "on" | "off") {
            report.note(switch, "it is neither `on` nor `off`");
        }
        switch.arg(0) == "on"
    }
}
