//! A new file that takes the place of the one in force, other than by an edit of it.

use super::{reading::RejectedEdit, replace_file::replace_file};
use crate::{
    config::{Diagnostic, Snapshot},
    preview::{EndCause, Preview},
};
use std::{path::PathBuf, sync::Arc};

/// A new file to be put in force.
pub(super) struct Adoption {
    /// The file that it replaces.
    pub(super) path: PathBuf,
    pub(super) new: NewFile,
}

/// Where a new file comes from.
pub(super) enum NewFile {
    /// A preview: the new rules go on with what it has counted.
    Previewed(Arc<Preview>),
    /// The dashboard.
    Edited(Vec<u8>),
}

impl Adoption {
    /// Writes the new file in the place of the one in force.
    pub(super) fn write(&self) -> Result<(), RejectedEdit> {
        let text = match &self.new {
            NewFile::Previewed(preview) => preview.text(),
            NewFile::Edited(text) => text,
        };
        replace_file(&self.path, text).map_err(|error| {
            let line = format!("cannot replace the file {}: {error}", self.path.display());
            let problems = vec![Diagnostic::about(line.clone())];
            RejectedEdit { drawing: format!("error: {line}"), line, problems, is_outside: true }
        })
    }

    /// Returns the snapshot that has decided without effect, if there is one.
    pub(super) fn snapshot(&self) -> Option<&Snapshot> {
        match &self.new {
            NewFile::Previewed(preview) => Some(preview.snapshot()),
            NewFile::Edited(_) => None,
        }
    }

    /// Returns why a preview ends by it.
    pub(super) fn end_cause(&self) -> EndCause {
        match &self.new {
            NewFile::Previewed(_) => EndCause::Applied,
            NewFile::Edited(_) => EndCause::Reload,
        }
    }
}
