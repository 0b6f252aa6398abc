//! Replacing the file in force, at once and as a whole.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    path::{Path, PathBuf},
    process,
};

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
