//! The files of a configuration as they were read.

use super::{Allowed, Problem, SourceSpan, Substitutions};
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
