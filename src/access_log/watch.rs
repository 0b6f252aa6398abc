//! The lines of requests as they end, for clients that watch them.
//!
//! Each watcher has a queue of bounded size, into which workers copy their lines. A worker never
//! waits: a line that finds no room is counted.

use super::writer::Shared;
use arc_swap::ArcSwap;
use serde::{Deserialize, Serialize};
use std::sync::{
    Arc,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
    mpsc::{Receiver, SyncSender, sync_channel},
};

/// Begins watches, also if the log has no output.
#[derive(Clone, Debug)]
pub struct Watching(pub(super) Arc<Shared>);

/// The lines of all requests that end from now on. Dropping the watch ends it.
///
/// Up to 4 MiB and 16,384 lines wait to be taken; lines beyond are counted as lost. Lines of one
/// worker stay in order.
#[derive(Debug)]
pub struct Watch {
    /// `None` once no more lines are to come.
    shared: Option<Arc<Shared>>,
    queue: Arc<Queue>,
    lines: Receiver<Line>,
    taken: u64,
}

/// The state of a stream of lines, as a line of its own among them: `{"stream":{"requests":5,…}}`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamLine {
    /// The state.
    pub stream: StreamState,
}

/// The state in a [`StreamLine`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StreamState {
    /// The number of lines that were sent.
    pub requests: u64,
    /// The number of lines that were not, as the client read too slowly.
    pub lost: u64,
    /// Its duration so far.
    pub seconds: f64,
    /// The reason of its end, in the last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<StreamEnd>,
}

/// The reason why a stream of lines ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamEnd {
    /// Its time is over.
    Time,
    /// The gateway ends, or another process serves in its place.
    Shutdown,
    /// An edit has taken `admin.show_keys` back.
    ShowKeys,
}

impl Watching {
    /// The most watches at once.
    pub const MOST: usize = MOST_WATCHERS;

    /// Begins a watch; `None` if there are [`MOST`](Self::MOST).
    pub fn begin(&self) -> Option<Watch> {
        let (queue, lines) = self.0.watchers.add()?;
        Some(Watch { shared: Some(Arc::clone(&self.0)), queue, lines, taken: 0 })
    }
}

impl Watch {
    /// Appends waiting lines to `text` until it has at least `most` bytes. Returns whether lines may
    /// be left.
    pub fn take(&mut self, text: &mut Vec<u8>, most: usize) -> bool {
        while text.len() < most {
            let Ok(line) = self.lines.try_recv() else { return false };
            self.queue.taken(&line);
            text.extend_from_slice(&line);
            self.taken += 1;
        }
        true
    }

    /// Ends the watch. Lines that wait can still be taken.
    pub fn stop(&mut self) {
        if let Some(shared) = self.shared.take() {
            shared.watchers.remove(&self.queue);
        }
    }

    /// Returns the number of lines that were taken.
    pub const fn taken(&self) -> u64 {
        self.taken
    }

