//! The demo's folder, with a copy of its configuration to edit.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

/// The folder, relative to where the demo starts.
pub const FOLDER: &str = "flowgate-demo";

/// The demo's configuration.
const GATEWAY: &str = include_str!("../../gateway.yaml");

/// A copy of the demo's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The file.
    pub path: PathBuf,
    /// Whether it was written now; an existing file stays unchanged.
    pub is_new: bool,
}

/// Writes the demo's configuration into `folder`, with its schema for editors.
///
/// # Errors
///
/// A file that cannot be written.
pub fn prepare(folder: &Path, schema: &str) -> io::Result<Copy> {
    let path = folder.join("gateway.yaml");
    let is_new = !path.exists();
    if is_new {
        fs::create_dir_all(folder)?;
        fs::write(folder.join("gateway.schema.json"), schema)?;
        fs::write(&path, GATEWAY)?;
    }
    Ok(Copy { path, is_new })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_written_once_and_then_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join(FOLDER);
        let path = folder.join("gateway.yaml");
        let copy = prepare(&folder, "{}").unwrap();
        assert_eq!(copy, Copy { path: path.clone(), is_new: true });
        assert_eq!(fs::read_to_string(&path).unwrap(), GATEWAY);
        assert_eq!(fs::read_to_string(folder.join("gateway.schema.json")).unwrap(), "{}");
        fs::write(&path, "mine").unwrap();
        assert_eq!(prepare(&folder, "{}").unwrap(), Copy { path: path.clone(), is_new: false });
        assert_eq!(fs::read_to_string(&path).unwrap(), "mine");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_an_error() {
        let parent = tempfile::tempdir().unwrap();
        let file = parent.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(prepare(&file, "{}").is_err());
    }
}
