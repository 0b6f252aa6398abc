//! The readings of the configuration that are under way: one, and a second if the files
//! change while the first is read.
//!
//! A hundred thousand routes take seconds to read. Who has put in force, or tries to, what
//! was not meant, and puts it right, must not wait for that. There are two at most, however
//! many edits there are, and those that come to an end are put in force in the order of the
//! edits, so that edits without an end do not keep all from being in force.

use tokio::task::{JoinError, JoinHandle};

/// At most two readings, each of what `S` distinguishes from other contents.
#[derive(Debug)]
pub(super) struct Readings<S, T> {
    older: Option<(S, JoinHandle<T>)>,
    /// Whether the newer one has ended before the older one, whose outcome is not needed.
    is_outdated: bool,
    newer: Option<(S, JoinHandle<T>)>,
}

impl<S, T> Default for Readings<S, T> {
    fn default() -> Self {
        Self { older: None, is_outdated: false, newer: None }
    }
}

impl<S, T> Readings<S, T> {
    /// Whether no other may begin.
    pub(super) fn are_full(&self) -> bool {
        self.older.is_some() && self.newer.is_some()
    }

    /// Returns what is read by the one that was begun last, if it is under way.
    pub(super) fn latest(&mut self) -> Option<&mut S> {
        self.newer.as_mut().map(|(contents, _)| contents)
    }

    /// Adds one that has begun to read `contents`. To be asked before: [`Self::are_full`].
    pub(super) fn begin(&mut self, contents: S, reading: JoinHandle<T>) {
        if let Some(newer) = self.newer.replace((contents, reading)) {
            self.older = Some(newer);
        }
    }

    /// Waits for one whose outcome is newer than all outcomes before, and returns what it has read
    /// with what came of it.
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

/// Waits for the end of `task`, for ever if there is none.
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
        let (first, second) = (begin(&mut readings, 1), begin(&mut readings, 2));
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
        let (first, second) = (begin(&mut readings, 1), begin(&mut readings, 2));
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
