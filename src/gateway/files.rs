//! The files of a configuration, and their changes.

use crate::{
    certs,
    config::{self, Watched},
};
use std::{collections::HashMap, path::PathBuf};

/// Files with fingerprints of their contents.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileStates(Vec<(Watched, u64)>);

impl FileStates {
    pub(super) fn look(files: &[Watched]) -> Self {
        Self(files.iter().map(|file| (file.clone(), config::fingerprint(file))).collect())
    }

    /// Returns these files' known fingerprints, with new ones for files not known yet.
    pub(super) fn extend(&self, files: &[Watched]) -> Self {
        let known: HashMap<_, _> = self.0.iter().map(|(file, held)| (file, *held)).collect();
        let held = |file| known.get(file).copied().unwrap_or_else(|| config::fingerprint(file));
        Self(files.iter().map(|file| (file.clone(), held(file))).collect())
    }

    pub(super) fn files(&self) -> Vec<Watched> {
        self.0.iter().map(|(file, _)| file.clone()).collect()
    }

    pub(super) fn has_all(&self, files: &[Watched]) -> bool {
        files.iter().all(|file| self.0.iter().any(|(seen, _)| seen == file))
    }
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
