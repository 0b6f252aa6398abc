//! Directives as they are nested.

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

    /// Returns its name with its first arguments, as in `location /api/`.
    pub(super) fn words(&self) -> String {
        let words: Vec<_> =
            [self.name.as_str()].into_iter().chain(self.args.iter().map(String::as_str)).collect();
        words.join(" ")
    }
}