    /// Returns the number of lines that were lost.
    pub fn lost(&self) -> u64 {
        self.queue.lost()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The most watchers.
const MOST_WATCHERS: usize = 4;

/// Lines that wait for one watcher.
const LINES: usize = 16 * 1024;

/// Bytes of lines that wait for one watcher.
const BYTES: usize = 4 * 1024 * 1024;

/// Bit 0 of `wanted`: lines are written to the output.
const WRITTEN: usize = 1;

/// Each watcher adds this to `wanted`.
const WATCHER: usize = 2;

/// The output and the watchers, as far as they want lines.
#[derive(Debug, Default)]
pub(super) struct Watchers {
    /// The only field that a request reads if nothing is wanted.
    wanted: AtomicUsize,
    queues: ArcSwap<Vec<Arc<Queue>>>,
}

/// A line, which all queues share.
type Line = Arc<[u8]>;

/// The lines that wait for one watcher.
#[derive(Debug)]
struct Queue {
    sender: SyncSender<Line>,
    bytes: AtomicUsize,
    lost: AtomicU64,
}

impl Watchers {
    pub(super) fn new(is_written: bool) -> Self {
        let watchers = Self::default();
        watchers.set_written(is_written);
        watchers
    }

    pub(super) fn set_written(&self, is_written: bool) {
        if is_written {
            self.wanted.fetch_or(WRITTEN, Relaxed);
        } else {
            self.wanted.fetch_and(!WRITTEN, Relaxed);
        }
    }

    /// Returns whether an output or a watcher wants lines.
    pub(super) fn want_lines(&self) -> bool {
        self.wanted.load(Relaxed) > 0
    }

    pub(super) fn is_written(&self) -> bool {
        self.wanted.load(Relaxed) & WRITTEN > 0
    }

    pub(super) fn is_watched(&self) -> bool {
        self.wanted.load(Relaxed) >= WATCHER
    }

    /// Adds a queue; `None` if there are [`MOST_WATCHERS`].
    fn add(&self) -> Option<(Arc<Queue>, Receiver<Line>)> {
        let joined = |wanted: usize| (wanted / WATCHER < MOST_WATCHERS).then_some(wanted + WATCHER);
        self.wanted.fetch_update(AcqRel, Acquire, joined).ok()?;
        let (sender, lines) = sync_channel(LINES);
        let queue = Arc::new(Queue { sender, bytes: AtomicUsize::new(0), lost: AtomicU64::new(0) });
        self.queues.rcu(|queues| [&queues[..], &[Arc::clone(&queue)]].concat());
        Some((queue, lines))
    }

    /// Removes a queue that was added.
    fn remove(&self, queue: &Arc<Queue>) {
        let is_other = |other: &&Arc<Queue>| !Arc::ptr_eq(other, queue);
        self.queues.rcu(|queues| queues.iter().filter(is_other).cloned().collect::<Vec<_>>());
        self.wanted.fetch_sub(WATCHER, AcqRel);
    }

    /// Puts a line into every queue.
    pub(super) fn send(&self, line: &[u8]) {
        let line = Line::from(line);
        for queue in self.queues.load().iter() {
            queue.push(&line);
        }
    }
}

impl Queue {
    fn push(&self, line: &Line) {
        let length = line.len();
        let has_room = self.bytes.fetch_add(length, Relaxed) + length <= BYTES;
        if !has_room || self.sender.try_send(Arc::clone(line)).is_err() {
            self.bytes.fetch_sub(length, Relaxed);
            self.lost.fetch_add(1, Relaxed);
        }
    }

    /// Notes that a line was taken out.
    fn taken(&self, line: &[u8]) {
        self.bytes.fetch_sub(line.len(), Relaxed);
    }

    /// Returns the number of lines that found no room.
    fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{iter, thread};

    #[test]
    fn nothing_is_wanted_until_something_is_written_or_watched() {
        let watchers = Watchers::new(false);
        assert!(!watchers.want_lines());
        let (queue, _lines) = watchers.add().unwrap();
        assert!(watchers.want_lines() && watchers.is_watched() && !watchers.is_written());
        watchers.set_written(true);
        watchers.remove(&queue);
        assert!(watchers.want_lines() && !watchers.is_watched() && watchers.is_written());
        watchers.set_written(false);
        assert!(!watchers.want_lines());
    }

    #[test]
    fn watchers_are_few_and_one_that_leaves_makes_room() {
        let watchers = Watchers::default();
        let mut all: Vec<_> = iter::from_fn(|| watchers.add()).take(100).collect();
        assert_eq!(all.len(), MOST_WATCHERS);
        watchers.remove(&all.pop().unwrap().0);
        assert!(watchers.add().is_some() && watchers.add().is_none());
    }

    #[test]
    fn a_queue_holds_so_many_bytes_and_lines_and_counts_the_others() {
        for length in [1, 100, BYTES / 3, BYTES, BYTES + 1] {
            let watchers = Watchers::default();
            let (queue, lines) = watchers.add().unwrap();
            let line = vec![b'x'; length];
            let sent = (BYTES / length + 10).min(2 * LINES);
            (0..sent).for_each(|_| watchers.send(&line));
            let fits = (BYTES / length).min(LINES);
            assert_eq!(queue.lost(), (sent - fits) as u64, "{length}");
            let taken = lines.try_iter().inspect(|line| queue.taken(line)).count();
            assert_eq!(taken, fits, "{length}");
            // There is room again.
            watchers.send(b"y");
            assert_eq!(lines.try_iter().count(), 1);
        }
    }

    #[test]
    fn every_line_of_every_thread_is_in_each_queue_or_counted() {
        let watchers = Watchers::default();
        let (slow, unread) = watchers.add().unwrap();
        let (fast, read) = watchers.add().unwrap();
        let mut taken = 0;
        thread::scope(|scope| {
            let send = |_| watchers.send(b"0123456789");
            let threads: Vec<_> =
                (0..2).map(|_| scope.spawn(move || (0..20_000).for_each(send))).collect();
            while !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                taken += read.try_iter().inspect(|line| fast.taken(line)).count() as u64;
            }
        });
        taken += read.try_iter().count() as u64;
        assert_eq!(taken + fast.lost(), 40_000);
        assert_eq!(unread.try_iter().count(), LINES);
        assert_eq!(slow.lost(), 40_000 - LINES as u64);
    }
}
