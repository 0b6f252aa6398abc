//! Says that the configuration may have changed; the only user of notify.
//!
//! It watches *folders*: editors rename a new file over the old one, and a ConfigMap swaps a
//! symlink, after which a watch of the file itself would see nothing. An event counts if it names
//! the file, a link on the way to it, or the first folder that is missing; in a folder whose files
//! are included, also if it names one that fits.
//!
//! A file is complete when its writer closes it or renames another one over it:
//! [`Watcher::is_being_written`] is true between a write and its close.
//!
//! A message is only a hint: wait until none came for [`QUIET`], at most [`QUIET_MOST`], then read
//! the files and compare. Where the system sends no events (network file systems, files mounted
//! one by one), compare [`crate::config::fingerprint`] every [`POLL`]; a file is complete if it is
//! the same twice.

use crate::config::watched::{NamePattern, Watched};
use notify::{
    Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _,
    event::{AccessKind, AccessMode, ModifyKind},
};
use std::{
    collections::BTreeSet,
    fs,
    path::{self, Path, PathBuf},
    time::Duration,
};
use tokio::sync::{mpsc, watch};

/// The time without events before the files are read: an editor's write, rename and remove take
/// a few milliseconds, `sed -i` on a loaded machine some tens.
pub const QUIET: Duration = Duration::from_millis(100);

/// After how long the files are read although events still come.
pub const QUIET_MOST: Duration = Duration::from_millis(400);

/// The interval of checks without an event.
pub const POLL: Duration = Duration::from_secs(5);

/// As many links as Linux follows in a path.
const MOST_LINKS: usize = 40;

/// Watches until it is dropped.
#[derive(Debug)]
pub struct Watcher {
    inner: RecommendedWatcher,
    folders: BTreeSet<PathBuf>,
    /// The name that an event must have to count.
    counting: watch::Sender<Counting>,
    /// Files that were written to and are not closed yet.
    writing: watch::Sender<BTreeSet<PathBuf>>,
}

/// Returns a watcher of no files yet. The receiver holds at most one message: something happened.
///
/// # Errors
/// The system gives no watch. Polling still works.
pub fn watch() -> notify::Result<(Watcher, mpsc::Receiver<()>)> {
    let (sender, receiver) = mpsc::channel(1);
    let (counting, counts) = watch::channel(Counting::default());
    let writing = watch::Sender::new(BTreeSet::new());
    let written = writing.clone();
    let inner = notify::recommended_watcher(move |event: notify::Result<Event>| {
        // An error is a reason to look as well: the queue of the system may have overflowed, and
        // the close of a file with it.
        let is_news = if let Ok(event) = event {
            follow(&event, &counts.borrow(), &written)
        } else {
            written.send_replace(BTreeSet::new());
            true
        };
        if is_news {
            // A full channel already says what this message would say.
            _ = sender.try_send(());
        }
    })?;
    Ok((Watcher { inner, folders: BTreeSet::new(), counting, writing }, receiver))
}

impl Watcher {
    /// Watches `files`, which need not exist, and nothing else; to be called again after a change,
    /// which may have been one of links or folders on the way.
    ///
    /// # Errors
    /// A folder cannot be watched. The others are.
    pub fn set(&mut self, files: &[Watched]) -> notify::Result<()> {
        let mut names = BTreeSet::new();
        let mut counted = BTreeSet::new();

        for watched in files {
            match watched {
                Watched::File(file) | Watched::LargeFile(file) => counted.extend(entries(file)),
                Watched::Names(folder, pattern) => {
                    counted.extend(entries(folder));
                    // A folder that is missing is watched for as a file is.
                    let folder = path::absolute(folder).and_then(|folder| folder.canonicalize());
                    names.extend(folder.ok().map(|folder| (folder, pattern.clone())));
                }
            }
        }

        let mut folders: BTreeSet<PathBuf> =
            counted.iter().filter_map(|entry| entry.parent()).map(Path::to_owned).collect();
        folders.extend(names.iter().map(|(folder, _)| folder.clone()));
        // The folders as well, which may be removed or moved themselves.
        let counting = Counting { entries: &counted | &folders, names };

        // No event comes when a file is closed that is no longer watched.
        self.writing.send_modify(|writing| writing.retain(|path| counting.has(path)));
        self.counting.send_replace(counting);

        for old in self.folders.difference(&folders) {
            // It fails if the folder is gone, and with it the watch.
            drop(self.inner.unwatch(old));
        }
        self.folders.retain(|folder| folders.contains(folder));

        let mut result = Ok(());
        for folder in folders {
            // Watching again is harmless, and renews the watch of a folder that was made anew.
            match self.inner.watch(&folder, RecursiveMode::NonRecursive) {
                Ok(()) => _ = self.folders.insert(folder),
                Err(error) => result = Err(error),
            }
        }
        result
    }

