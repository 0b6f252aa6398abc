//! The files of a configuration as they were read, and the spans of values in them.

use super::{Allowed, Problem, Substitutions};
use crate::config::watched::Watched;
use std::{ffi::OsString, ops::Range, path::Path, sync::Arc};

/// Returns the value of a variable, if it is set.
pub(in crate::config) type Environment = fn(&str) -> Option<OsString>;

/// A file with those that it includes: their names and their texts, shared.
#[derive(Clone, Debug)]
pub(in crate::config) struct Source {
    /// The file that was named.
    pub path: Arc<Path>,
    /// The texts of all files, a line end between two of them. Every span counts from its start.
    pub text: Arc<str>,
    /// The file, and those that it includes, in the order of their texts.
    pub files: Arc<[File]>,
    /// Files that could not be included, and warnings of files that were not.
    pub lost: Arc<[Problem]>,
    /// The things to watch for changes of these files.
    pub watched: Arc<[Watched]>,
    /// The values of the variables.
    pub environment: Environment,
    /// The values that variables are in, once these have been read.
    pub substitutions: Arc<Substitutions>,
    /// The warnings that the file's comments silence, once these have been read.
    pub allowed: Arc<Allowed>,
}

/// One file.
#[derive(Clone, Debug)]
pub(in crate::config) struct File {
    /// Its name, as one would write it where flowgate started.
    pub path: Arc<Path>,
    /// Where its text is.
    pub range: Range<usize>,
    /// The value of `end` in its last line, once it has been read.
    pub end: Option<bool>,
}

impl Source {
    /// Returns a file that includes none.
    pub(in crate::config) fn new(path: &Path, text: &str) -> Self {
        let path: Arc<Path> = path.into();
        Self {
            files: [File { path: Arc::clone(&path), range: 0..text.len(), end: None }].into(),
            watched: [Watched::File(path.to_path_buf())].into(),
            path,
            text: text.into(),
            lost: Arc::default(),
            environment: |name| std::env::var_os(name),
            substitutions: Arc::default(),
            allowed: Arc::default(),
        }
    }

    /// Returns the file that `span` is in.
    pub(in crate::config) fn file_at(&self, span: SourceSpan) -> &File {
        let start = span.range().start;
        let after = self.files.partition_point(|file| file.range.start <= start);
        &self.files[after.saturating_sub(1)]
    }

    /// Returns the text of a file.
    pub(in crate::config) fn text_of(&self, file: &File) -> &str {
        &self.text[file.range.clone()]
    }

    /// Returns the folder from which relative names at `span` are meant.
    pub(in crate::config) fn folder_at(&self, span: SourceSpan) -> &Path {
        self.file_at(span).path.parent().unwrap_or_else(|| Path::new(""))
    }

    /// Returns the folder of the file that was named.
    pub(in crate::config) fn folder(&self) -> &Path {
        self.folder_at(SourceSpan::default())
    }
}

/// The bytes of the text that a value stands in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(in crate::config) struct SourceSpan {
    start: u32,
    end: u32,
    /// The alias through which the value came here, or the value's own span.
    used: (u32, u32),
}

impl SourceSpan {
    /// Before the first byte of the text.
    pub(in crate::config) const START: Self = Self { start: 0, end: 0, used: (0, 0) };

    /// Returns the span of the bytes `range` of the text.
    pub(in crate::config) fn of(range: Range<usize>) -> Self {
        let small = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let start = small(range.start);
        let end = small(range.end);
        Self { start, end, used: (start, end) }
    }

    /// Returns the span of the bytes `range` of the text, which an alias at `used` stands for if
    /// that is another span.
    pub(in crate::config) fn used_at(range: Range<usize>, used: Range<usize>) -> Self {
        let Self { start, end, .. } = Self::of(used);
        Self { used: (start, end), ..Self::of(range) }
    }

    /// Returns the same span of a text that begins `base` bytes later.
    pub(in crate::config) fn shifted(self, base: usize) -> Self {
        let base = u32::try_from(base).unwrap_or(u32::MAX);
        let by = |at: u32| at.saturating_add(base);
        let used = (by(self.used.0), by(self.used.1));
        Self { start: by(self.start), end: by(self.end), used }
    }

    /// Returns the span in one number, as serde passes it on.
    pub(in crate::config) fn bits(self) -> u128 {
        let parts = [self.start, self.end, self.used.0, self.used.1];
        parts.into_iter().fold(0, |bits, part| bits << 32 | u128::from(part))
    }

    /// Returns the span that [`Self::bits`] made a number of.
    pub(in crate::config) fn of_bits(bits: u128) -> Self {
        let part =
            |shift: u32| u32::try_from(bits >> shift & u128::from(u32::MAX)).unwrap_or_default();
        Self { start: part(96), end: part(64), used: (part(32), part(0)) }
    }

    /// Returns the bytes of the value itself.
    pub(in crate::config) fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// Returns the bytes of the alias that stands for the value, if one does.
    pub(in crate::config) fn alias(self) -> Option<Range<usize>> {
        (self.used != (self.start, self.end)).then_some(self.used.0 as usize..self.used.1 as usize)
    }

    /// Reports whether the value stands in quotes, which makes it text and never a number.
    pub(in crate::config) fn is_quoted(self, text: &str) -> bool {
        text.get(self.range()).is_some_and(|t| t.starts_with(['"', '\'']))
    }
}
