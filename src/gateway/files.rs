//! The files of a configuration, and their changes.

use crate::{certs, config};
use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

/// Files with fingerprints of their contents.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileStates(Vec<(PathBuf, u64)>);

impl FileStates {
    pub(super) fn look(files: &[PathBuf]) -> Self {
        Self(files.iter().map(|file| (file.clone(), look_at(file))).collect())
    }

    /// Returns these files' known fingerprints, with new ones for files not known yet.
    pub(super) fn extend(&self, files: &[PathBuf]) -> Self {
        let known: HashMap<_, _> = self.0.iter().map(|(file, held)| (file, *held)).collect();
        let held = |file| known.get(file).copied().unwrap_or_else(|| look_at(file));
        Self(files.iter().map(|file| (file.clone(), held(file))).collect())
    }

    pub(super) fn files(&self) -> Vec<PathBuf> {
        self.0.iter().map(|(file, _)| file.clone()).collect()
    }

    pub(super) fn has_all(&self, files: &[PathBuf]) -> bool {
        files.iter().all(|file| self.0.iter().any(|(seen, _)| seen == file))
    }
}

/// Returns the file at `path`, and the certificates and keys that it names.
pub(super) fn named_files(path: &Path, certificates: &[(PathBuf, PathBuf)]) -> Vec<PathBuf> {
    let named = certificates.iter().flat_map(|(certificate, key)| [certificate, key]);
    std::iter::once(path).chain(named.map(PathBuf::as_path)).map(Path::to_owned).collect()
}

fn look_at(file: &PathBuf) -> u64 {
    config::fingerprint(std::slice::from_ref(file))
}

/// Creates development certificates for these pairs where needed, and returns whether it did.
pub(super) fn make_certificates(pairs: &[(PathBuf, PathBuf)]) -> bool {
    let mut made = false;
    for (certificate, key) in pairs {
        match certs::make_if_missing(certificate, key) {
            Ok(false) => {}
            Ok(true) => {
                made = true;
                tracing::info!(
                    certificate = %certificate.display(),
                    "created a development certificate for localhost, only for trying flowgate; see certs/README.md"
                );
            }
            Err(error) => {
                tracing::warn!(certificate = %certificate.display(), %error, "cannot create a development certificate");
            }
        }
    }
    made
}
