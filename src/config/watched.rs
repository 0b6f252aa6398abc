//! The things to watch for changes of a configuration: files, and names in folders.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A file, or names of files, whose change is a change of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Watched {
    /// A file, which need not exist.
    File(PathBuf),
    /// A file that may be large: it counts as changed if it is another one, or has another length or time.
    LargeFile(PathBuf),
    /// The files of a folder that fit a pattern.
    Names(PathBuf, NamePattern),
}

/// A pattern for names: `*` stands for any characters and `?` for one. A name that begins with a
/// dot fits none: editors and Kubernetes keep their own files under such names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamePattern(Arc<str>);

impl NamePattern {
    /// Returns the pattern that `text` is.
    pub fn new(text: &str) -> Self {
        Self(text.into())
    }

    /// Reports whether `text` has one of a pattern's characters.
    pub fn is_in(text: &str) -> bool {
        text.contains(['*', '?'])
    }

    /// Returns the pattern for `.yml` where this one is for `.yaml`.
    pub fn with_other_ending(&self) -> Option<Self> {
        self.0.strip_suffix(".yaml").map(|stem| Self::new(&format!("{stem}.yml")))
    }

    /// Returns the pattern as a path.
    pub fn path_in(&self, folder: &Path) -> PathBuf {
        folder.join(&*self.0)
    }

    /// Reports whether the last part of `path` fits.
    pub fn fits(&self, path: &Path) -> bool {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| !name.starts_with('.') && fits(self.0.as_bytes(), name.as_bytes()))
    }

    /// Returns the files of `folder` whose names fit, in the order of their names.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn files(&self, folder: &Path) -> io::Result<Vec<PathBuf>> {
        // The name of the current folder is empty.
        let named = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let mut files = Vec::new();
        for entry in fs::read_dir(named)? {
            let path = folder.join(entry?.file_name());
            if self.fits(&path) && !path.is_dir() {
                files.push(path);
            }
        }
        files.sort();
        Ok(files)
    }
}

impl Watched {
    /// Returns files that may be large.
    pub fn large_files(paths: impl IntoIterator<Item = PathBuf>) -> Vec<Self> {
        paths.into_iter().map(Self::LargeFile).collect()
    }

    /// Returns the files.
    pub fn files(paths: impl IntoIterator<Item = PathBuf>) -> Vec<Self> {
        paths.into_iter().map(Self::File).collect()
    }
}

/// Compares byte by byte, and goes back to the last `*` where that fails.
fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let mut at = 0;
    let mut here = 0;
    let mut star: Option<(usize, usize)> = None;
    while here < name.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at + 1, here));
                at += 1;
            }
            (Some(byte), _) if *byte == b'?' || *byte == name[here] => {
                at += 1;
                here += 1;
            }
            (_, Some((after, matched))) => {
                star = Some((after, matched + 1));
                at = after;
                here = matched + 1;
            }
            (_, None) => return false,
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_as_in_a_shell() {
        for (pattern, fitting, others) in [
            ("*.yaml", &["a.yaml", "a.b.yaml"][..], &[".yaml", ".a.yaml", "a.yml", "a.yaml~"][..]),
            ("a*b*c", &["abc", "aXbbXbc", "abcbc"], &["ab", "abcX", "Xabc"]),
            ("0?-*", &["01-", "0x-a"], &["0-a", "001-a"]),
            ("site.yaml", &["site.yaml"], &["site.yaml.bak"]),
        ] {
            let pattern = NamePattern::new(pattern);
            let fits = |name: &&str| pattern.fits(&Path::new("conf.d").join(name));
            assert!(fitting.iter().all(fits), "{pattern:?}");
            assert!(!others.iter().any(fits), "{pattern:?}");
        }
    }
}
