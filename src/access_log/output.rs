//! The output of the access log.

use crate::{
    config::AccessLog,
    lines::{Lost, write_out},
};
use rustix::{
    fs::{Access, OFlags, access},
    io::Errno,
};
use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// An open output.
#[derive(Debug)]
pub struct Output(Target);

#[derive(Debug)]
enum Target {
    Off,
    Stdout,
    File(File),
}

impl Output {
    /// Opens `target`.
    ///
    /// # Errors
    ///
    /// It cannot be opened, or is a pipe without a reader.
    pub fn open(target: &AccessLog) -> io::Result<Self> {
        Ok(Self(match target {
            AccessLog::Off => Target::Off,
            AccessLog::Stdout => Target::Stdout,
            AccessLog::File(path) => Target::File(open_file(path)?),
        }))
    }

    /// Checks whether `target` could be opened, without creating a file.
    ///
    /// # Errors
    ///
    /// Those of [`Self::open`] that are known without opening it.
    pub fn check(target: &AccessLog) -> io::Result<()> {
        let AccessLog::File(path) = target else { return Ok(()) };
        match fs::metadata(path) {
            Ok(known) if known.is_dir() => Err(Errno::ISDIR.into()),
            Ok(_) => Ok(access(path, Access::WRITE_OK)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
                let folder = folder.unwrap_or_else(|| Path::new("."));
                Ok(access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
            }
            Err(error) => Err(error),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        !matches!(self.0, Target::Off)
    }

    /// Writes `lines`, and blocks until the reader takes them.
    pub(super) fn write(&self, lines: &[u8]) -> Result<(), Lost> {
        match &self.0 {
            Target::Off => Ok(()),
            Target::Stdout => write_out(io::stdout(), lines),
            Target::File(file) => write_out(file, lines),
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    let explained = |error: io::Error| match Errno::from_io_error(&error) {
        Some(Errno::NXIO) => {
            io::Error::new(error.kind(), format!("{error} (a pipe without a reader, or a socket)"))
        }
        _ => error,
    };
    // Otherwise opening a pipe waits for its reader.
    let at_once = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().append(true).create(true).custom_flags(at_once).open(path);
    file.map_err(explained)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_finds_what_opening_finds_and_makes_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("access.log");
        let within = |name: &str| AccessLog::File(directory.path().join(name));
        for bad in [".", "no/such/directory", "access.log/below"] {
            fs::write(&path, "").unwrap();
            let target = within(bad);
            let look = Output::check(&target);
            let open = Output::open(&target).map(drop);
            let kind = |result: io::Result<()>| result.map_err(|error| error.kind());
            assert_eq!(kind(look), kind(open), "{bad}");
            assert!(Output::check(&target).is_err(), "{bad}");
        }
        Output::check(&within("access.log")).unwrap();
        Output::check(&within("another.log")).unwrap();
        assert!(!directory.path().join("another.log").exists());
    }
}
