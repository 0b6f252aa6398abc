//! The readings of the configuration in progress: one, and a second if the files change meanwhile.
//!
//! A hundred thousand routes take seconds to read, and the correction of a mistake must not wait
//! for that. There are at most two readings, applied in the order of their edits, so that
//! continuous edits do not prevent all from being applied.

use tokio::task::{JoinError, JoinHandle};

/// At most two readings, with `S` describing their contents.
#[derive(Debug)]
pub(super) struct Readings<S, T> {
    older: Option<(S, JoinHandle<T>)>,
    /// Whether the newer reading has ended first, so that the older result is dropped.
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
