//! The program of this process, to be started anew.

use std::{
    env,
    ffi::OsString,
    fmt, io,
    os::unix::process::CommandExt,
    path::{self, Path, PathBuf},
    process::Command,
};

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    path: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// Returns this process's own, by the path that it was started by: a link on the way may point
    /// elsewhere later. To be called at the start, because the file may be replaced then.
    pub(crate) fn own() -> io::Result<Self> {
        let mut arguments = env::args_os();
        let file = env::current_exe()?;
        let name = arguments.next().unwrap_or_else(|| file.clone().into());
        let path = started_by(Path::new(&name), &file).unwrap_or(file);
        Ok(Self { path, name, arguments: arguments.collect() })
    }

    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.path);
        command.arg0(&self.name).args(&self.arguments);
        command
    }
}

/// Returns the absolute path by which `file` is found as `name`, by a shell's rules.
fn started_by(name: &Path, file: &Path) -> Option<PathBuf> {
    let is_it = |path: &PathBuf| path.canonicalize().is_ok_and(|found| found == file);
    if name.components().count() > 1 {
        return path::absolute(name).ok().filter(is_it);
    }
    let folders = env::var_os("PATH")?;
    let mut found =
        env::split_paths(&folders).filter_map(|folder| path::absolute(folder.join(name)).ok());
    found.find(is_it)
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_to_the_program_is_kept_as_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let file = folder.join("v1");
        std::fs::write(&file, "").unwrap();
        let link = folder.join("current");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert_eq!(started_by(&link, &file), Some(link));
        assert_eq!(started_by(&folder.join("other"), &file), None);
        assert_eq!(started_by(Path::new("no-such-program"), &file), None);
    }
}
