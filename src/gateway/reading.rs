//! Reading a changed configuration.

use super::error::{StartError, chain};
use crate::{
    certs,
    config::{self, Diagnostic, Diagnostics, Plan, Watched, watch},
};
use std::{collections::HashMap, path::PathBuf};
use tokio::task::{JoinError, JoinHandle};

/// Why a configuration was not applied.
pub(super) struct RejectedEdit {
    pub(super) line: String,
    pub(super) drawing: String,
    /// For the dashboard.
    pub(super) problems: Vec<Diagnostic>,
    /// True if the cause may disappear without an edit.
    pub(super) is_outside: bool,
}

impl RejectedEdit {
    /// Rejects a configuration for a cause outside its files.
    pub(super) fn outside(error: StartError) -> Self {
        let rejected = match error {
            StartError::Config(problem) | StartError::Open(problem) => Self::from(problem),
            StartError::System { .. } | StartError::Upgrade(_) => Self {
                line: error.to_string(),
                drawing: format!("error: {}", chain(&error)),
                problems: vec![Diagnostic::about(error.to_string())],
                is_outside: true,
            },
        };
        Self { is_outside: true, ..rejected }
    }
}

impl From<Diagnostics> for RejectedEdit {
    fn from(problems: Diagnostics) -> Self {
        let line = problems.summary();
        let drawing = problems.to_string();
        let problems = problems.list().collect();
        Self { line, drawing, problems, is_outside: false }
    }
}

/// Why the files are checked, in ascending priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    /// A timer.
    Poll,
    /// A file event.
    Event,
    /// A signal, or a client of the admin listener.
    Requested,
}

/// The result of a check of the files.
pub(super) struct FileCheck {
    pub(super) cause: Cause,
    /// True if they differ from what was last read or is being read.
    pub(super) changed: bool,
    pub(super) seen: FileStates,
}

/// A reading in progress.
pub(super) struct Contents {
    pub(super) seen: FileStates,
    /// True if it was requested.
    pub(super) requested: bool,
}

pub(super) struct Reading {
    pub(super) changed: bool,
    pub(super) seen: FileStates,
    pub(super) plan: Result<Plan, RejectedEdit>,
}

/// Reads the configuration with `parse`, creates missing development certificates, and records in
/// `seen` which files belong to it.
pub(super) fn read(
    seen: &mut FileStates,
    parse: impl Fn() -> Result<Plan, Diagnostics>,
) -> Result<Plan, Diagnostics> {
    let read = parse();
    let (files, has_made) = match &read {
        Ok(plan) => (plan.files.clone(), false),
        Err(problems) => {
            let certificates = problems.certificate_files();
            (problems.files(), make_certificates(certificates))
        }
    };
    // Files named for the first time were not checked before the reading.
    let again = has_made || !seen.has_all(&files);
    *seen = if has_made { FileStates::look(&files) } else { seen.extend(&files) };
    if again { parse() } else { read }
}

impl Contents {
    /// Returns whether a file may be half written. A requested reading takes it as it is.
    pub(super) fn may_be_half(&self, guard: Option<&watch::Watcher>) -> bool {
        !self.requested && guard.is_some_and(watch::Watcher::is_being_written)
    }
}

/// The readings of the configuration in progress, with `S` describing their contents: one, and a second
/// if the files change meanwhile.
///
/// A hundred thousand routes take seconds to read, and the correction of a mistake must not wait for
/// that. The readings are applied in the order of their edits, so that continuous edits do not
/// prevent all from being applied.
#[derive(Debug)]
pub(super) struct Readings<S, T> {
    older: Option<(S, JoinHandle<T>)>,
    /// True if the newer reading has ended first, so that the older result is dropped.
    is_outdated: bool,
    newer: Option<(S, JoinHandle<T>)>,
}

impl<S, T> Default for Readings<S, T> {
    fn default() -> Self {
        Self { older: None, is_outdated: false, newer: None }
    }
}

impl<S, T> Readings<S, T> {
    /// Returns whether no further reading may begin.
    pub(super) fn are_full(&self) -> bool {
        self.older.is_some() && self.newer.is_some()
    }

    /// Returns the contents of the latest reading in progress.
    pub(super) fn latest(&mut self) -> Option<&mut S> {
        self.newer.as_mut().map(|(contents, _)| contents)
    }

    /// Adds a reading of `contents`. Check [`Self::are_full`] first.
    pub(super) fn begin(&mut self, contents: S, reading: JoinHandle<T>) {
        if let Some(newer) = self.newer.replace((contents, reading)) {
            self.older = Some(newer);
        }
    }

    /// Waits for a reading that is newer than all results before, and returns its contents and
    /// result.
    pub(super) async fn ended(&mut self) -> (S, Result<T, JoinError>) {
        loop {
            tokio::select! {
                biased;
                outcome = end(self.newer.as_mut().map(|(_, reading)| reading)) => {
                    self.is_outdated = self.older.is_some();
                    if let Some((contents, _)) = self.newer.take() {
                        return (contents, outcome);
                    }
                }
                outcome = end(self.older.as_mut().map(|(_, reading)| reading)) => {
                    let older = self.older.take();
                    let is_outdated = core::mem::take(&mut self.is_outdated);
                    if let Some((contents, _)) = older.filter(|_| !is_outdated) {
                        return (contents, outcome);
                    }
                }
            }
        }
    }
}

/// Waits for the end of `task`, forever if there is none.
pub(super) async fn end<T>(task: Option<&mut JoinHandle<T>>) -> Result<T, JoinError> {
    match task {
        Some(task) => task.await,
        None => core::future::pending().await,
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn readings_end_in_the_order_of_the_edits() {
        let mut readings = Readings::default();
        let first = begin(&mut readings, 1);
        let second = begin(&mut readings, 2);
        assert!(readings.are_full());
        assert_eq!(readings.latest(), Some(&mut 2));
        first.send("first").unwrap();
        assert_eq!(readings.ended().await.1.unwrap(), "first");
        assert!(!readings.are_full());
        assert_eq!(readings.latest(), Some(&mut 2));
        second.send("second").unwrap();
        assert_eq!(readings.ended().await.1.unwrap(), "second");
        assert_eq!(readings.latest(), None);
    }

    #[tokio::test]
    async fn what_was_edited_since_is_not_put_in_force_after_the_edit() {
        let mut readings = Readings::default();
        let first = begin(&mut readings, 1);
        let second = begin(&mut readings, 2);
        second.send("second").unwrap();
        assert_eq!(readings.ended().await.1.unwrap(), "second");
        let third = begin(&mut readings, 3);
        assert!(readings.are_full(), "the first is read still");
        first.send("first").unwrap();
        tokio::task::yield_now().await;
        assert!(readings.ended().now_or_never().is_none());
        assert!(!readings.are_full());
        let fourth = begin(&mut readings, 4);
        third.send("third").unwrap();
        assert_eq!(readings.ended().await.1.unwrap(), "third");
        fourth.send("fourth").unwrap();
        assert_eq!(readings.ended().await.1.unwrap(), "fourth");
        assert!(readings.ended().now_or_never().is_none());
    }

    fn begin(
        readings: &mut Readings<u8, &'static str>,
        contents: u8,
    ) -> oneshot::Sender<&'static str> {
        let (sender, receiver) = oneshot::channel();
        readings.begin(contents, tokio::spawn(async { receiver.await.unwrap() }));
        sender
    }
}
