//! Says that the configuration may have changed; the only user of notify.
//!
//! What is watched are *folders*. Editors write a new file and rename it over the old one, and a
//! ConfigMap swaps a symlink beside it: a watch on the file itself would go deaf at the first of
//! these. Every event in the folder counts, whatever name it carries (the swap of a ConfigMap never
//! names `gateway.yaml`), except that something was read, for the gateway reads the file itself.
//!
//! The receiver is a hint and no more: wait until it is quiet for [`QUIET`], but not longer than
//! [`QUIET_MOST`], read the files, and compare. Where the system sends no events (network file
//! systems, a folder that was removed and made again) compare [`super::fingerprint`] every [`POLL`].

use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode},
};
use std::{
    collections::BTreeSet,
    iter,
    path::{Path, PathBuf},
    time::Duration,
};
use tokio::sync::mpsc;

/// How long no event may come before the files are read: an editor's write, rename and remove take
/// a few milliseconds, `sed -i` on a loaded machine some tens.
pub const QUIET: Duration = Duration::from_millis(100);

/// After how long the files are read although events still come.
pub const QUIET_MOST: Duration = Duration::from_millis(400);

/// How often to look by oneself.
pub const POLL: Duration = Duration::from_secs(5);

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    inner: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
}

/// Watches the folders of `files`. The receiver holds at most one message: something happened.
///
/// # Errors
/// The system gives no watch: none left, or no such folder. Polling still works.
pub fn watch(files: &[PathBuf]) -> notify::Result<(Watcher, mpsc::Receiver<()>)> {
    let (sender, receiver) = mpsc::channel(1);
    let inner = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // An error is a reason to look as well: the queue of the system may have overflowed.
        if event.map_or(true, |event| is_change(event.kind)) {
            // A full channel already says what this message would say.
            _ = sender.try_send(());
        }
    })?;
    let mut watcher = Watcher { inner, folders: BTreeSet::new() };
    watcher.set(files)?;
    Ok((watcher, receiver))
}

impl Watcher {
    /// Watches the folders of `files` and no others, after a reload that names other certificates,
    /// or after a folder came back.
    ///
    /// # Errors
    /// A folder cannot be watched. The others are.
    pub fn set(&mut self, files: &[PathBuf]) -> notify::Result<()> {
        let wanted: BTreeSet<PathBuf> = files.iter().flat_map(|file| folders(file)).collect();
        for old in self.folders.difference(&wanted) {
            // It fails if the folder is gone, and with it the watch.
            drop(self.inner.unwatch(old));
        }
        self.folders.retain(|folder| wanted.contains(folder));
        let mut result = Ok(());
        for folder in wanted {
            // Watching again is harmless, and renews the watch of a folder that was made anew.
            match self.inner.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => _ = self.folders.insert(folder),
                Err(error) => result = Err(error),
            }
        }
        result
    }
}

/// Returns the folders in which a change of `file` shows: its own, and that of what it links to.
fn folders(file: &Path) -> impl Iterator<Item = PathBuf> {
    let target = file.canonicalize().ok();
    let own = folder(file);
    let target = target.map(|target| folder(&target));
    let target = target.filter(|target| own.canonicalize().ok().as_ref() != Some(target));
    iter::once(own).chain(target)
}

/// Returns the folder in which the entry `file` stands, symlinks not followed.
fn folder(file: &Path) -> PathBuf {
    match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Reports whether something was written, made, moved or removed. The end of a write is an access to
/// notify; the gateway's own reads are, too.
const fn is_change(kind: EventKind) -> bool {
    !matches!(kind, EventKind::Access(access) if !matches!(access, AccessKind::Close(AccessMode::Write)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_behind_a_symlink_is_watched_too() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let (here, there) = (base.join("here"), base.join("there"));
        std::fs::create_dir(&here).unwrap();
        std::fs::create_dir(&there).unwrap();
        std::fs::write(there.join("real.yaml"), "").unwrap();
        std::os::unix::fs::symlink(there.join("real.yaml"), here.join("gateway.yaml")).unwrap();
        assert!(folders(&here.join("gateway.yaml")).eq([here, there.clone()]));
        assert!(folders(&there.join("real.yaml")).eq([there]));
    }
}
