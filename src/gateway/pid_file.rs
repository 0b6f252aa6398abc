//! A file with the id of the process that serves.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

/// The file, or nothing if none is wanted.
#[derive(Debug)]
pub(super) struct PidFile(Option<PathBuf>);

impl PidFile {
    pub(super) fn new(path: Option<&Path>) -> Self {
        Self(path.map(Path::to_owned))
    }

    /// Writes this process's id, in place of another's. Readers see one or the other.
    pub(super) fn write(&self) -> io::Result<()> {
        let Some(path) = &self.0 else { return Ok(()) };
        let mut aside = path.clone().into_os_string();
        aside.push(format!(".{}", process::id()));
        fs::write(&aside, own())?;
        fs::rename(&aside, path)
    }

    /// Removes the file if it still has this process's id.
    pub(super) fn remove(&self) {
        let Some(path) = &self.0 else { return };
        if fs::read_to_string(path).is_ok_and(|text| text == own())
            && let Err(error) = fs::remove_file(path)
        {
            tracing::warn!(%error, path = %path.display(), "cannot remove the pid file");
        }
    }
}

fn own() -> String {
    format!("{}\n", process::id())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_process_that_it_names_removes_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("flowgate.pid");
        let file = PidFile::new(Some(&path));
        fs::write(&path, "1\n").unwrap();
        file.remove();
        assert!(path.exists(), "it is another's");
        file.write().unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), own());
        file.remove();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        PidFile::new(None).write().unwrap();
    }
}
