//! The text of the file, as a browser gets it.

use crate::config::{self, Text};
use serde::Serialize;
use std::path::Path;

/// The file as it is on the disk.
#[derive(Debug, Serialize)]
pub(crate) struct Loaded {
    /// Its name.
    file: String,
    /// What a save names, so that it replaces this text and no other.
    pub hash: String,
    text: String,
    /// The files that it includes, which are not edited here.
    included: Vec<String>,
}

/// Why the text is not shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LoadError {
    #[error("cannot read the file: {0}")]
    Unreadable(#[from] std::io::Error),
    #[error("the file is not UTF-8")]
    NoText,
    /// The line of it.
    #[error(
        "line {0} of the file has a secret, so the file is not shown: write `${{NAME}}` in its place \
         and put the secret into the environment, or into a file if there is a key for one"
    )]
    Secret(usize),
}

impl Loaded {
    /// Reads the file at `path`.
    pub(crate) fn read(path: &Path) -> Result<Self, LoadError> {
        let bytes = config::read_bytes(path)?;
        let hash = shown(config::content_hash(&bytes));
        let text = String::from_utf8(bytes).map_err(|_| LoadError::NoText)?;
        if let Some(line) = config::line_of_secret(&text) {
            return Err(LoadError::Secret(line));
        }
        let read = Text::given(path, text.as_bytes());
        let names = |text: &Text| text.included().map(|path| path.display().to_string()).collect();
        let included = read.as_ref().map(names).unwrap_or_default();
        Ok(Self { file: path.display().to_string(), hash, text, included })
    }
}

/// Writes a hash as `If-Match` and `ETag` have it, without quotes.
fn shown(hash: u64) -> String {
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_file_with_a_secret_is_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        fs::write(&path, "# one\nstore: { redis: 'redis://:pass@host' }\n").unwrap();
        let error = Loaded::read(&path).unwrap_err().to_string();
        assert!(error.starts_with("line 2 of the file has a secret"), "{error}");
        assert!(!error.contains("pass@"));
        fs::write(&path, b"a: \xff").unwrap();
        assert!(matches!(Loaded::read(&path), Err(LoadError::NoText)));
    }

    #[test]
    fn the_text_is_the_files_and_what_it_includes_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.yaml");
        let text = "\u{feff}include: more.yaml # stays\r\n";
        fs::write(&path, text).unwrap();
        fs::write(folder.path().join("more.yaml"), "routes: []\n").unwrap();
        let loaded = Loaded::read(&path).unwrap();
        assert_eq!(loaded.text, text);
        assert_eq!(loaded.included, [folder.path().join("more.yaml").display().to_string()]);
        let parsed = u64::from_str_radix(&loaded.hash, 16).unwrap();
        assert_eq!(parsed, config::content_hash(text.as_bytes()));
    }
}
