//! The file that a client of the admin listener saves, or that a preview puts in force: the new text is
//! checked, written and put in force, or nothing happens.

use super::{Gateway, reading::FileStates, reading::RejectedEdit};
use crate::{
    admin::{Save, SaveError},
    config::{self, Diagnostic, Diagnostics, Plan, Snapshot, Text, Watched},
    preview::{EndCause, Preview},
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
    sync::Arc,
};
use tokio::{sync::mpsc, task::spawn_blocking};

/// The control thread's part in saving.
pub(super) struct Control {
    /// Requests from the admin listener.
    saves: mpsc::Receiver<Save>,
    /// Where the admin listener sends them.
    pub(super) sender: mpsc::Sender<Save>,
    /// Texts that were read.
    ready: mpsc::Receiver<Ready>,
    pub(super) on_ready: mpsc::Sender<Ready>,
}

/// An event for the control thread.
pub(super) enum EditEvent {
    Save(Save),
    Ready(Box<Ready>),
}

/// A text that was read.
pub(super) struct Ready {
    pub(super) save: Save,
    pub(super) plan: Result<Plan, Diagnostics>,
}

impl Default for Control {
    fn default() -> Self {
        let (sender, saves) = mpsc::channel(1);
        let (on_ready, ready) = mpsc::channel(1);
        Self { saves, sender, ready, on_ready }
    }
}

impl Control {
    /// Waits for the next event.
    pub(super) async fn event(&mut self) -> EditEvent {
        tokio::select! {
            Some(save) = self.saves.recv() => EditEvent::Save(save),
            Some(ready) = self.ready.recv() => EditEvent::Ready(Box::new(ready)),
            else => core::future::pending().await,
        }
    }
}

impl Gateway {
    /// Does what a client wants saved. The text is read on a thread of its own.
    pub(super) fn on_edit(&mut self, event: EditEvent) {
        match event {
            EditEvent::Save(save) => self.read_edit(save),
            EditEvent::Ready(ready) => {
                let Ready { save: Save { text, of, reply }, plan } = *ready;
                // The client may have left.
                drop(reply.send(self.save(plan, text, of)));
            }
        }
    }

    fn read_edit(&self, save: Save) {
        let live = Arc::clone(&self.live);
        let path = self.reloads.path.clone();
        let on_ready = self.edit.on_ready.clone();
        tokio::spawn(async move {
            let read = spawn_blocking(move || {
                let text = Text::given(&path, &save.text);
                let plan = text.and_then(|text| text.plan()).and_then(|plan| live.sealed(plan));
                Ready { save, plan }
            });
            match read.await {
                Ok(ready) => drop(on_ready.send(ready).await),
                Err(error) => tracing::error!(%error, "cannot read an edited file"),
            }
        });
    }

    /// Replaces the file, which must be the one that was edited, and puts it in force.
    fn save(
        &mut self,
        plan: Result<Plan, Diagnostics>,
        text: Vec<u8>,
        of: u64,
    ) -> Result<String, SaveError> {
        let plan = plan.map_err(SaveError::Invalid)?;
        if self.reloads.readings.latest().is_some() || self.upgrade.successor.is_busy() {
            return Err(SaveError::Conflict("a reload or an upgrade is under way: try again"));
        }

        // As late as can be: another editor may have written the file meanwhile.
        if config::fingerprint(&Watched::File(self.reloads.path.clone())) != of {
            return Err(SaveError::Changed);
        }

        let files = plan.files.clone();
        let adoption = Adoption { path: self.reloads.path.clone(), new: NewFile::Edited(text) };
        let applied = self.apply(plan, Some(&adoption));
        let summary = applied.map_err(|rejected| SaveError::Failed(rejected.drawing))?;

        tracing::info!(config = %self.reloads.path.display(), "the file was edited in the dashboard");
        self.reloads.seen = FileStates::look(&files);
        self.reloads.rejected = None;
        Ok(summary)
    }
}

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

/// Replaces what the file at `path` has by `text`. Readers see the old text or the new one, and so
/// does a machine that was switched off meanwhile. A link stays a link, and the file keeps its
/// permissions.
///
/// # Errors
///
/// Its folder cannot be written to; then the file is as it was.
pub(super) fn replace_file(path: &Path, text: &[u8]) -> io::Result<()> {
    let path = fs::canonicalize(path)?;
    let aside = aside(&path);
    let written = write(&path, &aside, text);
    if written.is_err() {
        // It may not exist.
        drop(fs::remove_file(&aside));
    }
    written
}

/// Returns where the new text is until it is whole: beside the file, under a name that no pattern
/// of `include` has.
fn aside(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}.tmp", process::id()))
}

fn write(path: &Path, aside: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(aside)?;
    file.set_permissions(fs::metadata(path)?.permissions())?;
    file.write_all(text)?;
    file.sync_all()?;
    drop(file);
    fs::rename(aside, path)?;
    // The name's place on the disk. Some file systems cannot, and need not.
    if let Some(folder) = path.parent() {
        drop(File::open(folder).and_then(|folder| folder.sync_all()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_file_is_replaced_behind_its_link_and_keeps_its_permissions() {
        let folder = tempfile::tempdir().unwrap();
        let real = folder.path().join("real.yaml");
        let link = folder.path().join("link.yaml");
        fs::write(&real, "old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &link).unwrap();
        replace_file(&link, b"new").unwrap();
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        let left = fs::read_dir(folder.path()).unwrap().count();
        assert_eq!(left, 2, "nothing is left beside it");
    }

    #[test]
    fn what_cannot_be_replaced_stays_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        assert!(replace_file(&path, b"new").is_err(), "there is none");
        fs::write(&path, "old").unwrap();
        fs::write(aside(&path), "of another").unwrap();
        assert!(replace_file(&path, b"new").is_err());
        assert_eq!(fs::read(&path).unwrap(), b"old");
    }
}
