//! A file as it was read.

use super::Substitutions;
use std::{ffi::OsString, path::Path, sync::Arc};

/// Returns the value of a variable, if it is set.
pub(in crate::config) type Environment = fn(&str) -> Option<OsString>;

/// A file's name and its text, shared.
#[derive(Clone, Debug)]
pub(in crate::config) struct Source {
    pub path: Arc<Path>,
    pub text: Arc<str>,
    /// What the variables in it stand for.
    pub environment: Environment,
    /// The values that they are in, once these have been read.
    pub substitutions: Arc<Substitutions>,
}

impl Source {
    pub(in crate::config) fn new(path: &Path, text: &str) -> Self {
        let environment = |name: &str| std::env::var_os(name);
        let substitutions = Arc::default();
        Self { path: path.into(), text: text.into(), environment, substitutions }
    }

    /// Returns the folder from which the file's relative names are meant.
    pub(in crate::config) fn folder(&self) -> &Path {
        self.path.parent().unwrap_or_else(|| Path::new(""))
    }
}