    /// Reports whether a file has been written to and not closed since, so that it may be half of
    /// what it is to be. A message follows the close.
    pub fn is_being_written(&self) -> bool {
        !self.writing.borrow().is_empty()
    }
}

/// Returns the entries of folders in which a change of `file` shows: each link on the way, and at
/// its end the file, or what is missing first. Their folders are named without links, since the
/// system knows a folder by one name only.
fn entries(file: &Path) -> Vec<PathBuf> {
    let mut entries = Vec::new();
    let Ok(mut way) = path::absolute(file) else { return entries };
    while entries.len() <= MOST_LINKS {
        let mut prefixes: Vec<&Path> = way.ancestors().collect();
        prefixes.reverse();
        let is_end =
            |prefix: &&Path| !fs::symlink_metadata(prefix).is_ok_and(|found| !found.is_symlink());
        let end = prefixes.into_iter().find(is_end).unwrap_or(&way);
        let (Some(folder), Some(name)) = (end.parent(), end.file_name()) else { break };
        entries.push(folder.canonicalize().unwrap_or_else(|_| folder.to_owned()).join(name));
        let Ok(target) = fs::read_link(end) else { break };
        let mut next = folder.join(target);
        next.extend(way.strip_prefix(end).unwrap_or_else(|_| Path::new("")));
        way = next;
    }
    entries
}

/// The name that an event must have to count.
#[derive(Debug, Default)]
struct Counting {
    entries: BTreeSet<PathBuf>,
    /// Folders without links, and names in them.
    names: BTreeSet<(PathBuf, NamePattern)>,
}

impl Counting {
    fn has(&self, path: &Path) -> bool {
        self.entries.contains(path)
            || self.names.iter().any(|(folder, pattern)| {
                path.parent() == Some(folder.as_path()) && pattern.fits(path)
            })
    }
}

/// Notes in `writing` which files are being written. Reports whether something in `counting` was
/// written to its end, made, moved or removed.
fn follow(event: &Event, counting: &Counting, writing: &watch::Sender<BTreeSet<PathBuf>>) -> bool {
    // An event that names nothing says that others were lost.
    if event.paths.is_empty() {
        writing.send_replace(BTreeSet::new());
        return true;
    }

    let mut counted = event.paths.iter().filter(|path| counting.has(path)).peekable();
    if counted.peek().is_none() {
        return false;
    }

    match event.kind {
        EventKind::Modify(ModifyKind::Data(_)) => {
            writing.send_modify(|writing| writing.extend(counted.cloned()));
            false
        }
        // The end of a write is an access to notify; the gateway's own reads are, too.
        EventKind::Access(access) if access != AccessKind::Close(AccessMode::Write) => false,
        EventKind::Modify(ModifyKind::Metadata(_)) => true,
        // It is closed, or another file, or gone, alone or with its folder.
        EventKind::Access(_)
        | EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => {
            for path in counted {
                writing.send_modify(|writing| writing.retain(|written| !written.starts_with(path)));
            }
            true
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn the_way_to_a_file_is_its_links_and_what_is_at_their_end() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        let here = base.join("here");
        let there = base.join("there");
        fs::create_dir_all(there.join("v1")).unwrap();
        fs::create_dir(&here).unwrap();
        fs::write(there.join("v1/real.yaml"), "").unwrap();
        symlink("v1", there.join("now")).unwrap();
        symlink("../there/now/real.yaml", here.join("gateway.yaml")).unwrap();
        let link = here.join("gateway.yaml");
        let now = there.join("now");
        let real = there.join("v1/real.yaml");
        assert_eq!(entries(&link), [link, now.clone(), real.clone()]);
        assert_eq!(entries(&now.join("real.yaml")), [now, real.clone()]);
        assert_eq!(entries(&real), [real]);
    }

    #[test]
    fn the_way_to_a_missing_file_ends_where_it_breaks_off() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().canonicalize().unwrap();
        symlink("no/where", base.join("lost")).unwrap();
        symlink("round", base.join("round")).unwrap();
        assert_eq!(entries(&base.join("certs/new/site.pem")), [base.join("certs")]);
        assert_eq!(entries(&base.join("lost")), [base.join("lost"), base.join("no")]);
        assert_eq!(entries(&base.join("round")).len(), MOST_LINKS + 1);
    }
}
