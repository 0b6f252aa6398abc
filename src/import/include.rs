//! Which files `include` names.

use super::files::Files;
use crate::config::NamePattern;
use std::{
    fs, io,
    path::{Path, PathBuf},
};

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
