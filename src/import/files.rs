//! Names of files in a configuration: as the result has them, and where they are on this machine.
//! An `include` names files by a pattern.

use crate::config::NamePattern;
use std::{
    fs, io,
    path::{self, Component, Path, PathBuf},
};

/// The most symbolic links on the way to a file.
const MOST_LINKS: usize = 40;

/// Where files are that a configuration names.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    /// The folder of the first file, from which relative names are meant.
    pub folder: PathBuf,
    /// The folder with the files of another machine, if the configuration is a copy.
    pub root: Option<PathBuf>,
}

impl Files {
    /// Returns the path of a file as the machine has it that the configuration is for.
    pub(super) fn named(&self, name: &str) -> String {
        let path = self.folder.join(name);
        let below = self.below_root(&path);
        let path = below.map_or_else(|| path.clone(), |below| Path::new("/").join(below));
        path.display().to_string()
    }

    /// Returns where a file is on this machine.
    pub(super) fn here(&self, name: &str) -> PathBuf {
        self.on_disk(&match (&self.root, name.strip_prefix('/')) {
            (Some(root), Some(below)) => root.join(below),
            _ => self.folder.join(name),
        })
    }

    /// Returns where a path is on this machine. Symbolic links do not lead out of the root.
    pub(super) fn on_disk(&self, path: &Path) -> PathBuf {
        match (&self.root, self.below_root(path)) {
            (Some(root), Some(below)) => {
                resolved(root, &below).unwrap_or_else(|_| root.join(&below))
            }
            _ => path.to_path_buf(),
        }
    }

    fn below_root(&self, path: &Path) -> Option<PathBuf> {
        let root = path::absolute(self.root.as_ref()?).ok()?;
        let path = path::absolute(path).ok()?;
        path.strip_prefix(&root).map(Path::to_path_buf).ok()
    }
}

/// Follows a path and its symbolic links, none of which leads out of `root`.
fn resolved(root: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut left: Vec<PathBuf> = parts(path);
    let mut found = PathBuf::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part.as_os_str() == ".." {
            found.pop();
            continue;
        }

        let next = root.join(&found).join(&part);
        let target = match fs::symlink_metadata(&next) {
            Ok(entry) if entry.is_symlink() => fs::read_link(&next)?,
            _ => {
                found.push(part);
                continue;
            }
        };

        links += 1;
        if links > MOST_LINKS {
            return Err(io::Error::other("too many symbolic links"));
        }

        if target.is_absolute() {
            found = PathBuf::new();
        }
        left.extend(parts(&target));
    }

    Ok(root.join(found))
}

/// Returns the names of a path, the first one last.
fn parts(path: &Path) -> Vec<PathBuf> {
    let named = |part: Component<'_>| match part {
        Component::Normal(name) => Some(PathBuf::from(name)),
        Component::ParentDir => Some(PathBuf::from("..")),
        Component::Prefix(_) | Component::RootDir | Component::CurDir => None,
    };
    let mut all: Vec<_> = path.components().filter_map(named).collect();
    all.reverse();
    all
}

/// Returns the files that `name` means, in the order of their names. A name with `*` or `?` is a
/// pattern, and may find none.
///
/// # Errors
/// A folder of a pattern cannot be read.
pub(super) fn included(files: &Files, name: &str) -> io::Result<Vec<PathBuf>> {
    let (folder, name) = match (&files.root, name.strip_prefix('/')) {
        (Some(root), Some(below)) => (root, below),
        _ => (&files.folder, name),
    };

    let mut found = vec![folder.clone()];
    for part in Path::new(name).components() {
        let text = part.as_os_str().to_string_lossy();
        if NamePattern::is_in(&text) {
            let pattern = NamePattern::new(&text);
            let mut matching = Vec::new();
            for folder in &found {
                matching.extend(matching_in(files, folder, &pattern)?);
            }
            matching.sort();
            found = matching;
        } else {
            for path in &mut found {
                path.push(part);
            }
        }
    }

    Ok(found)
}

fn matching_in(files: &Files, folder: &Path, pattern: &NamePattern) -> io::Result<Vec<PathBuf>> {
    // The name of the current folder is empty.
    let named = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let entries = match fs::read_dir(files.on_disk(named)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };

    let mut found = Vec::new();
    for entry in entries {
        let path = folder.join(entry?.file_name());
        if pattern.fits(&path) {
            found.push(path);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn no_path_leads_out_of_the_root() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join("etc/nginx")).unwrap();
        symlink("/etc/other", root.join("etc/nginx/absolute")).unwrap();
        symlink("../../../../x", root.join("etc/nginx/relative")).unwrap();
        symlink("loop", root.join("etc/nginx/loop")).unwrap();
        let files = Files { folder: root.join("etc/nginx"), root: Some(root.to_path_buf()) };
        for (name, expected) in [
            ("a.conf", "etc/nginx/a.conf"),
            ("/etc/nginx/a.conf", "etc/nginx/a.conf"),
            ("/etc/nginx/absolute/a", "etc/other/a"),
            ("relative/a", "x/a"),
            ("/../../y", "y"),
        ] {
            assert_eq!(files.here(name), root.join(expected), "{name}");
        }
        assert!(files.here("loop").starts_with(root));
        assert_eq!(files.named("a.conf"), "/etc/nginx/a.conf");
        assert_eq!(files.named("/b.conf"), "/b.conf");
        let plain = Files { folder: "/etc/nginx".into(), root: None };
        assert_eq!(plain.here("/b.conf"), Path::new("/b.conf"));
        assert_eq!(plain.named("a.conf"), "/etc/nginx/a.conf");
    }
}
